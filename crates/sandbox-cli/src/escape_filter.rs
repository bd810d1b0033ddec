//! Decides which escape sequences of an untrusted program reach the terminal of the person who runs it with `--tty`.
//!
//! Full-screen programs need to move the cursor, to set colours, to scroll, and a few modes: those sequences are in
//! allow lists here and pass. All others are dropped, with all that belongs to them. Three kinds matter most. Control
//! strings (OSC, DCS, APC, PM, SOS) set titles, colours and the clipboard, name files and print. Queries make the
//! terminal type an answer, part of which the program may have chosen, and which a shell reads if the program has ended
//! by then. And some sequences last: they redefine keys, switch the character encoding or erase the scrollback.
//!
//! What passes is a text of complete sequences, in UTF-8 without C1 control characters, so that a terminal that parses
//! it in another way than this filter has nothing to misunderstand. A sequence that is incomplete waits, up to a bound.
//! [`EscapeFilter::finish`] undoes the modes that the program has left behind.

/// The longest sequence that passes; a longer one is dropped as a whole. `SGR` with many attributes is the longest that
/// programs use.
const LONGEST: usize = 128;

/// The largest number in a sequence, so that none asks a terminal for endless work. The largest mode is 2026.
const LARGEST: u32 = 9_999;

/// Private modes (`CSI ? NUMBER h`) that pass, and whether a terminal has them set by default.
const MODES: [(u32, bool); 19] = [
    (1, false),    // cursor keys for applications
    (5, false),    // reverse video
    (6, false),    // origin
    (7, true),     // wrap around
    (25, true),    // visible cursor
    (45, false),   // reverse wrap around
    (47, false),   // alternate screen
    (66, false),   // keypad for applications
    (69, false),   // left and right margins
    (1000, false), // mouse: buttons
    (1002, false), // mouse: drag
    (1003, false), // mouse: motion
    (1004, false), // focus
    (1006, false), // mouse: format
    (1007, false), // wheel as cursor keys
    (1047, false), // alternate screen
    (1049, false), // alternate screen and saved cursor
    (2004, false), // bracketed paste
    (2026, false), // synchronised output
];

/// Final bytes of sequences without private marker and intermediate bytes that pass with any numbers: cursor, erasing,
/// inserting, deleting, scrolling, attributes, margins. Not tab stops, which would last.
const FINALS: &[u8] = b"@ABCDEFGHIKLMPSTXZ`abdefmrsu";

/// The state between two bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After ESC, perhaps with intermediate bytes.
    Escape,
    /// After ESC [.
    Control,
    /// In a sequence that is too long, until its end.
    Overlong,
    /// In a control string, until its end.
    String,
}

/// The filter for one stream.
#[derive(Debug, Default)]
pub(crate) struct EscapeFilter {
    state: State,
    /// The sequence so far, without ESC and [.
    sequence: Vec<u8>,
    /// The beginning of a character.
    character: Vec<u8>,
    left: LeftBehind,
}

/// What differs from a terminal's defaults.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of a terminal")]
struct LeftBehind {
    /// A bit for each of [`MODES`].
    modes: u32,
    attributes: bool,
    margins: bool,
    insert: bool,
    keypad: bool,
    charset: bool,
    cursor: bool,
}

