//! Converts flags to a request: everything is checked before anything is created.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sandbox_base::limits::Caps;
use sandbox_base::{LimitKind, RelativePath, reason};
use sandbox_cell::{Layer, Mount};
use sandbox_executor::{
    HostRule, Input, InputFile, Isolation, NetworkMode, NetworkRequest, Request, Settings, Source, VolumeRequest,
    own_command, parse_layers,
};
use sandbox_images::{Image, ImageStore};
use sandbox_runtimes::{Definition, Registry};

use crate::args::{CodeOptions, Format, IsolationMode, RunOptions};
use crate::{project, template};

/// The maximum number of bytes read of a source file; a larger one is refused anyway.
const MAX_READ: u64 = 16 << 20;

/// A request from flags.
pub(crate) struct PreparedRequest {
    pub(crate) request: Request,
    /// The language; `None` for a system program.
    pub(crate) language: Option<Definition>,
    pub(crate) input: Input,
}

/// A message for the user.
pub(crate) type UsageError = String;

/// The defined languages, including those in a directory of the user.
pub(crate) fn registry(runtimes: Option<&Path>) -> Result<Registry, UsageError> {
    let mut registry = Registry::shipped().map_err(|error| error.to_string())?;
    if let Some(dir) = runtimes {
        registry.add_directory(dir).map_err(|error| error.to_string())?;
    }
    Ok(registry)
}

/// Loads no more languages than the flags need.
fn registry_for(options: &CodeOptions) -> Result<Registry, UsageError> {
    let file = options.file.first().filter(|file| !file.is_dir());
    match Registry::just(options.lang.as_deref(), file.map(PathBuf::as_path)) {
        Some(one) if options.runtimes.is_none() => one.map_err(|error| error.to_string()),
        _ => registry(options.runtimes.as_deref()),
    }
}

/// A request to run code in a language.
pub(crate) fn code(
    options: &CodeOptions,
    args: Vec<OsString>,
    settings: &mut Settings,
) -> Result<PreparedRequest, UsageError> {
    for (text, limits) in
        [(&options.compile_timeout, &mut settings.compile), (&options.install_timeout, &mut settings.install)]
    {
        if let Some(text) = text {
            let kind = LimitKind::WallTime;
            let set = kind.parse(text).and_then(|value| limits.set(kind, value, &Caps::default()));
            set.map_err(|error| error.to_string())?;
        }
    }
    let registry = registry_for(options)?;
    let (source, files) = read_source(options, &registry)?;
    let definition = match (&options.lang, options.file.as_slice()) {
        (Some(lang), _) => registry.by_name(lang).map_err(|error| error.to_string())?,
        (None, []) => return Err("no language; set it with --lang, such as --lang python".to_owned()),
        (None, [first, ..]) => language_of(&registry, first, &source, &files)?,
    };
    let is_code = matches!(source, Source::Code(_));
    let mut request = request(&options.run, &registry, source, settings)?;
    let entry = match (&options.entry, options.file.as_slice()) {
        (Some(entry), _) => Some(entry.clone()),
        (None, [file]) if is_code => own_name(definition, file),
        (None, [first, _, ..]) => Some(project::name_of(first)?),
        _ => None,
    };
    request.entry =
        entry.map(|entry| RelativePath::normalized(&entry)).transpose().map_err(|error| error.to_string())?;
    request.files.splice(0..0, files);
    request.args = args;
    request.packages.clone_from(&options.package);
    request.interpreter_args.clone_from(&options.interpreter_arg);
    request.compiler_args.clone_from(&options.compiler_arg);
    request.standard.clone_from(&options.standard);
    request.restricted = options.restricted;
    request.template = template::read(options, definition)?;
    let input = open_input(&options.run, options.code.is_none() && options.file.is_empty())?;
    Ok(PreparedRequest { request, language: Some(definition.clone()), input })
}

/// The language of a file or a project.
fn language_of<'r>(
    registry: &'r Registry,
    first: &Path,
    source: &Source,
    files: &[InputFile],
) -> Result<&'r Definition, UsageError> {
    let found = match source {
        Source::Files if first.is_dir() => project::language(registry, files),
        _ => registry.by_file(first),
    };
    found.ok_or_else(|| format!("cannot determine the language of '{}'; set it with --lang", first.display()))
}

