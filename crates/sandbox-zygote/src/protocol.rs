//! The protocol of zygotes: every message, its limits and the order of its descriptors, shared by all sides. These are
//! the library, the pool that requests children, the keeper that provides access to a cell, and the init that sends
//! commands.
//!
//! All messages travel over sockets that preserve message boundaries, between processes of one host. Numbers are in
//! native byte order.
//!
//! | from | to | message | descriptors |
//! |---|---|---|---|
//! | zygote | pool | [`GREETING`], once it is warm | |
//! | pool | zygote | [`EnterParams`]: fork a child into this cell | [`enter_fds`] |
//! | child | init | its process id ([`encode_pid`]), once it is ready | |
//! | init | child | [`ChildCommand`]: what to run | [`STREAMS`] |

use core::ffi::CStr;

/// The first message of a zygote.
pub const GREETING: &[u8] = b"ready";

/// The maximum size of a [`ChildCommand`] in bytes. A message of this size still fits into a socket's default buffer.
pub const MOST_COMMAND: usize = 192 * 1024;

/// The maximum number of resource limits of a [`ChildCommand`].
pub const MOST_LIMITS: usize = 64;

/// The number of descriptors that come with a [`ChildCommand`]: standard input, output and error.
pub const STREAMS: usize = 3;

/// The namespaces of a cell by their names in `/proc/self/ns`, in the order of their descriptors in [`EnterParams`].
/// The user namespace is entered last: the others belong to the zygote's.
pub const NAMESPACES: [&str; 7] = ["pid", "ipc", "uts", "net", "cgroup", "mnt", "user"];

/// The maximum number of cgroups that a child joins.
pub const MOST_GROUPS: usize = 5;

/// The maximum number of descriptors in one message.
pub const MOST_FDS: usize = enter_fds::AFTER_NAMESPACES + 1 + MOST_GROUPS;

/// The positions of the descriptors that come with [`EnterParams`]. After the namespaces come a Landlock ruleset, if
/// there is one, and the cgroups.
pub mod enter_fds {
    /// The socket at which the child waits for its command.
    pub const PARK: usize = 0;
    /// The first namespace, which is the PID namespace.
    pub const FIRST_NAMESPACE: usize = 1;
    /// The first descriptor after those that are always present.
    pub const AFTER_NAMESPACES: usize = FIRST_NAMESPACE + super::NAMESPACES.len();
}

/// The way in which a child enters its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnterParams {
    /// Whether a Landlock ruleset comes with this.
    pub landlock: bool,
    /// How many cgroups come with this.
    pub groups: u32,
    /// The user and group id to take, if they differ from the zygote's.
    pub id: Option<u32>,
    /// The key that the zygote's syscall filter expects above the arguments of `setns`.
    pub key: u64,
}

impl EnterParams {
    /// The size of the message.
    pub const SIZE: usize = 24;

    /// The message.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let words = [u32::from(self.landlock), self.groups, u32::from(self.id.is_some()), self.id.unwrap_or(0)];
        let mut bytes = [0; Self::SIZE];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes[16..].copy_from_slice(&self.key.to_ne_bytes());
        bytes
    }

    /// Decodes a message; `None` if it is invalid.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::SIZE] = bytes.try_into().ok()?;
        let word = |index: usize| {
            let place = &bytes[4 * index..4 * index + 4];
            u32::from_ne_bytes([place[0], place[1], place[2], place[3]])
        };
        let flag = |index: usize| match word(index) {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let (low, high) = (u64::from(word(4)), u64::from(word(5)));
        let key = if cfg!(target_endian = "little") { low | high << 32 } else { high | low << 32 };
        Some(Self { landlock: flag(0)?, groups: word(1), id: flag(2)?.then_some(word(3)), key })
    }

    /// How many descriptors come with it.
    #[must_use]
    pub fn fds(&self) -> usize {
        self.first_group() + self.groups as usize
    }

    /// The position of the first cgroup among them.
    #[must_use]
    pub fn first_group(&self) -> usize {
        enter_fds::AFTER_NAMESPACES + usize::from(self.landlock)
    }
}

/// The message of a child that is ready.
#[must_use]
pub fn encode_pid(pid: u32) -> [u8; 4] {
    pid.to_ne_bytes()
}

/// Decodes the message of a child that is ready; `None` if it is invalid.
#[must_use]
pub fn decode_pid(bytes: &[u8]) -> Option<i32> {
    bytes.try_into().ok().map(i32::from_ne_bytes).filter(|pid| *pid > 0)
}

/// The command of a child: resource limits for the library, and text for the interpreter.
///
/// The limits are a count and that many pairs of a resource and its value, each of eight bytes. The text consists of
/// NUL-terminated parts: the working directory, the number of arguments, the arguments, the number of variables, and
/// the variables as `NAME=VALUE`. `zygote.py`, `zygote.js` and `compiler.java` in `languages` parse it.
#[derive(Debug, Clone, Copy)]
pub struct ChildCommand<'a, Text> {
    /// Resources, by the kernel's numbers, and their limits.
    pub limits: &'a [(u64, u64)],
    /// The working directory.
    pub cwd: &'a Text,
    /// The arguments.
    pub args: &'a [Text],
    /// The environment.
    pub env: &'a [Text],
}

