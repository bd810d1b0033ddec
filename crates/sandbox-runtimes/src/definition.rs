//! A language's definition file: its keys.
//!
//! A file names a toolchain and the commands that run in cells: scripts for `/bin/sh` where there is something to
//! decide, a plain argument list for the program itself.

mod check;
mod parse;
#[cfg(test)]
mod tests;
mod warm;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex_lite::Regex;
use serde::Deserialize;

pub use self::parse::DefinitionError;
pub use self::warm::{TestedVersions, Warm};
use crate::literals::Literals;

/// What a definition file says.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The language's name.
    pub name: String,
    /// How people write its name, if that differs.
    pub title: Option<String>,
    /// Its place in lists; where several languages fit a project, the first of them is taken. Languages without one come
    /// last.
    pub order: Option<u32>,
    /// Other names for it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Endings of its source files, without the dot.
    #[serde(default)]
    pub extensions: Vec<String>,
    /// What a source file is called if the user does not say.
    pub source: String,
    /// Where a project of several files begins if the user does not say: the first of these that is there.
    #[serde(default)]
    pub entries: Vec<String>,
    /// A file of the project's that says it instead, and how to read that from it.
    pub entry_from: Option<EntryFrom>,
    /// What a file in which a program begins has in it. If one file alone has it, that is where.
    pub entry_marker: Option<Pattern>,
    /// Directories that tools make in projects of this language, and that are no part of them.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// The directory that the build tool makes beside one of the manifests ([`Packages::manifests`]).
    pub build_dir: Option<String>,
    /// Templates by their names, each a file beside this one.
    #[serde(default)]
    pub templates: BTreeMap<String, String>,
    /// How values are written.
    pub literals: Option<Literals>,
    /// How to find its toolchain.
    pub find: Find,
    /// What to do once for each toolchain.
    pub prepare: Option<Prepare>,
    /// How to compile, for languages that do.
    pub compile: Option<CompileDefinition>,
    /// How to run a program.
    pub run: RunDefinition,
    /// How to install packages.
    pub packages: Option<Packages>,
    /// How to read what programs say when they fail.
    #[serde(default)]
    pub errors: Errors,
}

/// A file that says where a project begins.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryFrom {
    /// The file.
    pub file: String,
    /// An expression whose first group is the path.
    pub pattern: Pattern,
}

/// How to find a toolchain.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Find {
    /// Commands to look for along `PATH`, in this order.
    pub commands: Vec<String>,
    /// Directories to look in after that. `~` is the home directory, `$NAME` a variable, `*` any name.
    #[serde(default)]
    pub paths: Vec<String>,
    /// A script that describes the command `$1`: it prints lines `version=…`, `executable=…` and `prefix=…`.
    pub describe: String,
    /// Files with which users choose between versions; when one changes, the script is asked again.
    #[serde(default)]
    pub watch: Vec<String>,
    /// What to tell a user who does not have it.
    pub missing: String,
    /// More of the host that the toolchain needs, shown at the same path; for parts of /etc.
    #[serde(default)]
    pub system: Vec<String>,
    /// Variables for a toolchain that appears in another place than it was installed to; `{prefix}` is replaced.
    #[serde(default)]
    pub relocated: BTreeMap<String, String>,
}

/// A program that a stage needs besides the toolchain.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Commands to look for along `PATH`, in this order.
    pub commands: Vec<String>,
    /// Directories to look in after that, as in [`Find::paths`].
    #[serde(default)]
    pub paths: Vec<String>,
    /// How many levels above the program's file the directory is that holds all it needs; 0 is the file alone.
    #[serde(default)]
    pub levels: usize,
    /// What to tell a user who does not have it.
    pub missing: String,
}

/// What to do once for each toolchain.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    /// What it makes, for people who wait.
    pub what: String,
    /// A script that fills the directory `$OUT`.
    pub script: String,
    /// Files that the script finds in its working directory, each with the name of a file beside this one.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Where the result appears.
    pub target: PathBuf,
    /// The stages in which it appears.
    pub stages: Vec<StageName>,
    /// Whether it needs network.
    #[serde(default)]
    pub network: bool,
    /// Programs that it needs.
    #[serde(default)]
    pub tools: BTreeMap<String, Tool>,
    /// Variables of the host's that it sees.
    #[serde(default)]
    pub pass: Vec<String>,
    /// Variables to set.
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

/// How to compile.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompileDefinition {
    /// A script that compiles `$1`, the file where the program begins, into the directory `$OUT`. All source files are
    /// in the working directory.
    pub script: String,
    /// Variables to set.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Programs that it needs.
    #[serde(default)]
    pub tools: BTreeMap<String, Tool>,
    /// What can be started before it is known what to compile, and makes that faster.
    pub companion: Option<CompanionDefinition>,
}

/// A companion of compilers: a program that is started in a cell before it is known what to compile.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompanionDefinition {
    /// A script that runs as long as the companion waits for [`CompileDefinition::script`], which has to find it by itself, and to
    /// do without it. When it is ready it writes something to its standard output, which it closes if it fails.
    pub script: String,
}

/// How to run a program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunDefinition {
    /// The command; the program's arguments follow. Replaced are `{executable}`, `{entry}` (the file where the program
    /// begins), `{stem}` (the same without its ending), `{runner}` (the runner's text), `{runner_file}` (a file with
    /// it), and `{heap}` (three quarters of the memory limit, in MiB).
    pub argv: Vec<String>,
    /// How to run a program with safe built-ins only, if there is a way.
    pub restricted: Option<Restricted>,
    /// A file beside this one that is passed to the interpreter instead of the program, which it runs. It may leave the
    /// value of the last expression and the reason of a failure in `$RESULT`.
    pub runner: Option<String>,
    /// Variables to set; `{heap}` is replaced.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// How to keep interpreters warm, for languages where that can be done.
    pub warm: Option<Warm>,
}

/// How to run a program with safe built-ins only.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restricted {
    /// The command, as in [`RunDefinition::argv`].
    pub argv: Vec<String>,
    /// A file whose text goes before the runner's.
    pub runner: String,
}

/// How to install packages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// How a package is written, as an example.
    pub example: String,
    /// What every package looks like.
    pub pattern: Pattern,
    /// Files with which a project says what it needs.
    #[serde(default)]
    pub manifests: Vec<String>,
    /// A script that installs `$@`, and what the manifests in the working directory say, into `$OUT`. It has network.
    pub script: String,
    /// Where the result appears.
    pub target: PathBuf,
    /// Programs that it needs.
    #[serde(default)]
    pub tools: BTreeMap<String, Tool>,
    /// Variables of the host's that it sees: where packages come from.
    #[serde(default)]
    pub pass: Vec<String>,
    /// Variables for the install stage.
    #[serde(default)]
    pub install_env: BTreeMap<String, String>,
    /// Variables for the compile and run stages.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// How to read what programs say when they fail. The first group of the expression is the reason.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Errors {
    /// What a failed compiler's first complaint looks like.
    #[serde(default)]
    pub compile: Vec<Pattern>,
    /// What a program's last complaint looks like.
    #[serde(default)]
    pub run: Vec<Pattern>,
    /// What a program says that has run out of memory before the cell did.
    #[serde(default)]
    pub memory: Vec<Pattern>,
    /// What an installer's first complaint looks like.
    #[serde(default)]
    pub install: Vec<Pattern>,
}

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
