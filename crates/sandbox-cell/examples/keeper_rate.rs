//! Measures how many cells one keeper creates and deletes in a second, with 1 to 16 callers at a time, and how busy its only
//! thread is meanwhile. Needs the privileges that a keeper needs.

use std::error::Error;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sandbox_cell::{CellSpec, Failure, Keeper};

const CALLERS: [usize; 5] = [1, 2, 4, 8, 16];
const EACH: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn Error>> {
    sandbox_cell::keeper_main_if_asked(None);
    let keeper = Keeper::start()?;
    let children = std::fs::read_to_string("/proc/thread-self/children")?;
    let process = children.split_ascii_whitespace().next().ok_or("the keeper was not found")?.to_owned();
    // The first cell finds out what the host can do.
    keeper.create(&CellSpec::new())?.delete()?;
    for callers in CALLERS {
        let (made, busy) = (AtomicUsize::new(0), cpu_time(&process)?);
        let began = Instant::now();
        let failed: Vec<Failure> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..callers).map(|_| scope.spawn(|| work(&keeper, began, &made))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()?.err()).collect()
        });
        if let Some(failure) = failed.into_iter().next() {
            return Err(failure.into());
        }
        let took = began.elapsed();
        let busy = cpu_time(&process)?.saturating_sub(busy);
        let made = u32::try_from(made.into_inner())?;
        writeln!(
            std::io::stdout(),
            "{callers:2} callers: {:5.0} cells a second, {:4.0} µs of the keeper's thread for each, which is busy for {:.0} %",
            f64::from(made) / took.as_secs_f64(),
            busy.as_secs_f64() * 1e6 / f64::from(made.max(1)),
            100.0 * busy.as_secs_f64() / took.as_secs_f64()
        )?;
    }
    Ok(())
}

/// Creates and deletes cells until the time is over.
fn work(keeper: &Keeper, began: Instant, made: &AtomicUsize) -> Result<(), Failure> {
    while began.elapsed() < EACH {
        let mut cell = keeper.create(&CellSpec::new())?;
        cell.ready()?;
        cell.delete()?;
        made.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// The CPU time of a process with one thread.
fn cpu_time(process: &str) -> Result<Duration, Box<dyn Error>> {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat"))?;
    Ok(Duration::from_nanos(text.split_ascii_whitespace().next().ok_or("no CPU time")?.parse()?))
}
