//! Links between documents have valid targets, and every document is a page of the book.

use std::collections::HashSet;
use std::path::PathBuf;

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

#[test]
fn every_document_is_in_the_book_once() {
    let summary = std::fs::read_to_string(repository().join("docs").join(SUMMARY)).unwrap();
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let page = |found: regex_lite::Captures| repository().join("docs").join(&found[1]).canonicalize().unwrap();
    let mut pages: Vec<PathBuf> = link.captures_iter(&summary).map(page).collect();
    let is_page = |path: &PathBuf| path.file_name().is_some_and(|name| name != SUMMARY);
    let mut documents: Vec<PathBuf> =
        documents().into_iter().filter(is_page).map(|path| path.canonicalize().unwrap()).collect();
    pages.sort();
    documents.sort();
    assert_eq!(pages, documents);
}

/// The list of the book's pages, which is no page itself.
const SUMMARY: &str = "SUMMARY.md";

/// Every document of the repository.
fn documents() -> Vec<PathBuf> {
    let pages = |dir: &str| {
        let entries = std::fs::read_dir(repository().join(dir)).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect::<Vec<_>>()
    };
    ["", "docs", "deploy", "tests/chaos", "tests/vm"].map(pages).concat()
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
