//! A language as this host can run it: a definition with its toolchain, and the commands that follow from them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandbox_base::Limits;
use sandbox_cell::{Command, Mount, WORK_DIR, base_environment};

use crate::definition::{Definition, Packages, Tool};
use crate::discover::{LocatedTool, Missing, SearchPaths};
use crate::toolchain_cache::{Fingerprint, ToolchainDescription};

/// Where a stage that makes something puts it, and where what was compiled appears in the run.
pub const OUT_DIR: &str = "/build";

/// Where a runner leaves the value of the last expression and the reason of a failure.
pub const RESULT_DIR: &str = "/run/result";

/// The name of the runner in that directory.
pub const RUNNER_FILE: &str = "runner";

/// The name of the library that a zygote loads, in its working directory.
pub const ZYGOTE_LIBRARY_FILE: &str = "zygote.so";

/// Variables, in order; a later one of the same name wins.
pub type Environment = Vec<(OsString, OsString)>;

/// A language as this host can run it.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// The definition file.
    pub definition: Arc<Definition>,
    /// The toolchain's version.
    pub version: String,
    /// Where its executable is on the host, or in its image.
    pub host_executable: PathBuf,
    /// Host directories that a cell needs to see.
    pub mounts: Vec<Mount>,
    /// The identity of this toolchain, which changes with an update.
    pub identity: String,
    /// Variables that every stage has.
    pub(crate) environment: Environment,
    /// Where its executable is in a cell.
    executable: PathBuf,
    /// The tools of its stages, located once: later the server may lack the privileges to search everywhere.
    tools: BTreeMap<String, Result<LocatedTool, Missing>>,
}

/// A command, and the mounts that it needs besides the toolchain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageCommand {
    /// What to run.
    pub command: Command,
    /// Tools.
    pub mounts: Vec<Mount>,
}

/// The command that becomes a zygote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmUp {
    /// What to run.
    pub command: Command,
    /// What its cell has where runs have the runner's file, if the command names that.
    pub runner_file: Option<String>,
    /// The language.
    pub language: String,
    /// A program that must end alike in its children and in an interpreter that starts by itself.
    pub self_test: Option<WarmSelfTest>,
}

/// A program that shows whether warm starts work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmSelfTest {
    /// How it is run.
    pub command: Command,
    /// The name of its file in the working directory.
    pub entry: String,
    /// Its text.
    pub program: String,
    /// The runner, if the command names its file.
    pub runner_file: Option<String>,
}

/// The invocation of a program.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'a> {
    /// The file where it begins, below the usual working directory; in [`RunMode::Module`] the name of the module.
    pub entry: &'a str,
    /// What it may use.
    pub limits: &'a Limits,
    /// Whether it has packages.
    pub packages: bool,
    /// The helper that it uses.
    pub mode: RunMode,
    /// Arguments for the interpreter.
    pub arguments: &'a [String],
    /// Modules that a zygote may load besides those that the definition names.
    pub preload: &'a [String],
    /// Whether it starts in another directory than the usual one.
    pub elsewhere: bool,
}

/// The helper that a run uses besides the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    /// The language's runner, whose report is wanted.
    Reported,
    /// The plain command of the definition, without a report of the runner.
    Plain,
    /// The runner, which allows only safe built-ins.
    Restricted,
    /// None: a module is run by its name.
    Module,
}

impl Runtime {
    pub(crate) fn new(definition: &Definition, description: &ToolchainDescription, places: &SearchPaths) -> Self {
        let (mut mounts, inside, executable) = place(&definition.name, description);
        let mut environment = base_environment();
        if !mounts.is_empty() {
            let prefix = inside.to_string_lossy();
            let relocated = definition.find.relocated.iter();
            set_all(&mut environment, relocated.map(|(name, value)| (name, value.replace("{prefix}", &prefix))));
        }
        search_first(&mut environment, &inside.join("bin"));
        let system = definition.find.system.iter().flat_map(|path| places.expand(path));
        mounts.extend(system.filter_map(|path| Some(Mount::read_only(path.canonicalize().ok()?, path))));
        let print = Fingerprint::of(&description.executable);
        let prefix = (description.prefix.clone(), inside);
        let tools =
            definition.tools().map(|(name, tool)| (name.clone(), tool.locate(name, places, (&prefix.0, &prefix.1))));
        Self {
            tools: tools.collect(),
            definition: Arc::new(definition.clone()),
            version: description.version.clone(),
            host_executable: description.executable.clone(),
            mounts,
            identity: format!("{} {} {print:?}", definition.name, description.version),
            environment,
            executable,
        }
    }

