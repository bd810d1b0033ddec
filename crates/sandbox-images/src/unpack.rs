//! Unpacks an image, inside a cell.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::ROOT;
use crate::layer::{Tally, apply};
use crate::read::{Bounded, Compression, Hashing, Plain, Section};
use crate::source::{Blob, ImageContents, recognise, verify};
use crate::tree::{DirHandle, Tree};

/// Limits on the content of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageCaps {
    /// Files, directories and links, in all layers together.
    pub entries: u64,
    /// Bytes, unpacked, in all layers together.
    pub bytes: u64,
}

/// The parameters of unpacking.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct UnpackTask {
    /// The limits.
    pub caps: ImageCaps,
}

/// The default configuration of an image for runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImageConfig {
    /// Variables, each `NAME=VALUE`.
    pub env: Option<Vec<String>>,
    /// The working directory.
    pub working_dir: String,
    /// The entry point.
    pub entrypoint: Option<Vec<String>>,
    /// The arguments of the entry point, or the command if there is none.
    pub cmd: Option<Vec<String>>,
}

/// An unpacked image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unpacked {
    /// `sha256:` and the digest of its description, or of its content if it has none.
    pub digest: String,
    /// Its name in the file.
    pub name: Option<String>,
    /// Its default configuration for runs.
    pub config: ImageConfig,
    /// The total size of its files in bytes, in all layers together.
    pub size: u64,
    /// The number of files, directories and links.
    pub entries: u64,
    /// The number of entries that were left out because cells cannot use them.
    pub skipped: u64,
}

/// The answer of the cell.
pub type UnpackResult = Result<Unpacked, String>;

/// Unpacks the image in `file` below the directory `into`. To be called in a cell.
pub fn unpack(file: &File, into: &Path, job: UnpackTask) -> UnpackResult {
    unpack_all(file, into, job).map_err(|error| error.to_string())
}

fn unpack_all(file: &File, into: &Path, job: UnpackTask) -> io::Result<Unpacked> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let into: OwnedFd = rustix::fs::openat(CWD, into, flags, Mode::empty())?;
    let mut left = job.caps.bytes;
    let decompressed = decompress(file, &into, &mut left)?;
    let file = decompressed.as_ref().unwrap_or(file);
    let source = recognise(file)?;
    rustix::fs::mkdirat(&into, ROOT, Mode::from_raw_mode(0o755))?;
    let root = rustix::fs::openat(&into, ROOT, flags, Mode::empty())?;
    rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755))?;
    let tree = Tree::new(root);
    let mut tally = Tally { entries: job.caps.entries, bytes: job.caps.bytes, skipped: 0 };
    // Streams may be twice as large as their files, for headers and skipped entries.
    let mut stream = job.caps.bytes.saturating_mul(2).saturating_add(1 << 20);
    let ImageContents { layers, digest, name, config } = source;
    let mut content = String::new();
    for (number, layer) in (1..).zip(&layers) {
        let unpacked = unpack_layer(file, layer, &tree, &mut tally, &mut stream);
        content = unpacked.map_err(|error| match layers.len() {
            1 => error,
            _ => io::Error::other(format!("layer {number}: {error}")),
        })?;
    }
    complete(&tree)?;
    Ok(Unpacked {
        digest: digest.unwrap_or_else(|| format!("sha256:{content}")),
        name,
        config,
        size: job.caps.bytes - tally.bytes,
        entries: job.caps.entries - tally.entries,
        skipped: tally.skipped,
    })
}

/// A file without its compression, if it has one, because the parts of a layout are read out of order.
fn decompress(file: &File, into: &OwnedFd, left: &mut u64) -> io::Result<Option<File>> {
    let compression = compression(file, 0)?;
    if compression == Compression::None {
        return Ok(None);
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut plain = File::from(rustix::fs::openat(into, "decompressed", flags, Mode::from_raw_mode(0o600))?);
    rustix::fs::unlinkat(into, "decompressed", rustix::fs::AtFlags::empty())?;
    let section = Section::new(file, 0, file.metadata()?.len());
    io::copy(&mut Bounded::new(Plain::new(section, compression)?, left), &mut plain)?;
    Ok(Some(plain))
}

fn compression(file: &File, at: u64) -> io::Result<Compression> {
    use std::os::unix::fs::FileExt;
    let mut start = [0; 6];
    let read = file.read_at(&mut start, at)?;
    Compression::of(&start[..read])
}

/// Applies a layer to the tree, verifies its digest, and returns the digest of its content.
fn unpack_layer(file: &File, blob: &Blob, tree: &Tree, tally: &mut Tally, stream: &mut u64) -> io::Result<String> {
    let compressed = Hashing::new(Section::new(file, blob.at, blob.size));
    let plain = Plain::new(compressed, compression(file, blob.at)?)?;
    let mut content = Hashing::new(Bounded::new(plain, stream));
    apply(tree, &mut content, tally)?;
    let (content, bounded) = content.finish()?;
    let (digest, _) = bounded.into_inner().into_inner().finish()?;
    if let Some(declared) = &blob.digest {
        verify("it", declared, &digest)?;
    }
    if let Some(declared) = &blob.content {
        verify("its content", declared, &content)?;
    }
    Ok(content)
}

/// Adds what every cell needs: its user, and the configuration of name resolution.
fn complete(tree: &Tree) -> io::Result<()> {
    let root = tree.root();
    if root.entries()?.is_empty() {
        return Err(io::Error::other("it is empty"));
    }
    let etc = own_directory(&root, "etc")?;
    for (name, own) in sandbox_cell::own_files() {
        let name = OsStr::new(name);
        let text = match name.to_str() {
            Some("passwd" | "group") => with_own_ids(&read_text(&etc, name)?, own),
            _ => own.to_owned(),
        };
        let mut file = etc.make_file(name)?;
        file.write_all(text.as_bytes())?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
    }
    let var = own_directory(&root, "var")?;
    var.remove(OsStr::new("tmp"), &|_| false)?;
    Ok(rustix::fs::symlinkat("/tmp", var.fd(), "tmp")?)
}

/// A directory, but not a link to one.
fn own_directory(place: &DirHandle, name: &str) -> io::Result<DirHandle> {
    let name = OsStr::new(name);
    if !matches!(place.look(name)?, Some((rustix::fs::FileType::Directory, _))) {
        place.remove(name, &|_| false)?;
        rustix::fs::mkdirat(place.fd(), name, Mode::from_raw_mode(0o755))?;
    }
    place.subdirectory(name)
}

/// The text of a small file; empty if it does not exist.
fn read_text(place: &DirHandle, name: &OsStr) -> io::Result<String> {
    let Some((rustix::fs::FileType::RegularFile, _)) = place.look(name)? else { return Ok(String::new()) };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(place.fd(), name, flags, Mode::empty())?);
    let mut bytes = vec![];
    file.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A list of users or groups in which the cell's own come first.
fn with_own_ids(theirs: &str, own: &str) -> String {
    let id = |line: &str| line.split(':').nth(2).map(str::to_owned);
    let name = |line: &str| line.split(':').next().map(str::to_owned);
    let taken = |line: &&str| own.lines().any(|own| id(own) == id(line) || name(own) == name(line));
    let kept = theirs.lines().filter(|line| !line.is_empty() && !taken(line));
    own.lines().chain(kept).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_of_an_image_include_the_cells_user() {
        let merged = with_own_ids("root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/:\nweb:x:33:33::/:\n", "me:x:1000:\n");
        assert_eq!(merged, "me:x:1000:\nroot:x:0:0::/root:/bin/sh\nweb:x:33:33::/:\n");
    }
}
