//! From a request to what has to be done: which stages there are, in which cells, and what each of them makes.
//!
//! A stage that makes something (what is prepared for a toolchain, packages, a compiled program) is named by a digest
//! of everything that goes into it, so that it is made once.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use sandbox_base::{LimitKind, Limits, RelativePath};
use sandbox_cell::archive::FileCaps;
use sandbox_cell::{CellSpec, Command, Gateway, Mount, Network, PROXY_PORT, Volume, WORK_DIR};
use sandbox_network::{AddressPolicy, PackageIndex, hide_credentials, hosts_in};
use sandbox_runtimes::{
    Invocation, Kind, OUT_DIR, Packages, RESULT_DIR, RUNNER_FILE, Runtime, Stage, StageName, WarmUp, set_all,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files::InputFile;
use crate::images::inside;
use crate::network::WEB;
use crate::prestart::zygote_for;
use crate::request::{Request, RequestError, Source};
use crate::resolve::{HostMount, Resolved};
use crate::settings::Settings;
use crate::template::{TOKEN, Translator};
use crate::verdict::Complaints;
use crate::volumes::VolumeRequest;

/// A step before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Step {
    /// Something is made once for a toolchain.
    Prepare,
    /// Packages are installed.
    Install,
    /// The program is compiled.
    Compile,
}

/// A step, what it makes, and how.
#[derive(Debug, Clone)]
pub(crate) struct Making {
    pub(crate) step: Step,
    /// What goes on, for people who wait.
    pub(crate) what: String,
    pub(crate) kind: Kind,
    /// To whom it belongs, if not to all.
    pub(crate) owner: Option<String>,
    pub(crate) key: String,
    pub(crate) label: String,
    /// Where the result appears in later stages.
    pub(crate) target: PathBuf,
    /// For what is prepared, the stages in which it appears.
    pub(crate) stages: Vec<StageName>,
    pub(crate) cell: CellSpec,
    pub(crate) command: Command,
    /// What can wait in a cell for the command.
    pub(crate) companion: Option<Command>,
    pub(crate) files: Vec<InputFile>,
    pub(crate) complaints: Complaints,
    /// What may be reached.
    pub(crate) reach: AddressPolicy,
}

/// All that is needed to carry out a request.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// To whom belongs what waits in a cell and has seen the packages, if not to all.
    pub(crate) owner: Option<String>,
    pub(crate) language: Option<(String, String)>,
    pub(crate) prepare: Option<Making>,
    pub(crate) install: Option<Making>,
    pub(crate) compile: Option<Making>,
    pub(crate) cell: CellSpec,
    /// Directories of the host's that the request has shown in it, read-only.
    pub(crate) lent: Vec<Mount>,
    /// What may be reached from it.
    pub(crate) reach: AddressPolicy,
    pub(crate) command: Command,
    /// What becomes a zygote whose children could run the command.
    pub(crate) zygote: Option<WarmUp>,
    pub(crate) files: Vec<InputFile>,
    pub(crate) complaints: Complaints,
    /// Whether the language has a runner. The cell's first volume is then for its remarks.
    pub(crate) remarks: bool,
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
            let mut key = Key(Sha256::new());
            key.part(compile.key.as_bytes());
            key.part(format!("without {}", names.join(" ")).as_bytes());
            compile.key = key.finish();
        }
        self
    }

    /// Whether something is made that has to be kept somewhere.
    #[must_use]
    pub(crate) fn makes_something(&self) -> bool {
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
        let (network, reach) = self.network.plan(settings);
        let mut cell = CellSpec {
            image: self.image_root(),
            limits: self.limits.clone(),
            network,
            required: self.required,
            ..CellSpec::new()
        };
        let collect = self.collect.then_some(settings.files);
        let mut plan = match (&self.source, runtime) {
            (Source::Program { argv, mount }, _) => {
                cell.mounts.extend(mount.clone());
                let mut command = Command::new(argv.iter().cloned());
                if let Some(image) = &self.image {
                    command.env = inside(image).environment();
                }
                let (files, complaints) = (self.files.clone(), Complaints::default());
                let (language, prepare, install, compile, runner_file) = (None, None, None, None, None);
                let (named_volumes, translator, token, remarks) = (vec![], None, None, false);
                Plan {
                    owner: None,
                    language,
                    prepare,
                    install,
                    compile,
                    cell,
                    lent: vec![],
                    reach,
                    command,
                    zygote: None,
                    files,
                    complaints,
                    remarks,
                    runner_file,
                    named_volumes,
                    collect,
                    translator,
                    token,
                }
            }
            (Source::Code(_) | Source::Files, Some(runtime)) => {
                cell.mounts.clone_from(&runtime.mounts);
                Planner { request: self, runtime, settings, resolved }.plan(cell, reach, collect)?
            }
            (Source::Code(_) | Source::Files, None) => return Err(RequestError::EmptyCode),
        };
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
        for HostMount { mount, is_dir } in &resolved.mounts {
            // A cell that is ready can still show a directory.
            let list = if mount.writable || !is_dir { &mut plan.cell.mounts } else { &mut plan.lent };
            list.push(mount.clone());
        }
        for volume in &self.volumes {
            if let Some((name, volume)) = volume.volume() {
                if plan.named_volumes.contains(&name) {
                    return Err(RequestError::Place(format!("the volume '{name}' is given twice")));
                }
                plan.named_volumes.push(name);
                plan.cell.volumes.push(volume);
            }
        }
        check_volumes(&self.volumes, settings).map_err(RequestError::Place)?;
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

/// How many bytes and files a runner's remarks may have.
const REMARKS: (u64, u64) = (512 << 10, 16);

/// Plans code in a language.
struct Planner<'a> {
    request: &'a Request,
    runtime: &'a Runtime,
    settings: &'a Settings,
    resolved: &'a Resolved,
}

