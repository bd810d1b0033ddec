//! `sandbox-run cache`: lists and removes cached package environments and compiled programs.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sandbox_base::units::{format_duration, format_size, parse_duration};
use sandbox_base::{printable, reason};
use sandbox_executor::Settings;
use sandbox_runtimes::{ArtifactKind, ArtifactStore, ListedArtifact};

use crate::args::CacheAction;
use crate::exit_code;
use crate::output::{print_error, unless_unread};

/// Lists or prunes the cache.
pub(crate) fn cache(action: Option<CacheAction>) -> u8 {
    match act(action.unwrap_or(CacheAction::List { json: false })) {
        Ok(()) => 0,
        Err(error) => {
            print_error(&error);
            exit_code::USAGE
        }
    }
}

fn act(action: CacheAction) -> Result<(), String> {
    let settings = Settings::read(|name| std::env::var(name).ok()).map_err(|error| error.to_string())?;
    let dir = settings.data_dir.ok_or("no data directory; set SANDBOX_DATA_DIR")?;
    let store = ArtifactStore::new(&dir);
    let list = store.list();
    let mut out = anstream::stdout().lock();
    let written = match action {
        CacheAction::List { json: true } => {
            let text = serde_json::to_string_pretty(&list).map_err(|error| error.to_string())?;
            writeln!(out, "{text}")
        }
        CacheAction::List { json: false } => table(&list, &dir, &mut out),
        CacheAction::Prune { unused_for } => {
            let least = unused_for.as_deref().map(parse_duration).transpose();
            let least = least.map_err(|error| format!("--unused-for: {error}"))?.unwrap_or_default();
            let (mut removed, mut bytes, mut kept) = (0, 0, 0);
            for entry in list.iter().filter(|entry| unused(entry) >= least) {
                let kind = ArtifactKind::ALL.into_iter().find(|kind| kind.name() == entry.kind);
                let gone = kind.map_or(Ok(false), |kind| store.remove(kind, &entry.key));
                if gone.map_err(|error| format!("cannot remove {}: {}", entry.key, reason(&error)))? {
                    (removed, bytes) = (removed + 1, bytes + entry.size);
                } else {
                    kept += 1;
                }
            }
            let in_use = if kept > 0 { format!("; kept {kept} in use") } else { String::new() };
            writeln!(out, "removed {}, {}{in_use}", entries(removed), format_size(bytes))
        }
    };
    unless_unread(written).map_err(|error| reason(&error))
}

/// The time since an entry was used.
fn unused(entry: &ListedArtifact) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_secs(entry.used))
}

fn table(list: &[ListedArtifact], dir: &Path, out: &mut impl Write) -> std::io::Result<()> {
    for entry in list {
        let ago = Duration::from_secs(unused(entry).as_secs());
        let (size, used) = (format_size(entry.size), format!("used {} ago", format_duration(ago)));
        writeln!(
            out,
            "{}  {size:>10}  {used:<20}  {:<12}  {}",
            &entry.key[..12.min(entry.key.len())],
            entry.kind,
            entry.label
        )?;
    }
    let total: u64 = list.iter().map(|entry| entry.size).sum();
    writeln!(out, "{}, {} in {}", entries(list.len()), format_size(total), printable(&dir.to_string_lossy()))
}

fn entries(count: usize) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}
