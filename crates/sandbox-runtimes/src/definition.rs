//! A language's definition file: its keys.
//!
//! A file names a toolchain and the commands that run in cells: scripts for `/bin/sh` where there is something to
//! decide, a plain argument list for the program itself.

mod arguments;
mod check;
mod parse;
#[cfg(test)]
mod tests;
mod warm;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex_lite::Regex;
use serde::Deserialize;

pub use self::arguments::{ArgumentError, Standards, WholePattern};
pub use self::parse::DefinitionError;
pub use self::warm::{TestedVersions, Warm};
use crate::inline_metadata::InlineFormat;
use crate::literals::Literals;

/// The keys of a definition file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Name of the language.
    pub name: String,
    /// Its name in prose, if that differs.
    pub title: Option<String>,
    /// Other names for it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Place in lists. If several languages fit a project, the first is used. Languages without a place come last.
    pub order: Option<u32>,
    /// Language to inherit from. Missing keys are taken from there, except `aliases`, `title` and `order`.
    pub like: Option<String>,
    /// File extensions, without the dot.
    #[serde(default)]
    pub extensions: Vec<String>,
    /// File name for code that comes without one.
    pub source: String,
    /// Entry files of a project. The first that exists is used.
    #[serde(default)]
    pub entries: Vec<String>,
    /// Project file that names the entry file. It has precedence over `entries` if the file that it names exists.
    pub entry_from: Option<EntryFrom>,
    /// Expression that only entry files match. Used if exactly one file does.
    pub entry_marker: Option<Pattern>,
    /// Directories in a project that tools create, and that are not copied into the cell.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// The same for the directory that the build tool creates next to a manifest.
    pub build_dir: Option<String>,
    /// Templates by name, each a file next to the definition.
    #[serde(default)]
    pub templates: BTreeMap<String, String>,
    /// How to find the toolchain.
    pub find: Find,
    /// Work that is done once for each toolchain.
    pub prepare: Option<Prepare>,
    /// How to compile a program, for compiled languages.
    pub compile: Option<CompileDefinition>,
    /// The command that runs a program.
    pub run: RunDefinition,
    /// The installation of packages.
    pub packages: Option<Packages>,
    /// How to find the reason of a failure in error output.
    #[serde(default)]
    pub errors: Errors,
    /// How the template filter `literal` writes values.
    pub literals: Option<Literals>,
}

/// A project file that names the entry file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryFrom {
    /// The project file.
    pub file: String,
    /// Expression whose first group is the path of the entry file.
    pub pattern: Pattern,
}

/// The rules to find a toolchain.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Find {
    /// Commands to look for on `PATH`, in order.
    pub commands: Vec<String>,
    /// More directories to search. `~`, `$NAME` and `*` are expanded.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Script that prints `version=`, `executable=` and `prefix=` for the command `$1`, each on a line.
    pub describe: String,
    /// Files that select a version of the toolchain. If one changes, the script runs again.
    #[serde(default)]
    pub watch: Vec<String>,
    /// Message if the toolchain is not found.
    pub missing: String,
    /// Parts of `/etc` that the toolchain needs, mounted at the same path.
    #[serde(default)]
    pub system: Vec<String>,
    /// Environment variables for a toolchain that is mounted at another path than it was installed to. `{prefix}` is
    /// replaced.
    #[serde(default)]
    pub relocated: BTreeMap<String, String>,
}

/// A program that a stage needs besides the toolchain.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Commands to look for on `PATH`, in order.
    pub commands: Vec<String>,
    /// More directories to search. `~`, `$NAME` and `*` are expanded.
    #[serde(default)]
    pub paths: Vec<String>,
    /// How many levels above the program's file the directory is that holds everything it needs. 0 is the file alone.
    #[serde(default)]
    pub levels: usize,
    /// Message if the program is not found.
    pub missing: String,
}