/// The name of a single file in the cell: the original one, if the compiler accepts it.
fn own_name(definition: &Definition, file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let fits = definition.is_source(name) || definition.compile.is_none();
    fits.then(|| name.to_owned())
}

/// The code, or the files of a project.
fn read_source(options: &CodeOptions, registry: &Registry) -> Result<(Source, Vec<InputFile>), UsageError> {
    match options.file.as_slice() {
        [] => Ok((Source::Code(read_code(options)?.into()), vec![])),
        _ if options.code.is_some() => Err("--code and --file cannot be combined".to_owned()),
        [file] if !file.is_dir() => {
            Ok((Source::Code(as_text(read_file(file)?, &format!("'{}'", file.display()))?.into()), vec![]))
        }
        [dir] => Ok((Source::Files, project::read_dir(registry, dir, "")?)),
        several => {
            let mut files = vec![];
            for path in several {
                let name = project::name_of(path)?;
                if path.is_dir() {
                    files.extend(project::read_dir(registry, path, &name)?);
                } else {
                    files.push(project::read_one(path, &name)?);
                }
            }
            Ok((Source::Files, files))
        }
    }
}

/// A request to run a system program or a file of the user.
pub(crate) fn program(
    options: &RunOptions,
    mut argv: Vec<OsString>,
    settings: &mut Settings,
) -> Result<PreparedRequest, UsageError> {
    let mut workdir = None;
    if let (Some(name), []) = (&options.image, argv.as_slice()) {
        let nothing = || format!("the image '{name}' has no default command; give one after --");
        let (own, dir) = own_command(&open_image(name, settings)?).ok_or_else(nothing)?;
        argv = own;
        workdir = dir;
    }
    let mount = match argv.first() {
        // In an image, every path is inside the image.
        _ if options.image.is_some() => None,
        Some(name) if name.as_bytes().contains(&b'/') && !belongs_to_system(Path::new(name)) => {
            let mount = show_program(Path::new(name))?;
            argv[0] = mount.target.clone().into_os_string();
            Some(mount)
        }
        _ => None,
    };
    let mut request = request(options, &Registry::default(), Source::Program { argv, mount }, settings)?;
    request.workdir = request.workdir.or(workdir);
    let input = open_input(options, false)?;
    Ok(PreparedRequest { request, language: None, input })
}

fn request(
    options: &RunOptions,
    registry: &Registry,
    source: Source,
    settings: &mut Settings,
) -> Result<Request, UsageError> {
    let mut limits = settings.defaults.clone();
    if let Some(isolation) = options.isolation {
        settings.isolation = match isolation {
            IsolationMode::Full => Isolation::Full,
            IsolationMode::Reduced => Isolation::Reduced,
        };
    }
    let mut required = settings.required();
    for (kind, text) in options.limits.given() {
        let value = kind.parse(text).map_err(|error| error.to_string())?;
        limits.set(kind, value, &settings.caps).map_err(|error| error.to_string())?;
        // Only a cgroup can limit CPU shares, so a request for one requires the layer.
        if kind == LimitKind::Cpus {
            required.insert(Layer::Cpu);
        }
    }
    if let Some(layers) = &options.require {
        required = required.union(parse_layers(layers)?);
    }
    let hosts = options.network.allow_host.iter().map(|host| HostRule::parse(host)).collect::<Result<Vec<_>, _>>();
    let hosts = hosts.map_err(|error| format!("--allow-host: {error}"))?;
    let usual = if hosts.is_empty() { NetworkMode::None } else { NetworkMode::Allowlist };
    let mode = options.network.network.map_or(usual, NetworkMode::from);
    let network = NetworkRequest { mode, hosts, dns: options.network.allow_dns.then_some(true) };
    let env = options.env.iter().map(|pair| variable(pair)).collect::<Result<_, _>>()?;
    settings.volume_paths.extend(options.allow_path.iter().cloned());
    let mut request = Request::new(source, limits, required);
    for input in &options.input {
        request.files.extend(project::read_input(registry, input)?);
    }
    request.image = options.image.as_deref().map(|name| open_image(name, settings)).transpose()?;
    request.env = env;
    request.network = network;
    request.workdir.clone_from(&options.workdir);
    request.volumes = options.volume.iter().map(|text| VolumeRequest::parse(text)).collect::<Result<_, _>>()?;
    request.collect = options.output_dir.is_some() || options.format() != Format::Text;
    request.report = options.format() != Format::Text;
    Ok(request)
}

