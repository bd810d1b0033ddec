//! The plan of a request: its stages, their cells, and the artifacts that they make.
//!
//! A stage that makes something (what is prepared for a toolchain, packages, a compiled program) is named by a digest
//! of everything that goes into it, so that it is made once.

mod language;

use std::path::PathBuf;
use std::sync::Arc;

use sandbox_base::LimitKind;
use sandbox_cell::archive::FileCaps;
use sandbox_cell::{CellSpec, Command, Network, PROXY_PORT, WORK_DIR};
use sandbox_network::AddressPolicy;
use sandbox_runtimes::{ArtifactKind, Definition, Runtime, StageName, WarmUp, set_all};
use serde::{Deserialize, Serialize};

use self::language::Planner;
#[cfg(feature = "canary")]
use crate::cache_key::CacheKey;
use crate::face::Face;
use crate::images::toolchain_image;
use crate::input_files::InputFile;
use crate::network::NetworkMode;
use crate::request::{Request, RequestError, Source};
use crate::resolve::Resolved;
use crate::settings::Settings;
use crate::template::Translator;
use crate::verdict::ErrorPatterns;
use crate::volumes::VolumeRequest;

/// A step before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Step {
    /// Preparing a toolchain, once for each host.
    Prepare,
    /// Installing packages.
    Install,
    /// Compiling the program.
    Compile,
}

impl Step {
    /// The stage whose limits it has, as flags and variables name it.
    pub(crate) fn stage(self) -> &'static str {
        match self {
            Self::Prepare | Self::Install => "install",
            Self::Compile => "compile",
        }
    }

    /// What is done in that stage.
    pub(crate) fn doing(self) -> &'static str {
        match self {
            Self::Prepare | Self::Install => "installing",
            Self::Compile => "compiling",
        }
    }
}

/// A step, its artifact, and the command that makes it.
#[derive(Debug, Clone)]
pub(crate) struct ArtifactPlan {
    pub(crate) step: Step,
    /// A description of the step for users.
    pub(crate) what: String,
    pub(crate) kind: ArtifactKind,
    /// The owner; none if it is shared.
    pub(crate) owner: Option<String>,
    pub(crate) key: String,
    pub(crate) label: String,
    /// Where the result appears in later stages.
    pub(crate) target: PathBuf,
    /// For a prepared artifact, the stages that mount it.
    pub(crate) stages: Vec<StageName>,
    pub(crate) cell: CellSpec,
    pub(crate) command: Command,
    /// The zygote whose children can wait in a cell for the command.
    pub(crate) zygote: Option<WarmUp>,
    pub(crate) files: Vec<InputFile>,
    pub(crate) error_patterns: ErrorPatterns,
    /// What may be reached.
    pub(crate) address_policy: AddressPolicy,
}

/// All that is needed to carry out a request.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The owner of waiting cells that have seen the packages; none if they are shared.
    pub(crate) owner: Option<String>,
    pub(crate) language: Option<(String, String)>,
    /// The definition of the language.
    pub(crate) definition: Option<Arc<Definition>>,
    /// The face that the request came through.
    pub(crate) face: Face,
    /// What the request asked for: packages, and where its program may connect to.
    pub(crate) packages: Vec<String>,
    pub(crate) network: NetworkMode,
    pub(crate) prepare: Option<ArtifactPlan>,
    /// What is prepared for all installations of packages, if packages are installed.
    pub(crate) prepare_packages: Option<ArtifactPlan>,
    pub(crate) install: Option<ArtifactPlan>,
    pub(crate) compile: Option<ArtifactPlan>,
    pub(crate) cell: CellSpec,
    /// What may be reached from it.
    pub(crate) address_policy: AddressPolicy,
    pub(crate) command: Command,
    /// What becomes a zygote whose children could run the command.
    pub(crate) zygote: Option<WarmUp>,
    pub(crate) files: Vec<InputFile>,
    pub(crate) error_patterns: ErrorPatterns,
    /// Whether the language's runner is used. The cell's first volume is then for its report.
    pub(crate) has_runner: bool,
    /// The runner's text, if the interpreter wants it in a file.
    pub(crate) runner_file: Option<String>,
    /// The names of the cell's other volumes.
    pub(crate) named_volumes: Vec<String>,
    /// What may come back, if files are wanted.
    pub(crate) collect: Option<FileCaps>,
    /// Translates messages to lines of a template's snippet.
    pub(crate) translator: Option<Translator>,
    /// What a template has to print at its end.
    pub(crate) token: Option<String>,
}

