//! Makes text from programs, requests and file names harmless for terminals, messages and logs.

use std::fmt::Display;

/// A character in displayable form: control characters become their pictures (ESC becomes ␛), and marks that reverse
/// the display order become replacement characters.
#[must_use]
pub fn visible(c: char) -> char {
    match c {
        // The pictures of the control characters are in the same order from U+2400 on.
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        '\u{80}'..='\u{9f}'
        | '\u{61c}'
        | '\u{200e}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ => c,
    }
}

/// Text on one line, without anything that controls a terminal. All text out of a cell or a request passes through this
/// before it is printed or becomes part of a message.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(visible).collect()
}

/// The kernel's reason as text, without the number that Rust appends.
#[must_use]
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_lowercase()
}

/// A number with its noun, in the plural unless the number is 1.
#[must_use]
pub fn counted(number: impl Display, noun: &str) -> String {
    let number = number.to_string();
    let ending = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_are_neutralised() {
        assert_eq!(printable("a\x1b[31m\n\r\t\u{9b}b\u{202e}c\x7f\u{2028}"), "a␛[31m␊␍␉\u{fffd}b\u{fffd}c␡\u{fffd}");
        assert_eq!(printable("Größe 文件 🦀"), "Größe 文件 🦀");
        let all: String = (0..0x3000).filter_map(char::from_u32).collect();
        assert!(!printable(&all).contains(char::is_control));
    }

    #[test]
    fn nouns_agree_with_their_number() {
        assert_eq!([counted(0, "run"), counted(1, "run"), counted(0.1, "run")], ["0 runs", "1 run", "0.1 runs"]);
    }
}