impl EscapeFilter {
    /// Filters the next bytes.
    pub(crate) fn filter(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut output = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            self.take(byte, &mut output);
        }
        output
    }

    /// The sequences that take back what the program has left behind. What it began and did not end is dropped.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let LeftBehind { modes, attributes, margins, insert, keypad, charset, cursor } = std::mem::take(&mut self.left);
        (self.state, self.sequence, self.character) = (State::Text, vec![], vec![]);
        let mut output = vec![];
        for (index, (mode, default)) in MODES.iter().enumerate() {
            if modes >> index & 1 == 1 {
                let end = if *default { 'h' } else { 'l' };
                output.extend(format!("\x1b[?{mode}{end}").into_bytes());
            }
        }
        // Resetting the margins moves the cursor.
        for (left, sequence) in [
            (margins, "\x1b7\x1b[r\x1b8"),
            (insert, "\x1b[4l"),
            (keypad, "\x1b>"),
            (charset, "\x1b(B\x1b)B\x0f"),
            (cursor, "\x1b[0 q"),
            (attributes, "\x1b[0m"),
        ] {
            if left {
                output.extend_from_slice(sequence.as_bytes());
            }
        }
        output
    }

    fn take(&mut self, byte: u8, output: &mut Vec<u8>) {
        match (self.state, byte) {
            // These begin or abort a sequence wherever they are.
            (_, 0x1b) => {
                self.end_character(output);
                self.sequence.clear();
                self.state = State::Escape;
            }
            (_, 0x18 | 0x1a) => {
                self.end_character(output);
                self.state = State::Text;
            }
            (State::Text, _) => self.text(byte, output),
            (State::String, 0x07) => self.state = State::Text,
            // Other control characters within a sequence are dropped.
            (State::String, _) | (_, ..0x20 | 0x7f) => {}
            // No sequence contains them.
            (_, 0x80..) => {
                self.state = State::Text;
                self.text(byte, output);
            }
            (State::Escape, _) => self.escape(byte, output),
            (State::Control, 0x40..) => {
                self.state = State::Text;
                self.control(byte, output);
            }
            (State::Overlong, 0x40..) => self.state = State::Text,
            (State::Overlong, _) => {}
            (State::Control, _) => {
                self.sequence.push(byte);
                if self.sequence.len() > LONGEST {
                    self.state = State::Overlong;
                }
            }
        }
    }

    fn text(&mut self, byte: u8, output: &mut Vec<u8>) {
        if byte < 0x80 {
            self.end_character(output);
            // Bell, backspace, tab, new lines, carriage return, shifts between character sets. Others do nothing, or
            // make the terminal answer (ENQ).
            if matches!(byte, 0x07..=0x0f | 0x20..=0x7e) {
                self.left.charset |= byte == 0x0e;
                output.push(byte);
            }
            return;
        }
        self.character.push(byte);
        match std::str::from_utf8(&self.character) {
            Ok(text) => {
                // In some terminals, C1 control characters begin a sequence as ESC does.
                let is_control = text.chars().any(char::is_control);
                let text = if is_control { "\u{fffd}" } else { text };
                output.extend_from_slice(text.as_bytes());
                self.character.clear();
            }
            Err(error) if error.error_len().is_some() => {
                output.extend_from_slice("\u{fffd}".as_bytes());
                self.character.clear();
                // The byte that does not fit may begin another character.
                if matches!(byte, 0xc2..=0xf4) {
                    self.character.push(byte);
                }
            }
            // It waits for its rest.
            Err(_) => {}
        }
    }

    /// An incomplete character is followed by something else.
    fn end_character(&mut self, output: &mut Vec<u8>) {
        if !self.character.is_empty() {
            self.character.clear();
            output.extend_from_slice("\u{fffd}".as_bytes());
        }
    }

    /// A byte after ESC.
    fn escape(&mut self, byte: u8, output: &mut Vec<u8>) {
        self.state = State::Text;
        match (self.sequence.as_slice(), byte) {
            ([], b'[') => self.state = State::Control,
            // OSC, DCS, SOS, PM, APC, and the title of screen.
            ([], b']' | b'P' | b'X' | b'^' | b'_' | b'k') => self.state = State::String,
            (before, 0x20..=0x2f) => {
                // With two of them it does not pass in any case.
                if before.len() < 2 {
                    self.sequence.push(byte);
                }
                self.state = State::Escape;
            }
            // Save and restore the cursor, index, next line, reverse index.
            ([], b'7' | b'8' | b'D' | b'E' | b'M') => output.extend_from_slice(&[0x1b, byte]),
            ([], b'=' | b'>') => {
                self.left.keypad = byte == b'=';
                output.extend_from_slice(&[0x1b, byte]);
            }
            // Character sets: ASCII, British, line drawing.
            ([set @ (b'(' | b')')], b'B' | b'A' | b'0') => {
                self.left.charset |= byte != b'B';
                output.extend_from_slice(&[0x1b, *set, byte]);
            }
            _ => {}
        }
    }

    /// The final byte of a sequence that begins with ESC [.
    fn control(&mut self, last: u8, output: &mut Vec<u8>) {
        let sequence = std::mem::take(&mut self.sequence);
        let is_middle = |byte: &u8| matches!(byte, 0x20..=0x2f);
        let (parameters, middle) = sequence.split_at(sequence.iter().position(is_middle).unwrap_or(sequence.len()));
        if !middle.iter().all(is_middle) {
            return;
        }
        let (marker, parameters) = match parameters {
            [marker @ b'<'..=b'?', rest @ ..] => (Some(*marker), rest),
            all => (None, all),
        };
        let Some(numbers) = numbers(parameters) else { return };
        let passes = match (marker, middle, last) {
            (Some(b'?'), [], b'h' | b'l') => return self.modes(&numbers, last, output),
            // Selective erasing.
            (Some(b'?'), [], b'J' | b'K') => numbers.iter().all(|number| *number <= 2),
            // 3 erases the scrollback, which is not the program's.
            (None, [], b'J') => numbers.iter().all(|number| *number <= 2),
            // Of the modes only insertion.
            (None, [], b'h' | b'l') => {
                let is_insertion = numbers == [4];
                if is_insertion {
                    self.left.insert = last == b'h';
                }
                is_insertion
            }
            (None, [], last) => {
                self.left.attributes |= last == b'm';
                self.left.margins |= matches!(last, b'r' | b's');
                FINALS.contains(&last)
            }
            // The form of the cursor; a soft reset.
            (None, [b' '], b'q') => {
                self.left.cursor = true;
                true
            }
            (None, [b'!'], b'p') => true,
            _ => false,
        };
        if passes {
            output.extend_from_slice(b"\x1b[");
            output.extend(marker);
            output.extend_from_slice(parameters);
            output.extend_from_slice(middle);
            output.push(last);
        }
    }

    /// Sets or resets private modes, those of a list that are allowed.
    fn modes(&mut self, numbers: &[u32], last: u8, output: &mut Vec<u8>) {
        for number in numbers {
            let Some(index) = MODES.iter().position(|(mode, _)| mode == number) else { continue };
            let bit = 1 << index;
            if MODES[index].1 == (last == b'h') {
                self.left.modes &= !bit;
            } else {
                self.left.modes |= bit;
            }
            output.extend(format!("\x1b[?{number}{}", char::from(last)).into_bytes());
        }
    }
}

