//! User and group ids for cells.
//!
//! With privileges every cell gets two dedicated ids, one for init and one for its programs. Without, the only
//! available id is the caller's, under another number.

use std::os::fd::{AsFd, OwnedFd};

use crate::error::Failure;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use sandbox_base::random::random_bytes;

/// The user and group id of programs, as they see it.
pub(super) const PROGRAM: u32 = 1000;

/// Ids per keeper: two for each of 2048 concurrent cells.
const BLOCK: u32 = 4096;

/// The maximum number of blocks that are tried.
const MOST_TRIES: u32 = 1024;

/// The ids that a keeper can assign.
#[derive(Debug)]
pub(super) enum Ids {
    /// A dedicated block, starting at this id.
    Block { first: u32, used: Vec<bool>, _lock: OwnedFd },
    /// Only the id that the keeper has in its user namespace.
    Single,
}

/// The ids of one cell, as the keeper numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellIds {
    /// Init's and the program's.
    Two { init: u32, program: u32, slot: usize },
    /// One for both.
    One,
}

impl Ids {
    /// Claims a block of ids, if the keeper is privileged to use other ids than its own. With a block, the keeper's own
    /// id is never assigned, because it may be root's.
    pub(super) fn claim(privileged: bool) -> Result<Self, Failure> {
        let mapped = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        Self::claim_in(privileged.then(|| range(&mapped)).flatten(), lock)
    }

    /// Claims the first block of a range that can be locked.
    fn claim_in(range: Option<(u32, u32)>, lock: impl Fn(u32) -> Option<OwnedFd>) -> Result<Self, Failure> {
        let Some((base, blocks)) = range else { return Ok(Self::Single) };
        // Start at a random block: the locks of a keeper in another container are not visible here.
        let random = random_bytes().map_err(|errno| Failure::os("cannot claim user ids for cells", errno))?;
        let start = u32::from_ne_bytes(random) % blocks;
        for index in (0..blocks.min(MOST_TRIES)).map(|n| (start + n) % blocks) {
            if let Some(lock) = lock(index) {
                return Ok(Self::Block { first: base + index * BLOCK, used: vec![], _lock: lock });
            }
        }
        Err(Failure::new("cannot claim user ids for cells", "other keepers hold all candidate blocks"))
    }

    /// Ids for another cell.
    pub(super) fn take(&mut self) -> Option<CellIds> {
        let Self::Block { first, used, .. } = self else { return Some(CellIds::One) };
        let slot = used.iter().position(|used| !used).unwrap_or_else(|| {
            used.push(false);
            used.len() - 1
        });
        let offset = u32::try_from(slot).ok()?.checked_mul(2).filter(|offset| *offset < BLOCK)?;
        used[slot] = true;
        Some(CellIds::Two { init: *first + offset, program: *first + offset + 1, slot })
    }

    /// The id map of a zygote namespace, in which all ids exist under the same numbers. Its root is the keeper's, which
    /// has no privileges outside; only the processes that create cells are ever root there.
    pub(super) fn map(&self) -> String {
        match self {
            Self::Block { first, .. } => format!("0 0 1\n{first} {first} {BLOCK}\n"),
            Self::Single => "0 0 1\n".to_owned(),
        }
    }

    /// Releases the ids of a cell.
    pub(super) fn give_back(&mut self, ids: CellIds) {
        if let (Self::Block { used, .. }, CellIds::Two { slot, .. }) = (self, ids) {
            used[slot] = false;
        }
    }
}

impl CellIds {
    /// The id map of the new user namespace: inside, outside, count.
    pub(super) fn map(self) -> String {
        match self {
            Self::Two { init, program, .. } => format!("0 {init} 1\n{PROGRAM} {program} 1\n"),
            Self::One => format!("{PROGRAM} 0 1\n"),
        }
    }

    /// The owner of the writable directories, as the keeper numbers ids.
    pub(super) fn owner(self) -> (u32, u32) {
        match self {
            Self::Two { program, .. } => (program, program),
            Self::One => (0, 0),
        }
    }

    /// The ids that init takes where it has no user namespace, as the keeper numbers ids.
    pub(super) fn init(self) -> Option<(u32, u32)> {
        match self {
            Self::Two { init, .. } => Some((init, init)),
            Self::One => None,
        }
    }

