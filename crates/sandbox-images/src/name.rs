//! Image names, as in registries: `python:3.12-slim`, `example.com/team/tool`.

use std::fmt;

/// The longest name.
const MAX_NAME: usize = 200;

/// A valid name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageName(String);

impl ImageName {
    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-:/@".contains(c);
        let part = |part: &str| part.starts_with(|c: char| c.is_ascii_alphanumeric());
        if name.len() > MAX_NAME || !name.chars().all(plain) || !name.split('/').all(part) {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(50).collect();
            return Err(format!(
                "invalid image name '{shown}': use letters, digits and ._-:/@, such as python:3.12-slim"
            ));
        }
        Ok(Self(name.to_owned()))
    }

    /// A valid name that resembles an arbitrary text.
    pub(crate) fn like(text: &str) -> Option<Self> {
        let replaced: String =
            text.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect();
        let trimmed = replaced.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        Self::new(trimmed).ok()
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of its file: image names have slashes, file names cannot.
    pub(crate) fn file(&self) -> String {
        self.0.replace('/', "%")
    }

    /// The name that a file stands for.
    pub(crate) fn of_file(file: &str) -> Option<Self> {
        Self::new(&file.replace('%', "/")).ok()
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_names_are_accepted() {
        for good in ["busybox", "python:3.12-slim", "example.com:5000/team/tool@sha256", "A_b.c"] {
            let name = ImageName::new(good).expect(good);
            assert_eq!(ImageName::of_file(&name.file()), Some(name.clone()), "{good}");
            assert!(!name.file().contains('/'), "{good}");
        }
        let long = "x".repeat(300);
        for bad in ["", ".", "..", "../x", "a/../b", "a//b", "/a", "a/", "a b", "a%b", "-x", "a\nb", &long] {
            assert!(ImageName::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(ImageName::like("my image (1)").map(|name| name.0), Some("my-image--1-".to_owned()));
        assert_eq!(ImageName::like("..."), None);
    }
}