/// Opens an image by its name.
fn open_image(name: &str, settings: &Settings) -> Result<Image, UsageError> {
    image_store(settings)?.open(name).map_err(|error| error.to_string())
}

/// The image store.
pub(crate) fn image_store(settings: &Settings) -> Result<ImageStore, UsageError> {
    let dir = settings.data_dir.as_deref().ok_or("no data directory; set SANDBOX_DATA_DIR")?;
    Ok(ImageStore::new(dir))
}

fn variable(pair: &OsStr) -> Result<(OsString, OsString), UsageError> {
    let bytes = pair.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=').filter(|at| *at > 0);
    let at = at.ok_or_else(|| format!("invalid environment variable '{}': expected NAME=VALUE", pair.display()))?;
    Ok((OsString::from_vec(bytes[..at].to_vec()), OsString::from_vec(bytes[at + 1..].to_vec())))
}

fn read_code(options: &CodeOptions) -> Result<String, UsageError> {
    match &options.code {
        Some(code) => as_text(code.clone().into_vec(), "--code"),
        None => as_text(read_standard_input()?, "standard input"),
    }
}

fn as_text(bytes: Vec<u8>, what: &str) -> Result<String, UsageError> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("the code in {what} is not UTF-8 (byte {at}); save it as UTF-8")
    })
}

fn read_file(file: &Path) -> Result<Vec<u8>, UsageError> {
    let refuse = |error: &std::io::Error| format!("cannot read '{}': {}", file.display(), reason(error));
    let opened = File::open(file).map_err(|error| refuse(&error))?;
    let mut bytes = vec![];
    opened.take(MAX_READ).read_to_end(&mut bytes).map_err(|error| refuse(&error))?;
    Ok(bytes)
}

fn read_standard_input() -> Result<Vec<u8>, UsageError> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err("no code; give it with --code, with --file or on standard input".to_owned());
    }
    let mut bytes = vec![];
    stdin
        .take(MAX_READ)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read standard input: {}", reason(&error)))?;
    Ok(bytes)
}

/// The standard input of the program.
fn open_input(options: &RunOptions, code_from_stdin: bool) -> Result<Input, UsageError> {
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

/// Mounts a file of the user in the cell, where the cell's user must be able to execute it.
fn show_program(path: &Path) -> Result<Mount, UsageError> {
    let refuse = |why: &str| format!("cannot run '{}': {why}", path.display());
    let source = path.canonicalize().map_err(|error| refuse(&reason(&error)))?;
    let meta = source.metadata().map_err(|error| refuse(&reason(&error)))?;
    if !meta.is_file() {
        return Err(refuse("it is not a file"));
    }
    if meta.permissions().mode() & 0o005 != 0o005 {
        return Err(refuse("the sandbox's user cannot read and execute it; allow it with chmod o+rx"));
    }
    let name = source.file_name().unwrap_or_default();
    let target = Path::new("/opt/program").join(name);
    Ok(Mount::read_only(source, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_without_a_name_are_refused() {
        assert_eq!(variable(OsStr::new("A=b=c")), Ok(("A".into(), "b=c".into())));
        assert_eq!(variable(OsStr::new("A=")), Ok(("A".into(), "".into())));
        assert!(variable(OsStr::new("=x")).is_err());
        assert!(variable(OsStr::new("x")).is_err());
    }

    #[test]
    fn system_files_are_used_in_place() {
        assert!(belongs_to_system(Path::new("/usr/bin/env")));
        assert!(belongs_to_system(Path::new("/bin/sh")));
        assert!(!belongs_to_system(Path::new("/usrlocal/x")));
        assert!(!belongs_to_system(Path::new("./x")));
    }
}
