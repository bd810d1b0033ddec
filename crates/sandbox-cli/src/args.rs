//! Flags: each is defined once, and parser, help, completions, man pages and reference come from that.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sandbox_base::LimitKind;
use sandbox_executor::NetworkMode;

const EXAMPLES: &str = "\
Examples:
  sandbox-run --lang python --code 'print(2+2)'
  sandbox-run --file script.py --timeout 10s --memory 512m -- arg1 arg2
  echo 'print(2+2)' | sandbox-run --lang python --json
  sandbox-run --file filter.py --stdin data.csv --quiet > out.csv
  sandbox-run --file project/ --output-dir results
  sandbox-run --lang python --package requests==2.31.0 --code 'import requests; requests.__version__'
  sandbox-run exec -- ls -la /
  sandbox-run image import python.tar --name python
  sandbox-run --image python --lang python --code 'print(2+2)'
  sandbox-run --image python -- /bin/ls -la /
  sandbox-run languages
  sandbox-run doctor
  sandbox-run attack

Exit code:
  the program's own, or
  124  its time was up
  137  it was killed by a limit
  130  it was interrupted (143 by SIGTERM, 129 by SIGHUP)
  125  the sandbox failed
  2    the request makes no sense
  A program that does not compile has its compiler's, packages that cannot be
  installed have their installer's.

Sizes are bytes, or 64k, 256m, 1g. Durations are seconds, or 500ms, 3s, 1m30s.
For every limit there is a variable that changes its default (SANDBOX_TIMEOUT,
SANDBOX_MEMORY, …) and one that caps it (SANDBOX_MAX_TIMEOUT, …).";

const ATTACK: &str = "\
Attack the sandbox with hostile programs, and see whether it holds on this host.

Each program runs like any other code, beside an innocent neighbour, in a world that was planted for it: secrets \
in files, environments, shared memory and keyrings, processes, sockets. Whether it was stopped is judged from \
outside: by what became of that world, by what the program's output gives away, by the verdict and the time of \
its end. Its own word counts only when it says that it got through.

Programs whose toolchain is missing are listed as not attempted. Nothing but what the suite has planted is \
touched, and all of that is removed afterwards. It takes about a minute; as an ordinary user it tests what an \
ordinary user gets.

What succeeds and cannot be helped, because the kernel offers no way to forbid it without breaking ordinary \
programs, is listed as a known limit.

Exit code: 0 if nothing was breached, 1 otherwise.";

/// Runs code nobody trusts in a single-use Linux sandbox, and says exactly what happened.
///
/// Without a command, runs code in a language: from --code, from --file, or from standard input.
#[derive(Debug, Parser)]
#[command(name = "sandbox-run", version, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) action: Option<Action>,

    #[command(flatten)]
    pub(crate) run: CodeOptions,

    /// Arguments of the program
    #[arg(last = true, value_name = "ARG", help_heading = "Arguments")]
    pub(crate) program_args: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run a program of the system, or a file, instead of code
    ///
    /// A plain name is looked up in the sandbox (/usr/bin and the like). A path to a file elsewhere on the host is
    /// shown there, read-only.
    #[command(after_help = "Example:\n  sandbox-run exec --memory 64m -- ./hello world")]
    Exec {
        #[command(flatten)]
        run: Box<RunOptions>,
        /// The program and its arguments
        #[arg(last = true, required_unless_present = "image", value_name = "ARGV", help_heading = "Arguments")]
        argv: Vec<OsString>,
    },
    /// List the languages, with the toolchains found on this host, and what is missing
    Languages {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Directory with more definitions of languages
        #[arg(long, value_name = "DIR", env = "SANDBOX_RUNTIMES")]
        runtimes: Option<PathBuf>,
    },
    /// List or remove what was made once for many runs: package environments and compiled programs
    Cache {
        #[command(subcommand)]
        action: Option<CacheAction>,
    },
    /// Import, list or remove images: root file systems that code can run in instead of this host's
    Image {
        #[command(subcommand)]
        action: ImageAction,
    },
    /// Show which layers of isolation work on this host, and what to do about those that do not
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Attack the sandbox with hostile programs, and see whether it holds on this host
    #[command(long_about = ATTACK, after_help = "Examples:\n  sandbox-run attack\n  sandbox-run attack --only network")]
    Attack(AttackOptions),
    /// Live beside an attack; used inside the sandbox
    #[command(name = sandbox_attack::NEIGHBOUR_COMMAND, hide = true)]
    Neighbour,
    /// Unpack an image; used inside the sandbox
    #[command(name = sandbox_images::UNPACK_COMMAND, hide = true)]
    UnpackImage {
        /// What is to be done, as JSON
        job: String,
    },
    /// Serve a cell; used inside a container
    #[command(name = sandbox_cell::backend::GUEST_COMMAND, hide = true)]
    Cell {
        /// What for
        what: Option<OsString>,
    },
    /// Render a template; used inside the sandbox
    #[command(name = sandbox_executor::RENDER_COMMAND, hide = true)]
    RenderTemplate,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all commands into a directory
    Man {
        /// The directory
        dir: Option<PathBuf>,
    },
}

