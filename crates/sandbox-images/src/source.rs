//! Detects the format of an image file and reads its metadata: an OCI layout, the output of `docker save`, or a root
//! file system in a single tar file, such as `docker export` writes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tar::{Archive, EntryType};

use crate::read::{Hashing, Section};
use crate::unpack::ImageConfig;

/// The maximum size of a description.
const MAX_JSON: u64 = 4 << 20;

/// The maximum number of files in a layout: an image has no more than a few hundred layers.
const MOST_PARTS: usize = 10_000;

/// The maximum depth of references between descriptions.
const MOST_STEPS: usize = 4;

/// The archive to unpack.
pub(crate) struct ImageContents {
    /// Layers, the lowest first.
    pub(crate) layers: Vec<Blob>,
    /// The digest of the description, if there is one.
    pub(crate) digest: Option<String>,
    /// The image's name in the file.
    pub(crate) name: Option<String>,
    pub(crate) config: ImageConfig,
}

/// A layer in the file.
pub(crate) struct Blob {
    pub(crate) at: u64,
    pub(crate) size: u64,
    /// The expected digest of the stored bytes.
    pub(crate) digest: Option<String>,
    /// The expected digest of the decompressed bytes.
    pub(crate) content: Option<String>,
}

fn bad(why: impl Into<String>) -> io::Error {
    io::Error::other(why.into())
}

/// Detects the format of a file.
pub(crate) fn recognise(file: &File) -> io::Result<ImageContents> {
    let size = file.metadata()?.len();
    match Layout::read(file)? {
        Some(layout) if layout.has("index.json") && layout.has("oci-layout") => layout.oci(),
        Some(layout) if layout.has("manifest.json") && layout.looks_saved() => layout.saved(),
        _ => Ok(ImageContents {
            layers: vec![Blob { at: 0, size, digest: None, content: None }],
            digest: None,
            name: None,
            config: ImageConfig::default(),
        }),
    }
}

/// The files of a layout, by name: offset and length.
struct Layout<'a> {
    file: &'a File,
    parts: HashMap<String, (u64, u64)>,
    links: HashMap<String, String>,
}

impl<'a> Layout<'a> {
    /// Reads the names. `None` if there are too many for a layout.
    fn read(file: &'a File) -> io::Result<Option<Self>> {
        let mut reader = BufReader::new(file);
        reader.rewind()?;
        let mut archive = Archive::new(reader);
        let (mut parts, mut links) = (HashMap::new(), HashMap::new());
        for entry in archive.entries_with_seek()? {
            let entry = entry.map_err(|error| bad(format!("it is not a tar file, or it is damaged: {error}")))?;
            let Ok(name) = String::from_utf8(entry.path_bytes().into_owned()) else { return Ok(None) };
            let name = name.trim_start_matches("./").to_owned();
            match entry.header().entry_type() {
                EntryType::Regular => drop(parts.insert(name, (entry.raw_file_position(), entry.size()))),
                EntryType::Symlink => {
                    let target = entry.link_name_bytes().map(std::borrow::Cow::into_owned);
                    let target = target.and_then(|target| String::from_utf8(target).ok());
                    links.extend(target.map(|target| (name, target)));
                }
                _ => {}
            }
            if parts.len() + links.len() > MOST_PARTS {
                return Ok(None);
            }
        }
        Ok(Some(Self { file, parts, links }))
    }

    fn has(&self, name: &str) -> bool {
        self.parts.contains_key(name)
    }

    /// A root file system may contain a file called `manifest.json`.
    fn looks_saved(&self) -> bool {
        self.json::<Vec<DockerManifest>>("manifest.json").is_ok_and(|(saved, _)| !saved.is_empty())
    }

    /// A file, or the target of a link beside it: duplicate layers are saved as links.
    fn part(&self, name: &str) -> io::Result<(u64, u64)> {
        let mut name = name.to_owned();
        for _ in 0..MOST_STEPS {
            if let Some(part) = self.parts.get(&name) {
                return Ok(*part);
            }
            let Some(target) = self.links.get(&name) else { break };
            name = match target.strip_prefix("../") {
                Some(target) => target.to_owned(),
                None => name.rsplit_once('/').map_or(target.clone(), |(dir, _)| format!("{dir}/{target}")),
            };
        }
        Err(bad(format!("'{}' is missing", shown(&name))))
    }

    /// A description, and its digest.
    fn json<T: DeserializeOwned>(&self, name: &str) -> io::Result<(T, String)> {
        let (at, size) = self.part(name)?;
        if size > MAX_JSON {
            return Err(bad(format!("'{}' is too long", shown(name))));
        }
        let mut text = vec![];
        let mut hashing = Hashing::new(Section::new(self.file, at, size));
        hashing.read_to_end(&mut text)?;
        let value = serde_json::from_slice(&text);
        let value = value.map_err(|error| bad(format!("invalid '{}': {error}", shown(name))))?;
        Ok((value, hashing.finish()?.0))
    }

