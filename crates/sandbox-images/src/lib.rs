//! Container images as root file systems of cells.
//!
//! An image is an untrusted file. It is therefore unpacked in a cell ([`unpack()`]): a program of our own reads
//! it from its standard input and makes files in one directory of the host's, which is all it can write to. Inside,
//! every path is resolved by hand, component by component, without the kernel ever following a link
//! (`tree.rs`).
//!
//! What comes of it is kept by content ([`ImageStore`]) and shown read-only in the cells of runs that ask for it.

#[cfg(fuzzing)]
pub mod fuzz;
mod layer;
mod name;
mod pack;
mod read;
mod source;
mod store;
mod tree;
mod unpack;

pub use name::ImageName;
pub use pack::pack;
pub use store::{Image, ImageError, ImageInfo, ImageStore, Import, ListedImage};
pub use unpack::{ImageCaps, ImageConfig, UnpackResult, UnpackTask, Unpacked, unpack};

/// The first argument with which a program calls [`unpack()`] on what it reads.
pub const UNPACK_COMMAND: &str = "__unpack-image";

/// Where the directory that is filled appears in the cell.
pub const UNPACK_DIR: &str = "/image";

/// The unpacked root in that directory.
const ROOT: &str = "root";
