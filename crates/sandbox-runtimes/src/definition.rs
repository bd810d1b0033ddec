//! A language's definition file.
//!
//! A file says how to find a toolchain and what to do with it. What is to be done are commands, which run in cells:
//! scripts for `/bin/sh` where there is something to decide, a plain argument list for the program itself.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use regex_lite::Regex;
use serde::Deserialize;

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

/// How to keep an interpreter warm: as a zygote, which is forked into the cell of each run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warm {
    /// The command that becomes a zygote. As in `RunDefinition::argv`, and replaced are `{zygote}` (the zygote's text), `{library}`
    /// (the library that it loads to become one) and `{preload}` (the modules to load, with commas between them). In its
    /// cell, `{runner_file}` has the zygote's text too: what is loaded from there is loaded anew by what a run starts.
    pub argv: Vec<String>,
    /// A file beside this one with the zygote's text.
    pub zygote: String,
    /// Modules of packages that may be loaded before the fork: loading them leaves no state behind that runs must not
    /// share, such as a random generator that nothing seeds again. All others are loaded by the programs.
    #[serde(default)]
    pub preload: Vec<String>,
    /// Variables to set for the zygote; `{library}` is replaced.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables that an interpreter only looks at when it starts, so that a run that sets one starts cold. `*` at the end
    /// stands for any ending.
    #[serde(default)]
    pub cold: Vec<String>,
    /// The versions that warm starts were tested with. Others start cold.
    pub tested: Option<TestedVersions>,
    /// A program that prints facts about its interpreter. A server runs it warm and cold before any other program starts
    /// warm, and all programs start cold if the two differ.
    pub self_test: Option<String>,
}

/// A range of versions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestedVersions {
    /// The first version.
    pub from: String,
    /// The last version, with all that begin with it: `3.13` includes `3.13.2`.
    pub to: String,
}

impl TestedVersions {
    /// Whether a version is in the range.
    #[must_use]
    pub fn contains(&self, version: &str) -> bool {
        let parts = |text: &str| text.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
        let (version, from, to) = (parts(version), parts(&self.from), parts(&self.to));
        version >= from && version[..to.len().min(version.len())] <= to[..]
    }
}

impl Warm {
    /// Whether a run with these variables has to start cold.
    pub fn is_cold<'a>(&self, mut variables: impl Iterator<Item = &'a OsStr>) -> bool {
        let matches = |pattern: &String, name: &[u8]| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start.as_bytes()),
            None => name == pattern.as_bytes(),
        };
        variables.any(|name| self.cold.iter().any(|pattern| matches(pattern, name.as_bytes())))
    }
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

/// Why a definition file was refused.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// It cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML, or not of this shape.
    #[error("{file}: {source}")]
    Syntax {
        /// The file.
        file: String,
        /// What is wrong, and where.
        source: Box<toml::de::Error>,
    },
    /// A value is invalid.
    #[error("{file}: {what}")]
    Value {
        /// The file.
        file: String,
        /// What is wrong.
        what: String,
    },
}

/// Words that are replaced in a command.
const PLACEHOLDERS: [&str; 9] =
    ["{executable}", "{entry}", "{stem}", "{runner}", "{runner_file}", "{heap}", "{zygote}", "{library}", "{preload}"];

/// Keys whose value is the name of a file beside the definition; `*` stands for any key.
const FILE_KEYS: [&[&str]; 5] = [
    &["run", "runner"],
    &["run", "restricted", "runner"],
    &["run", "warm", "zygote"],
    &["prepare", "files", "*"],
    &["templates", "*"],
];

/// Keys that a definition does not inherit from a language with another name.
const OWN_KEYS: [&str; 3] = ["aliases", "title", "order"];

impl Definition {
    /// Reads a definition; `file` is named in errors. `like` gives the definition that this one builds on by its name,
    /// and `beside` reads the files beside it. Returns the table too, in which names of files are replaced by their
    /// content, so that another definition can build on it.
    pub fn parse(
        file: &str,
        text: &str,
        like: impl Fn(&str) -> Option<toml::Table>,
        beside: impl Fn(&str) -> std::io::Result<String>,
    ) -> Result<(Self, toml::Table), DefinitionError> {
        let syntax = |source| DefinitionError::Syntax { file: file.to_owned(), source: Box::new(source) };
        let value = |what| DefinitionError::Value { file: file.to_owned(), what };
        let mut table: toml::Table = toml::from_str(text).map_err(syntax)?;
        let base = match table.remove("like") {
            None => None,
            Some(toml::Value::String(name)) => {
                Some(like(&name).ok_or_else(|| value(format!("like: unknown language '{name}'")))?)
            }
            Some(_) => return Err(value("like: expected the name of a language".to_owned())),
        };
        for keys in FILE_KEYS {
            read_files(&mut table, keys, &mut |name| {
                let read =
                    |source| DefinitionError::Read { file: format!("{name} ({} in {file})", keys.join(".")), source };
                let invalid = |error| value(format!("{}: {error}", keys.join(".")));
                sandbox_base::RelativePath::new(name.to_owned()).map_err(invalid)?;
                beside(name).map_err(read)
            })?;
        }
        let is_whole = base.is_none();
        if let Some(mut base) = base {
            if base.get("name") != table.get("name") {
                base.retain(|key, _| !OWN_KEYS.contains(&key));
            }
            table = merge(base, table);
        }
        let definition: Self = match table.clone().try_into() {
            Ok(definition) => definition,
            // Once more from the text, so that the error names the line.
            Err(source) => {
                return Err(syntax(toml::from_str::<Self>(text).err().filter(|_| is_whole).unwrap_or(source)));
            }
        };
        match definition.problem() {
            Some(what) => Err(value(what)),
            None => Ok((definition, table)),
        }
    }