impl<Text: AsRef<CStr>> ChildCommand<'_, Text> {
    /// Encodes the message, piece by piece.
    pub fn encode(&self, mut write: impl FnMut(&[u8])) {
        write(&(self.limits.len() as u64).to_ne_bytes());
        for (resource, value) in self.limits {
            write(&resource.to_ne_bytes());
            write(&value.to_ne_bytes());
        }
        let mut part = |text: &[u8]| {
            write(text);
            write(&[0]);
        };
        part(self.cwd.as_ref().to_bytes());
        for list in [self.args, self.env] {
            let mut digits = [0; 20];
            part(decimal(list.len(), &mut digits));
            for text in list {
                part(text.as_ref().to_bytes());
            }
        }
    }
}

/// The two halves of a [`ChildCommand`] as the library reads it: limits and text. `None` if it is invalid.
#[must_use]
pub fn decode_command(bytes: &[u8]) -> Option<(impl Iterator<Item = (u64, u64)>, &[u8])> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    };
    let (count, rest) = bytes.split_at_checked(8)?;
    let count = usize::try_from(word(count)).ok().filter(|count| *count <= MOST_LIMITS)?;
    let (limits, text) = rest.split_at_checked(16 * count)?;
    Some((limits.chunks_exact(16).map(move |pair| (word(&pair[..8]), word(&pair[8..]))), text))
}

/// A number in decimal, without an allocation.
fn decimal(mut number: usize, digits: &mut [u8; 20]) -> &[u8] {
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b"0123456789"[number % 10];
        number /= 10;
        if number == 0 {
            return &digits[first..];
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::string::String;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn enter_params_round_trip() {
        for landlock in [false, true] {
            for id in [None, Some(0), Some(70_000)] {
                let params = EnterParams { landlock, groups: 3, id, key: 0x0123_4567_89ab_cdef };
                assert_eq!(EnterParams::decode(&params.encode()), Some(params));
                assert_eq!(params.fds(), 8 + usize::from(landlock) + 3);
            }
        }
    }

    #[test]
    fn invalid_parameters_are_refused() {
        let bytes = EnterParams { landlock: true, groups: 0, id: None, key: 0 }.encode();
        assert_eq!(EnterParams::decode(&bytes[..23]), None);
        assert_eq!(EnterParams::decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(EnterParams::decode(&[2; 24]), None);
    }

    #[test]
    fn a_pid_round_trips() {
        assert_eq!(decode_pid(&encode_pid(4711)), Some(4711));
        assert_eq!((decode_pid(&[0; 4]), decode_pid(&[1; 3]), decode_pid(&[0xff; 4])), (None, None, None));
    }

    fn text(text: &str) -> CString {
        CString::new(text).expect("no NUL")
    }

    fn encoded(command: &ChildCommand<'_, CString>) -> Vec<u8> {
        let mut message = Vec::new();
        command.encode(|bytes| message.extend_from_slice(bytes));
        message
    }

    #[test]
    fn a_command_round_trips() {
        let limits = [(7, 256), (1, u64::MAX)];
        let args = ["python3", "-c", "", "ä"].map(text);
        let env = std::vec![text("A=b=c"); 12];
        let message = encoded(&ChildCommand { limits: &limits, cwd: &text("/sandbox"), args: &args, env: &env });
        let (read, text) = decode_command(&message).expect("valid");
        assert_eq!(read.collect::<Vec<_>>(), limits);
        let text = String::from_utf8(text.to_vec()).expect("text");
        let parts: Vec<_> = text.strip_suffix('\0').expect("a last part").split('\0').collect();
        assert_eq!(parts[..6], ["/sandbox", "4", "python3", "-c", "", "ä"]);
        assert_eq!((parts[6], parts[7..].to_vec()), ("12", std::vec!["A=b=c"; 12]));
    }

    #[test]
    fn invalid_commands_are_refused() {
        let message = encoded(&ChildCommand { limits: &[(7, 256)], cwd: &text("/"), args: &[], env: &[] });
        assert!(decode_command(&message[..23]).is_none(), "a limit is cut");
        assert!(decode_command(&message[..7]).is_none());
        assert!(decode_command(&[0xff; 64]).is_none(), "more limits than a command has");
    }

    #[test]
    fn every_descriptor_has_a_position() {
        let most = EnterParams { landlock: true, groups: MOST_GROUPS as u32, id: None, key: 0 };
        assert_eq!(most.fds(), MOST_FDS);
        assert_eq!(NAMESPACES[0], "pid");
        assert_eq!(NAMESPACES.last(), Some(&"user"));
    }
}
