//! Relative paths that cannot leave their directory.

use serde::{Deserialize, Serialize};

/// A relative path inside a cell: no root, no `..`, no empty part, no NUL, bounded in length and depth.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelativePath(String);

/// Why a path was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("path {path:?} {why}")]
pub struct PathError {
    path: String,
    why: &'static str,
}

/// The maximum depth of a path.
pub const MAX_DEPTH: usize = 32;
/// The maximum length of a path, in bytes.
pub const MAX_LENGTH: usize = 1024;
const MAX_PART: usize = 255;

impl RelativePath {
    /// Checks a path.
    pub fn new(path: impl Into<String>) -> Result<Self, PathError> {
        let path = path.into();
        let why = if path.is_empty() {
            Some("is empty")
        } else if path.len() > MAX_LENGTH {
            Some("is longer than 1024 bytes")
        } else if path.contains('\0') {
            Some("contains a NUL byte")
        } else if path.starts_with('/') {
            Some("is absolute; expected a path relative to the working directory")
        } else if path.split('/').any(|part| part == "..") {
            Some("climbs out of the working directory with '..'")
        } else if path.split('/').any(|part| part.is_empty() || part == ".") {
            Some("contains an empty component or '.'")
        } else if path.split('/').any(|part| part.len() > MAX_PART) {
            Some("contains a name longer than 255 bytes")
        } else if path.split('/').count() > MAX_DEPTH {
            Some("is nested more than 32 levels deep")
        } else {
            None
        };
        match why {
            None => Ok(Self(path)),
            Some(why) => {
                let path = path.chars().take(80).collect();
                Err(PathError { path, why })
            }
        }
    }

    /// Checks a path as people write it: `.`, `..` and empty parts are resolved first. Fails if it climbs out on its way.
    pub fn normalized(path: &str) -> Result<Self, PathError> {
        if path.starts_with('/') || path.ends_with('/') {
            return Self::new(path);
        }
        let mut parts = vec![];
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    if parts.pop().is_none() {
                        return Self::new(path);
                    }
                }
                part => parts.push(part),
            }
        }
        if parts.is_empty() { Self::new(path) } else { Self::new(parts.join("/")) }
    }

    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its parent directories, outermost first.
    pub fn parents(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').map(|(at, _)| &self.0[..at])
    }
}

impl TryFrom<String> for RelativePath {
    type Error = PathError;

    fn try_from(path: String) -> Result<Self, PathError> {
        Self::new(path)
    }
}

impl From<RelativePath> for String {
    fn from(path: RelativePath) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepts_ordinary_paths() {
        for path in ["main.py", "src/main.rs", "a/b/c.txt", "...", "ünïcode/文件", ".hidden", "a b"] {
            assert!(RelativePath::new(path).is_ok(), "{path}");
        }
        let path = RelativePath::new("a/b/c.txt").expect("valid");
        assert_eq!(path.parents().collect::<Vec<_>>(), ["a", "a/b"]);
    }

    #[test]
    fn refuses_unsafe_paths() {
        let deep = "a/".repeat(40) + "x";
        let long = "x".repeat(300);
        for path in
            ["", "/", "/etc/passwd", "..", "../x", "a/../b", "a/..", "a//b", "./a", "a/.", "a/", "a\0b", &deep, &long]
        {
            assert!(RelativePath::new(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn paths_that_people_write_are_normalized() {
        for (path, normal) in [
            ("a", "a"),
            ("./a", "a"),
            ("folder/../x", "x"),
            ("a/b/../../c/./d", "c/d"),
            ("a//b", "a/b"),
            ("-a", "-a"),
            ("...", "..."),
        ] {
            assert_eq!(RelativePath::normalized(path).expect(path).as_str(), normal);
        }
        for path in ["", ".", "..", "a/..", "../a", "a/../../a", "a/../../../a/b", "/a", "/../a", "a/", "a/../", "\0"] {
            let error = RelativePath::normalized(path).expect_err(path).to_string();
            assert!(error.starts_with(&format!("path {path:?} ")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_normalized_path_stays_inside(path in "[a./]{0,20}") {
            if let Ok(normal) = RelativePath::normalized(&path) {
                prop_assert_eq!(RelativePath::new(normal.as_str()), Ok(normal));
            }
        }

        #[test]
        fn an_accepted_path_stays_inside(path in "[a-z./\\\\\0]{0,20}") {
            if let Ok(path) = RelativePath::new(path) {
                let joined = std::path::Path::new("/base").join(path.as_str());
                prop_assert!(joined.components().all(|c| c != std::path::Component::ParentDir));
                prop_assert!(joined.starts_with("/base"));
            }
        }
    }
}
