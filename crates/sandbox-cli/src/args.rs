//! Flags: each is defined once, and parser, help, completions, man pages and reference come from that.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
use sandbox_base::LimitKind;
use sandbox_base::limits::{LimitInfo, TABLE as LIMITS};
use sandbox_executor::{NetworkMode, Variable};

use crate::exit_code;

/// The text after the help of `--help`.
fn after_help() -> String {
    let codes: String = exit_code::TABLE.iter().map(|(code, meaning)| format!("  {code:<4} {meaning}\n")).collect();
    format!(
        "{EXAMPLES}\n\nExit code:\n  The program's own, or the compiler's or installer's if the program never\n  started, or\n{codes}\n{NOTES}"
    )
}

const USAGE: &str = "\
sandbox-run [OPTIONS] <FILE|DIR|-> [ARG]...
       sandbox-run [OPTIONS] --lang <LANGUAGE> --code <CODE> [ARG]...
       sandbox-run <COMMAND>";

/// The text after the help of `-h`.
const FIRST_STEPS: &str = "\
Examples:
  sandbox-run script.py arg1 arg2
  sandbox-run --lang python --code 'print(2+2)'
  sandbox-run exec ls -la /

More:
  sandbox-run --help        all options, more examples, exit codes
  sandbox-run help COMMAND  the help of a command
  sandbox-run languages     the languages that run on this host";

/// No line is wider than the narrowest help, so that each can be pasted. A test runs them all.
const EXAMPLES: &str = "\
Examples:
  sandbox-run script.py arg1 arg2
  sandbox-run --timeout 10s --memory 512m project/
  sandbox-run --lang python --code 'print(2+2)'
  echo 'print(2+2)' | sandbox-run --lang python --json -
  sandbox-run --package requests,rich script.py
  sandbox-run --module json.tool data.json
  sandbox-run --stdin data.csv --quiet filter.py > out.csv
  sandbox-run --input data.csv --output-dir results report.py
  sandbox-run exec ls -la /
  sandbox-run exec -it bash
  sandbox-run image import python.tar --name python
  sandbox-run --image python sh -c 'echo in an image'
  sandbox-run languages
  sandbox-run doctor";

const NOTES: &str = "\
Sizes are bytes, or 64k, 256m, 1g. Durations are seconds, or 500ms, 3s, 1m30s.
Every limit has a variable for its default (SANDBOX_TIMEOUT, SANDBOX_MEMORY, …)
and one for its maximum (SANDBOX_MAX_TIMEOUT, …).";

const ATTACK: &str = "\
Attack the sandbox with hostile programs to check that it holds on this host.

Each program runs like any other code, beside an innocent process, in prepared surroundings: secrets in files, \
environments, shared memory and keyrings, processes, sockets. Whether an attack was stopped is judged from \
outside: by the state of these surroundings, the program's output, the verdict and the time at which it ended. \
The program's own report counts only if it claims success.

Programs whose toolchain is missing are listed as not attempted. The suite touches only what it has created, \
and removes all of it afterwards. It takes about a minute. Run as an ordinary user, it tests the isolation that \
an ordinary user gets.

Attacks that cannot be stopped, because the kernel offers no way to do so without breaking ordinary programs, \
are listed as known limits.

Exit code: 0 if nothing was breached, 1 otherwise.";

const PREPARE: &str = "\
Prepare toolchains ahead of their first use.

Some languages prepare something once for each toolchain: Go compiles its standard library, Java an archive of its \
compiler, TypeScript installs its compiler. Without this command the first program in the language does so and \
waits for it. The result is kept in the data directory until it is evicted or the toolchain changes.

Exit code: 0 if every language is prepared or needs nothing, 1 if one failed, 130 if interrupted (nothing \
incomplete is kept).";

