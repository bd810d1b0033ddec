//! Containers of an OCI runtime: a bundle with a configuration, and the command that runs it.

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::group::{ContainerGroup, OWN_MEMORY, OWN_PROCESSES};
use super::root::{ContainerRoot, PROGRAM};
use super::{CONTAINED, Container, GUEST_COMMAND, ToolEnvironment, new_id, profile};
use sandbox_cell::bridge::Counters;
use sandbox_cell::{CellSpec, Failure, Layer, LayerSet, Mount, Network, base_environment};

/// The user in a container, as in every cell.
const USER: u32 = 1000;

/// Files that reveal the kernel, the host or its other users.
const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/cmdline",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/locks",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/sched_debug",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// A container of an OCI runtime.
pub(super) struct Oci {
    program: String,
    environment: ToolEnvironment,
    spec: CellSpec,
    id: String,
    bundle: PathBuf,
    /// The host ids of root and of the user in the container.
    ids: ((u32, u32), (u32, u32)),
}

impl Oci {
    pub(super) fn new(
        program: &str,
        environment: &ToolEnvironment,
        spec: &CellSpec,
        ids: Option<((u32, u32), (u32, u32))>,
    ) -> Result<Self, Failure> {
        check(spec, "oci")?;
        let ids = ids.ok_or_else(|| {
            Failure::new("cannot create a container", "mapping ids needs root privileges").with_fix("run as root")
        })?;
        let id = new_id()?;
        let bundle = std::env::temp_dir().join(&id);
        let (program, environment) = (program.to_owned(), environment.clone());
        Ok(Self { program, environment, spec: spec.clone(), id, bundle, ids })
    }

    fn runtime(&self) -> Command {
        let mut command = self.environment.command(&self.program);
        command.arg("--root").arg(self.bundle.join("state"));
        command
    }

    fn make_bundle(&self) -> io::Result<()> {
        let make = |dir: &Path| std::fs::DirBuilder::new().mode(0o711).create(dir);
        make(&self.bundle)?;
        std::fs::set_permissions(&self.bundle, PermissionsExt::from_mode(0o711))?;
        let rootfs = self.bundle.join("rootfs");
        make(&rootfs)?;
        std::fs::set_permissions(&rootfs, PermissionsExt::from_mode(0o755))?;
        let root = ContainerRoot::plan(&self.spec)?;
        root.make(&rootfs)?;
        std::fs::write(self.bundle.join("config.json"), serde_json::to_vec(&self.config(&root))?)
    }

    fn config(&self, root: &ContainerRoot) -> Value {
        let limits = &self.spec.limits;
        let env: Vec<String> =
            base_environment().iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        let rlimit = |name: &str, value: u64| json!({"type": name, "soft": value, "hard": value});
        let namespaces: Vec<_> =
            ["pid", "ipc", "uts", "mount", "network", "cgroup", "user"].map(|name| json!({"type": name})).into();
        let ((root_uid, root_gid), (user_uid, user_gid)) = self.ids;
        let map = |root: u32, user: u32| json!([{"containerID": 0, "hostID": root, "size": 1}, {"containerID": USER, "hostID": user, "size": 1}]);
        let memory = limits.memory() + OWN_MEMORY;
        json!({
            "ociVersion": "1.0.2",
            "root": {"path": "rootfs", "readonly": true},
            "hostname": "sandbox",
            "mounts": mounts(root),
            "process": {
                "terminal": false,
                "user": {"uid": USER, "gid": USER},
                "args": [PROGRAM, GUEST_COMMAND, CONTAINED],
                "env": env,
                "cwd": "/",
                "capabilities": {"bounding": [], "effective": [], "inheritable": [], "permitted": [], "ambient": []},
                "rlimits": [
                    rlimit("RLIMIT_CORE", 1),
                    rlimit("RLIMIT_NOFILE", limits.open_files().max(256)),
                    rlimit("RLIMIT_MEMLOCK", 64 * 1024),
                ],
                "noNewPrivileges": true,
            },
            "linux": {
                "namespaces": namespaces,
                "uidMappings": map(root_uid, user_uid),
                "gidMappings": map(root_gid, user_gid),
                "cgroupsPath": self.cgroup(),
                "resources": {
                    "devices": [{"allow": false, "access": "rwm"}],
                    "memory": {"limit": memory, "swap": memory},
                    "pids": {"limit": limits.processes() + OWN_PROCESSES},
                    "cpu": {"period": 100_000, "quota": (limits.milli_cpus() * 100).max(1000)},
                },
                "maskedPaths": MASKED,
                "readonlyPaths": READ_ONLY,
                "seccomp": profile::profile(),
            },
        })
    }

    fn cgroup(&self) -> String {
        format!("/{}", self.id)
    }
}

