//! Packs an OCI layout directory into one file, because unpacking reads a file.

use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};

/// Packs the files of a layout. They belong to the caller, so links are followed. The file is temporary and vanishes
/// when it is closed; it is created in `scratch`, because it is as large as the image.
pub fn pack(layout: &Path, scratch: &Path) -> io::Result<File> {
    for name in ["oci-layout", "index.json"] {
        if !layout.join(name).is_file() {
            return Err(io::Error::other(format!("it is not an OCI layout: {name} is missing")));
        }
    }
    let mut names: Vec<PathBuf> = ["oci-layout", "index.json"].map(PathBuf::from).into();
    let blobs = Path::new("blobs/sha256");
    for entry in std::fs::read_dir(layout.join(blobs))? {
        names.push(blobs.join(entry?.file_name()));
    }
    let mut archive = tar::Builder::new(tempfile::tempfile_in(scratch)?);
    for name in names {
        archive.append_file(&name, &mut File::open(layout.join(&name))?)?;
    }
    let mut file = archive.into_inner()?;
    file.rewind()?;
    Ok(file)
}