    /// A toolchain of an image, where it is in place.
    pub(crate) fn in_image(
        definition: &Definition,
        description: ToolchainDescription,
        mut environment: Environment,
        tools: BTreeMap<String, Result<LocatedTool, Missing>>,
        digest: &str,
    ) -> Self {
        let ToolchainDescription { version, executable, prefix } = description;
        let dir = executable.parent().unwrap_or(&prefix).to_owned();
        search_first(&mut environment, &dir);
        Self {
            tools,
            definition: Arc::new(definition.clone()),
            identity: format!("{} {version} {digest}", definition.name),
            version,
            host_executable: executable.clone(),
            mounts: vec![],
            environment,
            executable,
        }
    }

    /// The host paths that its stages may mount.
    pub fn sources(&self) -> impl Iterator<Item = &Path> {
        let tools = self.tools.values().flatten().filter_map(|placed| placed.mount.as_ref());
        self.mounts.iter().chain(tools).map(|mount| mount.source.as_path())
    }

    /// The programs that install packages besides the toolchain: each with its file, or what to do about its absence.
    pub fn package_tools(&self) -> impl Iterator<Item = (&str, Result<&Path, &Missing>)> {
        let names = self.definition.packages.iter().flat_map(|packages| packages.tools.keys());
        names.filter_map(|name| {
            let found = self.tools.get(name)?;
            Some((name.as_str(), found.as_ref().map(|tool| tool.command.as_path())))
        })
    }

