//! Cells as Docker or Podman containers: one container for each cell, or a few processes in an existing container.

use std::cell::OnceCell;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::group::{ContainerGroup, OWN_MEMORY, OWN_PROCESSES};
use super::oci::{check, inner, of_a_container};
use super::root::{ContainerRoot, PROGRAM};
use super::{CONTAINED, Container, Docker, DockerMode, GUEST_COMMAND, ToolEnvironment, new_id, profile};
use sandbox_cell::bridge::Counters;
use sandbox_cell::{CellSpec, Failure, LayerSet, Network};

/// The argument after [`GUEST_COMMAND`] that kills every process of a user in a container.
pub(super) const END: &str = "end";

/// The user in a dedicated container, as in every cell.
const USER: &str = "1000:1000";

/// The container of a cell.
pub(super) fn container(
    docker: &Docker,
    environment: &ToolEnvironment,
    spec: &CellSpec,
    ids: Option<((u32, u32), (u32, u32))>,
) -> Result<Box<dyn Container>, Failure> {
    check(spec, "docker")?;
    match &docker.mode {
        DockerMode::Run => {
            let id = new_id()?;
            let scratch = std::env::temp_dir().join(&id);
            let group = OnceCell::new();
            let (docker, environment) = (docker.clone(), environment.clone());
            Ok(Box::new(OwnContainer { docker, environment, spec: spec.clone(), id, scratch, group }))
        }
        DockerMode::Exec(name) => {
            if spec.image.is_some() || spec.network != Network::None {
                let what = "cannot create the cell in an existing container";
                return Err(Failure::of_request(what, "its root file system and network cannot be changed"));
            }
            let own = ids.map(|(_, (uid, gid))| format!("{uid}:{gid}"));
            let common = docker.user.is_some() || own.is_none();
            let user = docker.user.clone().or(own);
            let (docker, environment) = (docker.clone(), environment.clone());
            let (spec, name) = (spec.clone(), name.clone());
            Ok(Box::new(SharedContainer { docker, environment, spec, name, user, common }))
        }
    }
}

