//! The plan of code in a language: the steps that install packages and compile, and the run itself.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use sandbox_base::{Limits, RelativePath};
use sandbox_cell::archive::FileCaps;
use sandbox_cell::{CellSpec, Gateway, Mount, Network, Volume};
use sandbox_network::{AddressPolicy, hide_credentials, hosts_in};
use sandbox_runtimes::{ArtifactKind, Invocation, OUT_DIR, Packages, Runtime, StageCommand, StageName, set_all};

use super::{ArtifactPlan, Plan, Step, use_proxy};
use crate::cache_key::CacheKey;
use crate::input_files::InputFile;
use crate::last_value;
use crate::network::WEB;
use crate::request::{Request, RequestError, check_number};
use crate::resolve::Resolved;
use crate::settings::Settings;
use crate::template::{TOKEN, Translator};
use crate::verdict::ErrorPatterns;
use crate::warm_start::zygote_for;

/// Plans code in a language.
pub(super) struct Planner<'a> {
    pub(super) request: &'a Request,
    pub(super) runtime: &'a Runtime,
    pub(super) settings: &'a Settings,
    pub(super) resolved: &'a Resolved,
}

impl Planner<'_> {
    pub(super) fn plan(
        &self,
        mut cell: CellSpec,
        address_policy: AddressPolicy,
        collect: Option<FileCaps>,
    ) -> Result<Plan, RequestError> {
        let (request, runtime, definition) = (self.request, self.runtime, &self.runtime.definition);
        let (files, entry) = request.files_and_entry(definition)?;
        let install = self.install(&files, self.inline_packages(&files, &entry)?)?;
        let prepare = self.prepare()?;
        let prepare_packages = if install.is_some() { self.prepare_packages()? } else { None };
        let compile = self.compile(&entry, &files, prepare.as_ref(), install.as_ref())?;
        let invocation = Invocation {
            entry: &entry,
            limits: &request.limits,
            packages: install.is_some(),
            mode: request.run_mode(),
            arguments: &request.interpreter_args,
            preload: &self.settings.preload,
            elsewhere: request.workdir.is_some(),
        };
        definition.check_interpreter_arguments(&request.interpreter_args)?;
        let unsupported = |what| RequestError::Unsupported { language: definition.name.clone(), what };
        if request.restricted && !request.interpreter_args.is_empty() {
            return Err(unsupported("restricted mode with interpreter arguments"));
        }
        let mode = if request.module.is_some() { "running a module by its name" } else { "restricted mode" };
        let mut command = runtime.run(&invocation).ok_or_else(|| unsupported(mode))?;
        let zygote = zygote_for(request, runtime, &invocation, compile.is_some());
        if request.restricted && (install.is_some() || !request.volumes.is_empty() || request.module.is_some()) {
            let what = "restricted mode with packages, volumes or modules";
            return Err(RequestError::Unsupported { language: definition.name.clone(), what });
        }
        let has_runner = runtime.has_runner(invocation.mode);
        let wants_file = definition.run.argv.iter().any(|word| word == "{runner_file}");
        let runner_file = definition.run.runner.clone().filter(|_| has_runner && wants_file);
        if has_runner {
            cell.volumes.push(last_value::volume());
        }
        let errors = definition.errors.clone();
        // The runner reports a failure itself. An earlier traceback in the output would only be mistaken for the reason.
        let reasons = if has_runner { vec![] } else { errors.run };
        let rendered = request.rendered();
        let guarded = rendered.is_some_and(|rendered| rendered.guarded);
        let token = self.resolved.token.clone().filter(|_| guarded);
        set_all(&mut command.env, token.iter().map(|token| (TOKEN, token)));
        let lines = rendered.and_then(|rendered| rendered.lines);
        let translator = lines.map(|lines| Translator::new(lines, &entry));
        Ok(Plan {
            definition: Some(Arc::clone(definition)),
            owner: self.settings.sharing.owner_of_warm(request.owner.as_deref()),
            language: Some((definition.name.clone(), runtime.version.clone())),
            prepare,
            prepare_packages,
            install,
            compile,
            zygote,
            error_patterns: ErrorPatterns { reasons, first: false, memory: errors.memory },
            has_runner,
            runner_file,
            translator,
            token,
            ..Plan::of_program(cell, address_policy, command, files, collect)
        })
    }

    /// The owner of the artifacts of the request.
    fn owner_of(&self, kind: ArtifactKind) -> Option<String> {
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
            // Installers and compilers may use all CPUs; no request asks for a share of them.
            required: self.settings.required(),
            ..CellSpec::new()
        }
    }

    fn prepare(&self) -> Result<Option<ArtifactPlan>, RequestError> {
        let variable = |name: &str| self.resolved.variables.get(name);
        let runtime = self.runtime;
        let Some(definition) = &runtime.definition.prepare else { return Ok(None) };
        let Some(StageCommand { mut command, mounts }) = runtime.prepare(variable)? else { return Ok(None) };
        let network = if definition.network { proxy_only() } else { Network::None };
        if definition.network {
            use_proxy(&mut command);
        }
        let indexes = hide_credentials(&mut command.env, &definition.pass).map_err(RequestError::Package)?;
        // It depends on the toolchain and the operator alone, so that it belongs to all.
        let mut key = CacheKey::new(runtime, &command, None);
        key.indexes(&indexes);
        let mut files = vec![];
        for (name, text) in &definition.files {
            let path = RelativePath::new(name.clone()).map_err(|error| RequestError::Entry(error.to_string()))?;
            files.push(InputFile::new(path, text.clone().into_bytes()));
        }
        for file in &files {
            key.file(file);
        }
        Ok(Some(ArtifactPlan {
            step: Step::Prepare,
            what: format!("preparing {} (once)", definition.what),
            kind: ArtifactKind::Environment,
            owner: None,
            key: key.finish(),
            label: format!("{} {}: {}", runtime.definition.name, runtime.version, definition.what),
            target: definition.target.clone(),
            stages: definition.stages.clone(),
            cell: self.cell(&self.settings.install, network, &mounts),
            command,
            zygote: None,
            files,
            error_patterns: ErrorPatterns {
                reasons: runtime.definition.errors.install.clone(),
                first: true,
                memory: vec![],
            },
            address_policy: AddressPolicy { indexes, ..self.install_policy(&definition.pass) },
        }))
    }

    /// What installations share: it depends on the toolchain and the operator alone, so that it belongs to all.
    fn prepare_packages(&self) -> Result<Option<ArtifactPlan>, RequestError> {
        let variable = |name: &str| self.resolved.variables.get(name);
        let (runtime, language) = (self.runtime, &self.runtime.definition);
        let Some(packages) = &language.packages else { return Ok(None) };
        let Some(definition) = &packages.prepare else { return Ok(None) };
        let Some(StageCommand { mut command, mounts }) = runtime.prepare_packages(variable)? else { return Ok(None) };
        use_proxy(&mut command);
        let indexes = hide_credentials(&mut command.env, &packages.pass).map_err(RequestError::Package)?;
        let mut key = CacheKey::new(runtime, &command, None);
        key.indexes(&indexes);
        for mount in &mounts {
            key.part(mount.source.as_os_str().as_bytes());
        }
        Ok(Some(ArtifactPlan {
            step: Step::Prepare,
            what: format!("preparing {} (once)", definition.what),
            kind: ArtifactKind::Environment,
            owner: None,
            key: key.finish(),
            label: format!("{} {}: {}", language.name, runtime.version, definition.what),
            target: definition.target.clone(),
            stages: vec![StageName::Install],
            cell: self.cell(&self.settings.install, proxy_only(), &mounts),
            command,
            zygote: None,
            files: vec![],
            error_patterns: ErrorPatterns { reasons: language.errors.install.clone(), first: true, memory: vec![] },
            address_policy: AddressPolicy { indexes, ..self.install_policy(&packages.pass) },
        }))
    }

    /// The packages that the entry file lists itself, once this toolchain has a version that it accepts.
    fn inline_packages(&self, files: &[InputFile], entry: &str) -> Result<Vec<String>, RequestError> {
        let (runtime, language) = (self.runtime, &self.runtime.definition);
        let file = files.iter().find(|file| file.path.as_str() == entry);
        let script = file.and_then(|file| std::str::from_utf8(&file.content).ok());
        let format = language.packages.as_ref().and_then(|packages| packages.inline);
        let (Some(script), Some(format)) = (script, format) else { return Ok(vec![]) };
        let inline = format.read(script).map_err(|error| RequestError::Inline(format!("{entry}: {error}")))?;
        if let Some(unmet) = inline.requires.filter(|requires| !requires.is_met_by(&runtime.version)) {
            let (title, version) = (language.title(), &runtime.version);
            return Err(RequestError::Inline(format!(
                "{entry} requires {title} {unmet}; the toolchain is {title} {version}"
            )));
        }
        Ok(inline.packages)
    }

    fn install(&self, files: &[InputFile], inline: Vec<String>) -> Result<Option<ArtifactPlan>, RequestError> {
        let variable = |name: &str| self.resolved.variables.get(name);
        let (runtime, language) = (self.runtime, &self.runtime.definition);
        let mut packages = self.request.packages.clone();
        packages.extend(inline);
        check_number(&packages)?;
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
        if let Some(link) = manifests.iter().find(|file| file.is_link) {
            // Its target is not among the files of the installation.
            let what = format!("'{}' is a link; send the file itself", link.path.as_str());
            return Err(RequestError::Package(what));
        }
        let Some(StageCommand { mut command, mounts }) = runtime.install(&packages, variable)? else { return Ok(None) };
        use_proxy(&mut command);
        let indexes = hide_credentials(&mut command.env, &definition.pass).map_err(RequestError::Package)?;
        let owner = self.owner_of(ArtifactKind::Environment);
        let mut key = CacheKey::new(runtime, &command, owner.as_deref());
        key.indexes(&indexes);
        for file in &manifests {
            key.file(file);
        }
        let named: Vec<&str> = manifests.iter().map(|file| file.path.as_str()).collect();
        let named: Vec<&str> = packages.iter().map(String::as_str).chain(named).collect();
        let what = named.join(", ");
        Ok(Some(ArtifactPlan {
            step: Step::Install,
            what: format!("installing {}", few(&named)),
            kind: ArtifactKind::Environment,
            owner,
            key: key.finish(),
            label: format!("{} {}: {what}", language.name, runtime.version),
            target: definition.target.clone(),
            stages: vec![],
            cell: self.cell(&self.settings.install, proxy_only(), &mounts),
            command,
            zygote: None,
            files: manifests,
            error_patterns: ErrorPatterns { reasons: language.errors.install.clone(), first: true, memory: vec![] },
            address_policy: AddressPolicy { indexes, ..self.install_policy(&definition.pass) },
        }))
    }

    /// What installs may reach: the web, and the hosts from which the operator has packages come, wherever those are.
    fn install_policy(&self, variables: &[String]) -> AddressPolicy {
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
        prepare: Option<&ArtifactPlan>,
        install: Option<&ArtifactPlan>,
    ) -> Result<Option<ArtifactPlan>, RequestError> {
        let runtime = self.runtime;
        let request = self.request;
        let arguments = runtime.definition.compiler_arguments(request.standard.as_deref(), &request.compiler_args)?;
        let Some(stage) = runtime.compile(entry, install.is_some(), &arguments)? else { return Ok(None) };
        // One that waits knows the usual arguments only.
        let zygote = if arguments.is_empty() { runtime.compiler_zygote(&stage) } else { None };
        let StageCommand { command, mounts } = stage;
        let owner = self.owner_of(ArtifactKind::Build);
        let mut key = CacheKey::new(runtime, &command, owner.as_deref());
        for mount in &mounts {
            key.part(mount.source.as_os_str().as_bytes());
        }
        for file in files {
            key.file(file);
        }
        for made in prepare.iter().chain(&install) {
            key.part(made.key.as_bytes());
        }
        Ok(Some(ArtifactPlan {
            step: Step::Compile,
            what: format!("compiling {entry}"),
            kind: ArtifactKind::Build,
            owner,
            key: key.finish(),
            label: format!("{} {}: {entry}", runtime.definition.name, runtime.version),
            target: OUT_DIR.into(),
            stages: vec![],
            cell: self.cell(&self.settings.compile, Network::None, &mounts),
            zygote,
            command,
            files: files.to_vec(),
            error_patterns: ErrorPatterns {
                reasons: runtime.definition.errors.compile.clone(),
                first: true,
                memory: vec![],
            },
            address_policy: AddressPolicy::default(),
        }))
    }
}

/// Names what is installed; of more than a few things some, and their number.
fn few(named: &[&str]) -> String {
    const MOST: usize = 5;
    match named.get(..MOST).filter(|_| named.len() > MOST + 1) {
        Some(first) => format!("{} and {} more", first.join(", "), named.len() - MOST),
        None => named.join(", "),
    }
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
    let what = format!("invalid {language} package '{shown}': expected one such as {}", definition.example);
    Err(RequestError::Package(what))
}

#[cfg(test)]
mod tests {
    use super::few;

    #[test]
    fn many_packages_are_counted() {
        assert_eq!(few(&["a", "b"]), "a, b");
        assert_eq!(few(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d, e, f");
        assert_eq!(few(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