    /// The language's name as people write it.
    #[must_use]
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }

    fn problem(&self) -> Option<String> {
        let names = || std::iter::once(&self.name).chain(&self.aliases);
        if let Some(name) = names().find(|name| !is_name(name)) {
            return Some(format!("invalid name '{name}': use lower-case letters, digits, '+', '-' and '_'"));
        }
        for path in std::iter::once(&self.source).chain(&self.entries) {
            if let Err(error) = sandbox_base::RelativePath::new(path.clone()) {
                return Some(format!("source or entries: {error}"));
            }
        }
        let tools = self.tools();
        for (name, commands) in std::iter::once(("find", &self.find.commands))
            .chain(tools.map(|(name, tool)| (name.as_str(), &tool.commands)))
        {
            if commands.is_empty() || commands.iter().any(|command| command.is_empty() || command.contains('/')) {
                return Some(format!("{name}.commands must list commands, without directories"));
            }
        }
        let normal = |path: &Path| path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
        let inside = |path: &Path| path.starts_with("/etc") && normal(path);
        if let Some(path) = self.find.system.iter().find(|path| !inside(Path::new(path))) {
            return Some(format!("find.system: '{path}' is not below /etc"));
        }
        let argvs = std::iter::once(("run.argv", &self.run.argv));
        let restricted = self.run.restricted.iter().map(|restricted| ("run.restricted.argv", &restricted.argv));
        let warm = self.run.warm.iter().map(|warm| ("run.warm.argv", &warm.argv));
        for (name, argv) in argvs.chain(restricted).chain(warm) {
            if argv.is_empty() {
                return Some(format!("{name} is empty"));
            }
            let unknown = argv
                .iter()
                .find(|word| word.starts_with('{') && word.ends_with('}') && !PLACEHOLDERS.contains(&word.as_str()));
            if let Some(word) = unknown {
                return Some(format!("{name}: unknown placeholder {word}; expected {}", PLACEHOLDERS.join(", ")));
            }
            if argv.iter().any(|word| word.starts_with("{runner")) && self.run.runner.is_none() {
                return Some(format!("{name} uses {{runner}}, but there is no run.runner"));
            }
        }
        let created = self.prepare.iter().flat_map(|prepare| prepare.files.keys());
        for path in created {
            if let Err(error) = sandbox_base::RelativePath::new(path.clone()) {
                return Some(format!("prepare.files: {error}"));
            }
        }
        let is_plain = |name: &&String| matches!(sandbox_base::RelativePath::new((*name).clone()), Ok(path) if !path.as_str().contains('/'));
        if let Some(name) = self.ignore.iter().chain(&self.build_dir).find(|name| !is_plain(name)) {
            return Some(format!("ignore or build_dir: '{name}' is not the name of a directory"));
        }
        if let Some(what) = self.literals.as_ref().and_then(Literals::problem) {
            return Some(what);
        }
        let targets = self.prepare.iter().map(|prepare| ("prepare.target", &prepare.target));
        let targets = targets.chain(self.packages.iter().map(|packages| ("packages.target", &packages.target)));
        for (name, target) in targets {
            if !target.is_absolute() || !normal(target) || target.components().count() < 2 {
                return Some(format!("{name}: '{}' is not an absolute path", target.display()));
            }
        }
        None
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

/// Replaces names of files by what `read` returns for them.
fn read_files(
    table: &mut toml::Table,
    keys: &[&str],
    read: &mut dyn FnMut(&str) -> Result<String, DefinitionError>,
) -> Result<(), DefinitionError> {
    let Some((first, rest)) = keys.split_first() else { return Ok(()) };
    for (_, value) in table.iter_mut().filter(|(key, _)| *first == "*" || key == first) {
        match value {
            toml::Value::Table(inner) => read_files(inner, rest, read)?,
            toml::Value::String(name) if rest.is_empty() => *name = read(name)?,
            // The shape of the rest is checked with the whole definition.
            _ => {}
        }
    }
    Ok(())
}

/// Puts a table on top of another: what both have is the upper one's, tables are merged.
fn merge(mut lower: toml::Table, upper: toml::Table) -> toml::Table {
    for (key, value) in upper {
        let value = match (lower.remove(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => toml::Value::Table(merge(below, above)),
            (_, value) => value,
        };
        lower.insert(key, value);
    }
    lower
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 32
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-_".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"
        name = "lua"
        extensions = ["lua"]
        source = "main.lua"
        [find]
        commands = ["lua"]
        describe = "echo version=5"
        missing = "install it"
        [run]
        argv = ["{executable}", "{entry}"]
    "#;

    fn parse(text: &str) -> Result<Definition, DefinitionError> {
        let base = |name: &str| (name == "base").then(|| toml::from_str(MINIMAL).expect("valid"));
        let beside = |name: &str| match name {
            "runner.lua" => Ok("print(1)".to_owned()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        Definition::parse("x.toml", text, base, beside).map(|(definition, _)| definition)
    }

    #[test]
    fn a_definition_can_build_on_another() {
        let moon = parse("like = \"base\"\nname = \"moon\"\n[find]\ncommands = [\"moon\"]").expect("valid");
        assert_eq!((moon.name.as_str(), moon.source.as_str()), ("moon", "main.lua"));
        assert_eq!((moon.find.commands, moon.find.missing), (vec!["moon".to_owned()], "install it".to_owned()));
        let error = parse("like = \"nothing\"\nname = \"x\"").expect_err("refused").to_string();
        assert_eq!(error, "x.toml: like: unknown language 'nothing'");
        assert!(parse("like = 3").is_err());
    }

    #[test]
    fn a_few_lines_are_enough() {
        let lua = parse(MINIMAL).expect("valid");
        assert_eq!(lua.run.argv, ["{executable}", "{entry}"]);
        assert!(lua.is_source("a/B.LUA") && !lua.is_source("lua") && !lua.is_source("x.py"));
        let runner = "[run]\nrunner = \"runner.lua\"";
        assert_eq!(parse(&MINIMAL.replace("[run]", runner)).expect("valid").run.runner.as_deref(), Some("print(1)"));
    }

    #[test]
    fn a_range_of_versions_includes_both_ends() {
        let range = TestedVersions { from: "3.9".to_owned(), to: "3.13".to_owned() };
        for version in ["3.9", "3.9.0", "3.10.4", "3.13", "3.13.99"] {
            assert!(range.contains(version), "{version}");
        }
        for version in ["3.8.18", "2.7", "3.14.0", "4.0", "unknown"] {
            assert!(!range.contains(version), "{version}");
        }
    }

    #[test]
    fn errors_name_the_file_and_the_mistake() {
        let wrong = |from: &str, to: &str| parse(&MINIMAL.replace(from, to)).expect_err("refused").to_string();
        assert!(wrong("name = \"lua\"", "name = \"L ua\"").contains("x.toml: invalid name 'L ua'"));
        assert!(wrong("source = \"main.lua\"", "source = \"../main.lua\"").contains("climbs"));
        assert!(wrong("extensions", "extentions").contains("extentions"));
        assert!(wrong("commands = [\"lua\"]", "commands = []").contains("find.commands must list"));
        assert!(wrong("commands = [\"lua\"]", "commands = [\"/bin/lua\"]").contains("without directories"));
        assert!(wrong("argv = [\"{executable}\", \"{entry}\"]", "argv = []").contains("run.argv is empty"));
        assert!(wrong("{entry}", "{source}").contains("unknown placeholder {source}; expected {executable}"));
        assert!(wrong("{entry}", "{runner}").contains("there is no run.runner"));
        assert!(wrong("missing", "system = [\"/root\"]\nmissing").contains("not below /etc"));
        assert!(wrong("missing", "system = [\"/etc/../root\"]\nmissing").contains("not below /etc"));
        assert!(wrong("[run]", "[run]\nrunner = \"../x\"").contains("run.runner: path \"../x\" climbs"));
        assert!(wrong("[run]", "[run]\nrunner = \"/x\"").contains("run.runner: path \"/x\" is absolute"));
        assert!(wrong("[run]", "[run]\nrunner = \"none\"").contains("cannot read none"));
        assert!(wrong("[run]", "[errors]\nrun = [\"(\"]\n[run]").contains("invalid regular expression"));
        let prepare = "[prepare]\nwhat = \"x\"\nscript = \"x\"\ntarget = \"/a/../b\"\nstages = []\n[run]";
        assert!(wrong("[run]", prepare).contains("prepare.target"));
    }
}