/// The numbers of a sequence, if it has nothing else and none is too large. One that is left out is 0.
fn numbers(parameters: &[u8]) -> Option<Vec<u32>> {
    let number = |digits: &[u8]| {
        let value = digits.iter().try_fold(0_u32, |value, digit| {
            digit.is_ascii_digit().then(|| value.saturating_mul(10).saturating_add(u32::from(digit - b'0')))
        });
        value.filter(|value| *value <= LARGEST)
    };
    parameters.split(|byte| matches!(byte, b';' | b':')).map(number).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filtered(text: &str) -> String {
        String::from_utf8(EscapeFilter::default().filter(text.as_bytes())).expect("always UTF-8")
    }

    fn undone(text: &str) -> String {
        let mut filter = EscapeFilter::default();
        filter.filter(text.as_bytes());
        String::from_utf8(filter.finish()).expect("always UTF-8")
    }

    #[test]
    fn what_full_screen_programs_need_passes() {
        for text in [
            "plain text\r\n\ttabs, \u{8}backspace and a bell\u{7}, é文🦀",
            "\x1b[31;1mred\x1b[0m\x1b[38;2;1;2;3m\x1b[4:3m\x1b[m",
            "\x1b[H\x1b[2J\x1b[12;40H\x1b[K\x1b[A\x1b[10C\x1b[3d\x1b[5G",
            "\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[?1h\x1b=",
            "\x1b[2;20r\x1bM\x1bD\x1b[2L\x1b[3M\x1b[4P\x1b[5@\x1b[6X\x1b[S\x1b[T\x1b[4h\x1b[4l",
            "\x1b7\x1b8\x1b[s\x1b[u\x1b(0lqk\x1b(B\x0e\x0f\x1b)0",
            "\x1b[2 q\x1b[!p\x1b[?J",
        ] {
            assert_eq!(filtered(text), text);
        }
    }

    #[test]
    fn what_acts_beyond_the_screen_is_dropped() {
        for text in [
            // Titles, the clipboard, links, colours, directories, notifications.
            "\x1b]0;title\x07",
            "\x1b]2;title\x1b\\",
            "\x1b]52;c;cm0gLXJm\x07",
            "\x1b]8;;http://x\x1b\\",
            "\x1b]4;1;?\x07",
            "\x1b]11;?\x1b\\",
            "\x1b]1337;File=:AAAA\x07",
            "\x1bktitle\x1b\\",
            // Device control, application commands, privacy messages.
            "\x1bP$q q\x1b\\",
            "\x1bP1000p%output\x1b\\",
            "\x1b_Gi=1\x1b\\",
            "\x1b^secret\x1b\\",
            "\x1bXstring\x1b\\",
            // Queries: the terminal would type the answer.
            "\x05",
            "\x1bZ",
            "\x1b[c",
            "\x1b[>c",
            "\x1b[=c",
            "\x1b[5n",
            "\x1b[6n",
            "\x1b[?6n",
            "\x1b[?1$p",
            "\x1b[21t",
            "\x1b[18t",
            "\x1b[>q",
            "\x1b[?u",
            "\x1b[1;1;1;1;1;1*y",
            "\x1b[x",
            // What lasts: windows, printers, keys, encodings, the scrollback, a full reset.
            "\x1b[8;1;1t",
            "\x1b[5i",
            "\x1b[?4i",
            "\x1b[>4;2m",
            "\x1b[>1u",
            "\x1b%@",
            "\x1b%G",
            "\x1b F",
            "\x1b G",
            "\x1b[3J",
            "\x1b[61\"p",
            "\x1bc",
            "\x1b[?3h",
            "\x1b[?9h",
            "\x1b[3g",
            "\x1bH",
            "\x1b[20h",
            "\x1b[?1s",
            "\x1b[?1r",
            // Endless work.
            "\x1b[1000000b",
            // Other control characters.
            "\0\x01\x11\x13\x7f",
        ] {
            assert_eq!(filtered(&format!("a{text}b")), "ab", "{text:?}");
        }
        assert_eq!(filtered("a\u{9b}31mb\u{9d}0;t\u{9c}"), "a\u{fffd}31mb\u{fffd}0;t\u{fffd}");
        assert_eq!(EscapeFilter::default().filter(b"a\x9b31m\xffb"), "a\u{fffd}31m\u{fffd}b".as_bytes());
    }

    #[test]
    fn only_the_allowed_modes_of_a_list_pass() {
        assert_eq!(filtered("\x1b[?1;3;9;2004;1005h"), "\x1b[?1h\x1b[?2004h");
    }

    #[test]
    fn a_sequence_does_not_swallow_the_next() {
        assert_eq!(filtered("\x1b]0;never ended\x1b[1mbold"), "\x1b[1mbold");
        assert_eq!(filtered("\x1b[12\x1b[1mbold"), "\x1b[1mbold");
        assert_eq!(filtered("\x1b]0;aborted\x18text"), "text");
        assert_eq!(filtered("\x1b[1\x1atext"), "text");
        assert_eq!(filtered(&format!("\x1b[{}mtext", "1;".repeat(500))), "text");
        assert_eq!(filtered("\x1b[1\u{e9}mtext"), "\u{e9}mtext");
        assert_eq!(filtered("\x1b((Btext"), "text");
    }

    #[test]
    fn nothing_grows_without_bound() {
        let mut filter = EscapeFilter::default();
        for begin in ["\x1b]", "\x1bP", "\x1b[", "\x1b("] {
            filter.filter(begin.as_bytes());
            assert!(filter.filter(&vec![b'1'; 100_000]).len() <= 100_000);
            assert!(filter.sequence.len() <= LONGEST + 1 && filter.character.len() < 4);
        }
    }

    #[test]
    fn modes_that_are_left_behind_are_undone() {
        assert_eq!(undone("text\r\n"), "");
        assert_eq!(undone("\x1b[?1049h\x1b[?25l\x1b[31m"), "\x1b[?25h\x1b[?1049l\x1b[0m");
        assert_eq!(undone("\x1b[?1049h\x1b[?25l\x1b[?1049l\x1b[?25h"), "");
        assert_eq!(
            undone("\x1b[2;9r\x1b[4h\x1b=\x1b(0\x1b[2 q"),
            "\x1b7\x1b[r\x1b8\x1b[4l\x1b>\x1b(B\x1b)B\x0f\x1b[0 q"
        );
        assert_eq!(undone("\x1b=\x1b>\x1b]0;never ended"), "");
    }

    proptest! {
        #[test]
        fn chunks_make_no_difference(bytes in proptest::collection::vec(byte(), 0..200), size in 1..7_usize) {
            let mut filter = EscapeFilter::default();
            let parts: Vec<u8> = bytes.chunks(size).flat_map(|part| filter.filter(part)).collect();
            prop_assert_eq!(parts, EscapeFilter::default().filter(&bytes));
        }

        /// What passes passes again unchanged, so it has only complete and allowed sequences.
        #[test]
        fn what_passes_is_clean(bytes in proptest::collection::vec(byte(), 0..200)) {
            let once = EscapeFilter::default().filter(&bytes);
            let mut filter = EscapeFilter::default();
            prop_assert_eq!(&filter.filter(&once), &once);
            prop_assert_eq!(filter.state, State::Text);
            let text = String::from_utf8(once).expect("always UTF-8");
            let is_c1 = |c: char| ('\u{80}'..='\u{9f}').contains(&c);
            let has_string = ["\x1b]", "\x1bP", "\x1b_"].iter().any(|begin| text.contains(begin));
            prop_assert!(!has_string && !text.chars().any(is_c1));
        }
    }

    /// Bytes of which sequences consist more often than not.
    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![
            proptest::sample::select(b"\x1b\x1b\x1b[[]P\\?;0123456789mhlnctJ(B0 \"$q\x07\x18".to_vec()),
            any::<u8>()
        ]
    }
}
