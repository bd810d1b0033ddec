//! Archives of projects: whatever is in one, its files stay within their limits.
#![no_main]

use std::io::{Seek, Write};

use libfuzzer_sys::fuzz_target;
use sandbox_images::{ArchiveFormat, ProjectCaps, read_project};

fuzz_target!(|archive: &[u8]| {
    let mut file = tempfile::tempfile_in("/dev/shm").expect("tempfile");
    file.write_all(archive).expect("write");
    let caps = ProjectCaps { files: 20, bytes: 1 << 16 };
    for format in [ArchiveFormat::Tar, ArchiveFormat::TarGzip, ArchiveFormat::Zip] {
        file.rewind().expect("rewind");
        match read_project(&file, format, caps) {
            Ok(files) => {
                let size: usize = files.iter().map(|file| file.content.len()).sum();
                assert!(files.len() <= caps.files && size <= caps.bytes);
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }
});