/// Work that is done once for each toolchain.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    /// Description of the result, shown while the script runs.
    pub what: String,
    /// Script that fills the directory `$OUT`.
    pub script: String,
    /// Files for the script's working directory, each with the name of a file next to the definition.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Path at which the result is mounted.
    pub target: PathBuf,
    /// Stages that see the result: `install`, `compile`.
    pub stages: Vec<StageName>,
    /// Whether the script has network access.
    #[serde(default)]
    pub network: bool,
    /// Programs that the script needs.
    #[serde(default)]
    pub tools: BTreeMap<String, Tool>,
    /// Host variables that are passed on.
    #[serde(default)]
    pub pass: Vec<String>,
    /// Environment variables for the script.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// A stage before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageName {
    /// Installing packages.
    Install,
    /// Compiling.
    Compile,
}

/// The compilation of a program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompileDefinition {
    /// Script that compiles `$1`, the entry file, into the directory `$OUT`, which the run sees as `/build`. The source
    /// files are in the working directory. The arguments that a request sets follow as `$2` and so on.
    pub script: String,
    /// Arguments that requests may set: expressions that each match a whole argument, by the text that errors show for
    /// them. List only what reads, writes, loads and executes nothing else.
    #[serde(default)]
    pub arguments: AllowedArguments,
    /// Standards or editions of the language that requests may choose.
    pub standards: Option<Standards>,
    /// Environment variables for the script.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Programs that the script needs.
    #[serde(default)]
    pub tools: BTreeMap<String, Tool>,
    /// How to keep a compiler warm.
    pub warm: Option<WarmCompiler>,
}

/// How a server keeps a compiler warm. Compilers start cold without it, or if it fails.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmCompiler {
    /// Script that becomes a zygote with the library `$1`. Each of its children is sent the command line of one compile
    /// script, and does the same in its place.
    pub script: String,
    /// Versions that warm starts were tested with. Others start cold.
    pub tested: Option<TestedVersions>,
    /// Source text that must be compiled alike with a zygote and without: exit code and messages.
    pub self_test: Option<String>,
}

/// The command that runs a program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunDefinition {
    /// Command, to which the program's arguments are added. `{executable}`, `{entry}` (the entry file), `{stem}` (the
    /// entry file without its extension), `{runner}` (the text of `runner`), `{runner_file}` (a file with that text),
    /// `{heap}` (three quarters of the memory limit, in MiB) and `{arguments}` (those that the request sets for the
    /// interpreter) are replaced.
    pub argv: Vec<String>,
    /// Arguments of the interpreter that requests may set, as in `[compile]`.
    #[serde(default)]
    pub arguments: AllowedArguments,
    /// Environment variables. `{heap}` is replaced.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// File next to the definition that runs the program. It may write `value` (the value of the last expression) and
    /// `error` (the reason of a failure) to `$RESULT`.
    pub runner: Option<String>,
    /// Command without the runner, where its report is not wanted: `sandbox-run` prints no value. A definition that builds
    /// on another and has its own `argv` does not inherit it.
    pub plain: Option<Vec<String>>,
    /// Command that runs a module by its name, for `sandbox-run --module`. `{executable}` and `{module}` are replaced. A
    /// definition that builds on another and has its own `argv` does not inherit it.
    pub module: Option<Vec<String>>,
    /// How to run a program with `--restricted`.
    pub restricted: Option<Restricted>,
    /// How to keep an interpreter warm.
    pub warm: Option<Warm>,
}

/// How to run a program with `--restricted`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restricted {
    /// Command, as in `[run]`.
    pub argv: Vec<String>,
    /// File next to the definition whose text is put before that of the runner.
    pub runner: String,
}

