//! Neutralises control sequences in a program's output for a terminal.
//!
//! Control sequences can set titles, move the cursor over earlier lines, change colours permanently, and on some
//! terminals type input. Every control character except newline, tab and carriage return is shown as its picture (ESC
//! as ␛); other text is unchanged. Bytes may arrive in any chunks, so an incomplete character waits for its rest.

use sandbox_base::visible;

/// A filter that keeps the incomplete character at the end of its input.
#[derive(Debug, Default)]
pub(crate) struct Neutraliser {
    unfinished: Vec<u8>,
}

impl Neutraliser {
    /// Filters the next chunk.
    pub(crate) fn filter(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.unfinished);
        input.extend_from_slice(bytes);
        let mut output = String::with_capacity(input.len());
        let mut rest = input.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    push(&mut output, text);
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    push(&mut output, &String::from_utf8_lossy(valid));
                    let Some(bad) = error.error_len() else {
                        self.unfinished = after.to_vec();
                        break;
                    };
                    output.push('\u{fffd}');
                    rest = &after[bad..];
                }
            }
        }
        output.into_bytes()
    }

    /// The incomplete character at the end.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let rest = std::mem::take(&mut self.unfinished);
        String::from_utf8_lossy(&rest).into_owned().into_bytes()
    }
}

/// Text as it is shown on a terminal.
pub(crate) fn neutralise(text: &str) -> String {
    let mut filter = Neutraliser::default();
    let mut bytes = filter.filter(text.as_bytes());
    bytes.extend(filter.finish());
    String::from_utf8_lossy(&bytes).into_owned()
}

fn push(output: &mut String, text: &str) {
    output.extend(text.chars().map(|c| if matches!(c, '\n' | '\t' | '\r') { c } else { visible(c) }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> String {
        let mut neutraliser = Neutraliser::default();
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
    fn chunk_boundaries_make_no_difference() {
        let text = [" añ€😀\x1b[0m".as_bytes(), b"\xff end", b"\xe2"].concat();
        for size in 1..6 {
            let mut neutraliser = Neutraliser::default();
            let mut output: Vec<u8> = text.chunks(size).flat_map(|part| neutraliser.filter(part)).collect();
            output.extend(neutraliser.finish());
            assert_eq!(String::from_utf8(output).expect("UTF-8"), whole(&text), "chunks of {size}");
        }
    }
}
