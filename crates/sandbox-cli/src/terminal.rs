//! Neutralises control sequences in a program's output for a terminal.
//!
//! Control sequences can set titles, move the cursor over earlier lines, hide text, and on some terminals type input.
//! Every control character except newline, tab and carriage return is shown as its picture (ESC as ␛); other text is
//! unchanged. Bytes may arrive in any chunks, so an incomplete character or sequence waits for its rest.
//!
//! Colours may pass: what they change ends with the run, because the last thing written is a reset. Only styles that
//! leave text visible pass, so no concealed text (8), no blinking, no fonts. A program can still write in the colour of the
//! background, which hides no more than not writing at all.

use anstream::{AutoStream, ColorChoice};
use sandbox_base::visible;

/// The maximum length of a colour sequence.
const MAX_SEQUENCE: usize = 64;

/// What becomes of sequences that set colours and styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Colours {
    /// They are shown like other control sequences.
    #[default]
    Shown,
    /// They are removed: the terminal has no colours, or its user wants none.
    Removed,
    /// They pass, as far as they are harmless.
    Passed,
}

impl Colours {
    /// What a terminal is sent.
    pub(crate) fn of(terminal: &impl anstream::stream::RawStream) -> Self {
        if AutoStream::choice(terminal) == ColorChoice::Never { Self::Removed } else { Self::Passed }
    }
}

/// A filter that keeps the incomplete character or sequence at the end of its input.
#[derive(Debug, Default)]
pub(crate) struct Neutraliser {
    colours: Colours,
    unfinished: Vec<u8>,
    /// A sequence that may become one that sets colours, with its ESC.
    sequence: String,
    /// Whether a style is in effect.
    is_styled: bool,
}

impl Neutraliser {
    /// A filter that treats colours like this.
    pub(crate) fn with(colours: Colours) -> Self {
        Self { colours, ..Self::default() }
    }

    /// Filters the next chunk.
    pub(crate) fn filter(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.unfinished);
        input.extend_from_slice(bytes);
        let mut output = String::with_capacity(input.len());
        let mut rest = input.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.push(&mut output, text);
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.push(&mut output, &String::from_utf8_lossy(valid));
                    let Some(bad) = error.error_len() else {
                        self.unfinished = after.to_vec();
                        break;
                    };
                    self.push(&mut output, "\u{fffd}");
                    rest = &after[bad..];
                }
            }
        }
        output.into_bytes()
    }

    /// What is incomplete at the end, and the end of all styles.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut output = String::new();
        self.give_sequence_up(&mut output);
        output.push_str(&String::from_utf8_lossy(&std::mem::take(&mut self.unfinished)));
        if std::mem::take(&mut self.is_styled) {
            output.push_str("\x1b[0m");
        }
        output.into_bytes()
    }

    fn push(&mut self, output: &mut String, text: &str) {
        for c in text.chars() {
            let may_go_on = match self.sequence.len() {
                0 => false,
                1 => c == '[',
                length => length < MAX_SEQUENCE && matches!(c, '0'..='9' | ';' | 'm'),
            };
            if may_go_on {
                self.sequence.push(c);
                if c == 'm' {
                    self.end_sequence(output);
                }
                continue;
            }
            self.give_sequence_up(output);
            match c {
                '\x1b' if self.colours != Colours::Shown => self.sequence.push(c),
                '\n' | '\t' | '\r' => output.push(c),
                c => output.push(visible(c)),
            }
        }
    }

    /// The sequence is none that sets colours.
    fn give_sequence_up(&mut self, output: &mut String) {
        output.extend(self.sequence.drain(..).map(visible));
    }

    fn end_sequence(&mut self, output: &mut String) {
        let sequence = std::mem::take(&mut self.sequence);
        let styles = harmless(sequence.trim_start_matches("\x1b[").trim_end_matches('m'));
        if self.colours == Colours::Passed && !styles.is_empty() {
            self.is_styled = styles.last().is_some_and(|style| style != "0");
            output.push_str(&format!("\x1b[{}m", styles.join(";")));
        }
    }
}