/// Run untrusted code in single-use Linux sandboxes, and get a precise account of what happened.
///
/// Run a file, a project (a directory, or an archive of one), code from --code, or code from standard input (-). What
/// follows the file belongs to the program.
#[derive(Debug, Parser)]
#[command(name = "sandbox-run", version, override_usage = USAGE)]
#[command(after_help = FIRST_STEPS, after_long_help = after_help())]
#[command(args_conflicts_with_subcommands = true, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) action: Option<Action>,

    #[command(flatten)]
    pub(crate) run: CodeOptions,

    /// Run this file, project (a directory, .tar, .tar.gz or .zip) or standard input (-), with these arguments
    #[arg(trailing_var_arg = true, value_names = ["FILE|DIR|-", "ARG"], num_args = 0.., help_heading = "Arguments")]
    #[arg(value_hint = ValueHint::AnyPath, hide_short_help = true)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run a system program or an executable file instead of code
    ///
    /// A plain name is looked up in the sandbox (/usr/bin and the like). A file elsewhere on the host is mounted
    /// read-only in the sandbox.
    #[command(override_usage = "sandbox-run exec [OPTIONS] <PROGRAM> [ARG]...")]
    #[command(after_help = "Examples:\n  sandbox-run exec ls -la /\n  sandbox-run exec --memory 64m ./hello world")]
    Exec {
        #[command(flatten)]
        run: Box<RunOptions>,
        /// The program and its arguments
        #[arg(trailing_var_arg = true, help_heading = "Arguments")]
        #[arg(value_names = ["PROGRAM", "ARG"], num_args = 0.., value_hint = ValueHint::CommandWithArguments)]
        argv: Vec<OsString>,
    },
    /// List languages, the toolchains found on this host, and what is missing
    Languages {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Read more language definitions from a directory
        #[arg(long, value_name = "DIR", env = "SANDBOX_RUNTIMES")]
        runtimes: Option<PathBuf>,
    },
    /// Prepare toolchains ahead of their first use
    #[command(long_about = PREPARE, after_help = "Examples:\n  sandbox-run prepare\n  sandbox-run prepare go java")]
    Prepare(PrepareOptions),
    /// List or remove cached package environments and compiled programs
    #[command(disable_help_subcommand = true)]
    Cache {
        #[command(subcommand)]
        action: Option<CacheAction>,
    },
    /// Import, list or remove container images to run code in
    #[command(disable_help_subcommand = true)]
    Image {
        #[command(subcommand)]
        action: ImageAction,
    },
    /// Show what runs need on this host, what is missing, and how to fix it
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Attack the sandbox with hostile programs to check that it holds on this host
    #[command(long_about = ATTACK, after_help = "Examples:\n  sandbox-run attack\n  sandbox-run attack --only network")]
    Attack(AttackOptions),
    /// Run beside an attack; used inside the sandbox
    #[command(name = sandbox_attack::NEIGHBOUR_COMMAND, hide = true)]
    Neighbour,
    /// Unpack an image; used inside the sandbox
    #[command(name = sandbox_images::UNPACK_COMMAND, hide = true)]
    UnpackImage {
        /// The task, as JSON
        job: String,
    },
    /// Serve a cell; used inside a container
    #[command(name = sandbox_backends::GUEST_COMMAND, hide = true)]
    Cell {
        /// The purpose of the cell
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
    /// Print the man page, or write the man pages of all commands to a directory
    Man {
        /// The directory
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PrepareOptions {
    /// Languages to prepare [default: all that are installed]
    #[arg(value_name = "LANGUAGE")]
    pub(crate) languages: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Read more language definitions from a directory
    #[arg(long, value_name = "DIR", env = "SANDBOX_RUNTIMES", hide_env_values = true)]
    pub(crate) runtimes: Option<PathBuf>,
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
    /// Run programs as a server does: in ready cells, in forks of warm interpreters
    #[arg(long)]
    pub(crate) warm: bool,
    /// Run only the attacks whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// List the attacks without running them
    #[arg(long)]
    pub(crate) list: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ImageAction {
    /// Import an image from a file or directory
    ///
    /// Accepts the output of `docker save` and `docker export`, OCI layouts (a directory or a tar file), and any tar
    /// file of a root file system, uncompressed or compressed with gzip or zstd. The image is unpacked in a sandbox.
    /// Digests are verified; devices, set-id bits and owners are dropped.
    Import {
        /// The file or directory
        #[arg(value_name = "FILE|DIR")]
        path: PathBuf,
        /// Name of the image [default: the name in the file, or the file's name]
        #[arg(long)]
        name: Option<String>,
    },
    /// List images with their sizes
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove an image that is not in use
    Rm {
        /// Its name or digest
        name: String,
    },
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum CacheAction {
    /// List entries with their sizes, most recently used first
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove entries that are not in use
    Prune {
        /// Remove only entries that were not used for this long, such as 24h
        #[arg(long, value_name = "DURATION")]
        unused_for: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CodeOptions {
    /// Language of the code [default: by the file's name or first line]
    #[arg(short, long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<String>,

    /// Run this code
    #[arg(short, long, value_name = "CODE", allow_hyphen_values = true)]
    pub(crate) code: Option<OsString>,

    /// Run a file, a project or standard input (-); several files make up one program that starts in the first
    #[arg(short, long, value_name = "FILE|DIR|-", hide_short_help = true)]
    pub(crate) file: Vec<PathBuf>,

    /// File in which the program starts [default: the language's usual name]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) entry: Option<String>,

    /// Run the module that the first argument names, as `python -m` does, with the files of --file or of the current
    /// directory (short: -m MODULE)
    #[arg(long, hide_short_help = true)]
    pub(crate) module: bool,

    /// Install packages (comma-separated), as their package manager spells them, such as requests==2.31.0,six
    #[arg(short, long, value_name = "PACKAGES")]
    pub(crate) package: Vec<String>,

    /// Choose the standard or edition of the language, such as c++20 or 2024
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) standard: Option<String>,

    /// Pass an argument to the compiler, such as -O3 for C; each language allows some
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, hide_short_help = true)]
    pub(crate) compiler_arg: Vec<String>,

    /// Pass an argument to the interpreter, such as -O for Python; each language allows some
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, hide_short_help = true)]
    pub(crate) interpreter_arg: Vec<String>,

    /// Allow only safe built-ins: no import, no open, no eval (some languages, such as Python; in addition to the sandbox)
    #[arg(long, hide_short_help = true)]
    pub(crate) restricted: bool,

    /// Put the code into a template: a file, or `harness`, which runs a function on test cases
    #[arg(long, value_name = "FILE|NAME", help_heading = "Templates", hide_short_help = true)]
    pub(crate) template: Option<PathBuf>,

    /// Set a template variable: text (NAME=TEXT), the content of a file (NAME=@FILE) or JSON (NAME:=JSON)
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Templates", hide_short_help = true)]
    pub(crate) var: Vec<String>,

    /// Read template variables from a JSON file
    #[arg(long, value_name = "FILE", help_heading = "Templates", hide_short_help = true)]
    pub(crate) vars: Vec<PathBuf>,

    /// Read more language definitions from a directory
    #[arg(long, value_name = "DIR", env = "SANDBOX_RUNTIMES", hide_env_values = true, hide_short_help = true)]
    pub(crate) runtimes: Option<PathBuf>,

    /// The time limit for compiling
    #[arg(long, value_name = "DURATION", help_heading = "Limits", help = stage_help("SANDBOX_COMPILE_TIMEOUT"), hide_short_help = true)]
    pub(crate) compile_timeout: Option<String>,

    /// The time limit for installing packages
    #[arg(long, value_name = "DURATION", help_heading = "Limits", help = stage_help("SANDBOX_INSTALL_TIMEOUT"), hide_short_help = true)]
    pub(crate) install_timeout: Option<String>,

    #[command(flatten)]
    pub(crate) run: RunOptions,

    /// The module that --module runs.
    #[arg(skip)]
    pub(crate) module_name: Option<String>,

    /// Whether the file was given without --file.
    #[arg(skip)]
    pub(crate) is_positional: bool,
}

/// Help for a flag that sets what a variable sets too.
fn stage_help(variable: &str) -> String {
    let variable = Variable::by_name(variable);
    let (help, default) = variable.map_or(("", ""), |variable| (variable.help, variable.default.text()));
    format!("Set the {help} [default: {default}]")
}

impl CodeOptions {
    /// Whether to run the image's program rather than code.
    pub(crate) fn is_program(&self) -> bool {
        self.run.image.is_some() && self.lang.is_none() && !self.has_code()
    }

    /// Whether an option says what to run.
    pub(crate) fn has_code(&self) -> bool {
        self.module || self.code.is_some() || !self.file.is_empty()
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Run in a container image instead of the host's file system; see `sandbox-run image`
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) image: Option<String>,

    /// Read the program's standard input from a file, or from this command's with - [default: empty]
    #[arg(long, value_name = "FILE|-", allow_hyphen_values = true, hide_short_help = true)]
    pub(crate) stdin: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) terminal: TerminalOptions,

    /// Copy a file or directory into the working directory, optionally under another name
    #[arg(short, long, value_name = "FILE[:NAME]", help_heading = "Files", hide_short_help = true)]
    pub(crate) input: Vec<OsString>,

    /// Write the files that the program created or changed to a directory
    #[arg(short, long, value_name = "DIR", help_heading = "Files")]
    pub(crate) output_dir: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output_permissions: OutputPermissions,

    /// Start the program in a directory: below the working directory, or an absolute path in the sandbox
    #[arg(long, value_name = "DIR", help_heading = "Files", hide_short_help = true)]
    pub(crate) workdir: Option<PathBuf>,

    /// Mount a host directory, or a named volume that persists between runs
    #[arg(
        short,
        long,
        value_name = "VOLUME",
        help_heading = "Files",
        hide_short_help = true,
        help = "Mount a host directory (HOST:TARGET[:ro|rw], if allowed), or a named volume that persists between runs (NAME:TARGET[:SIZE])"
    )]
    pub(crate) volume: Vec<String>,

    /// Allow a host directory, and everything below it, to be mounted as a volume
    #[arg(long, value_name = "DIR", help_heading = "Files", hide_short_help = true)]
    pub(crate) allow_path: Vec<PathBuf>,

    /// Set an environment variable, or pass on your own (NAME); no others are inherited
    #[arg(short, long, value_name = "NAME[=VALUE]", hide_short_help = true)]
    pub(crate) env: Vec<OsString>,

    #[command(flatten)]
    pub(crate) network: NetworkOptions,

    #[command(flatten)]
    pub(crate) limits: LimitOptions,

    /// Choose the backend that creates the sandbox [default: native, or `SANDBOX_BACKEND`]
    #[arg(long, value_enum, help_heading = "Isolation", hide_short_help = true)]
    pub(crate) backend: Option<BackendName>,

    /// Choose the isolation mode [default: full]
    #[arg(long, value_enum, help_heading = "Isolation", hide_short_help = true)]
    pub(crate) isolation: Option<IsolationMode>,

    /// Refuse to run without these additional isolation layers (such as memory,landlock, or all)
    #[arg(long, value_name = "LAYERS", help_heading = "Isolation", hide_short_help = true)]
    pub(crate) require: Option<String>,

    /// Choose the output: text, the result as JSON, or one JSON event per line as it happens
    #[arg(long, value_enum, default_value_t = Format::Text, help_heading = "Output", hide_short_help = true)]
    pub(crate) format: Format,

    /// Short for --format json
    #[arg(long, conflicts_with = "format", help_heading = "Output")]
    pub(crate) json: bool,

    /// Do not print the summary and the hint
    #[arg(short, long, help_heading = "Output", hide_short_help = true)]
    pub(crate) quiet: bool,

    /// Let the program send control sequences to the terminal
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub(crate) raw: bool,
}

