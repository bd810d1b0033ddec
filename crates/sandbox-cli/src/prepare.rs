//! From flags to a request: everything is checked before anything is created.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sandbox_cell::{Layer, LimitKind, Mount, Network, reason};
use sandbox_executor::{Input, Request, Settings, Source, parse_layers};
use sandbox_runtimes::{Definition, Memory, Registry, Runtime};

use crate::args::{CodeOptions, NetworkMode, RunOptions};

/// The most that is read of a source file; beyond it the request is refused anyway.
const MAX_READ: u64 = 16 << 20;

/// A checked request.
pub(crate) struct Prepared {
    pub(crate) request: Request,
    /// The language, whose toolchain is still to be found.
    pub(crate) language: Option<Definition>,
    pub(crate) input: Input,
}

impl Prepared {
    /// Finds the toolchain, if the request needs one.
    pub(crate) fn find_runtime(&self, settings: &Settings) -> Result<Option<Runtime>, Complaint> {
        let Some(definition) = &self.language else { return Ok(None) };
        let path = std::env::var("PATH").unwrap_or_default();
        let mut memory = Memory::open(settings.data_dir.as_deref());
        definition.discover(&path, &mut memory).map(Some).map_err(|error| error.to_string())
    }
}

/// A message for the person who typed the command.
pub(crate) type Complaint = String;

/// Code in a language.
pub(crate) fn code(options: &CodeOptions, args: Vec<OsString>, settings: &Settings) -> Result<Prepared, Complaint> {
    let registry = Registry::shipped().map_err(|error| error.to_string())?;
    let definition = match (&options.lang, &options.file) {
        (Some(lang), _) => registry.by_name(lang).map_err(|error| error.to_string())?,
        (None, Some(file)) => registry.by_file(file).ok_or_else(|| {
            format!("cannot tell the language of '{}' from its name; give it with --lang", file.display())
        })?,
        (None, None) => return Err("give the language with --lang, such as --lang python".to_owned()),
    };
    let code = read_code(options)?;
    let mut request = request(&options.run, Source::Code(code), settings)?;
    request.args = args;
    let input = open_input(&options.run, options.code.is_none() && options.file.is_none())?;
    Ok(Prepared { request, language: Some(definition.clone()), input })
}

/// A program of the system or a file of the user's.
pub(crate) fn program(
    options: &RunOptions,
    mut argv: Vec<OsString>,
    settings: &Settings,
) -> Result<Prepared, Complaint> {
    let mount = match argv.first() {
        Some(name) if name.as_bytes().contains(&b'/') && !belongs_to_system(Path::new(name)) => {
            let mount = show_program(Path::new(name))?;
            argv[0] = mount.target.clone().into_os_string();
            Some(mount)
        }
        _ => None,
    };
    let request = request(options, Source::Program { argv, mount }, settings)?;
    let input = open_input(options, false)?;
    Ok(Prepared { request, language: None, input })
}

fn request(options: &RunOptions, source: Source, settings: &Settings) -> Result<Request, Complaint> {
    let mut limits = settings.defaults.clone();
    let mut required = settings.required;
    for (kind, text) in options.limits.given() {
        let value = kind.parse(text).map_err(|error| error.to_string())?;
        limits.set(kind, value, &settings.caps).map_err(|error| error.to_string())?;
        // Only a control group can give out shares of the CPU: who asks for one gets it or an error.
        if kind == LimitKind::Cpus {
            required.insert(Layer::Cpu);
        }
    }
    if let Some(layers) = &options.require {
        required = required.union(parse_layers(layers)?);
    }
    let network = match options.network {
        NetworkMode::None => Network::None,
        NetworkMode::Localhost => Network::Localhost,
    };
    let env = options.env.iter().map(|pair| variable(pair)).collect::<Result<_, _>>()?;
    Ok(Request { source, args: vec![], env, limits, network, required })
}

fn variable(pair: &OsStr) -> Result<(OsString, OsString), Complaint> {
    let bytes = pair.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=').filter(|at| *at > 0);
    let at = at.ok_or_else(|| format!("--env takes NAME=VALUE, not '{}'", pair.display()))?;
    Ok((OsString::from_vec(bytes[..at].to_vec()), OsString::from_vec(bytes[at + 1..].to_vec())))
}