/// The harmless styles of a sequence, each with its parameters.
fn harmless(parameters: &str) -> Vec<String> {
    // Without a number, 0 is meant, which ends all styles.
    let numbers: Vec<u16> =
        parameters.split(';').map(|number| number.parse().unwrap_or(u16::from(!number.is_empty()) * 999)).collect();
    let (mut styles, mut rest) = (vec![], numbers.as_slice());
    while let [first, after @ ..] = rest {
        let length = match (first, after) {
            (38 | 48, [5, index, ..]) if *index < 256 => 3,
            (38 | 48, [2, red, green, blue, ..]) if [red, green, blue].into_iter().all(|part| *part < 256) => 5,
            // What follows is no style of its own.
            (38 | 48 | 58, _) => return styles,
            _ => 1,
        };
        let (style, after) = rest.split_at(length);
        rest = after;
        let passes = matches!(first, 0..=4 | 7 | 9 | 22..=24 | 27 | 29..=49 | 90..=97 | 100..=107);
        if passes {
            styles.push(style.iter().map(u16::to_string).collect::<Vec<_>>().join(";"));
        }
    }
    styles
}

/// Text as it is shown on a terminal.
pub(crate) fn neutralise(text: &str) -> String {
    let mut filter = Neutraliser::default();
    let mut bytes = filter.filter(text.as_bytes());
    bytes.extend(filter.finish());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> String {
        filtered(bytes, Colours::Shown)
    }

    fn filtered(bytes: &[u8], colours: Colours) -> String {
        let mut neutraliser = Neutraliser::with(colours);
        let mut output = neutraliser.filter(bytes);
        output.extend(neutraliser.finish());
        String::from_utf8(output).expect("always UTF-8")
    }

    #[test]
    fn text_passes_and_control_sequences_do_not() {
        assert_eq!(whole("héllo\tworld\r\n".as_bytes()), "héllo\tworld\r\n");
        assert_eq!(whole(b"\x1b]0;owned\x07\x1b[31mred"), "␛]0;owned␇␛[31mred");
        assert_eq!(whole("\u{9b}31m".as_bytes()), "\u{fffd}31m");
        assert_eq!(whole(b"\x9b31m"), "\u{fffd}31m");
        assert_eq!(whole(b"\x7f\x08"), "␡␈");
        assert_eq!(whole("a\u{202e}b".as_bytes()), "a\u{fffd}b");
    }

    #[test]
    fn colours_pass_and_end_with_the_output() {
        for (text, passed, removed) in [
            ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m", "red"),
            ("\x1b[1;38;5;208mx\x1b[m", "\x1b[1;38;5;208mx\x1b[0m", "x"),
            ("\x1b[48;2;1;2;3mx", "\x1b[48;2;1;2;3mx\x1b[0m", "x"),
            // Text stays visible, and still.
            ("\x1b[8mhidden\x1b[5;31mx", "hidden\x1b[31mx\x1b[0m", "hiddenx"),
            ("\x1b[31;8m\x1b[38;5;8m", "\x1b[31m\x1b[38;5;8m\x1b[0m", ""),
            ("\x1b[38;5;300;8mx\x1b[38;8mx\x1b[99999999mx", "xxx", "xxx"),
            // Everything else is shown.
            ("\x1b[2Jx\x1b[1;1H", "␛[2Jx␛[1;1H", "␛[2Jx␛[1;1H"),
            ("\x1b]0;t\x07", "␛]0;t␇", "␛]0;t␇"),
            ("\x1b[?25l\x1b[>4;2m\x1b[38:5:1m", "␛[?25l␛[>4;2m␛[38:5:1m", "␛[?25l␛[>4;2m␛[38:5:1m"),
            ("\x1b\x1b[31m\x1b[31", "␛\x1b[31m␛[31\x1b[0m", "␛␛[31"),
            ("\x1bc\x1b[31\n", "␛c␛[31\n", "␛c␛[31\n"),
        ] {
            assert_eq!(filtered(text.as_bytes(), Colours::Passed), passed, "{text:?}");
            assert_eq!(filtered(text.as_bytes(), Colours::Removed), removed, "{text:?}");
        }
        let long = format!("\x1b[{}m", "1;".repeat(100));
        assert!(!filtered(long.as_bytes(), Colours::Passed).contains('\x1b'));
    }

    #[test]
    fn chunk_boundaries_make_no_difference() {
        let text = [" añ€😀\x1b[0m\x1b[1;31mx\x1b[2J".as_bytes(), b"\xff end", b"\x1b[3\xe2"].concat();
        for colours in [Colours::Shown, Colours::Removed, Colours::Passed] {
            for size in 1..6 {
                let mut neutraliser = Neutraliser::with(colours);
                let mut output: Vec<u8> = text.chunks(size).flat_map(|part| neutraliser.filter(part)).collect();
                output.extend(neutraliser.finish());
                let output = String::from_utf8(output).expect("UTF-8");
                assert_eq!(output, filtered(&text, colours), "{colours:?} in chunks of {size}");
            }
        }
    }
}
