//! Archives of projects: tar, tar compressed with gzip, and zip.
//!
//! They are read in memory and become input files of a request; nothing is written to the host. An archive may come from
//! anywhere, so its names are checked like those of any request, and its files are bounded in number, size and depth.

mod zip;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use sandbox_base::{RelativePath, reason};
use tar::EntryType;

/// The format of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveFormat {
    /// Tar.
    Tar,
    /// Tar, compressed with gzip.
    TarGzip,
    /// Zip.
    Zip,
    /// A format that is not read.
    Other,
}

/// Limits on the files of a project.
#[derive(Debug, Clone, Copy)]
pub struct ProjectCaps {
    /// Their number.
    pub files: usize,
    /// Their total size in bytes.
    pub bytes: usize,
}

/// A file of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFile {
    /// Its path in the project.
    pub path: RelativePath,
    /// What is in it.
    pub content: Vec<u8>,
    /// Whether it may be executed.
    pub executable: bool,
}

impl ArchiveFormat {
    /// The format of an archive by its name; none if it is no archive.
    #[must_use]
    pub fn of(file: &Path) -> Option<Self> {
        let name = file.file_name().and_then(OsStr::to_str)?.to_ascii_lowercase();
        let endings = [
            (Self::Tar, &[".tar"][..]),
            (Self::TarGzip, &[".tar.gz", ".tgz"]),
            (Self::Zip, &[".zip"]),
            (Self::Other, &[".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tar.zst", ".7z", ".rar"]),
        ];
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        endings.into_iter().find(|(_, endings)| ends(endings)).map(|(format, _)| format)
    }
}

/// Reads the files of a project in an archive. A directory that holds all of them is left out of their names.
pub fn read_project(file: &File, format: ArchiveFormat, caps: ProjectCaps) -> Result<Vec<ProjectFile>, String> {
    let mut reader = ArchiveReader { caps, files: vec![], bytes: 0 };
    match format {
        ArchiveFormat::Tar => reader.read_tar(BufReader::new(file))?,
        ArchiveFormat::TarGzip => reader.read_tar(MultiGzDecoder::new(BufReader::new(file)))?,
        ArchiveFormat::Zip => zip::read(file, &mut reader)?,
        ArchiveFormat::Other => return Err("unsupported format; use .tar, .tar.gz or .zip".to_owned()),
    }
    Ok(reader.project())
}

/// The files of an archive that was read so far.
struct ArchiveReader {
    caps: ProjectCaps,
    files: Vec<ProjectFile>,
    bytes: usize,
}

impl ArchiveReader {
    fn read_tar(&mut self, tar: impl Read) -> Result<(), String> {
        let invalid = |error: std::io::Error| format!("invalid archive: {}", reason(&error));
        // Its files, with a header and padding for each, and some longer names.
        let most = self.caps.bytes as u64 + self.caps.files as u64 * 2048;
        let mut archive = tar::Archive::new(tar.take(most));
        for entry in archive.entries().map_err(invalid)? {
            let mut entry = entry.map_err(invalid)?;
            let name = entry.path_bytes().into_owned();
            match entry.header().entry_type() {
                EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {}
                EntryType::Directory | EntryType::XGlobalHeader => continue,
                EntryType::Symlink | EntryType::Link => return Err(is_link(&name)),
                _ => return Err(format!("'{}' is not a regular file", String::from_utf8_lossy(&name))),
            }
            let is_executable = entry.header().mode().map_err(invalid)? & 0o100 != 0;
            let size = entry.size();
            self.add(&name, is_executable, size, &mut entry)?;
        }
        Ok(())
    }

    /// Adds a file of this size.
    fn add(&mut self, name: &[u8], executable: bool, size: u64, content: &mut dyn Read) -> Result<(), String> {
        let shown = String::from_utf8_lossy(name);
        let text = std::str::from_utf8(name).map_err(|_| format!("the name '{shown}' is not UTF-8"))?;
        let path = RelativePath::new(text.trim_start_matches("./")).map_err(|error| error.to_string())?;
        if self.files.len() == self.caps.files {
            return Err(format!("it contains more than {} files", self.caps.files));
        }
        let left = self.caps.bytes - self.bytes;
        let size = usize::try_from(size).ok().filter(|size| *size <= left);
        let size = size.ok_or_else(|| format!("its files are larger than {} MiB together", self.caps.bytes >> 20))?;
        let mut bytes = vec![];
        let read = content.take(size as u64).read_to_end(&mut bytes);
        read.map_err(|error| format!("invalid archive: {shown}: {}", reason(&error)))?;
        if bytes.len() != size {
            return Err(format!("invalid archive: {shown} is incomplete"));
        }
        self.bytes += size;
        self.files.push(ProjectFile { path, content: bytes, executable });
        Ok(())
    }

