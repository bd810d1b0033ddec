//! Bounds the entries and the depth of a JSON text while it arrives, before it is parsed: a short text can describe very many
//! values, each of which takes much more memory than its few bytes.

/// The most entries of all lists and objects together.
pub(crate) const MOST_ENTRIES: usize = 200_000;

/// The maximum nesting depth of lists and objects.
pub(crate) const DEEPEST: usize = 64;

/// About what one entry takes in memory besides its text.
pub(crate) const ENTRY: usize = 128;

/// Scans a text in pieces. It does not validate the text; the parser does.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    entries: usize,
    depth: usize,
    position: JsonPosition,
}

#[derive(Debug, Default, Clone, Copy)]
enum JsonPosition {
    #[default]
    Outside,
    InString,
    Escaped,
}

impl Scan {
    /// Reads the next piece. Fails when there are too many entries, or they are nested too deep.
    pub(crate) fn read(&mut self, piece: &[u8]) -> Result<(), String> {
        for byte in piece {
            self.position = match (self.position, byte) {
                (JsonPosition::Outside, b'"') => JsonPosition::InString,
                (JsonPosition::Outside, b'{' | b'[') => {
                    self.depth += 1;
                    self.entries += 1;
                    JsonPosition::Outside
                }
                (JsonPosition::Outside, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(1);
                    JsonPosition::Outside
                }
                (JsonPosition::Outside, b',') => {
                    self.entries += 1;
                    JsonPosition::Outside
                }
                (JsonPosition::Outside, _) | (JsonPosition::InString, b'"') => JsonPosition::Outside,
                (JsonPosition::InString, b'\\') => JsonPosition::Escaped,
                (JsonPosition::InString | JsonPosition::Escaped, _) => JsonPosition::InString,
            };
            if self.depth > DEEPEST {
                return Err(format!("the body nests lists and objects more than {DEEPEST} levels deep"));
            }
            if self.entries > MOST_ENTRIES {
                return Err(format!("the body has more than {MOST_ENTRIES} entries in lists and objects"));
            }
        }
        Ok(())
    }

    /// How many entries there are up to now: of each list and object one more than it has commas.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Result<usize, String> {
        let mut scan = Scan::default();
        // In pieces of every size, so that each boundary is somewhere.
        for piece in text.as_bytes().chunks(1 + text.len() % 7) {
            scan.read(piece)?;
        }
        Ok(scan.entries())
    }

    #[test]
    fn strings_hold_no_entries() {
        assert_eq!(entries(r#"{"a": [1, 2, "x,{[\",[\\"], "b\\": {}}"#), Ok(6));
        assert_eq!(entries(r#""\\", [1]"#), Ok(2));
        assert_eq!(entries(""), Ok(0));
    }

    #[test]
    fn entries_and_depth_are_capped() {
        let list = |count: usize| format!("[{}1]", "1,".repeat(count - 1));
        assert_eq!(entries(&list(MOST_ENTRIES)), Ok(MOST_ENTRIES));
        let refused = entries(&list(MOST_ENTRIES + 1)).expect_err("refused");
        assert_eq!(refused, "the body has more than 200000 entries in lists and objects");
        assert!(entries(&"[".repeat(DEEPEST)).is_ok());
        let refused = entries(&"{\"\":[".repeat(DEEPEST)).expect_err("refused");
        assert_eq!(refused, "the body nests lists and objects more than 64 levels deep");
    }
}