impl RunOptions {
    /// The format, with the short forms resolved.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// What --output-dir may do with files of untrusted names and content.
#[derive(Debug, Args)]
pub(crate) struct OutputPermissions {
    /// Let --output-dir overwrite files
    #[arg(long, requires = "output_dir", help_heading = "Files", hide_short_help = true)]
    pub(crate) force: bool,

    /// Let --output-dir write hidden files and keep execute permission
    #[arg(long, requires = "output_dir", help_heading = "Files", hide_short_help = true)]
    pub(crate) all: bool,

    /// Let --output-dir overwrite files, write hidden files or keep execute permission (comma-separated)
    #[arg(
        long,
        hide_short_help = true,
        value_enum,
        value_delimiter = ',',
        value_name = "WHAT",
        requires = "output_dir",
        help_heading = "Files"
    )]
    pub(crate) output_allow: Vec<OutputAllow>,
}

impl OutputPermissions {
    /// The permissions of --output-dir, with the short forms resolved.
    pub(crate) fn all_given(&self) -> Vec<OutputAllow> {
        let overwrite = self.force.then_some(OutputAllow::Overwrite);
        let all = [OutputAllow::Hidden, OutputAllow::Executable].into_iter().filter(|_| self.all);
        self.output_allow.iter().copied().chain(overwrite).chain(all).collect()
    }
}

