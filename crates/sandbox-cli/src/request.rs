//! Converts flags to a request: everything is checked before anything is created.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sandbox_base::limits::{Caps, LimitError, Limits};
use sandbox_base::{LimitKind, RelativePath, printable, reason};
use sandbox_cell::{Layer, Mount};
use sandbox_executor::{
    Face, HostRule, Input, Isolation, NetworkMode, NetworkRequest, Request, Settings, Source, VolumeRequest,
    own_command, parse_layers,
};
use sandbox_images::{Image, ImageStore};
use sandbox_runtimes::{Definition, Registry};

use crate::args::{CodeOptions, Format, IsolationMode, RunOptions};
use crate::interactive::{self, Session};
use crate::source::CodeSource;
use crate::{packages, project, template};

/// A request from flags.
pub(crate) struct PreparedRequest {
    pub(crate) request: Request,
    /// The language; `None` for a system program.
    pub(crate) language: Option<Definition>,
    pub(crate) input: Input,
    /// What connects the program's terminal with this one, if it has one.
    pub(crate) session: Option<Session>,
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
    let file = options.file.first().filter(|file| !options.module && !file.is_dir());
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
    for (flag, text, limits) in [
        ("compile-timeout", &options.compile_timeout, &mut settings.compile),
        ("install-timeout", &options.install_timeout, &mut settings.install),
    ] {
        if let Some(text) = text {
            let kind = LimitKind::WallTime;
            let set = kind.parse(text).and_then(|value| limits.set(kind, value, &Caps::default()));
            set.map_err(|error| format!("--{flag}: {error}"))?;
        }
    }
    let registry = registry_for(options)?;
    let code = CodeSource::read(options, &registry)?;
    let definition = code.language(options, &registry)?;
    let entry = code.entry(options, definition)?;
    let mut request = request(&options.run, &registry, code.source, settings)?;
    request.entry =
        entry.map(|entry| RelativePath::normalized(&entry)).transpose().map_err(|error| error.to_string())?;
    request.module.clone_from(&options.module_name);
    request.files.splice(0..0, code.files);
    request.args = args;
    request.packages = packages::split(&options.package);
    request.interpreter_args.clone_from(&options.interpreter_arg);
    request.compiler_args.clone_from(&options.compiler_arg);
    request.standard.clone_from(&options.standard);
    request.restricted = options.restricted;
    request.template = template::read(options, definition)?;
    if options.run.terminal.tty && request.template.is_some() {
        return Err("--tty and --template cannot be combined: a template reads what the program prints".to_owned());
    }
    let (input, session) = open_input(&options.run, code.from_stdin)?;
    Ok(PreparedRequest { request, language: Some(definition.clone()), input, session })
}

/// A request to run a system program or a file of the user.
pub(crate) fn program(
    options: &RunOptions,
    mut argv: Vec<OsString>,
    settings: &mut Settings,
) -> Result<PreparedRequest, UsageError> {
    let mut workdir = None;
    if options.image.is_none() && argv.is_empty() {
        return Err("no program; name one, as in sandbox-run exec ls -la".to_owned());
    }
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
    let (input, session) = open_input(options, false)?;
    Ok(PreparedRequest { request, language: None, input, session })
}

