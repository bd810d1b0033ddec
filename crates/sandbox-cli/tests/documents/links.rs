//! Links between documents have valid targets.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use regex_lite::Regex;

use sandbox_testing::repository;

#[test]
fn links_have_targets() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut broken = vec![];
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for target in link.captures_iter(&without_code(&text)).map(|found| found[1].to_owned()) {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { document.clone() } else { document.with_file_name("").join(file) };
            let leads = path.exists()
                && (anchor.is_empty() || anchors(&std::fs::read_to_string(&path).unwrap()).contains(anchor));
            if !leads {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Every document of the repository.
fn documents() -> Vec<PathBuf> {
    let pages = |dir: &Path| {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect::<Vec<_>>()
    };
    [pages(repository()), pages(&repository().join("docs"))].concat()
}

fn without_code(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// The anchors of headings.
fn anchors(text: &str) -> HashSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    headings.map(|heading| heading.to_lowercase().replace(' ', "-").chars().filter(|c| kept(*c)).collect()).collect()
}
