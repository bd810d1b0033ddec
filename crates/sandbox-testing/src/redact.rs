//! Replaces text that differs between runs: times, sizes, versions, ids.

use std::sync::OnceLock;

use regex_lite::Regex;

/// A line in which times, sizes, versions and ids are replaced by placeholders.
pub fn redact_line(line: &str) -> String {
    if !line.starts_with(['✓', '✗']) {
        return redact_text(line);
    }
    // A summary: the reason of the end is always the same, the usage is not.
    let mut facts = line.split(" · ");
    let verdict = facts.next().unwrap_or_default().to_owned();
    let once = ["compiled in ", "packages ", "toolchain prepared in "];
    let lasts = |fact: &&str| !once.iter().any(|start| fact.starts_with(start));
    facts.filter(lasts).fold(verdict, |line, fact| format!("{line} · {}", redact_text(fact)))
}

/// The same for text that is not the summary of a run.
pub fn redact_text(text: &str) -> String {
    static VARYING: OnceLock<Vec<(Regex, &str)>> = OnceLock::new();
    let varying = VARYING.get_or_init(|| {
        [
            (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID"),
            (r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", "MOMENT"),
            (r"\b[0-9a-f]{12,}\b", "DIGEST"),
            (r"\b\d+(\.\d+)? ([KMG]i)?B\b", "SIZE"),
            (r"\b(\d+(\.\d+)?(h|m|s|ms|µs|ns))+\b", "TIME"),
            (r"\b\d+(\.\d+)+\b", "NUMBER"),
            (r"\b\d+ processes\b", "PROCESSES"),
            (r#""memory_used": ?\d+"#, "MEMORY"),
            // The width of columns depends on their content.
            (r" {2,}", " "),
        ]
        .map(|(pattern, name)| (Regex::new(pattern).unwrap(), name))
        .into()
    });
    varying.iter().fold(text.to_owned(), |text, (pattern, name)| pattern.replace_all(&text, *name).into_owned())
}