/// The permissions of --output-dir.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputAllow {
    /// Replace existing files
    Overwrite,
    /// Write files and directories whose name starts with a dot
    Hidden,
    /// Keep the execute permission of files
    Executable,
}

/// Whether a person can talk to the program.
#[derive(Debug, Args)]
pub(crate) struct TerminalOptions {
    /// Connect this command's standard input to the program (-it: --interactive --tty)
    ///
    /// If it is a terminal, the program may wait for you: the default time limit then limits CPU time instead. --timeout
    /// limits the time from start to end in any case.
    #[arg(long, conflicts_with = "stdin")]
    pub(crate) interactive: bool,

    /// Give the program a pseudo-terminal in the sandbox as its standard streams
    ///
    /// With --interactive (-it) it is connected to this terminal: keys such as Ctrl-C go to the program. Press Ctrl-] three times within a second to end a program that does not end by itself. Escape sequences that act beyond
    /// the screen, such as titles, the clipboard and queries, are dropped unless --raw is given.
    #[arg(long, conflicts_with = "stdin")]
    pub(crate) tty: bool,
}

/// What a program can reach.
#[derive(Debug, Args)]
pub(crate) struct NetworkOptions {
    /// Choose what the program can reach [default: none, or allowlist with --allow-host]
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Isolation", hide_short_help = true)]
    pub(crate) network: Option<NetworkFlag>,

