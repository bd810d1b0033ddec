//! The block of memory in which the kernel passed arguments and environment to this program.
//!
//! A fork of the process has a copy of it, with any secrets in variables. The fork can erase its copy, as long as
//! nothing was copied to other memory before: `std::env::args` copies all arguments.

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use rustix::io::Errno;

use crate::Result;
use crate::process::SingleThreaded;

/// The location of the block.
#[derive(Debug, Clone, Copy)]
pub struct StartBlock {
    arguments: (usize, usize),
    environment: (usize, usize),
}

impl StartBlock {
    /// The block of this process, unless the kernel does not say where it is.
    pub fn get() -> Result<Self> {
        static FOUND: OnceLock<Result<StartBlock>> = OnceLock::new();
        *FOUND.get_or_init(|| {
            let stat = std::fs::read("/proc/self/stat").map_err(|_| Errno::NOENT)?;
            Self::parse(&stat).ok_or(Errno::INVAL)
        })
    }

    fn parse(stat: &[u8]) -> Option<Self> {
        // The name, in brackets, may contain anything. The state after it is the third field.
        let after = &stat[stat.iter().rposition(|byte| *byte == b')')? + 1..];
        let mut fields = std::str::from_utf8(after).ok()?.split_ascii_whitespace().skip(48 - 3);
        let mut next = || fields.next()?.parse().ok().filter(|address| *address != 0);
        let (arguments, environment) = ((next()?, next()?), (next()?, next()?));
        // Environment variables follow arguments.
        let ordered = arguments.0 <= arguments.1 && arguments.1 <= environment.0 && environment.0 <= environment.1;
        ordered.then_some(Self { arguments, environment })
    }

    /// The arguments, beginning with the program's name.
    pub fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        words(self.arguments)
    }

    /// Whether there is an environment variable with this name.
    #[must_use]
    pub fn has_variable(&self, name: &str) -> bool {
        words(self.environment)
            .any(|word| word.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'=')))
    }

    /// Erases arguments and environment, and leaves only this name for the command line, and these variables.
    pub fn erase(self, _proof: SingleThreaded, name: &CStr, variables: &[(&CStr, CString)]) -> Result<()> {
        let (from, to) = (self.arguments.0, self.environment.1);
        let name = name.to_bytes();
        let block = std::ptr::with_exposed_provenance_mut::<u8>(from);
        // SAFETY: the kernel keeps this range of the stack for the block, above every frame; it is writable. Nothing in
        // Rust borrows from it for longer than a method of this type, and there is no other thread. The name is copied
        // only as far as it fits.
        unsafe {
            std::ptr::write_bytes(block, 0, to - from);
            std::ptr::copy_nonoverlapping(name.as_ptr(), block, name.len().min((to - from).saturating_sub(1)));
        }
        // SAFETY: there is no other thread that could read the environment.
        if unsafe { libc::clearenv() } != 0 {
            return Err(Errno::NOMEM);
        }
        for (name, value) in variables {
            // SAFETY: as above; both are strings that live across the call, which copies them.
            crate::check(unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) }.into())?;
        }
        Ok(())
    }
}

fn words<'a>((from, to): (usize, usize)) -> impl Iterator<Item = &'a [u8]> {
    let block = std::ptr::with_exposed_provenance::<u8>(from);
    // SAFETY: the kernel says that arguments or variables are in this range of the stack, where they are until the process
    // ends. Only `erase` writes there, which no borrower of a word can call: it would be in another thread.
    let bytes = unsafe { std::slice::from_raw_parts(block, to - from) };
    bytes.strip_suffix(b"\0").unwrap_or(bytes).split(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn the_block_holds_the_arguments_and_the_environment() {
        let block = StartBlock::get().expect("the block");
        let arguments: Vec<_> = std::env::args_os().collect();
        assert_eq!(
            block.arguments().collect::<Vec<_>>(),
            arguments.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()
        );
        assert!(block.has_variable("PATH") && !block.has_variable("PAT") && !block.has_variable(""));
    }

    #[test]
    fn only_a_sensible_block_is_believed() {
        let stat = |rest: &str| StartBlock::parse(format!("1 (a) b) R {}{rest}", "7 ".repeat(44)).as_bytes()).is_some();
        assert!(stat("10 20 20 30 0\n"));
        for other in ["", "10 20 20", "0 0 0 0 0", "20 10 20 30", "10 20 15 30", "10 20 30 25", "10 x 20 30"] {
            assert!(!stat(other), "{other}");
        }
    }
}