    /// The ids that programs take, as the cell numbers ids.
    pub(super) fn program(self) -> Option<(u32, u32)> {
        match self {
            Self::Two { .. } => Some((PROGRAM, PROGRAM)),
            Self::One => None,
        }
    }
}

/// Which ids are free to use, as (first, blocks), given the keeper's own map.
fn range(uid_map: &str) -> Option<(u32, u32)> {
    // On a host every id exists; distributions and systemd assign nothing in the quarter below 2^31.
    const ON_A_HOST: (u32, u32) = (0x7000_0000, 0x1000_0000 / BLOCK);
    // A container often has 65,536 ids; those in the middle are free.
    const IN_A_CONTAINER: (u32, u32) = (20_000, 9);
    let mut fields = uid_map.lines().next()?.split_ascii_whitespace();
    let (inside, count): (u64, u64) = (fields.next()?.parse().ok()?, fields.nth(1)?.parse().ok()?);
    match (inside, count) {
        (0, 0x8000_0000..) => Some(ON_A_HOST),
        (0, 60_000..) => Some(IN_A_CONTAINER),
        _ => None,
    }
}

/// Locks a block: a byte of a file in a directory that only root can write to. The lock vanishes with the process.
const LOCKS: &str = "/run/sandbox-run.ids";

fn lock(index: u32) -> Option<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(LOCKS, flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => lock_in(file, index),
        Err(_) => lock_by_name(index),
    }
}

fn lock_in(file: OwnedFd, index: u32) -> Option<OwnedFd> {
    let stat = rustix::fs::fstat(&file).ok()?;
    let own = stat.st_uid == rustix::process::geteuid().as_raw();
    let usable = own && FileType::from_raw_mode(stat.st_mode).is_file();
    (usable && sandbox_sys::byte_lock::lock_byte(file.as_fd(), index.into()).is_ok()).then_some(file)
}

/// The fallback without such a directory: the name of an abstract socket, which other users could take too.
fn lock_by_name(index: u32) -> Option<OwnedFd> {
    let address = SocketAddrUnix::new_abstract_name(format!("sandbox-run/ids/{index}").as_bytes()).ok()?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    bind(&socket, &address).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ids_depend_on_the_id_map() {
        assert_eq!(range("         0          0 4294967295\n").map(|r| r.0), Some(0x7000_0000));
        assert_eq!(range("0 100000 65536\n").map(|r| r.0), Some(20_000));
        assert_eq!(range("0 1000 1\n"), None);
        assert_eq!(range("1000 1000 1\n"), None);
        assert_eq!(range(""), None);
    }

    #[test]
    fn cells_never_share_ids() {
        let lock = lock_by_name(u32::MAX).expect("lock");
        let mut ids = Ids::Block { first: 100, used: vec![], _lock: lock };
        let a = ids.take().expect("ids");
        let b = ids.take().expect("ids");
        assert_ne!(a, b);
        assert_eq!(a.owner(), (101, 101));
        assert_eq!(b.map(), "0 102 1\n1000 103 1\n");
        ids.give_back(a);
        assert_eq!(ids.take(), Some(a));
        for _ in 2..BLOCK / 2 {
            assert!(ids.take().is_some());
        }
        assert_eq!(ids.take(), None);
    }

    #[test]
    fn without_a_free_block_claiming_ids_fails() {
        let failure = Ids::claim_in(Some((0x7000_0000, 9)), |_| None).expect_err("refused");
        assert!(failure.to_string().starts_with("cannot claim user ids"), "{failure}");
    }

    #[test]
    fn a_block_is_locked_until_its_file_is_closed() {
        let path = std::env::temp_dir().join(format!("ids-{}", std::process::id()));
        let open = || OwnedFd::from(std::fs::File::options().create(true).append(true).open(&path).expect("file"));
        let first = lock_in(open(), 7).expect("free");
        assert!(lock_in(open(), 7).is_none());
        assert!(lock_in(open(), 8).is_some());
        drop(first);
        assert!(lock_in(open(), 7).is_some());
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn two_keepers_claim_different_blocks() {
        let (a, b) = (Ids::claim(true).expect("a block"), Ids::claim(true).expect("another"));
        if let (Ids::Block { first: a, .. }, Ids::Block { first: b, .. }) = (&a, &b) {
            assert_ne!(a, b);
        }
        assert!(matches!(Ids::claim(false), Ok(Ids::Single)));
    }
}
