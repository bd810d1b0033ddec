//! Readers that count, hash, bound and decompress.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};

/// A section of a file, read without moving its position.
pub(crate) struct Section<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl<'a> Section<'a> {
    pub(crate) fn new(file: &'a File, at: u64, size: u64) -> Self {
        Self { file, at, left: size }
    }
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..most], self.at)?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Hashes the bytes that pass through.
pub(crate) struct Hashing<R> {
    inner: R,
    hasher: Sha256,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, hasher: Sha256::new() }
    }

    /// Reads the rest, and returns the digest of everything and the reader.
    pub(crate) fn finish(mut self) -> io::Result<(String, R)> {
        io::copy(&mut self, &mut io::sink())?;
        let digest = sandbox_base::random::hex(&self.hasher.finalize());
        Ok((digest, self.inner))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

/// Fails beyond a maximum size. A small compressed file can expand without end.
pub(crate) struct Bounded<'a, R> {
    inner: R,
    left: &'a mut u64,
}

impl<'a, R> Bounded<'a, R> {
    pub(crate) fn new(inner: R, left: &'a mut u64) -> Self {
        Self { inner, left }
    }

    pub(crate) fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => *self.left = left,
            None => return Err(io::Error::other(TOO_LARGE)),
        }
        Ok(read)
    }
}

pub(crate) const TOO_LARGE: &str = "it exceeds the maximum size of an unpacked image; raise it with SANDBOX_IMAGE_SIZE";

/// The compression of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Detected by the first bytes, because names are not trusted.
    pub(crate) fn of(start: &[u8]) -> io::Result<Self> {
        match start {
            [0x1f, 0x8b, ..] => Ok(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', ..] => {
                Err(io::Error::other("it is compressed with xz; decompress it first"))
            }
            [b'B', b'Z', b'h', ..] => Err(io::Error::other("it is compressed with bzip2; decompress it first")),
            _ => Ok(Self::None),
        }
    }
}

/// A decompressed stream.
pub(crate) enum Plain<R: Read> {
    None(R),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
    Zstd(Box<ruzstd::decoding::StreamingDecoder<BufReader<R>, ruzstd::decoding::FrameDecoder>>),
}

impl<R: Read> Plain<R> {
    pub(crate) fn new(inner: R, compression: Compression) -> io::Result<Self> {
        let buffered = |inner| BufReader::with_capacity(1 << 16, inner);
        Ok(match compression {
            Compression::None => Self::None(inner),
            Compression::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(buffered(inner)))),
            Compression::Zstd => {
                let decoder = ruzstd::decoding::StreamingDecoder::new(buffered(inner));
                Self::Zstd(Box::new(decoder.map_err(io::Error::other)?))
            }
        })
    }

    /// The underlying stream.
    pub(crate) fn into_inner(self) -> R {
        match self {
            Self::None(inner) => inner,
            Self::Gzip(decoder) => decoder.into_inner().into_inner(),
            Self::Zstd(decoder) => decoder.into_inner().into_inner(),
        }
    }
}

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::None(inner) => inner.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn streams_are_decompressed_and_bounded() {
        let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
        gzip.write_all(&[7; 10_000]).expect("write");
        let gzip = gzip.finish().expect("finish");
        let zstd = ruzstd::encoding::compress_to_vec(&[7_u8; 10_000][..], ruzstd::encoding::CompressionLevel::Fastest);
        for (bytes, compression) in [(gzip, Compression::Gzip), (zstd, Compression::Zstd)] {
            assert_eq!(Compression::of(&bytes).expect("known"), compression);
            let read = |most: u64| {
                let (mut left, mut out) = (most, vec![]);
                let plain = Plain::new(bytes.as_slice(), compression)?;
                Bounded::new(plain, &mut left).read_to_end(&mut out).map(|_| out)
            };
            assert_eq!(read(10_000).expect("fits"), [7; 10_000]);
            assert_eq!(read(9_999).expect_err("too much").to_string(), TOO_LARGE);
        }
        assert!(Compression::of(b"\xfd7zXZ\0").is_err());
    }

    #[test]
    fn a_digest_covers_the_whole_stream() {
        let mut hashing = Hashing::new(&b"hello"[..]);
        let _ = hashing.read(&mut [0; 2]).expect("read");
        let (digest, _) = hashing.finish().expect("finish");
        assert_eq!(digest, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    }
}
