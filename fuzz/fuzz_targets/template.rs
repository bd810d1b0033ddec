//! Rendering. Input is a template, or a whole job if it begins with a brace and a quote; there is always an answer.
//!
//! In a cell, memory is limited; here it is not. So constructs that could allocate without bound are left out.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sandbox_executor::render;
use sandbox_runtimes::Registry;
use serde_json::{Value, json};

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::shipped().expect("valid"));

const MARKS: [char; 2] = ['\u{10fffe}', '\u{10ffff}'];

fn grows(text: &str) -> bool {
    let long_number = text.as_bytes().windows(4).any(|window| window.iter().all(u8::is_ascii_digit));
    long_number || text.len() > 600 || ["*", "namespace", "range"].iter().any(|word| text.contains(word))
}

fuzz_target!(|text: &str| {
    if grows(text) {
        return;
    }
    let job = if text.starts_with("{\"") {
        text.as_bytes().to_vec()
    } else {
        let variables = json!({"n": 3, "text": "it's \"q\"\n", "list": [1, 2.5, "x", null], "map": {"a": [true]}});
        let template = json!({"name": "t", "text": text, "variables": variables});
        let language = ["python", "rust", "java", "cpp", "bash"][text.len() % 5];
        let literals = &REGISTRY.by_name(language).expect("known").literals;
        let job = json!({"template": template, "language": language, "literals": literals, "code": "a\nb\n"});
        serde_json::to_vec(&job).expect("json")
    };
    let answer: Value = serde_json::from_slice(&render(&job)).expect("an answer");
    if let Some(why) = answer.get("Err") {
        assert!(!why.as_str().expect("a reason").is_empty());
        return;
    }
    let rendered = answer.get("Ok").expect("either");
    let code = rendered["code"].as_str().expect("text");
    assert!(!code.contains(MARKS), "marks are for us alone");
    if let (Some(before), Some(count)) = (rendered["lines"]["before"].as_u64(), rendered["lines"]["count"].as_u64()) {
        let lines = code.matches('\n').count() as u64 + 1;
        assert!(count > 0 && before + count <= lines, "{before} + {count} of {lines} lines");
    }
});