impl Plan {
    /// The plan of a program that needs nothing but its cell.
    pub(crate) fn of_program(
        cell: CellSpec,
        address_policy: AddressPolicy,
        command: Command,
        files: Vec<InputFile>,
        collect: Option<FileCaps>,
    ) -> Self {
        Self {
            owner: None,
            language: None,
            definition: None,
            face: Face::default(),
            packages: vec![],
            network: NetworkMode::default(),
            prepare: None,
            prepare_packages: None,
            install: None,
            compile: None,
            cell,
            address_policy,
            command,
            zygote: None,
            files,
            error_patterns: ErrorPatterns::default(),
            has_runner: false,
            runner_file: None,
            named_volumes: vec![],
            collect,
            translator: None,
            token: None,
        }
    }

    /// The language and the toolchain's version, if it is code in one.
    #[must_use]
    pub(crate) fn language(&self) -> (Option<&str>, Option<&str>) {
        self.language.as_ref().map(|(name, version)| (name.as_str(), version.as_str())).unzip()
    }

    /// Disables layers of the program's cell, and of the compiler's if `compiler` is set. For tests that have to fail then: no
    /// request can ask for it, and a confined keeper refuses it.
    #[cfg(feature = "canary")]
    #[must_use]
    pub(crate) fn with_disabled_layers(mut self, layers: sandbox_cell::LayerSet, compiler: bool) -> Self {
        self.cell.disabled_layers = layers;
        if let Some(compile) = self.compile.as_mut().filter(|_| compiler && !layers.is_empty()) {
            compile.cell.disabled_layers = layers;
            // What comes out of such a cell must never be found by others.
            let names: Vec<_> = layers.iter().map(sandbox_cell::Layer::name).collect();
            let mut key = CacheKey::from_key(&compile.key);
            key.part(format!("without {}", names.join(" ")).as_bytes());
            compile.key = key.finish();
        }
        self
    }

    /// Whether something is made that has to be kept somewhere.
    #[must_use]
    pub(crate) fn makes_artifacts(&self) -> bool {
        self.install.is_some() || self.compile.is_some()
    }
}

impl Request {
    fn image_root(&self) -> Option<PathBuf> {
        self.image.as_ref().map(|image| image.root.clone())
    }

    /// Makes the plan of a request that was checked. `runtime` is the language's; a program of the system needs none.
    pub(crate) fn plan(
        &self,
        runtime: Option<&Runtime>,
        settings: &Settings,
        resolved: &Resolved,
    ) -> Result<Plan, RequestError> {
        self.network.check(settings).map_err(RequestError::Network)?;
        let (network, address_policy) = self.network.plan(settings);
        let mut cell = CellSpec {
            image: self.image_root(),
            limits: self.limits.clone(),
            network,
            required: self.required,
            ..CellSpec::new()
        };
        let collect = self.collect.then(|| FileCaps { count: settings.files, bytes: self.limits.output_size() });
        let mut plan = match (&self.source, runtime) {
            (Source::Program { argv, mount }, _) => {
                cell.mounts.extend(mount.clone());
                let mut command = Command::new(argv.iter().cloned());
                if let Some(image) = &self.image {
                    command.env = toolchain_image(image).environment();
                }
                Plan::of_program(cell, address_policy, command, self.files.clone(), collect)
            }
            (Source::Code(_) | Source::Files, Some(runtime)) => {
                cell.mounts.clone_from(&runtime.mounts);
                Planner { request: self, runtime, settings, resolved }.plan(cell, address_policy, collect)?
            }
            (Source::Code(_) | Source::Files, None) => return Err(RequestError::EmptyCode),
        };
        plan.face = self.face;
        plan.packages.clone_from(&self.packages);
        plan.network = self.network.mode;
        plan.command.argv.extend(self.args.iter().cloned());
        if matches!(&plan.cell.network, Network::Gateway(gateway) if gateway.proxy) {
            use_proxy(&mut plan.command);
            // What a program serves itself. (An install's index may be there from where the proxy is.)
            set_all(&mut plan.command.env, ["no_proxy", "NO_PROXY"].map(|name| (name, "localhost,127.0.0.1,::1")));
        }
        set_all(&mut plan.command.env, self.env.iter().cloned());
        if let Some(workdir) = &self.workdir {
            plan.command.cwd = PathBuf::from(WORK_DIR).join(workdir);
        }
        plan.cell.terminal = self.terminal;
        plan.cell.mounts.extend(resolved.mounts.iter().cloned());
        for volume in &self.volumes {
            if let Some((name, volume)) = volume.volume() {
                if plan.named_volumes.contains(&name) {
                    return Err(RequestError::Directory(format!("duplicate volume '{name}'")));
                }
                plan.named_volumes.push(name);
                plan.cell.volumes.push(volume);
            }
        }
        check_volumes(&self.volumes, settings).map_err(RequestError::Directory)?;
        Ok(plan)
    }
}

