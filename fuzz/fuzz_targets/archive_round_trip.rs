//! Archives round-trip, and truncation is noticed.
#![no_main]

use std::io::{self, Read};

use libfuzzer_sys::fuzz_target;
use sandbox_base::RelativePath;
use sandbox_cell::archive::{FileCaps, Omission, Sink, read_all, read_volume};
use sandbox_cell::fuzz::{Piece, write};

const CAPS: FileCaps = FileCaps { count: 1000, bytes: 1 << 20 };

type Seen = (Option<u8>, String, Option<(bool, Vec<u8>)>);

#[derive(Default)]
struct Taken {
    seen: Vec<Seen>,
    omitted: Vec<String>,
}

impl Sink for Taken {
    fn file(&mut self, path: &RelativePath, executable: bool, _: u64, content: &mut dyn Read) -> io::Result<()> {
        let mut bytes = vec![];
        content.read_to_end(&mut bytes)?;
        self.seen.push((None, path.as_str().to_owned(), Some((executable, bytes))));
        Ok(())
    }

    fn omitted(&mut self, path: &str, _: Omission) {
        self.omitted.push(path.to_owned());
    }

    fn volume(&mut self, number: u8, mut part: &mut dyn Read) -> io::Result<()> {
        read_volume(&mut part, &mut |path, file, content| {
            let mut bytes = vec![];
            content.read_to_end(&mut bytes)?;
            let file = file.map(|(executable, _)| (executable, bytes));
            self.seen.push((Some(number), path.as_str().to_owned(), file));
            Ok(())
        })
    }
}

/// Lines as `kind name=content` become entries.
fn pieces(text: &str) -> Vec<Piece> {
    let piece = |line: &str| {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (name, content) = rest.split_once('=').unwrap_or((rest, ""));
        let path = || RelativePath::new(name).ok();
        Some(match kind {
            "into" => Piece::Into(name.parse::<u8>().ok()? % 3),
            "dir" => Piece::Directory(path()?),
            "file" | "run" => {
                Piece::File { path: path()?, executable: kind == "run", content: content.as_bytes().to_vec() }
            }
            "link" if content.len() <= 1024 => Piece::Link { path: path()?, target: content.to_owned() },
            "omit" if name.len() <= 1000 => Piece::Omitted(name.to_owned()),
            _ => return None,
        })
    };
    text.lines().take(90).filter_map(piece).collect()
}

fuzz_target!(|text: &str| {
    let mut expected = Taken::default();
    let mut place = None;
    let mut stream = vec![];
    let mut pieces = pieces(text);
    pieces.push(Piece::End(7));
    for piece in &pieces {
        write(&mut stream, piece).expect("an entry can be written");
        match (piece, place) {
            (Piece::Into(number), _) => place = number.checked_sub(1),
            (Piece::Omitted(name), _) => expected.omitted.push(name.clone()),
            (Piece::File { path, executable, content }, _) => {
                expected.seen.push((place, path.as_str().to_owned(), Some((*executable, content.clone()))));
            }
            (Piece::Directory(path), Some(_)) => expected.seen.push((place, path.as_str().to_owned(), None)),
            _ => {}
        }
    }
    let mut taken = Taken::default();
    let arrival = read_all(&mut stream.as_slice(), CAPS, &[CAPS, CAPS], &mut taken).expect("what was written is read");
    assert!(arrival.cut.is_none(), "what was written is read to its end");
    let omitted = arrival.omitted;
    assert_eq!((omitted, &taken.seen, &taken.omitted), (7, &expected.seen, &expected.omitted));
    let cut = stream.len() * text.len() % 97 % stream.len();
    let arrival = read_all(&mut &stream[..cut], CAPS, &[CAPS, CAPS], &mut Taken::default()).expect("the sink is well");
    assert!(arrival.cut.is_some(), "cut off at {cut}");
});