impl Planner<'_> {
    fn plan(&self, mut cell: CellSpec, reach: AddressPolicy, collect: Option<FileCaps>) -> Result<Plan, RequestError> {
        let (request, runtime, definition) = (self.request, self.runtime, &self.runtime.definition);
        let (files, entry) = request.files_and_entry(definition)?;
        let install = self.install(&files)?;
        let prepare = self.prepare()?;
        let compile = self.compile(&entry, &files, prepare.as_ref(), install.as_ref())?;
        let invocation = Invocation {
            entry: &entry,
            limits: &request.limits,
            packages: install.is_some(),
            restricted: request.restricted,
            preload: &self.settings.preload,
            elsewhere: request.workdir.is_some(),
        };
        let no_restricted = || RequestError::Unsupported { language: definition.name.clone(), what: "restricted mode" };
        let mut command = runtime.run(&invocation).ok_or_else(no_restricted)?;
        let zygote = zygote_for(request, runtime, &invocation, compile.is_some());
        if request.restricted && (install.is_some() || !request.volumes.is_empty()) {
            let what = "restricted mode with packages or volumes";
            return Err(RequestError::Unsupported { language: definition.name.clone(), what });
        }
        let wants_file = definition.run.argv.iter().any(|word| word == "{runner_file}");
        let runner_file = definition.run.runner.clone().filter(|_| wants_file);
        let remarks = definition.run.runner.is_some();
        if remarks {
            cell.volumes.push(Volume { target: RESULT_DIR.into(), size: REMARKS.0, inodes: REMARKS.1 });
        }
        let errors = definition.errors.clone();
        let rendered = request.rendered.as_ref();
        let guarded = rendered.is_some_and(|rendered| rendered.guarded);
        let token = self.resolved.token.clone().filter(|_| guarded);
        set_all(&mut command.env, token.iter().map(|token| (TOKEN, token)));
        let lines = rendered.and_then(|rendered| rendered.lines);
        let translator = lines.map(|lines| Translator::new(lines, &entry));
        Ok(Plan {
            owner: self.settings.sharing.owner_of_warm(request.owner.as_deref()),
            language: Some((definition.name.clone(), runtime.version.clone())),
            prepare,
            install,
            compile,
            cell,
            lent: vec![],
            reach,
            command,
            zygote,
            files,
            complaints: Complaints { reasons: errors.run, first: false, memory: errors.memory },
            remarks,
            runner_file,
            named_volumes: vec![],
            collect,
            translator,
            token,
        })
    }

    /// To whom belongs what the request has made.
    fn owner_of(&self, kind: Kind) -> Option<String> {
        self.settings.sharing.owner_of(kind, self.request.owner.as_deref())
    }

    /// A cell for a stage that makes something.
    fn cell(&self, limits: &Limits, network: Network, mounts: &[Mount]) -> CellSpec {
        CellSpec {
            image: self.request.image_root(),
            mounts: self.runtime.mounts.iter().chain(mounts).cloned().collect(),
            volumes: vec![Volume { target: OUT_DIR.into(), size: limits.disk(), inodes: limits.inodes() }],
            limits: limits.clone(),
            network,
            // Installers and compilers use what there is; nobody has asked them for a share of the CPU.
            required: self.settings.required(),
            ..CellSpec::new()
        }
    }

    fn prepare(&self) -> Result<Option<Making>, RequestError> {
        let variable = |name: &str| self.resolved.variables.get(name);
        let runtime = self.runtime;
        let Some(definition) = &runtime.definition.prepare else { return Ok(None) };
        let Some(Stage { mut command, mounts }) = runtime.prepare(variable)? else { return Ok(None) };
        let network = if definition.network { proxy_only() } else { Network::None };
        if definition.network {
            use_proxy(&mut command);
        }
        let indexes = hide_credentials(&mut command.env, &definition.pass).map_err(RequestError::Package)?;
        // It depends on the toolchain and the operator alone, so that it belongs to all.
        let mut key = Key::new(runtime, &command, None);
        key.indexes(&indexes);
        let mut files = vec![];
        for (name, text) in &definition.files {
            let path = RelativePath::new(name.clone()).map_err(|error| RequestError::Entry(error.to_string()))?;
            files.push(InputFile { path, content: text.clone().into_bytes(), executable: false });
        }
        for file in &files {
            key.file(file);
        }
        Ok(Some(Making {
            step: Step::Prepare,
            what: format!("preparing {} (once)", definition.what),
            kind: Kind::Environment,
            owner: None,
            key: key.finish(),
            label: format!("{} {}: {}", runtime.definition.name, runtime.version, definition.what),
            target: definition.target.clone(),
            stages: definition.stages.clone(),
            cell: self.cell(&self.settings.install, network, &mounts),
            command,
            companion: None,
            files,
            complaints: Complaints { reasons: runtime.definition.errors.install.clone(), first: true, memory: vec![] },
            reach: AddressPolicy { indexes, ..self.install_reach(&definition.pass) },
        }))
    }

    fn install(&self, files: &[InputFile]) -> Result<Option<Making>, RequestError> {
        let variable = |name: &str| self.resolved.variables.get(name);
        let (runtime, language) = (self.runtime, &self.runtime.definition);
        let mut packages = self.request.packages.clone();
        let Some(definition) = &language.packages else {
            if packages.is_empty() {
                return Ok(None);
            }
            return Err(RequestError::Unsupported { language: language.name.clone(), what: "packages" });
        };
        packages.iter().try_for_each(|package| check_package(package, &language.name, definition))?;
        packages.sort();
        packages.dedup();
        let is_manifest = |file: &&InputFile| definition.manifests.iter().any(|name| name == file.path.as_str());
        let manifests: Vec<InputFile> = files.iter().filter(is_manifest).cloned().collect();
        if packages.is_empty() && manifests.is_empty() {
            return Ok(None);
        }
        let Some(Stage { mut command, mounts }) = runtime.install(&packages, variable)? else { return Ok(None) };
        use_proxy(&mut command);
        let indexes = hide_credentials(&mut command.env, &definition.pass).map_err(RequestError::Package)?;
        let owner = self.owner_of(Kind::Environment);
        let mut key = Key::new(runtime, &command, owner.as_deref());
        key.indexes(&indexes);
        for file in &manifests {
            key.file(file);
        }
        let named: Vec<&str> = manifests.iter().map(|file| file.path.as_str()).collect();
        let what = packages.iter().map(String::as_str).chain(named).collect::<Vec<_>>().join(", ");
        Ok(Some(Making {
            step: Step::Install,
            what: format!("installing {what}"),
            kind: Kind::Environment,
            owner,
            key: key.finish(),
            label: format!("{} {}: {what}", language.name, runtime.version),
            target: definition.target.clone(),
            stages: vec![],
            cell: self.cell(&self.settings.install, proxy_only(), &mounts),
            command,
            companion: None,
            files: manifests,
            complaints: Complaints { reasons: language.errors.install.clone(), first: true, memory: vec![] },
            reach: AddressPolicy { indexes, ..self.install_reach(&definition.pass) },
        }))
    }

    /// What installs may reach: the web, and the hosts from which the operator has packages come, wherever those are.
    fn install_reach(&self, variables: &[String]) -> AddressPolicy {
        let values = variables.iter().filter_map(|name| self.resolved.variables.get(name)?.into_string().ok());
        let always = values.flat_map(|text| hosts_in(&text)).collect();
        AddressPolicy {
            hosts: self.settings.install_hosts.clone(),
            ports: Some(WEB.to_vec()),
            always,
            private: vec![],
            deny: self.settings.network_deny.clone(),
            indexes: vec![],
        }
    }

    fn compile(
        &self,
        entry: &str,
        files: &[InputFile],
        prepare: Option<&Making>,
        install: Option<&Making>,
    ) -> Result<Option<Making>, RequestError> {
        let runtime = self.runtime;
        let Some(Stage { command, mounts }) = runtime.compile(entry, install.is_some())? else { return Ok(None) };
        let owner = self.owner_of(Kind::Build);
        let mut key = Key::new(runtime, &command, owner.as_deref());
        for mount in &mounts {
            key.part(mount.source.as_os_str().as_bytes());
        }
        for file in files {
            key.file(file);
        }
        for made in prepare.iter().chain(&install) {
            key.part(made.key.as_bytes());
        }
        Ok(Some(Making {
            step: Step::Compile,
            what: format!("compiling {entry}"),
            kind: Kind::Build,
            owner,
            key: key.finish(),
            label: format!("{} {}: {entry}", runtime.definition.name, runtime.version),
            target: OUT_DIR.into(),
            stages: vec![],
            cell: self.cell(&self.settings.compile, Network::None, &mounts),
            companion: runtime.companion(&command),
            command,
            files: files.to_vec(),
            complaints: Complaints { reasons: runtime.definition.errors.compile.clone(), first: true, memory: vec![] },
            reach: AddressPolicy::default(),
        }))
    }
}

