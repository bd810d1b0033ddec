//! Where the code comes from: --code, a file, a project or an archive of one, the project of a module, or standard input.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use sandbox_base::{printable, reason};
use sandbox_executor::{InputFile, Source};
use sandbox_images::ArchiveFormat;
use sandbox_runtimes::{Definition, Registry, interpreter};

use crate::args::CodeOptions;
use crate::request::UsageError;
use crate::{archive, invocation, project};

/// The maximum number of bytes read of a source file; a larger one is refused anyway.
const MAX_READ: u64 = 16 << 20;

/// The interpreter in the first line of a script that this program runs.
const OWN_NAME: &str = "sandbox-run";

/// Code that was read, and where it came from.
pub(crate) struct CodeSource {
    pub(crate) source: Source,
    pub(crate) files: Vec<InputFile>,
    /// Whether it was standard input.
    pub(crate) from_stdin: bool,
    /// Whether the files are one project, whose language is to be found.
    is_project: bool,
}

impl CodeSource {
    /// Reads what the flags name.
    pub(crate) fn read(options: &CodeOptions, registry: &Registry) -> Result<Self, UsageError> {
        let code = |text: String, from_stdin| {
            let source = Source::Code(without_own_shebang(text).into());
            Ok(Self { source, files: vec![], from_stdin, is_project: false })
        };
        let files = |files, is_project| Ok(Self { source: Source::Files, files, from_stdin: false, is_project });
        match (&options.code, options.file.as_slice()) {
            (Some(_), [_, ..]) => Err("--code and --file cannot be combined".to_owned()),
            (Some(_), _) if options.module => Err("--code and --module cannot be combined".to_owned()),
            (Some(text), []) => code(as_text(text.clone().into_vec(), "--code")?, false),
            (None, []) if options.module => files(project::read_dir_or_nothing(registry, Path::new("."), "")?, true),
            (None, []) => code(read_standard_input(false)?, true),
            (None, [file]) if file == Path::new("-") => code(read_standard_input(true)?, true),
            (None, [dir]) if dir.is_dir() => files(project::read_dir(registry, dir, "")?, true),
            (None, [file]) => match ArchiveFormat::of(file) {
                Some(format) => files(archive::read(registry, file, format)?, true),
                None if options.module => files(read_several(registry, &options.file)?, false),
                None => code(read_code(options, file)?, false),
            },
            (None, several) => files(read_several(registry, several)?, false),
        }
    }

    /// The language of the code.
    pub(crate) fn language<'r>(
        &self,
        options: &CodeOptions,
        registry: &'r Registry,
    ) -> Result<&'r Definition, UsageError> {
        if let Some(lang) = &options.lang {
            return registry.by_name(lang).map_err(|error| error.to_string());
        }
        if options.module {
            let able = registry.all().find(|definition| definition.run.module.is_some());
            return able.ok_or_else(|| "no language runs modules by their names".to_owned());
        }
        let by_shebang = || match &self.source {
            Source::Code(text) => registry.by_shebang(text),
            _ => None,
        };
        match options.file.first() {
            Some(first) if !self.from_stdin => {
                let found = if self.is_project {
                    project::language(registry, &self.files)
                } else {
                    registry.by_file(first).or_else(by_shebang)
                };
                let shown = printable(&first.to_string_lossy());
                found.ok_or_else(|| format!("cannot determine the language of '{shown}'; set it with --lang"))
            }
            _ => by_shebang().ok_or_else(|| "no language; set it with --lang, such as --lang python".to_owned()),
        }
    }

    /// The file in which the program starts, if that is not for the language to decide.
    pub(crate) fn entry(&self, options: &CodeOptions, language: &Definition) -> Result<Option<String>, UsageError> {
        match (&options.entry, options.file.as_slice()) {
            (Some(entry), _) => Ok(Some(entry.clone())),
            (None, [file]) if matches!(self.source, Source::Code(_)) => Ok(own_name(language, file)),
            (None, [first, _, ..]) => project::name_of(first).map(Some),
            _ => Ok(None),
        }
    }
}

/// The name of a single file in the cell: the original one, if the compiler accepts it.
fn own_name(definition: &Definition, file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let fits = definition.is_source(name) || definition.compile.is_none();
    fits.then(|| name.to_owned())
}

/// Several files and directories of one program.
fn read_several(registry: &Registry, paths: &[PathBuf]) -> Result<Vec<InputFile>, UsageError> {
    let mut files = vec![];
    for path in paths {
        let name = project::name_of(path)?;
        if path.is_dir() {
            files.extend(project::read_dir(registry, path, &name)?);
        } else {
            files.push(project::read_one(path, &name)?);
        }
    }
    Ok(files)
}

/// The text of a single file.
fn read_code(options: &CodeOptions, file: &Path) -> Result<String, UsageError> {
    let shown = printable(&file.to_string_lossy());
    let refuse = |error: &std::io::Error| {
        let meant =
            if error.kind() == ErrorKind::NotFound && options.is_positional { invocation::meant(file) } else { None };
        let meant = meant.map(|meant| format!("; {meant}")).unwrap_or_default();
        format!("cannot read '{shown}': {}{meant}", reason(error))
    };
    let opened = File::open(file).map_err(|error| refuse(&error))?;
    let mut bytes = vec![];
    opened.take(MAX_READ).read_to_end(&mut bytes).map_err(|error| refuse(&error))?;
    if bytes.starts_with(b"\x7fELF") {
        return Err(format!("'{shown}' is an executable, not code; run it with sandbox-run exec {shown}"));
    }
    as_text(bytes, &format!("'{shown}'"))
}

/// Code on standard input. On a terminal it is read only if that was asked for.
fn read_standard_input(asked: bool) -> Result<String, UsageError> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() && !asked {
        return Err("no code; name a file, give it with --code or on standard input".to_owned());
    }
    let mut bytes = vec![];
    let read = stdin.take(MAX_READ).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot read standard input: {}", reason(&error)))?;
    as_text(bytes, "standard input")
}

fn as_text(bytes: Vec<u8>, what: &str) -> Result<String, UsageError> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("the code in {what} is not UTF-8 (byte {at}); save it as UTF-8")
    })
}

/// A script without a first line that names this program: many languages have no such comment, and Perl would start this
/// program. The lines keep their numbers.
fn without_own_shebang(text: String) -> String {
    if interpreter(&text) != Some(OWN_NAME) {
        return text;
    }
    text.find('\n').map(|end| text[end..].to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shebang_of_this_program_is_an_empty_line() {
        for (text, expected) in [
            ("#!/usr/bin/env sandbox-run\nprint 1\n", "\nprint 1\n"),
            ("#!/usr/bin/env -S sandbox-run --lang perl\r\n1", "\n1"),
            ("#!/usr/bin/env sandbox-run", ""),
            ("#!/usr/bin/env perl\n1", "#!/usr/bin/env perl\n1"),
            ("print(1)", "print(1)"),
        ] {
            assert_eq!(without_own_shebang(text.to_owned()), expected, "{text:?}");
        }
    }
}