/// The installation of packages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// Example of a package.
    pub example: String,
    /// Expression that every package matches.
    pub pattern: Pattern,
    /// Project files that list packages.
    #[serde(default)]
    pub manifests: Vec<String>,
    /// Format of a comment in the entry file that lists packages: `PEP 723`.
    pub inline: Option<InlineFormat>,
    /// Script that installs the packages `$@`, and those in the manifests in its working directory, into `$OUT`. It has
    /// network access.
    pub script: String,
    /// Path at which the result is mounted.
    pub target: PathBuf,
    /// Work that is done once for each toolchain and package index, before the first installation.
    pub prepare: Option<PreparePackages>,
    /// Programs that the script needs.
    #[serde(default)]
    pub tools: BTreeMap<String, Tool>,
    /// Host variables that are passed on: those that choose a package index.
    #[serde(default)]
    pub pass: Vec<String>,
    /// Environment variables for the script.
    #[serde(default)]
    pub install_env: BTreeMap<String, String>,
    /// Environment variables for compiling and running.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// How to tell which package a program lacks.
    pub missing: Option<MissingModule>,
}

/// How to tell from error output which package a program lacks, for the hint in its result.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MissingModule {
    /// Expressions for error output of the compiler and of the program. The first group is the module that was not found.
    pub patterns: Vec<Pattern>,
    /// Expression for modules that no package provides, such as relative paths.
    pub except: Option<Pattern>,
    /// Expression for a module that is not listed in `known`: its first group is the name of the package. Without it, the
    /// hint names no package for such modules.
    pub package: Option<Pattern>,
    /// Whether every module's name leads to its package, so that the hint need not ask whether it is one.
    #[serde(default)]
    pub exact: bool,
    /// File next to the definition that lists well-known packages, one in each line: the package, then the modules that it
    /// provides if their names differ.
    pub known: Option<String>,
}

/// Work that is done once for each toolchain and package index, with the network access, the tools and the variables of
/// an installation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreparePackages {
    /// Description of the result, shown while the script runs.
    pub what: String,
    /// Script that fills the directory `$OUT`.
    pub script: String,
    /// Path at which installations see the result.
    pub target: PathBuf,
}

/// How to find the reason of a failure in error output: the first group of an expression.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Errors {
    /// Expressions for the first error of a compiler.
    #[serde(default)]
    pub compile: Vec<Pattern>,
    /// Expressions for the last error of a program.
    #[serde(default)]
    pub run: Vec<Pattern>,
    /// Expressions for a program that runs out of memory before it reaches the limit of the cell.
    #[serde(default)]
    pub memory: Vec<Pattern>,
    /// Expressions for the first error of an installer.
    #[serde(default)]
    pub install: Vec<Pattern>,
    /// Expressions for a program that found its standard input at its end.
    #[serde(default)]
    pub stdin: Vec<Pattern>,
}

/// Expressions for the arguments that requests may set, by the text that errors show for them.
pub type AllowedArguments = BTreeMap<String, WholePattern>;

/// A regular expression.
#[derive(Debug, Clone)]
pub struct Pattern(pub Regex);

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Regex::new(&text)
            .map(Self)
            .map_err(|error| serde::de::Error::custom(format!("invalid regular expression '{text}': {error}")))
    }
}

impl Definition {
    /// The variables of the host that its stages see: those that choose a package index, which may have credentials.
    pub fn passed_variables(&self) -> impl Iterator<Item = &str> {
        let prepare = self.prepare.iter().flat_map(|prepare| &prepare.pass);
        prepare.chain(self.packages.iter().flat_map(|packages| &packages.pass)).map(String::as_str)
    }

    /// The language's name as people write it.
    #[must_use]
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }

    /// The tools of all stages.
    pub(crate) fn tools(&self) -> impl Iterator<Item = (&String, &Tool)> {
        let compile = self.compile.iter().map(|compile| &compile.tools);
        let packages = self.packages.iter().map(|packages| &packages.tools);
        let prepare = self.prepare.iter().map(|prepare| &prepare.tools);
        compile.chain(packages).chain(prepare).flatten()
    }

    /// Whether a file is source text in this language.
    #[must_use]
    pub fn is_source(&self, file: &str) -> bool {
        let ending = Path::new(file).extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| self.extensions.iter().any(|own| ending.eq_ignore_ascii_case(own)))
    }
}
