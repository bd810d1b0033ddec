//! Archives of projects, read like their directories.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use sandbox_base::{printable, reason};
use sandbox_executor::{InputFile, MOST_BYTES, MOST_FILES};
use sandbox_images::{ArchiveFormat, ProjectCaps, ProjectFile, read_project};
use sandbox_runtimes::Registry;

use crate::project::{VERSION_CONTROL, refuse};
use crate::request::UsageError;

/// Reads the files of a project in an archive, without the directories that are left out of any project.
pub(crate) fn read(registry: &Registry, path: &Path, format: ArchiveFormat) -> Result<Vec<InputFile>, UsageError> {
    let file = File::open(path).map_err(|error| refuse(path, &reason(&error)))?;
    let files = read_project(&file, format, ProjectCaps { files: MOST_FILES, bytes: MOST_BYTES });
    let files = without_ignored(registry, files.map_err(|why| refuse(path, &printable(&why)))?);
    if files.is_empty() {
        return Err(refuse(path, "the archive contains no files"));
    }
    let input = |ProjectFile { path, content, executable }| InputFile { executable, ..InputFile::new(path, content) };
    Ok(files.into_iter().map(input).collect())
}

fn without_ignored(registry: &Registry, files: Vec<ProjectFile>) -> Vec<ProjectFile> {
    let names: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let is_ignored = |dir: &str| {
        let is_beside = |manifest: &str| !dir.contains('/') && names.contains(manifest);
        let name = dir.rsplit('/').next().unwrap_or(dir);
        VERSION_CONTROL.contains(&name) || registry.ignores(name, &is_beside)
    };
    let kept: Vec<bool> = files.iter().map(|file| !file.path.parents().any(is_ignored)).collect();
    files.into_iter().zip(kept).filter_map(|(file, is_kept)| is_kept.then_some(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox_base::RelativePath;

    #[test]
    fn generated_directories_of_a_project_are_left_out() {
        let names = ["main.py", ".git/HEAD", "a/node_modules/x/y.js", "Cargo.toml", "target/x", "lib/target/x"];
        let file = |name: &str| {
            let path = RelativePath::new(name).expect("path");
            ProjectFile { path, content: vec![], executable: false }
        };
        let files = without_ignored(&Registry::default(), names.map(file).into());
        let kept: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(kept, ["main.py", "Cargo.toml", "lib/target/x"]);
    }
}
