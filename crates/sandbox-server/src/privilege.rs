//! Drops root privileges: the network-facing process keeps none.
//!
//! The keeper and its launcher were started before and keep them. The keeper is already confined to the paths that it may
//! expose, so a server that is taken over can create cells and nothing else.

use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

use rustix::fs::{Gid, Uid};
use sandbox_base::data_dir::is_own;

/// Makes this process an ordinary user's, if it is root's. Returns the user's id, if it changed. The process must have a
/// single thread.
pub(crate) fn give_up(user: &str, data_dir: &Path) -> Result<Option<u32>, String> {
    if !rustix::process::geteuid().is_root() || user == "root" {
        return Ok(None);
    }
    let (uid, gid) = look_up(user).ok_or_else(|| format!("no user '{user}'; set SANDBOX_USER to an existing one"))?;
    let failed = |error: std::io::Error| format!("cannot change the owner of {}: {error}", data_dir.display());
    let theirs = data_dir.metadata().map_err(failed)?.uid() == uid;
    if !theirs && !is_own(data_dir).map_err(failed)? {
        return Err(format!(
            "{} has files in it that are not this server's, and would be handed over to the user {user}; name another \
             directory with SANDBOX_DATA_DIR",
            data_dir.display()
        ));
    }
    // The directory may be a link, as the operator has named it.
    hand_over(&data_dir.canonicalize().map_err(failed)?, uid, gid).map_err(failed)?;
    let failed = |errno| format!("cannot switch to the user {user}: {errno}");
    rustix::thread::set_thread_groups(&[]).map_err(failed)?;
    let (new_uid, new_gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(new_gid, new_gid, new_gid).map_err(failed)?;
    rustix::thread::set_thread_res_uid(new_uid, new_uid, new_uid).map_err(failed)?;
    rustix::thread::set_no_new_privs(true).map_err(failed)?;
    std::fs::read_dir(data_dir).map(|_| Some(uid)).map_err(|error| {
        format!(
            "the user {user} cannot access {}: {error}; set SANDBOX_DATA_DIR to another directory, or another user \
             with SANDBOX_USER",
            data_dir.display()
        )
    })
}

/// The ids of a user, by name or number.
pub(crate) fn look_up(user: &str) -> Option<(u32, u32)> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        if name == user || uid == user { Some((uid.parse().ok()?, gid.parse().ok()?)) } else { None }
    })
}

/// Gives a directory and all in it to a user, unless it is theirs.
fn hand_over(path: &Path, uid: u32, gid: u32) -> std::io::Result<()> {
    let meta = path.symlink_metadata()?;
    if meta.uid() == uid {
        return Ok(());
    }
    lchown(path, Some(uid), Some(gid))?;
    if meta.is_dir() {
        for entry in std::fs::read_dir(path)? {
            hand_over(&entry?.path(), uid, gid)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_or_number() {
        assert_eq!(look_up("root"), Some((0, 0)));
        assert_eq!(look_up("0"), Some((0, 0)));
        assert_eq!(look_up("no-such-user-at-all"), None);
    }
}