/// Tells a command's programs where the way out is.
fn use_proxy(command: &mut Command) {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let names = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"];
    set_all(&mut command.env, names.map(|name| (name, proxy.as_str())));
}

/// The network of an install cell: installers use a proxy.
fn proxy_only() -> Network {
    Network::Gateway(Gateway { proxy: true, dns: false, ports: vec![] })
}

fn check_package(package: &str, language: &str, definition: &Packages) -> Result<(), RequestError> {
    if package.len() <= 300 && definition.pattern.0.is_match(package) {
        return Ok(());
    }
    let shown: String = package.chars().filter(|c| !c.is_control()).take(80).collect();
    let what = format!("'{shown}' is not how {language} packages are written; an example is {}", definition.example);
    Err(RequestError::Package(what))
}

/// A digest of all that goes into something. Each part has its length before it, so that no two lists are alike.
struct Key(Sha256);

impl Key {
    /// With an owner, nobody else finds what it names, and nobody else learns that it was made.
    fn new(runtime: &Runtime, command: &Command, owner: Option<&str>) -> Self {
        let mut key = Self(Sha256::new());
        key.part(owner.unwrap_or_default().as_bytes());
        key.part(concat!("sandbox-run ", env!("CARGO_PKG_VERSION")).as_bytes());
        key.part(runtime.identity.as_bytes());
        for word in &command.argv {
            key.part(word.as_bytes());
        }
        for (name, value) in &command.env {
            key.part(name.as_bytes());
            key.part(value.as_bytes());
        }
        key
    }

    fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn indexes(&mut self, indexes: &[PackageIndex]) {
        for index in indexes {
            self.part(index.identity().as_bytes());
        }
    }

    fn file(&mut self, file: &InputFile) {
        self.part(file.path.as_str().as_bytes());
        self.part(&[u8::from(file.executable)]);
        self.part(&file.content);
    }

    fn finish(self) -> String {
        sandbox_base::random::hex(&self.0.finalize()[..20])
    }
}

/// The name of the runner's file in its volume.
pub(crate) const RUNNER: &str = RUNNER_FILE;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Sharing;
    use sandbox_runtimes::{Memory, Places, Registry};

    fn request(source: Source) -> Request {
        Request::new(source, Limits::default(), sandbox_cell::LayerSet::required_by_default())
    }

    fn runtime(language: &str) -> Runtime {
        let registry = Registry::shipped().expect("valid");
        let definition = registry.by_name(language).expect("known");
        definition.discover(&Places::of_this_process(), &mut Memory::open(None)).expect("installed")
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
        assert!(!plan.makes_something());
    }

    #[test]
    fn what_is_made_is_named_by_all_that_goes_into_it() {
        let c = runtime("c");
        let key = |code: &str, extra: Option<&str>| {
            let mut request = request(Source::Code(code.into()));
            request.args = vec!["not part of it".into()];
            request.files = extra
                .iter()
                .map(|name| InputFile {
                    path: RelativePath::new(*name).expect("path"),
                    content: vec![],
                    executable: false,
                })
                .collect();
            plan(&request, &c).expect("valid").compile.expect("compiles").key
        };
        assert_eq!(key("a", None), key("a", None));
        assert_ne!(key("a", None), key("b", None));
        assert_ne!(key("a", None), key("a", Some("x.h")));
        assert_ne!(key("a", Some("x.h")), key("a", Some("y.h")));
    }

    #[test]
    fn what_is_made_is_named_by_its_owner_unless_owners_share() {
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
    fn packages_are_checked_before_anything_runs() {
        let python = runtime("python");
        let with = |package: &str| {
            let mut request = request(Source::Code("1".into()));
            request.packages = vec![package.to_owned()];
            plan(&request, &python)
        };
        for bad in ["--index-url=x", "-r", "", " six", "a\nb", &"x".repeat(400)] {
            assert!(with(bad).expect_err(bad).contains("an example is requests=="), "{bad:?}");
        }
        let mut bash = request(Source::Code("1".into()));
        bash.packages = vec!["x".into()];
        assert_eq!(plan(&bash, &runtime("bash")).expect_err("none"), "bash has no packages");
        let mut restricted = request(Source::Code("1".into()));
        restricted.restricted = true;
        assert_eq!(plan(&restricted, &runtime("bash")).expect_err("none"), "bash has no restricted mode");
        assert!(plan(&restricted, &python).is_ok());
    }
}