#[cfg_attr(feature = "canary", expect(clippy::struct_excessive_bools, reason = "flags are what they are"))]
#[derive(Debug, Args)]
pub(crate) struct AttackOptions {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Disable layers, and check that the attacks which they stop succeed; only in builds with the feature `canary`
    #[cfg(feature = "canary")]
    #[arg(long, hide = true, conflicts_with = "warm")]
    pub(crate) canary: bool,
    /// Attack as a server runs programs: in cells that were ready, in forks of warm interpreters
    #[arg(long)]
    pub(crate) warm: bool,
    /// Only attacks whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// List the attacks and carry out none
    #[arg(long)]
    pub(crate) list: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ImageAction {
    /// Import an image from a file or directory
    ///
    /// Takes what `docker save` and `docker export` write, OCI layouts (a directory or a tar file), and any tar file of
    /// a root file system; compressed with gzip or zstd or not at all. It is unpacked in a sandbox. Digests are
    /// verified; devices, set-id bits and owners are left out.
    Import {
        /// The file or directory
        #[arg(value_name = "FILE|DIR")]
        path: PathBuf,
        /// What to call it [default: as it is called in the file, or like the file]
        #[arg(long)]
        name: Option<String>,
    },
    /// List images with their sizes
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove an image that nothing uses at the moment
    Rm {
        /// Its name or digest
        name: String,
    },
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum CacheAction {
    /// List entries with their sizes, the last used first
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove entries that nothing uses at the moment
    Prune {
        /// Only those that were not used for this long, such as 24h
        #[arg(long, value_name = "DURATION")]
        unused_for: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CodeOptions {
    /// Language of the code; guessed from --file's ending if not given
    #[arg(short, long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<String>,

    /// Code to run
    #[arg(short, long, value_name = "CODE", allow_hyphen_values = true)]
    pub(crate) code: Option<OsString>,

    /// File with code to run, or a project's directory; several make up one program that begins in the first
    #[arg(short, long, value_name = "FILE|DIR")]
    pub(crate) file: Vec<PathBuf>,

    /// The file in which the program begins [default: the one with a usual name]
    #[arg(long, value_name = "FILE")]
    pub(crate) entry: Option<String>,

    /// Install a package, in its ecosystem's spelling (requests==2.31.0, lodash@4, serde@1[derive], …)
    #[arg(short, long, value_name = "PACKAGE")]
    pub(crate) package: Vec<String>,

    /// Allow only safe built-ins: no import, no open, no eval (Python; a convenience, not the sandbox)
    #[arg(long)]
    pub(crate) restricted: bool,

    /// Put the code into a template: a file, or `harness`, which runs a function on cases
    #[arg(long, value_name = "FILE|NAME", help_heading = "Templates")]
    pub(crate) template: Option<PathBuf>,

    /// A variable of the template: text (NAME=TEXT), a file's content (NAME=@FILE) or JSON (NAME:=JSON)
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Templates")]
    pub(crate) var: Vec<String>,

    /// A JSON file with variables of the template
    #[arg(long, value_name = "FILE", help_heading = "Templates")]
    pub(crate) vars: Vec<PathBuf>,

    /// Directory with more definitions of languages
    #[arg(long, value_name = "DIR", env = "SANDBOX_RUNTIMES", hide_env_values = true)]
    pub(crate) runtimes: Option<PathBuf>,

    /// Time for compiling [default: 60s]
    #[arg(long, value_name = "DURATION", help_heading = "Limits")]
    pub(crate) compile_timeout: Option<String>,

    /// Time for installing packages [default: 5m]
    #[arg(long, value_name = "DURATION", help_heading = "Limits")]
    pub(crate) install_timeout: Option<String>,

    #[command(flatten)]
    pub(crate) run: RunOptions,
}

impl CodeOptions {
    /// Whether it is a program of an image's that is to run, and no code.
    pub(crate) fn is_program(&self) -> bool {
        self.run.image.is_some() && self.lang.is_none() && self.code.is_none() && self.file.is_empty()
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Run in an image (see `sandbox-run image`) instead of this host's system
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,

    /// What the program reads: a file, or - for this command's own standard input
    #[arg(long, value_name = "FILE|-", allow_hyphen_values = true)]
    pub(crate) stdin: Option<PathBuf>,

    /// Put a file or directory into the working directory, under another name if one is given
    #[arg(short, long, value_name = "FILE[:NAME]", help_heading = "Files")]
    pub(crate) input: Vec<OsString>,

    /// Write the files that the program made or changed into this directory
    #[arg(short, long, value_name = "DIR", help_heading = "Files")]
    pub(crate) output_dir: Option<PathBuf>,

    /// Let --output-dir replace files, write hidden ones or keep execute permission (a list)
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "WHAT",
        requires = "output_dir",
        help_heading = "Files"
    )]
    pub(crate) output_allow: Vec<OutputAllow>,

    /// Start the program in this directory: below the usual one, or an absolute path in the sandbox
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub(crate) workdir: Option<PathBuf>,

    /// A directory of the host's, or one that is kept between runs
    #[arg(
        short,
        long,
        value_name = "VOLUME",
        help_heading = "Files",
        help = "Show a directory of the host's (HOST:TARGET[:ro|rw], if allowed), or keep one between runs (NAME:TARGET[:SIZE])"
    )]
    pub(crate) volume: Vec<String>,

    /// Allow a directory of the host's, and all below it, as a volume
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub(crate) allow_path: Vec<PathBuf>,

    /// Set an environment variable; nothing is inherited
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<OsString>,

    #[command(flatten)]
    pub(crate) network: NetworkOptions,

    #[command(flatten)]
    pub(crate) limits: LimitOptions,

    /// What makes the sandbox [default: native, or what `SANDBOX_BACKEND` says]
    #[arg(long, value_enum, help_heading = "Isolation")]
    pub(crate) backend: Option<BackendName>,

    /// How much isolation there must be [default: full]
    #[arg(long, value_enum, help_heading = "Isolation")]
    pub(crate) isolation: Option<IsolationMode>,

    /// Refuse to run without these isolation layers too (a list such as memory,landlock, or all)
    #[arg(long, value_name = "LAYERS", help_heading = "Isolation")]
    pub(crate) require: Option<String>,

    /// What to print: text for people, the result as JSON, or one JSON event a line as it happens
    #[arg(long, value_enum, default_value_t = Format::Text, help_heading = "Output")]
    pub(crate) format: Format,

    /// Short for --format json
    #[arg(long, conflicts_with = "format", help_heading = "Output")]
    pub(crate) json: bool,

    /// Print no summary
    #[arg(short, long, help_heading = "Output")]
    pub(crate) quiet: bool,

    /// Let the program send control sequences to the terminal
    #[arg(long, help_heading = "Output")]
    pub(crate) raw: bool,
}

impl RunOptions {
    /// The format, with the short forms resolved.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// What may be done in the directory for output files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputAllow {
    /// Replace files that exist
    Overwrite,
    /// Write files and directories whose name begins with a dot
    Hidden,
    /// Keep the execute permission of files
    Executable,
}

/// What a program can reach.
#[derive(Debug, Args)]
pub(crate) struct NetworkOptions {
    /// What the program can reach [default: none, or allowlist with --allow-host]
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Isolation")]
    pub(crate) network: Option<NetworkFlag>,