    /// Allow a host: HOST, HOST:PORT, *.NAME or *.NAME:PORT [default ports: 80 and 443]
    #[arg(long, value_name = "HOST", help_heading = "Isolation")]
    pub(crate) allow_host: Vec<String>,

    /// Allow DNS lookups in network modes that have none
    #[arg(long, help_heading = "Isolation", hide_short_help = true)]
    pub(crate) allow_dns: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// Built in: namespaces, cgroups, seccomp and Landlock
    Native,
    /// An OCI runtime: runc, or the one in `SANDBOX_OCI_RUNTIME`
    Oci,
    /// Docker, or the program in `SANDBOX_DOCKER_BIN`
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
    /// No network
    None,
    /// A private loopback interface
    Localhost,
    /// Only the hosts given with --allow-host
    Allowlist,
    /// All public addresses, through a proxy
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
    /// Namespaces and a syscall filter
    Full,
    /// Landlock and a syscall filter, for hosts that refuse namespaces, such as most containers; no network, no packages
    Reduced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Output as it is written, then a summary on standard error
    Text,
    /// The result, at the end
    Json,
    /// Events as they happen, the result last
    StreamJson,
}

/// A flag for each limit of the table.
#[derive(Debug, Default)]
pub(crate) struct LimitOptions(Vec<(LimitKind, String)>);

impl LimitOptions {
    /// The limits that were given.
    pub(crate) fn given(&self) -> impl Iterator<Item = (LimitKind, &str)> {
        self.0.iter().map(|(kind, text)| (*kind, text.as_str()))
    }
}

impl Args for LimitOptions {
    fn augment_args(command: Command) -> Command {
        command.args(LIMITS.iter().map(|limit| {
            let flag = Arg::new(limit.flag).long(limit.flag).value_name(limit.value_name()).help(limit.flag_help());
            let is_usual = matches!(limit.kind, LimitKind::WallTime | LimitKind::Memory);
            let flag = flag.short(limit.short).aliases(limit.flag_alias).allow_hyphen_values(true);
            flag.help_heading("Limits").hide_short_help(!is_usual)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LimitOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |limit: &LimitInfo| Some((limit.kind, matches.get_one::<String>(limit.flag)?.clone()));
        Ok(Self(LIMITS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn generated_parts_are_up_to_date() {
        let reference = sandbox_manual::chapter(Arguments::command());
        sandbox_manual::hold("docs/REFERENCE.md", "sandbox-run", &reference).expect("up to date");
        sandbox_manual::hold("docs/SANDBOX_RUN.md", "exit codes", &exit_code::table()).expect("up to date");
    }
}
