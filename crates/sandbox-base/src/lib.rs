//! Basics that every crate uses: units, limits, paths, text for display, waiting for descriptors, random tokens,
//! percent-encoding, private directories and lock files. Cells and requests are unknown here.

pub mod data_dir;
pub mod limits;
pub mod lock_file;
mod path;
mod percent_encoding;
pub mod random;
mod text;
pub mod units;
pub mod wait;

pub use limits::{LimitKind, Limits};
pub use path::{MAX_DEPTH, MAX_LENGTH, PathError, RelativePath};
pub use percent_encoding::percent_decode;
pub use text::{counted, printable, reason, visible};