/// The flag of a limit, by the older name if that was typed.
fn typed_flag(kind: LimitKind) -> &'static str {
    let info = kind.info();
    let is_typed = |flag: &&str| {
        let flag = format!("--{flag}");
        let is = |word: OsString| word.as_bytes().split(|byte| *byte == b'=').next() == Some(flag.as_bytes());
        std::env::args_os().any(is)
    };
    info.flag_alias.filter(is_typed).unwrap_or(info.flag)
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
        let set = kind.parse(text).and_then(|value| limits.set(kind, value, &settings.caps));
        set.map_err(|error| format!("--{}: {error}", typed_flag(kind)))?;
        // Only a cgroup can limit CPU shares, so a request for one requires the layer.
        if kind == LimitKind::Cpus {
            required.insert(Layer::Cpu);
        }
    }
    if interactive::is_person(options) {
        count_work_instead_of_waiting(options, &mut limits, &settings.caps).map_err(|error| error.to_string())?;
    }
    if let Some(layers) = &options.require {
        required = required.union(parse_layers(layers)?);
    }
    let hosts = options.network.allow_host.iter().map(|host| HostRule::parse(host)).collect::<Result<Vec<_>, _>>();
    let hosts = hosts.map_err(|error| format!("--allow-host: {error}"))?;
    let usual = if hosts.is_empty() { NetworkMode::None } else { NetworkMode::Allowlist };
    let mode = options.network.network.map_or(usual, NetworkMode::from);
    let network = NetworkRequest { mode, hosts, dns: options.network.allow_dns.then_some(true) };
    let mut env = options.env.iter().map(|pair| variable(pair)).collect::<Result<Vec<_>, _>>()?;
    if options.terminal.tty {
        // What the user sets comes later and wins.
        env.insert(0, ("TERM".into(), interactive::terminal_kind().into()));
    }
    settings.volume_paths.extend(options.allow_path.iter().cloned());
    let mut request = Request::new(source, limits, required);
    request.face = Face::Command;
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

/// Where a person types, time passes in which the program only waits. So unless the time is limited explicitly, what
/// would limit it limits CPU time instead, and the time itself only has the maximum.
fn count_work_instead_of_waiting(options: &RunOptions, limits: &mut Limits, caps: &Caps) -> Result<(), LimitError> {
    let is_given = |kind| options.limits.given().any(|(given, _)| given == kind);
    let (wall, cpu) = (LimitKind::WallTime, LimitKind::CpuTime);
    let Some(usual) = limits.get(wall).filter(|_| !is_given(wall)) else { return Ok(()) };
    limits.set(wall, caps.most(wall), caps)?;
    if limits.get(cpu).is_none() {
        limits.set(cpu, usual.min(caps.most(cpu)), caps)?;
    }
    Ok(())
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

/// `NAME=VALUE`, or the name of a variable of this process.
fn variable(pair: &OsStr) -> Result<(OsString, OsString), UsageError> {
    let bytes = pair.as_bytes();
    let shown = printable(&pair.to_string_lossy());
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) if at > 0 => {
            Ok((OsString::from_vec(bytes[..at].to_vec()), OsString::from_vec(bytes[at + 1..].to_vec())))
        }
        None if !bytes.is_empty() => match std::env::var_os(pair) {
            Some(value) => Ok((pair.to_owned(), value)),
            None => {
                Err(format!("environment variable '{shown}' is not set here; give it a value with --env {shown}=VALUE"))
            }
        },
        _ => Err(format!("invalid environment variable '{shown}': expected NAME=VALUE or NAME")),
    }
}

/// The standard input of the program.
fn open_input(options: &RunOptions, code_from_stdin: bool) -> Result<(Input, Option<Session>), UsageError> {
    let own = Path::new("-");
    let from = options.stdin.as_deref().or(options.terminal.interactive.then_some(own));
    if options.terminal.tty && !(code_from_stdin && options.terminal.interactive) {
        return interactive::open(options).map(|(input, session)| (input, Some(session)));
    }
    open_stream(from, code_from_stdin).map(|input| (input, None))
}

fn open_stream(from: Option<&Path>, code_from_stdin: bool) -> Result<Input, UsageError> {
    match from {
        None => Ok(Input::Empty),
        Some(path) if path == Path::new("-") => {
            if code_from_stdin {
                return Err("standard input cannot be both the code and the program's input; give the code with \
                            --code or as a file"
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
        assert!(variable(OsStr::new("no_such_variable")).is_err() && variable(OsStr::new("")).is_err());
        assert_eq!(variable(OsStr::new("PATH")).map(|(_, value)| Some(value)), Ok(std::env::var_os("PATH")));
    }

    #[test]
    fn system_files_are_used_in_place() {
        assert!(belongs_to_system(Path::new("/usr/bin/env")));
        assert!(belongs_to_system(Path::new("/bin/sh")));
        assert!(!belongs_to_system(Path::new("/usrlocal/x")));
        assert!(!belongs_to_system(Path::new("./x")));
    }
}