fn read_code(options: &CodeOptions) -> Result<String, Complaint> {
    let (bytes, what) = match (&options.code, &options.file) {
        (Some(_), Some(_)) => return Err("give the code with --code or with --file, not both".to_owned()),
        (Some(code), None) => (code.clone().into_vec(), "--code".to_owned()),
        (None, Some(file)) => (read_file(file)?, format!("'{}'", file.display())),
        (None, None) => (read_standard_input()?, "standard input".to_owned()),
    };
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("the code in {what} is not UTF-8 (byte {at}); save it as UTF-8")
    })
}

fn read_file(file: &Path) -> Result<Vec<u8>, Complaint> {
    let refuse = |why: &str| format!("cannot read '{}': {why}", file.display());
    let opened = File::open(file).map_err(|error| refuse(&reason(&error)))?;
    if opened.metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(refuse("it is a directory"));
    }
    let mut bytes = vec![];
    opened.take(MAX_READ).read_to_end(&mut bytes).map_err(|error| refuse(&reason(&error)))?;
    Ok(bytes)
}

fn read_standard_input() -> Result<Vec<u8>, Complaint> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err("there is no code; give it with --code, with --file or on standard input".to_owned());
    }
    let mut bytes = vec![];
    stdin
        .take(MAX_READ)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read standard input: {}", reason(&error)))?;
    Ok(bytes)
}

/// What the program is to read.
fn open_input(options: &RunOptions, code_from_stdin: bool) -> Result<Input, Complaint> {
    match options.stdin.as_deref() {
        None => Ok(Input::Empty),
        Some(path) if path == Path::new("-") => {
            if code_from_stdin {
                return Err("standard input cannot be both the code and the program's input; give the code with \
                            --code or --file"
                    .to_owned());
            }
            let stdin: OwnedFd = rustix::io::dup(std::io::stdin()).map_err(|error| reason(&error.into()))?;
            Ok(Input::Stream(stdin))
        }
        Some(path) => {
            let file =
                File::open(path).map_err(|error| format!("cannot read '{}': {}", path.display(), reason(&error)))?;
            if file.metadata().is_ok_and(|meta| meta.is_dir()) {
                return Err(format!("cannot read '{}': it is a directory", path.display()));
            }
            Ok(Input::Stream(file.into()))
        }
    }
}

/// Whether a path leads to the same file inside a cell.
fn belongs_to_system(path: &Path) -> bool {
    ["/usr", "/bin", "/sbin", "/lib", "/lib64"].iter().any(|dir| path.starts_with(dir))
}

/// Shows a file of the user's in the cell, where its user must be able to execute it.
fn show_program(path: &Path) -> Result<Mount, Complaint> {
    let refuse = |why: &str| format!("cannot run '{}': {why}", path.display());
    let source = path.canonicalize().map_err(|error| refuse(&reason(&error)))?;
    let meta = source.metadata().map_err(|error| refuse(&reason(&error)))?;
    if !meta.is_file() {
        return Err(refuse("it is not a file"));
    }
    if meta.permissions().mode() & 0o005 != 0o005 {
        return Err(refuse("the sandbox's user may not read and execute it; chmod o+rx would allow that"));
    }
    let name = source.file_name().unwrap_or_default();
    Ok(Mount { target: Path::new("/opt/program").join(name), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_need_a_name() {
        assert_eq!(variable(OsStr::new("A=b=c")), Ok(("A".into(), "b=c".into())));
        assert_eq!(variable(OsStr::new("A=")), Ok(("A".into(), "".into())));
        assert!(variable(OsStr::new("=x")).is_err());
        assert!(variable(OsStr::new("x")).is_err());
    }

    #[test]
    fn files_of_the_system_are_used_in_place() {
        assert!(belongs_to_system(Path::new("/usr/bin/env")));
        assert!(belongs_to_system(Path::new("/bin/sh")));
        assert!(!belongs_to_system(Path::new("/usrlocal/x")));
        assert!(!belongs_to_system(Path::new("./x")));
    }
}
