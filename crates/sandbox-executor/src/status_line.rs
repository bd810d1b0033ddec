//! The last line that an installer has printed, for people who wait for it.

use crate::verdict::clean;

/// The most bytes that are kept of a line.
const LONGEST_LINE: usize = 512;

/// Finds lines in output as it comes.
#[derive(Debug, Default)]
pub(crate) struct StatusLine {
    /// The beginning of a line that has not ended.
    unfinished: Vec<u8>,
}

impl StatusLine {
    /// The last line that ends in this output, without control characters, if one says anything.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Option<String> {
        let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let mut last = None;
        for part in bytes.split_inclusive(is_end) {
            let room = LONGEST_LINE.saturating_sub(self.unfinished.len());
            self.unfinished.extend_from_slice(&part[..part.len().min(room)]);
            if part.last().is_some_and(is_end) {
                last = clean(&String::from_utf8_lossy(&self.unfinished)).or(last);
                self.unfinished.clear();
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_is_shown() {
        let mut status = StatusLine::default();
        assert_eq!(status.read(b"Resolved 3 packages\nDownloading num"), Some("Resolved 3 packages".to_owned()));
        assert_eq!(status.read(b"py"), None);
        assert_eq!(status.read(b" (16 MiB)\r\n\n"), Some("Downloading numpy (16 MiB)".to_owned()));
        assert_eq!(status.read(b"10 %\r20 %\r"), Some("20 %".to_owned()));
    }

    #[test]
    fn hostile_output_is_bounded_and_harmless() {
        let mut status = StatusLine::default();
        for _ in 0..100 {
            assert_eq!(status.read(&vec![b'x'; 65_536]), None);
        }
        assert_eq!(status.unfinished.len(), LONGEST_LINE);
        assert_eq!(status.read(b"\n").map(|line| line.len()), Some(500));
        assert_eq!(status.read(b"\x1b]0;owned\x07\xff\n").as_deref(), Some("]0;owned\u{fffd}"));
        assert_eq!(status.read(b"\x1b\x07\n"), None);
    }
}