    /// Let the program reach a host: HOST, HOST:PORT, *.NAME or *.NAME:PORT; ports 80 and 443 if none is named
    #[arg(long, value_name = "HOST", help_heading = "Isolation")]
    pub(crate) allow_host: Vec<String>,

    /// Let the program resolve names, where it could not
    #[arg(long, help_heading = "Isolation")]
    pub(crate) allow_dns: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// This program itself
    Native,
    /// An OCI runtime: runc, or what `SANDBOX_OCI_RUNTIME` names
    Oci,
    /// Docker, or what `SANDBOX_DOCKER_BIN` names
    Docker,
}

impl BackendName {
    /// Its name in settings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Oci => "oci",
            Self::Docker => "docker",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkFlag {
    /// Nothing at all
    None,
    /// A loopback interface of its own
    Localhost,
    /// The hosts given with --allow-host
    Allowlist,
    /// Every public address: the web, and all ports through its proxy
    Full,
}

impl From<NetworkFlag> for NetworkMode {
    fn from(network: NetworkFlag) -> Self {
        match network {
            NetworkFlag::None => Self::None,
            NetworkFlag::Localhost => Self::Localhost,
            NetworkFlag::Allowlist => Self::Allowlist,
            NetworkFlag::Full => Self::Full,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationMode {
    /// Namespaces and a filter of system calls
    Full,
    /// Where there can be no namespaces, as in most containers: Landlock and the filter; no network, no packages
    Reduced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Output as it comes, then a summary on standard error
    Text,
    /// The result, when it is there
    Json,
    /// Events as they happen, the result last
    StreamJson,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// Time from start to end [default: 3s]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    timeout: Option<String>,

    /// CPU time of all processes together [default: none of its own]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    cpu_time: Option<String>,

    /// Memory of all processes together, without swap [default: 256m]
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    memory: Option<String>,

    /// Share of the machine's CPUs, such as 0.5 or 2 [default: 1]
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    cpus: Option<String>,

    /// Bytes in all writable directories together [default: 64m]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    disk: Option<String>,

    /// Files in all writable directories together [default: 16384]
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    inodes: Option<String>,

    /// Processes and threads at one time [default: 64]
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pids: Option<String>,

    /// Bytes on standard output, and as many on standard error [default: 1m]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    output_limit: Option<String>,

    /// Open files of one process [default: 256]
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    open_files: Option<String>,

    /// Size of a single file [default: 64m]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    file_size: Option<String>,
}

impl LimitOptions {
    /// The limits that were given.
    pub(crate) fn given(&self) -> impl Iterator<Item = (LimitKind, &str)> {
        [
            (LimitKind::WallTime, &self.timeout),
            (LimitKind::CpuTime, &self.cpu_time),
            (LimitKind::Memory, &self.memory),
            (LimitKind::Cpus, &self.cpus),
            (LimitKind::Processes, &self.pids),
            (LimitKind::Disk, &self.disk),
            (LimitKind::Inodes, &self.inodes),
            (LimitKind::Output, &self.output_limit),
            (LimitKind::OpenFiles, &self.open_files),
            (LimitKind::FileSize, &self.file_size),
        ]
        .into_iter()
        .filter_map(|(kind, text)| Some((kind, text.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use sandbox_base::limits::TABLE;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_reference_lists_every_flag() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/REFERENCE.md");
        let chapter = sandbox_manual::chapter(Arguments::command());
        sandbox_manual::hold(&file, "sandbox-run", &chapter).expect("up to date");
    }

    #[test]
    fn the_readme_lists_every_limit_with_its_default() {
        let readme = include_str!("../../../README.md");
        for info in TABLE {
            let row = readme.lines().find(|line| line.contains(&format!("| `--{}` |", info.flag))).expect(info.flag);
            let stated = row.split('|').nth(3).expect("a third column").trim();
            match info.default {
                Some(default) => assert_eq!(info.kind.parse(stated), Ok(default), "{}", info.flag),
                None => assert_eq!(stated, "none of its own", "{}", info.flag),
            }
        }
    }

    #[test]
    fn every_limit_has_its_flag_and_the_help_states_its_default() {
        let command = Arguments::command();
        for info in TABLE {
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(info.flag));
            let help = arg.expect(info.flag).get_help().expect(info.flag).to_string();
            if let Some(default) = info.default {
                let stated = help.split("[default: ").nth(1).and_then(|rest| rest.strip_suffix(']')).expect(info.flag);
                assert_eq!(info.kind.parse(stated), Ok(default), "{}", info.flag);
            }
        }
    }
}
