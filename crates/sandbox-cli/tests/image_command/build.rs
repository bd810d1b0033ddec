//! Builds images for the tests.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

/// A tar file under construction.
pub(crate) struct Tar(tar::Builder<Vec<u8>>);

impl Tar {
    pub(crate) fn new() -> Self {
        Self(tar::Builder::new(vec![]))
    }

    /// Adds an entry with an unchecked path.
    pub(crate) fn entry(mut self, kind: EntryType, path: &str, link: &str, mode: u32, content: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    pub(crate) fn file(self, path: &str, mode: u32, content: &[u8]) -> Self {
        self.entry(EntryType::Regular, path, "", mode, content)
    }

    pub(crate) fn link(self, path: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, path, target, 0o777, b"")
    }

    /// A small system: busybox, with some of its programs.
    pub(crate) fn busybox(self, programs: &[&str]) -> Self {
        let busybox = std::fs::read("/bin/busybox").expect("the package busybox-static is installed");
        let system = self.entry(EntryType::Directory, "bin", "", 0o755, b"").file("bin/busybox", 0o755, &busybox);
        programs.iter().fold(system, |system, name| system.link(&format!("bin/{name}"), "busybox"))
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How a layer is compressed.
#[derive(Clone, Copy)]
pub(crate) enum Packed {
    Plain,
    Gzip,
    Zstd,
}

pub(crate) fn compress(bytes: &[u8], how: Packed) -> Vec<u8> {
    match how {
        Packed::Plain => bytes.to_vec(),
        Packed::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Packed::Zstd => ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest),
    }
}

fn config(layers: &[Vec<u8>], run: &Value) -> Vec<u8> {
    let diff_ids: Vec<_> = layers.iter().map(|layer| format!("sha256:{}", digest(layer))).collect();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let rootfs = json!({"type": "layers", "diff_ids": diff_ids});
    serde_json::to_vec(&json!({"architecture": architecture, "os": "linux", "config": run, "rootfs": rootfs})).unwrap()
}

/// The files of an OCI layout: names and contents.
pub(crate) fn oci_layout(layers: &[(Vec<u8>, Packed)], run: &Value) -> Vec<(String, Vec<u8>)> {
    let plain: Vec<_> = layers.iter().map(|(layer, _)| layer.clone()).collect();
    let mut files = vec![("oci-layout".to_owned(), br#"{"imageLayoutVersion": "1.0.0"}"#.to_vec())];
    let mut blob = |bytes: Vec<u8>| {
        let descriptor = json!({"digest": format!("sha256:{}", digest(&bytes)), "size": bytes.len()});
        files.push((format!("blobs/sha256/{}", digest(&bytes)), bytes));
        descriptor
    };
    let config = blob(config(&plain, run));
    let layers: Vec<_> = layers.iter().map(|(layer, packed)| blob(compress(layer, *packed))).collect();
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
    let mut descriptor = blob(serde_json::to_vec(&manifest).unwrap());
    descriptor["mediaType"] = json!("application/vnd.oci.image.manifest.v1+json");
    descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": "from-layout:1"});
    let index = json!({"schemaVersion": 2, "manifests": [descriptor]});
    files.push(("index.json".to_owned(), serde_json::to_vec(&index).unwrap()));
    files
}

/// The older format of `docker save`.
pub(crate) fn docker_save(layers: &[Vec<u8>], run: &Value) -> Vec<(String, Vec<u8>)> {
    let config = config(layers, run);
    let config_name = format!("{}.json", digest(&config));
    let names: Vec<_> = (0..layers.len()).map(|number| format!("layer{number}/layer.tar")).collect();
    let manifest = json!([{"Config": config_name, "RepoTags": ["team/saved:2"], "Layers": names}]);
    let mut files: Vec<_> = names.into_iter().zip(layers.iter().cloned()).collect();
    files.push((config_name, config));
    files.push(("manifest.json".to_owned(), serde_json::to_vec(&manifest).unwrap()));
    files
}

pub(crate) fn in_one_file(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    files.iter().fold(Tar::new(), |tar, (name, content)| tar.file(name, 0o644, content)).bytes()
}

pub(crate) fn in_directory(files: &[(String, Vec<u8>)], dir: &Path) {
    for (name, content) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// A root file system with a minimal copy of the host's Python in another place, and a shell.
pub(crate) fn python() -> Vec<u8> {
    let script = "import sys, sysconfig, zlib\nprint(sys.executable, sysconfig.get_path('stdlib'), sep='\\n')";
    let output = Command::new("/usr/bin/python3").args(["-I", "-S", "-c", script]).output().expect("Debian's Python");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    let executable = Path::new(lines.next().unwrap()).canonicalize().unwrap();
    let library = PathBuf::from(lines.next().unwrap());
    let libraries = Command::new("ldd").arg(&executable).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let mut system = Tar::new().busybox(&["sh"]);
    for file in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        system = system.file(file, 0o755, &std::fs::read(file).unwrap());
    }
    let name = format!("/opt/python/bin/{}", executable.file_name().unwrap().to_string_lossy());
    system = system.file(&name, 0o755, &std::fs::read(&executable).unwrap()).link("/opt/python/bin/python3", &name);
    let inside = format!("/opt/python/lib/{}", library.file_name().unwrap().to_string_lossy());
    for dir in ["", "encodings", "collections", "importlib", "json", "re"] {
        for entry in std::fs::read_dir(library.join(dir)).unwrap().flatten() {
            let file = entry.file_name().into_string().unwrap();
            if entry.path().extension().is_some_and(|ending| ending == "py") {
                let content = std::fs::read(entry.path()).unwrap();
                system = system.file(&format!("{inside}/{dir}/{file}"), 0o644, &content);
            }
        }
    }
    system.bytes()
}
