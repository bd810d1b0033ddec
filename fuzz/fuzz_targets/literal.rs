//! Literals: one value in every language, from which no text can break out. Where it is easy, literals are parsed back.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sandbox_runtimes::Registry;
use serde_json::Value;

/// Writes a value as a literal of a language.
fn literal(value: &Value, language: &str) -> Result<String, String> {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::shipped().expect("valid"));
    REGISTRY.by_name(language).expect("known").literals.as_ref().expect("literals").write(value)
}

/// What is left of a literal without its strings, of which each must end.
fn without_strings(text: &str) -> String {
    let mut rest = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '"' {
            rest.push(c);
            continue;
        }
        loop {
            match chars.next() {
                Some('"') => break,
                Some('\\') => assert!(chars.next().is_some_and(|c| "\"\\nrtu01234567".contains(c)), "{text}"),
                Some(c) => {
                    assert!(!c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}'), "{c:?} in {text}");
                    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
                    assert!(!turns, "{c:?} changes the direction of {text}");
                }
                None => panic!("a string does not end: {text}"),
            }
        }
    }
    rest
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    for language in ["python", "javascript", "typescript", "go", "rust", "java", "c", "cpp"] {
        let Ok(text) = literal(&value, language) else { continue };
        let rest = without_strings(&text);
        assert!(rest.is_ascii() && !rest.contains(['\\', '\'', '#', ';', '\n', '`', '@', '%']), "{language}: {text}");
        for (open, close) in [('[', ']'), ('{', '}'), ('(', ')')] {
            assert_eq!(rest.matches(open).count(), rest.matches(close).count(), "{language}: {text}");
        }
    }
    if let Value::String(text) = &value {
        // JSON and JavaScript agree on strings.
        let written = literal(&value, "javascript").expect("a string can be written");
        assert_eq!(serde_json::from_str::<String>(&written).ok().as_ref(), Some(text));
    }
    if let Ok(words) = literal(&value, "bash") {
        let quotes = words.replace("'\\''", "").matches('\'').count();
        assert!(quotes % 2 == 0 && !words.contains('\0'), "{words}");
    }
});