    /// The files of the project.
    fn project(self) -> Vec<ProjectFile> {
        let first = self.files.first().and_then(|file| Some(file.path.as_str().split_once('/')?.0.to_owned() + "/"));
        let Some(common) = first.filter(|dir| self.files.iter().all(|file| file.path.as_str().starts_with(dir))) else {
            return self.files;
        };
        let inner = |file: ProjectFile| {
            let path = RelativePath::new(file.path.as_str().strip_prefix(&common)?).ok()?;
            Some(ProjectFile { path, ..file })
        };
        self.files.into_iter().filter_map(inner).collect()
    }
}

fn is_link(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    format!("'{name}' is a link; an archive of a project may contain only files and directories")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A tar file with these entries: names, which the `tar` crate would refuse to write, and contents.
    fn tar(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(vec![]);
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            header.set_mode(0o755);
            header.set_cksum();
            builder.append(&header, *content).expect("write");
        }
        builder.into_inner().expect("finish")
    }

    fn names(bytes: &[u8], name: &str) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("write");
        let format = ArchiveFormat::of(&path).expect("an archive");
        let files = read_project(&File::open(&path).expect("open"), format, CAPS)?;
        Ok(files.iter().map(|file| file.path.as_str().to_owned()).collect())
    }

    const CAPS: ProjectCaps = ProjectCaps { files: 100, bytes: 1 << 20 };
    const FILE: EntryType = EntryType::Regular;

    #[test]
    fn the_project_is_below_the_only_directory() {
        let dir = EntryType::Directory;
        let whole = tar(&[("./p-1.0/", dir, b""), ("./p-1.0/main.py", FILE, b"1"), ("p-1.0/lib/a.py", FILE, b"")]);
        let expected = ["main.py", "lib/a.py"].map(str::to_owned);
        assert_eq!(names(&whole, "p.tar"), Ok(expected.to_vec()));
        let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
        gzip.write_all(&whole).expect("write");
        assert_eq!(names(&gzip.finish().expect("finish"), "P.TGZ"), Ok(expected.to_vec()));
        let flat = tar(&[("main.py", FILE, b"1"), ("lib/a.py", FILE, b"")]);
        assert_eq!(names(&flat, "p.tar"), Ok(vec!["main.py".to_owned(), "lib/a.py".to_owned()]));
    }

    #[test]
    fn hostile_archives_are_refused() {
        let deep = "d/".repeat(40) + "x";
        for (name, kind, expected) in [
            ("../x", FILE, "climbs out"),
            ("a/../../x", FILE, "climbs out"),
            ("/etc/passwd", FILE, "is absolute"),
            (&deep, FILE, "nested more than 32 levels"),
            ("x\x1b[31m", EntryType::Symlink, "' is a link"),
            ("x", EntryType::Link, "is a link"),
            ("x", EntryType::Char, "is not a regular file"),
        ] {
            let error = names(&tar(&[(name, kind, b"")]), "p.tar").expect_err(name);
            assert!(error.contains(expected), "{name}: {error}");
        }
        let many = tar(&vec![("x", FILE, &b""[..]); CAPS.files + 1]);
        assert!(names(&many, "p.tar").expect_err("too many").contains("more than 100 files"));
        let cut = tar(&[("x", FILE, &[0; 2000])]);
        assert!(names(&cut[..1024], "p.tar").expect_err("incomplete").contains("invalid archive"));
        assert!(names(b"not gzip", "p.tgz").expect_err("damaged").contains("invalid archive"));
        assert_eq!(names(&tar(&[]), "p.tar"), Ok(vec![]));
        assert!(names(b"", "p.tar.xz").expect_err("unsupported").ends_with("use .tar, .tar.gz or .zip"));
    }

    #[test]
    fn files_that_would_not_fit_are_not_read() {
        let mut header = tar::Header::new_gnu();
        header.set_path("x").expect("short");
        header.set_size(CAPS.bytes as u64 + 1);
        header.set_mode(0o644);
        header.set_cksum();
        let error = names(header.as_bytes(), "p.tar").expect_err("too large");
        assert!(error.contains("larger than 1 MiB together"), "{error}");
    }
}
