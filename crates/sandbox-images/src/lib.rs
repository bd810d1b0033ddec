//! Container images as root file systems of cells, and projects in archives.
//!
//! An image is an untrusted file. It is therefore unpacked in a cell ([`unpack()`]): this program reads it from
//! standard input and creates files in one host directory, which is the only one it can write to. Inside, it resolves
//! every path itself, component by component, without the kernel ever following a link (`tree.rs`).
//!
//! The result is stored by content ([`ImageStore`]) and mounted read-only in the cells of runs that request it.

#[cfg(fuzzing)]
pub mod fuzz;
mod layer;
mod name;
mod pack;
mod project;
mod read;
mod source;
mod store;
mod tree;
mod unpack;

pub use name::ImageName;
pub use pack::pack;
pub use project::{ArchiveFormat, ProjectCaps, ProjectFile, read_project};
pub use store::{Image, ImageError, ImageInfo, ImageStore, Import, ListedImage};
pub use unpack::{ImageCaps, ImageConfig, UnpackResult, UnpackTask, Unpacked, unpack};

/// The first argument of a program that shall call [`unpack()`] on its standard input.
pub const UNPACK_COMMAND: &str = "__unpack-image";

/// The path of the target directory in the cell.
pub const UNPACK_DIR: &str = "/image";

/// The unpacked root in that directory.
const ROOT: &str = "root";
