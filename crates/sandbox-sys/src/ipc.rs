//! System V shared memory and message queues. The sandbox itself uses none: the attack suite plants them outside, as
//! bait for programs that should not be able to reach them.

use std::ptr;

use crate::{Result, check};

/// A segment that every user may read and write. Dropping it removes it.
#[derive(Debug)]
pub struct SharedMemory {
    id: i32,
    size: usize,
}

impl SharedMemory {
    /// Creates a segment under an unused key, with this content.
    pub fn create(key: i32, content: &[u8]) -> Result<Self> {
        let size = content.len();
        // SAFETY: shmget touches no memory of this process.
        let id = check(unsafe { libc::shmget(key, size, libc::IPC_CREAT | libc::IPC_EXCL | 0o666) }.into())?;
        #[expect(clippy::cast_possible_truncation, reason = "an id is an int")]
        let memory = Self { id: id as i32, size };
        memory.attached(|address| {
            // SAFETY: the segment has at least `size` bytes, is attached at `address`, and overlaps nothing of ours.
            unsafe { ptr::copy_nonoverlapping(content.as_ptr(), address, size) }
        })?;
        Ok(memory)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> i32 {
        self.id
    }

    /// The current content.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut content = vec![0; self.size];
        self.attached(|address| {
            // SAFETY: as in `create`, in the other direction. Other processes may write meanwhile; bytes have no invalid values.
            unsafe { ptr::copy_nonoverlapping(address, content.as_mut_ptr(), self.size) }
        })?;
        Ok(content)
    }

    fn attached(&self, act: impl FnOnce(*mut u8)) -> Result<()> {
        // SAFETY: with a null address the kernel chooses a free range.
        let address = unsafe { libc::shmat(self.id, ptr::null(), 0) };
        check(address as i64)?;
        act(address.cast());
        // SAFETY: detaches what was attached above; no reference to it is left.
        check(unsafe { libc::shmdt(address) }.into()).map(drop)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: IPC_RMID takes no buffer.
        unsafe { libc::shmctl(self.id, libc::IPC_RMID, ptr::null_mut()) };
    }
}

/// Removes the segment with this key, if there is one that this process may remove.
#[must_use]
pub fn remove_segment(key: i32) -> bool {
    // SAFETY: shmget touches no memory; without IPC_CREAT it only looks.
    let id = unsafe { libc::shmget(key, 0, 0) };
    // SAFETY: IPC_RMID takes no buffer.
    id >= 0 && unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) } == 0
}

/// A message queue that every user may use, with one message in it. Dropping it removes it.
#[derive(Debug)]
pub struct MessageQueue {
    id: i32,
}

impl MessageQueue {
    /// Creates a queue under an unused key, and puts a message into it.
    pub fn create(key: i32, message: &[u8]) -> Result<Self> {
        // SAFETY: msgget touches no memory.
        let id = check(unsafe { libc::msgget(key, libc::IPC_CREAT | libc::IPC_EXCL | 0o666) }.into())?;
        #[expect(clippy::cast_possible_truncation, reason = "an id is an int")]
        let queue = Self { id: id as i32 };
        // A message begins with its type, a positive long.
        let mut buffer = libc::c_long::from(1_i32).to_ne_bytes().to_vec();
        buffer.extend_from_slice(message);
        // SAFETY: the buffer has the type and `message.len()` bytes after it.
        check(unsafe { libc::msgsnd(queue.id, buffer.as_ptr().cast(), message.len(), libc::IPC_NOWAIT) }.into())?;
        Ok(queue)
    }

    /// The number of messages in it.
    pub fn len(&self) -> Result<u64> {
        // SAFETY: `msqid_ds` is plain data for which all zeroes is a valid value.
        let mut state: libc::msqid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills one `msqid_ds` that lives across the call.
        check(unsafe { libc::msgctl(self.id, libc::IPC_STAT, &raw mut state) }.into())?;
        Ok(state.msg_qnum)
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }
}

impl Drop for MessageQueue {
    fn drop(&mut self) {
        // SAFETY: IPC_RMID takes no buffer.
        unsafe { libc::msgctl(self.id, libc::IPC_RMID, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: i32) -> i32 {
        #[expect(clippy::cast_possible_wrap, reason = "any number will do")]
        let own = std::process::id() as i32;
        0x5a00_0000 | (own << 4) | n
    }

    #[test]
    fn planted_objects_are_found_and_removed() {
        let memory = SharedMemory::create(key(1), b"hello").expect("a segment");
        assert_eq!(memory.read().expect("its content"), b"hello");
        assert!(SharedMemory::create(key(1), b"again").is_err());
        drop(memory);
        assert!(!remove_segment(key(1)));
        let queue = MessageQueue::create(key(2), b"hello").expect("a queue");
        assert_eq!((queue.len(), queue.is_empty()), (Ok(1), Ok(false)));
    }
}