    /// A description by its digest, which is verified.
    fn described<T: DeserializeOwned>(&self, descriptor: &Descriptor) -> io::Result<T> {
        let (value, digest) = self.json(&blob_path(&descriptor.digest)?)?;
        verify("a description", &descriptor.digest, &digest)?;
        Ok(value)
    }

    fn oci(&self) -> io::Result<ImageContents> {
        let (index, _): (Index, _) = self.json("index.json")?;
        let mut descriptor = only(&index.manifests)?.clone();
        let name = descriptor.name();
        for _ in 0..MOST_STEPS {
            if !descriptor.is_index() {
                break;
            }
            let index: Index = self.described(&descriptor)?;
            descriptor = only(&index.manifests)?.clone();
        }
        let manifest: Manifest = self.described(&descriptor)?;
        let description: ImageDescription = self.described(&manifest.config)?;
        let mut layers = vec![];
        for layer in &manifest.layers {
            let (at, size) = self.part(&blob_path(&layer.digest)?)?;
            layers.push(Blob { at, size, digest: Some(layer.digest.clone()), content: None });
        }
        finish(layers, description, manifest.config.digest, name)
    }

    fn saved(&self) -> io::Result<ImageContents> {
        let (saved, _): (Vec<DockerManifest>, _) = self.json("manifest.json")?;
        let [saved] = saved.as_slice() else {
            return Err(bad("it contains several images; save them one by one"));
        };
        let (description, digest): (ImageDescription, _) = self.json(&saved.config)?;
        // The file is named by its digest.
        let stem = saved.config.rsplit('/').next().unwrap_or_default().trim_end_matches(".json");
        if stem.len() == 64 {
            verify("the description", &format!("sha256:{stem}"), &digest)?;
        }
        let mut layers = vec![];
        for name in &saved.layers {
            let (at, size) = self.part(name)?;
            layers.push(Blob { at, size, digest: None, content: None });
        }
        let name = saved.tags.iter().flatten().next().cloned();
        finish(layers, description, format!("sha256:{digest}"), name)
    }
}

/// Combines the metadata, if it is consistent.
fn finish(
    mut layers: Vec<Blob>,
    description: ImageDescription,
    digest: String,
    name: Option<String>,
) -> io::Result<ImageContents> {
    let contents = description.rootfs.diff_ids;
    if contents.len() != layers.len() {
        let (own, declared) = (layers.len(), contents.len());
        return Err(bad(format!("it has {own} layers, but its description has {declared}")));
    }
    for (layer, content) in layers.iter_mut().zip(contents) {
        layer.content = Some(content);
    }
    if !description.os.is_empty() && description.os != "linux" {
        return Err(bad(format!("it is for {}, not for Linux", shown(&description.os))));
    }
    if !description.architecture.is_empty() && description.architecture != architecture() {
        let theirs = shown(&description.architecture);
        return Err(bad(format!("it is for {theirs}, but this host is {}", architecture())));
    }
    Ok(ImageContents { layers, digest: Some(digest), name, config: description.config.unwrap_or_default() })
}

/// The architecture of this host, as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The path in a layout of the file with this digest.
fn blob_path(digest: &str) -> io::Result<String> {
    let hex = digest.strip_prefix("sha256:").filter(|hex| is_digest(hex));
    let hex = hex.ok_or_else(|| bad(format!("'{}' is not a SHA-256 digest", shown(digest))))?;
    Ok(format!("blobs/sha256/{hex}"))
}

pub(crate) fn is_digest(hex: &str) -> bool {
    hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Verifies a digest.
pub(crate) fn verify(what: &str, declared: &str, is: &str) -> io::Result<()> {
    if declared.strip_prefix("sha256:") == Some(is) {
        return Ok(());
    }
    Err(bad(format!("{what} should have the digest {}, but has sha256:{is}; the file is damaged", shown(declared))))
}

fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}

/// The image that this host can run.
fn only(descriptors: &[Descriptor]) -> io::Result<&Descriptor> {
    let fits = |descriptor: &&Descriptor| match &descriptor.platform {
        None => true,
        Some(platform) => platform.os == "linux" && platform.architecture == architecture(),
    };
    let fitting: Vec<_> = descriptors.iter().filter(fits).collect();
    match fitting.as_slice() {
        [only] => Ok(only),
        [] => Err(bad(format!("it has no image for Linux on {}", architecture()))),
        _ => Err(bad("it contains several images; save them one by one")),
    }
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

impl Descriptor {
    fn is_index(&self) -> bool {
        self.media_type.contains("image.index") || self.media_type.contains("manifest.list")
    }

    fn name(&self) -> Option<String> {
        let annotations = self.annotations.as_ref()?;
        let names = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
        names.iter().find_map(|name| annotations.get(*name)).cloned()
    }
}

#[derive(Clone, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

/// The manifest that `docker save` writes.
#[derive(Deserialize)]
struct DockerManifest {
    #[serde(rename = "Config")]
    config: String,
    #[serde(rename = "RepoTags")]
    tags: Option<Vec<String>>,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

#[derive(Deserialize)]
struct ImageDescription {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    config: Option<ImageConfig>,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}