fn quietly(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// A dedicated container.
struct OwnContainer {
    docker: Docker,
    environment: ToolEnvironment,
    spec: CellSpec,
    id: String,
    scratch: PathBuf,
    group: OnceCell<Option<ContainerGroup>>,
}

impl OwnContainer {
    fn docker(&self) -> Command {
        self.environment.command(&self.docker.program)
    }

    /// An image that contains only mount points, built once for each set of them.
    fn image(&self, root: &ContainerRoot) -> Result<String, Failure> {
        let failed = |error: io::Error| Failure::os("cannot build an image for the container", error);
        let name = format!("sandbox-run-root:{:016x}", fingerprint(root));
        if quietly(self.docker().args(["image", "inspect", &name])) {
            return Ok(name);
        }
        let rootfs = self.scratch.join("rootfs");
        std::fs::create_dir_all(&rootfs).and_then(|()| root.make(&rootfs)).map_err(failed)?;
        let mut tar = self.environment.command("tar");
        tar.arg("--owner=0").arg("--group=0").arg("-C").arg(&rootfs).args(["-c", "."]);
        let mut tar = tar.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let content = tar.stdout.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        let import = self.docker().args(["import", "-", &name]).stdin(content).output().map_err(failed)?;
        let _ = tar.wait();
        if import.status.success() {
            return Ok(name);
        }
        let errors = String::from_utf8_lossy(&import.stderr);
        Err(Failure::new("cannot build an image for the container", errors.trim().to_owned()))
    }

    fn run(&self, root: &ContainerRoot, image: &str, profile: &Path) -> Command {
        let limits = &self.spec.limits;
        let memory = (limits.memory() + OWN_MEMORY).to_string();
        let mut command = self.docker();
        command.args(["run", "--rm", "--interactive", "--name", &self.id, "--hostname", "sandbox"]);
        command.args(["--network", &self.docker.network, "--ipc", "private", "--cgroupns", "private"]);
        command.args(["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]);
        command.arg("--security-opt").arg(format!("seccomp={}", profile.display()));
        command.args(["--user", self.docker.user.as_deref().unwrap_or(USER)]);
        command.args(["--memory", &memory, "--memory-swap", &memory]);
        command.args(["--pids-limit", &(limits.processes() + OWN_PROCESSES).to_string()]);
        #[expect(clippy::cast_precision_loss, reason = "at most seven digits")]
        let cpus = limits.milli_cpus() as f64 / 1000.0;
        command.args(["--cpus", &cpus.to_string()]);
        let files = limits.open_files().max(256);
        command.args(["--ulimit", "core=1", "--ulimit", &format!("nofile={files}")]);
        for (source, target) in &root.binds {
            let mount = format!("type=bind,src={},dst={},readonly", source.display(), target.display());
            command.arg("--mount").arg(mount);
        }
        for place in &root.tmpfs {
            if place.target == Path::new("/dev/shm") {
                command.args(["--shm-size", &place.size.to_string()]);
                continue;
            }
            let user = self.docker.user.as_deref().unwrap_or(USER);
            let (uid, gid) = user.split_once(':').unwrap_or((user, user));
            let options = format!("rw,exec,nosuid,nodev,size={},mode={:o},uid={uid},gid={gid}", place.size, place.mode);
            command.arg("--tmpfs").arg(format!("{}:{options}", place.target.display()));
        }
        command.args([image, PROGRAM, GUEST_COMMAND, CONTAINED]);
        command
    }

    /// The container's cgroup, if the engine is on this host.
    fn group(&self) -> Option<&ContainerGroup> {
        let find = || {
            let mut inspect = self.docker();
            let output = inspect.args(["inspect", "--format", "{{.State.Pid}}", &self.id]).output().ok()?;
            let pid: u32 = String::from_utf8(output.stdout).ok()?.trim().parse().ok().filter(|pid| *pid > 0)?;
            let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
            // The process of a remote engine cannot be inspected.
            groups.contains("docker").then(|| ContainerGroup::of_process(&groups)).flatten()
        };
        self.group.get_or_init(find).as_ref()
    }
}

/// The key that identifies a skeleton image.
fn fingerprint(root: &ContainerRoot) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (&root.dirs, &root.files, &root.links).hash(&mut hasher);
    hasher.finish()
}

impl Container for OwnContainer {
    fn prepare(&mut self) -> Result<Command, Failure> {
        let failed = |error: io::Error| Failure::os("cannot prepare the container", error);
        std::fs::create_dir(&self.scratch).map_err(failed)?;
        let root = ContainerRoot::plan(&self.spec).map_err(failed)?;
        let file = self.scratch.join("seccomp.json");
        std::fs::write(&file, profile::profile().to_string()).map_err(failed)?;
        let image = self.image(&root)?;
        Ok(self.run(&root, &image, &file))
    }

    fn inner(&self) -> CellSpec {
        inner(&self.spec)
    }

    fn provides(&self) -> LayerSet {
        of_a_container()
    }

    fn counters(&self) -> Option<Counters> {
        self.group()?.counters()
    }

    fn kill(&self) {
        quietly(self.docker().args(["kill", &self.id]));
    }

    fn remove(&mut self) {
        quietly(self.docker().args(["rm", "--force", &self.id]));
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// A few processes in a container that has other users.
struct SharedContainer {
    docker: Docker,
    environment: ToolEnvironment,
    spec: CellSpec,
    name: String,
    user: Option<String>,
    /// Whether other cells use the same user.
    common: bool,
}

impl SharedContainer {
    fn exec(&self) -> Command {
        let mut command = self.environment.command(&self.docker.program);
        command.args(["exec", "--interactive", "--workdir", "/"]);
        command.args(["--env", &format!("TMPDIR={}", self.docker.job_dir)]);
        if let Some(user) = &self.user {
            command.args(["--user", user]);
        }
        command.args([&self.name, PROGRAM, GUEST_COMMAND]);
        command
    }
}

impl Container for SharedContainer {
    fn prepare(&mut self) -> Result<Command, Failure> {
        Ok(self.exec())
    }

    fn inner(&self) -> CellSpec {
        CellSpec { required: LayerSet::required_at_least(), ..self.spec.clone() }
    }

    /// The container's layers do not separate a cell from the container's other users, so none is reported.
    fn provides(&self) -> LayerSet {
        LayerSet::default()
    }

    fn counters(&self) -> Option<Counters> {
        None
    }

    /// The guest ends its cell when its streams close; processes that escaped are killed by their user id.
    fn kill(&self) {
        if !self.common {
            quietly(self.exec().arg(END));
        }
    }

    fn remove(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn docker(mode: DockerMode) -> Docker {
        let (program, job_dir, network) = ("docker".into(), "/tmp/jobs".into(), "none".into());
        Docker { program, mode, user: None, job_dir, network }
    }

    #[test]
    fn a_dedicated_container_has_no_privileges() {
        let spec = CellSpec::new();
        let (scratch, group) = (PathBuf::from("/nowhere"), OnceCell::new());
        let own = OwnContainer {
            docker: docker(DockerMode::Run),
            environment: ToolEnvironment::default(),
            spec: spec.clone(),
            id: "x".into(),
            scratch,
            group,
        };
        let root = ContainerRoot::plan(&spec).expect("planned");
        let command = own.run(&root, "image", Path::new("/p.json"));
        let words: Vec<_> = command.get_args().map(|word| word.to_str().expect("utf-8")).collect();
        for pair in [["--cap-drop", "ALL"], ["--network", "none"], ["--security-opt", "no-new-privileges"]] {
            assert!(words.windows(2).any(|window| window == pair), "{pair:?} {words:?}");
        }
        assert!(words.contains(&"--read-only") && words.contains(&"--cpus"));
        assert!(words.iter().filter(|word| word.starts_with("type=bind")).all(|word| word.ends_with(",readonly")));
        assert_eq!(words[words.len() - 4..], ["image", PROGRAM, GUEST_COMMAND, CONTAINED]);
    }

    #[test]
    fn cells_in_a_shared_container_have_dedicated_users() {
        let mode = || docker(DockerMode::Exec("runner".into()));
        let ids = Some(((7, 7), (8, 8)));
        let made = |docker: &Docker| {
            let mut made = container(docker, &ToolEnvironment::default(), &CellSpec::new(), ids).expect("possible");
            let command = made.prepare().expect("prepared");
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let words = made(&mode());
        assert!(words.windows(2).any(|window| window == ["--user", "8:8"]), "{words:?}");
        assert!(words.contains(&"TMPDIR=/tmp/jobs".to_owned()));
        let named = Docker { user: Some("nobody".into()), ..mode() };
        assert!(made(&named).windows(2).any(|window| window == ["--user", "nobody"]));
        let mut spec = CellSpec::new();
        spec.network = Network::Localhost;
        assert!(container(&mode(), &ToolEnvironment::default(), &spec, ids).is_err());
    }
}