/// Named volumes are in memory while a run uses them, as its other directories are, and no larger than these together.
fn check_volumes(volumes: &[VolumeRequest], settings: &Settings) -> Result<(), String> {
    let sizes = volumes.iter().filter_map(|volume| Some(volume.volume()?.1.size));
    let (total, disk) = (sizes.fold(0, u64::saturating_add), LimitKind::Disk);
    let most = settings.caps.most(disk);
    if total <= most {
        return Ok(());
    }
    let (given, most, setting) = (disk.format(total), disk.format(most), disk.info().cap_variable);
    Err(format!("volumes of {given} are above the maximum of {most} ({setting})"))
}

/// Tells a command's programs where the way out is.
fn use_proxy(command: &mut Command) {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let names = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"];
    set_all(&mut command.env, names.map(|name| (name, proxy.as_str())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Sharing;
    use sandbox_base::{Limits, RelativePath};
    use sandbox_runtimes::{Registry, SearchPaths, ToolchainCache};

    fn request(source: Source) -> Request {
        Request::new(source, Limits::default(), sandbox_cell::LayerSet::required_by_default())
    }

    fn runtime(language: &str) -> Runtime {
        let registry = Registry::shipped().expect("valid");
        let definition = registry.by_name(language).expect("known");
        definition.discover(&SearchPaths::of_this_process(), &mut ToolchainCache::open(None)).expect("installed")
    }

    fn plan(request: &Request, runtime: &Runtime) -> Result<Plan, String> {
        request.plan(Some(runtime), &Settings::default(), &Resolved::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn volumes_are_no_larger_than_a_disk_may_be() {
        let mut request = request(Source::Program { argv: vec!["env".into()], mount: None });
        request.volumes = ["a:/a:600m", "b:/b:600m"].map(|text| VolumeRequest::parse(text).expect("valid")).into();
        let plan =
            |settings: &Settings| request.plan(None, settings, &Resolved::default()).map_err(|error| error.to_string());
        assert!(plan(&Settings::default()).is_ok());
        let mut settings = Settings::default();
        settings.caps.lower(LimitKind::Disk, 1 << 30).expect("within bounds");
        let error = plan(&settings).expect_err("refused");
        assert_eq!(error, "volumes of 1.2 GiB are above the maximum of 1 GiB (SANDBOX_MAX_DISK)");
    }

    #[test]
    fn a_program_is_planned_with_the_users_variables_last() {
        let mut request = request(Source::Program { argv: vec!["env".into()], mount: None });
        request.args = vec!["-0".into()];
        request.env = vec![("HOME".into(), "/x".into())];
        request.workdir = Some("a/b".into());
        let plan = request.plan(None, &Settings::default(), &Resolved::default()).expect("valid");
        assert_eq!(plan.command.argv, ["env", "-0"]);
        let homes: Vec<_> = plan.command.env.iter().filter(|(name, _)| name == "HOME").collect();
        assert_eq!(homes.len(), 1);
        assert_eq!(homes[0].1, "/x");
        assert_eq!(plan.command.cwd, PathBuf::from("/sandbox/a/b"));
        assert!(!plan.makes_artifacts());
    }

    #[test]
    fn artifact_key_depends_on_all_inputs() {
        let c = runtime("c");
        let key = |code: &str, extra: Option<&str>| {
            let mut request = request(Source::Code(code.into()));
            request.args = vec!["not part of it".into()];
            request.files =
                extra.iter().map(|name| InputFile::new(RelativePath::new(*name).expect("path"), vec![])).collect();
            plan(&request, &c).expect("valid").compile.expect("compiles").key
        };
        assert_eq!(key("a", None), key("a", None));
        assert_ne!(key("a", None), key("b", None));
        assert_ne!(key("a", None), key("a", Some("x.h")));
        assert_ne!(key("a", Some("x.h")), key("a", Some("y.h")));
    }

    #[test]
    fn artifact_key_depends_on_the_owner_unless_shared() {
        let (c, python) = (runtime("c"), runtime("python"));
        let keys = |owner: &str, sharing| {
            let settings = Settings { sharing, ..Settings::default() };
            let mut compiled = request(Source::Code("a".into()));
            compiled.owner = Some(owner.to_owned());
            let mut installed = compiled.clone();
            installed.packages = vec!["six".to_owned()];
            let compiled =
                compiled.plan(Some(&c), &settings, &Resolved::default()).expect("valid").compile.expect("compiles");
            let installed = installed.plan(Some(&python), &settings, &Resolved::default()).expect("valid");
            (compiled.key, installed.install.expect("installs").key, installed.owner)
        };
        let (one, other) = (keys("a", Sharing::None), keys("b", Sharing::None));
        assert!(one.0 != other.0 && one.1 != other.1 && one.2 != other.2);
        assert_eq!(one, keys("a", Sharing::None));
        let (one, other) = (keys("a", Sharing::Packages), keys("b", Sharing::Packages));
        assert!(one.0 != other.0 && one.1 == other.1 && one.2 != other.2);
        assert_eq!(keys("a", Sharing::All), keys("b", Sharing::All));
    }

    #[test]
    fn packages_are_prepared_for_all_owners_and_only_if_some_are_installed() {
        let java = runtime("java");
        let plan_of = |packages: &[&str], owner: &str| {
            let mut request = request(Source::Code("class Main { static void main() {} }".into()));
            (request.packages, request.owner) =
                (packages.iter().map(ToString::to_string).collect(), Some(owner.to_owned()));
            plan(&request, &java)
        };
        assert!(plan_of(&[], "a").expect("valid").prepare_packages.is_none());
        let package = java.definition.packages.as_ref().expect("supported").example.clone();
        match plan_of(&[&package], "a") {
            Ok(one) => {
                let other = plan_of(&[&package], "b").expect("valid");
                let [one, other] = [one, other].map(|plan| plan.prepare_packages.expect("prepared"));
                assert_eq!((&one.key, &one.owner, &one.stages), (&other.key, &None, &vec![StageName::Install]));
            }
            // Without Maven there is nothing to prepare, and the request is refused as before.
            Err(error) => assert!(error.contains("install Maven"), "{error}"),
        }
    }

    #[test]
    fn a_script_lists_its_packages_itself() {
        let python = runtime("python");
        let with = |lines: &str, language: &Runtime| {
            let mut request = request(Source::Code(format!("# /// script\n{lines}\n# ///\n1").into()));
            request.packages = vec!["six".to_owned(), "demo==1.0".to_owned()];
            plan(&request, language)
        };
        let both = with("# dependencies = [\"demo==1.0\", \"attrs\"]", &python).expect("valid").install.expect("some");
        assert_eq!(both.what, "installing attrs, demo==1.0, six");
        let error = with("# requires-python = \">=99\"", &python).expect_err("refused");
        let version = &python.version;
        assert_eq!(error, format!("main.py requires Python >=99; the toolchain is Python {version}"));
        let error = with("# dependencies = [", &python).expect_err("refused");
        assert!(error.starts_with("main.py: invalid inline metadata (line 2): "), "{error}");
        let error = with("# dependencies = [\"--index-url=x\"]", &python).expect_err("refused");
        assert!(error.starts_with("invalid python package '--index-url=x'"), "{error}");
        let many = format!("# dependencies = [{}]", "\"a\",".repeat(200));
        assert_eq!(with(&many, &python).expect_err("refused"), "202 packages exceed the maximum of 200");
        // In other languages it is a comment like any other.
        let mut bash = request(Source::Code("# /// script\n# x\n".into()));
        assert!(plan(&bash, &runtime("bash")).expect("valid").install.is_none());
        bash.module = Some("x".to_owned());
        bash.source = Source::Files;
        let error = plan(&bash, &runtime("bash")).expect_err("refused");
        assert_eq!(error, "bash does not support running a module by its name");
    }

    #[test]
    fn packages_are_checked_before_anything_runs() {
        let python = runtime("python");
        let with = |package: &str| {
            let mut request = request(Source::Code("1".into()));
            request.packages = vec![package.to_owned()];
            plan(&request, &python)
        };
        for bad in ["--index-url=x", "-r", "", " six", "a\nb", &"x".repeat(400)] {
            assert!(with(bad).expect_err(bad).contains("expected one such as requests=="), "{bad:?}");
        }
        let mut bash = request(Source::Code("1".into()));
        bash.packages = vec!["x".into()];
        assert_eq!(plan(&bash, &runtime("bash")).expect_err("none"), "bash does not support packages");
        let mut restricted = request(Source::Code("1".into()));
        restricted.restricted = true;
        assert_eq!(plan(&restricted, &runtime("bash")).expect_err("none"), "bash does not support restricted mode");
        assert!(plan(&restricted, &python).is_ok());
    }
}