fn mounts(root: &ContainerRoot) -> Vec<Value> {
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
               "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}),
    ];
    for (source, target) in &root.binds {
        mounts.push(json!({"destination": target, "type": "bind", "source": source,
                           "options": ["bind", "ro", "nosuid", "nodev"]}));
    }
    for place in &root.tmpfs {
        let options = [
            "nosuid".to_owned(),
            "nodev".to_owned(),
            format!("size={}", place.size),
            format!("nr_inodes={}", place.inodes + 1),
            format!("mode={:o}", place.mode),
            format!("uid={USER}"),
            format!("gid={USER}"),
        ];
        mounts.push(json!({"destination": place.target, "type": "tmpfs", "source": "tmpfs", "options": options}));
    }
    mounts
}

impl Container for Oci {
    fn prepare(&mut self) -> Result<Command, Failure> {
        self.make_bundle().map_err(|error| Failure::os("cannot create a bundle for the container", error))?;
        let mut command = self.runtime();
        command.args(["run", "--bundle"]).arg(&self.bundle).arg(&self.id);
        Ok(command)
    }

    fn inner(&self) -> CellSpec {
        inner(&self.spec)
    }

    fn provides(&self) -> LayerSet {
        of_a_container().union([Layer::User].into_iter().collect())
    }

    fn counters(&self) -> Option<Counters> {
        ContainerGroup::new(&self.cgroup()).counters()
    }

    fn kill(&self) {
        let quiet = |command: &mut Command| drop(command.stdout(Stdio::null()).stderr(Stdio::null()).status());
        quiet(self.runtime().args(["kill", &self.id, "KILL"]));
    }

    fn remove(&mut self) {
        let delete = || {
            let mut command = self.runtime();
            command.args(["delete", "--force", &self.id]).stdout(Stdio::null()).stderr(Stdio::null()).status()
        };
        let _ = delete();
        ContainerGroup::new(&self.cgroup()).remove();
        let _ = std::fs::remove_dir_all(&self.bundle);
    }
}

/// Refuses requests that containers cannot satisfy.
pub(super) fn check(spec: &CellSpec, backend: &str) -> Result<(), Failure> {
    let refuse =
        |why: &str| Err(Failure::of_request(format!("cannot create the cell with the {backend} backend"), why));
    if matches!(spec.network, Network::Gateway(_)) {
        return refuse("it has no proxy: the network can be none or localhost; the native backend has all modes");
    }
    if spec.mounts.iter().any(|mount| mount.writable) {
        return refuse("host directories are read-only there; the native backend supports writable ones");
    }
    if !spec.disabled_layers().is_empty() {
        return refuse("layers cannot be disabled");
    }
    Ok(())
}

/// The layers of every container that was created for one run.
pub(super) fn of_a_container() -> LayerSet {
    use Layer::{Cgroup, Cpu, Ipc, Memory, Mount, Net, Pid, Pids, Uts};
    [Pid, Mount, Net, Ipc, Uts, Cgroup, Memory, Pids, Cpu].into_iter().collect()
}

/// The specification for the guest: the container already provides all mounts.
pub(super) fn inner(spec: &CellSpec) -> CellSpec {
    let mounts = spec.mounts.iter().map(|mount| Mount::read_only(&mount.target, &mount.target)).collect();
    CellSpec { image: None, mounts, required: LayerSet::required_at_least(), ..spec.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_no_privileges_and_the_limits_of_the_cell() {
        let ids = Some(((70_000, 70_000), (70_001, 70_001)));
        let oci = Oci::new("runc", &ToolEnvironment::default(), &CellSpec::new(), ids).expect("possible");
        let config = oci.config(&ContainerRoot::plan(&CellSpec::new()).expect("planned"));
        assert_eq!(config["process"]["capabilities"]["bounding"], json!([]));
        assert_eq!(config["process"]["noNewPrivileges"], true);
        assert_eq!(config["root"]["readonly"], true);
        assert_eq!(config["linux"]["uidMappings"][1]["hostID"], 70_001);
        assert_eq!(config["linux"]["resources"]["cpu"]["quota"], 100_000);
        let mounts = config["mounts"].as_array().expect("a list");
        let bound = |mount: &&Value| mount["type"] == "bind";
        for mount in mounts.iter().filter(bound) {
            assert!(mount["options"].as_array().expect("options").contains(&json!("ro")), "{mount}");
        }
        assert!(mounts.iter().any(|mount| mount["destination"] == "/sandbox" && mount["type"] == "tmpfs"));
        let mut spec = CellSpec::new();
        spec.mounts = vec![Mount { source: "/srv".into(), target: "/x".into(), writable: true, foreign: true }];
        assert!(Oci::new("runc", &ToolEnvironment::default(), &spec, ids).is_err());
        assert!(Oci::new("runc", &ToolEnvironment::default(), &CellSpec::new(), None).is_err());
    }
}
