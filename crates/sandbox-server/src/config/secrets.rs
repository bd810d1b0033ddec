//! Secrets among the settings: each can be read from a file, so that it is neither in the environment nor in the arguments,
//! which other users of the host can see.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use super::source::{Sourced, ValueSource};

/// The settings that are secrets, each with the one that names a file with it.
const SECRETS: [(&str, &str); 3] =
    [("api-keys", "api-keys-file"), ("redis-password", "redis-password-file"), ("redis-url", "redis-url-file")];

/// Puts the contents of files in the place of the secrets. A file of keys has several, and is read as such elsewhere.
pub(super) fn resolve(values: &mut BTreeMap<&'static str, Sourced>, errors: &mut Vec<String>) {
    for (secret, file) in SECRETS.into_iter().filter(|(secret, _)| *secret != "api-keys") {
        let Some((path, source)) = values.get(file).filter(|(path, _)| !path.trim().is_empty()) else { continue };
        let name = source.name(&file.replace('-', "_"));
        if values.get(secret).is_some_and(|(value, _)| !value.trim().is_empty()) {
            errors.push(format!("{name}: cannot be combined with {secret}"));
            continue;
        }
        match std::fs::read_to_string(path.trim()) {
            Ok(text) if text.trim().is_empty() => errors.push(format!("{name}: {path} is empty")),
            Ok(text) => {
                let value = (text.trim().to_owned(), ValueSource::File(path.trim().to_owned()));
                values.insert(secret, value);
            }
            Err(error) => errors.push(format!("{name}: cannot read {path}: {error}")),
        }
    }
}

/// Warnings about secrets that others could read.
pub(super) fn warnings(values: &BTreeMap<&'static str, Sourced>) -> Vec<String> {
    let mut warnings = vec![];
    for (secret, file) in SECRETS {
        if let Some((value, ValueSource::Flag(flag))) = values.get(secret)
            && (secret != "redis-url" || value.contains('@'))
        {
            warnings
                .push(format!("--{flag}: every user of this host can see the arguments of a process; use --{file}"));
        }
        let path = values.get(file).map(|(path, _)| path.trim()).filter(|path| !path.is_empty());
        let mode = path.and_then(|path| std::fs::metadata(path).ok()).map(|meta| meta.mode() & 0o7777);
        if let (Some(path), Some(mode)) = (path, mode.filter(|mode| mode & 0o007 != 0)) {
            warnings
                .push(format!("{path} has mode {mode:04o}, so every user of this host can read it; use 0640 or 0600"));
        }
    }
    let line =
        values.get("api-keys").into_iter().chain(values.get("redis-password")).find_map(|(_, source)| match source {
            ValueSource::Line(path, _) => Some(path),
            _ => None,
        });
    if let Some(path) = line
        && let Some(mode) =
            std::fs::metadata(path).ok().map(|meta| meta.mode() & 0o7777).filter(|mode| mode & 0o007 != 0)
    {
        let path = path.display();
        warnings.push(format!(
            "{path} has secrets and mode {mode:04o}, so every user of this host can read them; use 0640 or 0600"
        ));
    }
    warnings
}
