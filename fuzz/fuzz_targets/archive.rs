//! The output of a cell: within its limits, under relative names, and complete or refused.
#![no_main]

use std::io::{self, Read};

use libfuzzer_sys::fuzz_target;
use sandbox_base::RelativePath;
use sandbox_cell::archive::{FileCaps, MOST_NAMED, Omission, Sink, read_all, read_volume};

const FILES: FileCaps = FileCaps { count: 4, bytes: 64 };
const VOLUMES: [FileCaps; 2] = [FileCaps { count: 3, bytes: 32 }, FileCaps { count: 1, bytes: 8 }];

#[derive(Default)]
struct Taken {
    count: u64,
    bytes: u64,
    omitted: usize,
    volumes: [Vec<u8>; 2],
}

fn check(path: &RelativePath) {
    let path = path.as_str();
    assert!(!path.starts_with('/') && path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path:?}");
}

impl Sink for Taken {
    fn file(&mut self, path: &RelativePath, _: bool, size: u64, content: &mut dyn Read) -> io::Result<()> {
        check(path);
        self.count += 1;
        let read = io::copy(content, &mut io::sink())?;
        assert!(read <= size);
        self.bytes += read;
        Ok(())
    }

    fn omitted(&mut self, _: &str, _: Omission) {
        self.omitted += 1;
    }

    fn volume(&mut self, number: u8, part: &mut dyn Read) -> io::Result<()> {
        part.read_to_end(&mut self.volumes[usize::from(number)]).map(drop)
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut taken = Taken::default();
    let whole = read_all(&mut &*bytes, FILES, &VOLUMES, &mut taken).is_ok_and(|arrival| arrival.cut.is_none());
    assert!(taken.count <= FILES.count && taken.bytes <= FILES.bytes && taken.omitted <= MOST_NAMED);
    for (content, caps) in taken.volumes.iter().zip(VOLUMES) {
        let (mut count, mut sum) = (0, 0);
        let read = read_volume(&mut content.as_slice(), &mut |path, file, content| {
            check(path);
            count += 1;
            let read = io::copy(content, &mut io::sink())?;
            assert!(read <= file.map_or(0, |(_, size)| size));
            sum += read;
            Ok(())
        });
        assert!(read.is_ok() || !whole, "what came out of a volume can be put back");
        assert!(count <= caps.count && sum <= caps.bytes);
    }
    let _ = read_volume(&mut &*bytes, &mut |path, _, _| {
        check(path);
        Ok(())
    });
});