    /// Prepares what is done once. `variable` gives the host's variables.
    pub fn prepare(&self, variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<StageCommand>, Missing> {
        let Some(prepare) = &self.definition.prepare else { return Ok(None) };
        let mut environment = self.with(&prepare.env);
        set_all(&mut environment, prepare.pass.iter().filter_map(|name| Some((name, variable(name)?))));
        let mounts = self.tools(&prepare.tools, &mut environment)?;
        Ok(Some(StageCommand { command: script(&prepare.script, environment, []), mounts }))
    }

    /// Compiles the program that begins in `entry`, with packages or without, and with arguments for the compiler.
    pub fn compile(&self, entry: &str, packages: bool, arguments: &[String]) -> Result<Option<StageCommand>, Missing> {
        let Some(compile) = &self.definition.compile else { return Ok(None) };
        let mut environment = self.with(&compile.env);
        self.add_package_variables(&mut environment, packages);
        let mounts = self.tools(&compile.tools, &mut environment)?;
        let words = [as_operand(entry).into_owned()].into_iter().chain(arguments.iter().cloned()).map(OsString::from);
        Ok(Some(StageCommand { command: script(&compile.script, environment, words), mounts }))
    }

    /// What becomes a zygote for such compile commands, if there are any.
    #[must_use]
    pub fn compiler_zygote(&self, compile: &StageCommand) -> Option<WarmUp> {
        let definition = self.definition.compile.as_ref()?;
        let warm = definition.warm.as_ref().filter(|_| self.starts_cold().is_none())?;
        let env = || compile.command.env.clone();
        let library = format!("{WORK_DIR}/{ZYGOTE_LIBRARY_FILE}");
        let entry = self.definition.source.clone();
        let self_test = warm.self_test.clone().map(|program| WarmSelfTest {
            command: script(&definition.script, env(), [entry.clone().into()]),
            entry,
            program,
            runner_file: None,
        });
        Some(WarmUp {
            command: script(&warm.script, env(), [library.into()]),
            runner_file: None,
            language: self.definition.name.clone(),
            self_test,
        })
    }

    /// Installs packages. `variable` gives the host's variables.
    pub fn install(
        &self,
        packages: &[String],
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<StageCommand>, Missing> {
        let Some(definition) = &self.definition.packages else { return Ok(None) };
        self.installer(definition, &definition.script, packages.iter().map(OsString::from), variable).map(Some)
    }

    /// Prepares installations, which then see the result. `variable` gives the host's variables.
    pub fn prepare_packages(
        &self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<StageCommand>, Missing> {
        let Some(definition) = &self.definition.packages else { return Ok(None) };
        let Some(prepare) = &definition.prepare else { return Ok(None) };
        self.installer(definition, &prepare.script, [], variable).map(Some)
    }

    /// A script with all that an installation has.
    fn installer(
        &self,
        definition: &Packages,
        text: &str,
        arguments: impl IntoIterator<Item = OsString>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<StageCommand, Missing> {
        let mut environment = self.with(&definition.install_env);
        let passed = definition.pass.iter().filter_map(|name| Some((name, variable(name)?)));
        set_all(&mut environment, passed);
        let mounts = self.tools(&definition.tools, &mut environment)?;
        Ok(StageCommand { command: script(text, environment, arguments), mounts })
    }

    /// Runs a program. `None` if restricted mode or a module is requested and the language has none.
    #[must_use]
    pub fn run(&self, invocation: &Invocation<'_>) -> Option<Command> {
        let Invocation { entry, limits, packages, mode, arguments, elsewhere, preload: _ } = *invocation;
        let run = &self.definition.run;
        let heap = heap(limits);
        let stem = entry.rsplit_once('.').map_or(entry, |(stem, _)| stem);
        let runner = run.runner.as_deref().unwrap_or_default();
        let (argv, runner) = match &run.restricted {
            Some(own) if mode == RunMode::Restricted => (&own.argv, format!("{}{runner}", own.runner)),
            None if mode == RunMode::Restricted => return None,
            _ if mode == RunMode::Module => (run.module.as_ref()?, String::new()),
            _ if self.has_runner(mode) => (&run.argv, runner.to_owned()),
            _ => (run.plain.as_ref().unwrap_or(&run.argv), String::new()),
        };
        let replaced = |word: &String| match word.as_str() {
            "{executable}" => self.executable.clone().into_os_string(),
            // From another directory it is only found by its whole path.
            "{entry}" if elsewhere => format!("{WORK_DIR}/{entry}").into(),
            "{entry}" => as_operand(entry).into_owned().into(),
            "{module}" => entry.into(),
            "{runner}" => runner.clone().into(),
            "{runner_file}" => format!("{RESULT_DIR}/{RUNNER_FILE}").into(),
            other => other.replace("{heap}", &heap).replace("{stem}", stem).into(),
        };
        let mut words: Vec<OsString> = vec![];
        for word in argv {
            if word == "{arguments}" {
                words.extend(arguments.iter().map(OsString::from));
            } else {
                words.push(replaced(word));
            }
        }
        let mut command = Command::new(words);
        let variables = run.env.iter().map(|(name, value)| (name, value.replace("{heap}", &heap)));
        command.env.clone_from(&self.environment);
        set_all(&mut command.env, variables);
        self.add_package_variables(&mut command.env, packages);
        if self.has_runner(mode) {
            set_all(&mut command.env, [("RESULT", RESULT_DIR)]);
        }
        Some(command)
    }

    /// Whether a run uses the language's runner.
    #[must_use]
    pub fn has_runner(&self, mode: RunMode) -> bool {
        let run = &self.definition.run;
        run.runner.is_some() && mode != RunMode::Module && (mode != RunMode::Plain || run.plain.is_none())
    }

    /// Whether the language's interpreter can start warm, or its compiler. Compiled programs start by themselves.
    #[must_use]
    pub fn can_start_warm(&self) -> bool {
        match &self.definition.compile {
            Some(compile) => compile.warm.is_some(),
            None => self.definition.run.warm.is_some(),
        }
    }

    /// Why the interpreter or the compiler always starts cold although that of the language can start warm; none if this
    /// toolchain's can too.
    #[must_use]
    pub fn starts_cold(&self) -> Option<String> {
        let tested = match &self.definition.compile {
            Some(compile) => compile.warm.as_ref()?.tested.as_ref()?,
            None => self.definition.run.warm.as_ref()?.tested.as_ref()?,
        };
        let (name, version) = (&self.definition.name, &self.version);
        let why = || format!("{name} {version} is outside the tested versions {} to {}", tested.from, tested.to);
        (!tested.contains(version)).then(why)
    }

    /// What becomes a zygote for such runs, if there are any.
    #[must_use]
    pub fn zygote(&self, invocation: &Invocation<'_>) -> Option<WarmUp> {
        let warm = self.definition.run.warm.as_ref().filter(|_| invocation.mode == RunMode::Reported)?;
        if self.starts_cold().is_some() {
            return None;
        }
        let run = self.run(&Invocation { entry: "", elsewhere: false, ..*invocation })?;
        let heap = heap(invocation.limits);
        let library = format!("{WORK_DIR}/{ZYGOTE_LIBRARY_FILE}");
        let preload: Vec<&str> = warm.preload.iter().chain(invocation.preload).map(String::as_str).collect();
        let argv = warm.argv.iter().map(|word| match word.as_str() {
            "{executable}" => self.executable.clone().into_os_string(),
            "{runner}" => self.definition.run.runner.clone().unwrap_or_default().into(),
            "{runner_file}" => format!("{RESULT_DIR}/{RUNNER_FILE}").into(),
            "{zygote}" => warm.zygote.clone().into(),
            "{library}" => library.clone().into(),
            "{preload}" => preload.join(",").into(),
            other => other.replace("{heap}", &heap).into(),
        });
        let mut command = Command { argv: argv.collect(), ..run };
        set_all(&mut command.env, warm.env.iter().map(|(name, value)| (name, value.replace("{library}", &library))));
        let wants_file = warm.argv.iter().any(|word| word == "{runner_file}");
        Some(WarmUp {
            command,
            runner_file: wants_file.then(|| warm.zygote.clone()),
            language: self.definition.name.clone(),
            self_test: self.self_test(invocation),
        })
    }

    fn self_test(&self, invocation: &Invocation<'_>) -> Option<WarmSelfTest> {
        let (run, entry) = (&self.definition.run, self.definition.source.clone());
        let program = run.warm.as_ref()?.self_test.clone()?;
        let command = self.run(&Invocation { entry: &entry, elsewhere: false, ..*invocation })?;
        let wants_file = run.argv.iter().any(|word| word == "{runner_file}");
        let runner_file = run.runner.clone().filter(|_| wants_file);
        Some(WarmSelfTest { command, entry, program, runner_file })
    }

    fn add_package_variables(&self, environment: &mut Environment, packages: bool) {
        if let Some(definition) = self.definition.packages.as_ref().filter(|_| packages) {
            set_all(environment, definition.env.iter());
        }
    }

    fn with(&self, variables: &BTreeMap<String, String>) -> Environment {
        let mut environment = self.environment.clone();
        set_all(&mut environment, variables);
        set_all(&mut environment, [("OUT", OUT_DIR)]);
        environment
    }

    /// Finds tools, adds them to the search path, and says what to mount for them.
    fn tools(&self, tools: &BTreeMap<String, Tool>, environment: &mut Environment) -> Result<Vec<Mount>, Missing> {
        let mut mounts = vec![];
        for name in tools.keys() {
            if let Some(found) = self.tools.get(name) {
                let placed = found.as_ref().map_err(Clone::clone)?;
                mounts.extend(placed.mount.clone());
                search_first(environment, &placed.dir);
            }
        }
        Ok(mounts)
    }
}

/// A path as commands take it: one that they would take for an option, or for a list of options, gets a directory.
fn as_operand(path: &str) -> Cow<'_, str> {
    if path.starts_with(['-', '@']) { format!("./{path}").into() } else { path.into() }
}

/// The value of `{heap}`.
fn heap(limits: &Limits) -> String {
    (limits.memory() / 4 * 3 / (1 << 20)).max(1).to_string()
}

/// Sets variables, each in place of an earlier one of the same name.
pub fn set_all<N: Into<OsString>, V: Into<OsString>>(
    environment: &mut Environment,
    variables: impl IntoIterator<Item = (N, V)>,
) {
    for (name, value) in variables {
        let name = name.into();
        environment.retain(|(existing, _)| *existing != name);
        environment.push((name, value.into()));
    }
}

/// Puts a directory in front of the search path, unless it is in it.
fn search_first(environment: &mut Environment, dir: &Path) {
    let Some((_, path)) = environment.iter_mut().find(|(name, _)| name == "PATH") else { return };
    if !std::env::split_paths(path).any(|existing| existing == dir) {
        let mut longer = dir.as_os_str().to_owned();
        longer.push(":");
        longer.push(&path);
        *path = longer;
    }
}

fn script(script: &str, env: Environment, args: impl IntoIterator<Item = OsString>) -> Command {
    let words = ["/bin/sh", "-c", script, "sh"].map(OsString::from);
    Command { env, ..Command::new(words.into_iter().chain(args)) }
}

/// Where a toolchain appears in a cell: in place if it belongs to the system, else at a neutral path. The mount, the
/// directory, and the executable in it.
fn place(language: &str, description: &ToolchainDescription) -> (Vec<Mount>, PathBuf, PathBuf) {
    if description.prefix.starts_with("/usr") {
        return (vec![], description.prefix.clone(), description.executable.clone());
    }
    let target = Path::new("/opt").join(language);
    let executable = match description.executable.strip_prefix(&description.prefix) {
        Ok(inside) => target.join(inside),
        Err(_) => description.executable.clone(),
    };
    (vec![Mount::read_only(&description.prefix, &target)], target, executable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    fn runtime(name: &str) -> Runtime {
        let definition = Registry::shipped().expect("valid").by_name(name).expect("known").clone();
        let compiler = definition.compile.as_ref().and_then(|compile| compile.warm.as_ref()?.tested.as_ref());
        let tested = compiler.or(definition.run.warm.as_ref().and_then(|warm| warm.tested.as_ref()));
        let description = ToolchainDescription {
            version: tested.map_or_else(|| "1.0".to_owned(), |tested| tested.to.clone()),
            executable: "/home/u/chain/bin/tool".into(),
            prefix: "/home/u/chain".into(),
        };
        Runtime::new(&definition, &description, &SearchPaths::default())
    }

    fn variable(environment: &Environment, name: &str) -> Option<String> {
        let mut values = environment.iter().filter(|(n, _)| n == name).map(|(_, v)| v.to_string_lossy().into_owned());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} is set twice");
        value
    }

    #[test]
    fn a_run_is_planned_from_the_definition() {
        let limits = Limits::default();
        let invocation = |entry| Invocation {
            entry,
            limits: &limits,
            packages: false,
            mode: RunMode::Reported,
            arguments: &[],
            preload: &[],
            elsewhere: false,
        };
        let python = runtime("python");
        let with_packages = Invocation { packages: true, ..invocation("a/b.py") };
        let command = python.run(&with_packages).expect("possible");
        assert_eq!(command.argv[0], "/opt/python/bin/tool");
        assert!(command.argv[2].to_string_lossy().contains("import"), "the runner's text");
        assert_eq!(command.argv.last(), Some(&"a/b.py".into()));
        assert_eq!(variable(&command.env, "RESULT").as_deref(), Some(RESULT_DIR));
        assert_eq!(variable(&command.env, "PYTHONPATH").as_deref(), Some("/opt/packages"));
        let bare = python.run(&Invocation { elsewhere: true, ..invocation("x.py") }).expect("possible");
        assert_eq!(variable(&bare.env, "PYTHONPATH"), None);
        assert_eq!(bare.argv.last(), Some(&"/sandbox/x.py".into()));
        let plain = python.run(&Invocation { mode: RunMode::Plain, ..invocation("x.py") }).expect("possible");
        assert_eq!((plain.argv.len(), variable(&plain.env, "RESULT")), (2, None), "{:?}", plain.argv);
        let module = Invocation { mode: RunMode::Module, elsewhere: true, ..invocation("json.tool") };
        let command = python.run(&module).expect("possible");
        assert_eq!(command.argv[1..], ["-m", "json.tool"]);
        assert!(variable(&command.env, "RESULT").is_none() && python.zygote(&module).is_none());
        assert!(runtime("perl").run(&module).is_none());
        let javascript = runtime("javascript").run(&Invocation { mode: RunMode::Plain, ..invocation("x.js") });
        assert!(variable(&javascript.expect("possible").env, "RESULT").is_some(), "its runner does more than report");
        let arguments = ["-O".to_owned(), "-u".to_owned()];
        for mode in [RunMode::Reported, RunMode::Plain] {
            let command = python.run(&Invocation { mode, arguments: &arguments, ..invocation("x.py") });
            assert_eq!(command.expect("possible").argv[1..3], ["-O", "-u"]);
        }
        let restricted = Invocation { mode: RunMode::Restricted, ..invocation("x") };
        assert!(python.run(&restricted).is_some() && runtime("go").run(&restricted).is_none());
        let java = runtime("java").run(&invocation("Main.java")).expect("possible");
        assert!(java.argv.iter().any(|word| word == "-Xmx192m"), "{:?}", java.argv);
        let typescript = Invocation { elsewhere: true, ..invocation("src/main.ts") };
        let typescript = runtime("typescript").run(&typescript).expect("possible");
        assert_eq!(typescript.argv.last(), Some(&"/build/src/main.js".into()));
    }

    #[test]
    fn a_zygote_is_planned_from_the_definition() {
        let limits = Limits::default();
        let preload = ["mylib".to_owned()];
        let invocation = Invocation {
            entry: "x",
            limits: &limits,
            packages: false,
            mode: RunMode::Reported,
            arguments: &[],
            preload: &preload,
            elsewhere: false,
        };
        let python = runtime("python").zygote(&invocation).expect("possible");
        let argv: Vec<_> = python.command.argv.iter().map(|word| word.to_string_lossy()).collect();
        let [.., library, preload] = argv.as_slice() else { panic!("{argv:?}") };
        assert_eq!((library.as_ref(), python.runner_file), ("/sandbox/zygote.so", None));
        assert!(preload.split(',').any(|name| name == "numpy") && preload.ends_with(",mylib"), "{preload}");
        let javascript = runtime("javascript").zygote(&invocation).expect("possible");
        assert_eq!(variable(&javascript.command.env, "LD_PRELOAD").as_deref(), Some("/sandbox/zygote.so"));
        assert!(javascript.command.argv.contains(&"/run/result/runner".into()), "{:?}", javascript.command.argv);
        assert!(javascript.runner_file.expect("a file").contains("rehearse"), "the zygote's text");
        assert_eq!(runtime("python").zygote(&Invocation { mode: RunMode::Restricted, ..invocation }), None);
        assert_eq!(runtime("bash").zygote(&invocation), None);
        let test = runtime("javascript").zygote(&invocation).and_then(|up| up.self_test).expect("a self-test");
        assert_eq!((test.entry.as_str(), test.command.argv.last()), ("main.js", Some(&"main.js".into())));
        assert!(test.runner_file.is_some());
        let old = Runtime { version: "3.4.2".to_owned(), ..runtime("python") };
        assert_eq!(old.zygote(&invocation), None);
        assert!(old.starts_cold().expect("a reason").starts_with("python 3.4.2 is outside the tested versions 3."));
        assert_eq!(runtime("python").starts_cold(), None);
        assert!(!runtime("typescript").can_start_warm());
    }

    #[test]
    fn a_compiler_zygote_is_planned_from_the_definition() {
        let java = runtime("java");
        let compile = java.compile("Main.java", false, &[]).expect("no tools").expect("compiles");
        let zygote = java.compiler_zygote(&compile).expect("possible");
        assert_eq!(zygote.command.argv.last(), Some(&"/sandbox/zygote.so".into()));
        assert_eq!(zygote.command.env, compile.command.env);
        let test = zygote.self_test.expect("tested");
        assert_eq!((&test.command, test.entry.as_str()), (&compile.command, "Main.java"));
        assert!(java.can_start_warm() && java.starts_cold().is_none());
        let newer = Runtime { version: "25.0.1".to_owned(), ..java };
        assert_eq!(newer.compiler_zygote(&compile), None);
        assert_eq!(newer.starts_cold().as_deref(), Some("java 25.0.1 is outside the tested versions 17 to 17"));
        let c = runtime("c");
        let compile = c.compile("main.c", false, &[]).expect("no tools").expect("compiles");
        assert_eq!(c.compiler_zygote(&compile), None);
        assert!(!c.can_start_warm() && c.starts_cold().is_none());
    }

    #[test]
    fn stages_are_planned_from_the_definition() {
        let go = runtime("go");
        let compile = go.compile("main.go", false, &[]).expect("no tools").expect("compiles");
        assert_eq!(compile.command.argv[0], "/bin/sh");
        assert_eq!(compile.command.argv.last(), Some(&"main.go".into()));
        assert_eq!(variable(&compile.command.env, "OUT").as_deref(), Some(OUT_DIR));
        assert!(variable(&compile.command.env, "PATH").expect("path").starts_with("/opt/go/bin:"));
        assert!(go.prepare(|_| None).expect("no tools").is_some());
        assert!(runtime("python").prepare(|_| None).expect("no tools").is_none());
        assert!(runtime("python").compile("main.py", false, &[]).expect("no tools").is_none());
        let packages = ["example.com/a@v1".to_owned()];
        let install = go.install(&packages, |name| (name == "GOPROXY").then(|| "here".into())).expect("no tools");
        let install = install.expect("has packages").command;
        assert_eq!(install.argv.last(), Some(&"example.com/a@v1".into()));
        assert_eq!(variable(&install.env, "GOPROXY").as_deref(), Some("here"));
        assert!(runtime("bash").install(&[], |_| None).expect("no tools").is_none());
    }
}
