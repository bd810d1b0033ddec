//! Decides whether an attack was stopped. The program's own report counts only when it claims success.

use sandbox_base::printable;
use sandbox_executor::{RunResult, Verdict};

use crate::ResultDisplay;
use crate::baseline::HostBaseline;
use crate::catalogue::Attack;
use crate::world::World;

/// The exit code of a program that got through.
const GOT_THROUGH: i32 = 99;

/// The report of a program that has tried everything without success.
const TRIED: &str = "attempted";

/// How much later than its deadline a run may end: where a limit is at stake, and where it is not.
const LATE: [f64; 2] = [0.5, 3.0];

/// The beginnings of texts: of evidence of a late end, of evidence of a wrong verdict, and of an inconclusive result.
const ENDED: &str = "it ended";
const VERDICT: &str = "the verdict is";
const ENDED_WITH: &str = "it ended with";

/// The outcome of an attack.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AttackOutcome {
    Stopped,
    /// With all the evidence.
    Breached(Vec<String>),
    NotAttempted(String),
}

/// Whether the only evidence is a delay, which a busy host can cause.
pub(crate) fn is_about_time(evidence: &str) -> bool {
    evidence.starts_with(ENDED)
}

/// Whether an attack merely timed out before it met the walls that should have stopped it.
pub(crate) fn is_cut_short(attack: &Attack, outcome: &AttackOutcome) -> bool {
    let timeout = Verdict::Timeout.name();
    let is_timeout = |text: &String| text.starts_with(&format!("{VERDICT} {timeout} "));
    match outcome {
        AttackOutcome::Stopped => false,
        AttackOutcome::Breached(evidence) => evidence.iter().all(is_timeout) && !attack.expect.contains(&timeout),
        AttackOutcome::NotAttempted(why) => why.starts_with(&format!("{ENDED_WITH} {timeout}:")),
    }
}

/// All evidence in a result.
pub(crate) fn result(
    attack: &Attack,
    result: &RunResult,
    deadline: f64,
    world: &World,
    baseline: &HostBaseline,
    display: ResultDisplay,
) -> Vec<String> {
    let mut evidence = vec![];
    if result.exit_code == Some(GOT_THROUGH) {
        let last = result.stdout.lines().chain(result.stderr.lines()).rfind(|line| !line.trim().is_empty());
        evidence.push(format!("it reports that it got through: {}", shown(last.unwrap_or_default())));
    }
    let text = everything(result);
    evidence.extend(world.secrets_in(&text));
    if text.contains(&format!("hostname={}", baseline.host_name)) && baseline.host_name != "sandbox" {
        evidence.push("it learnt the host name".to_owned());
    }
    if let Some(address) = baseline.addresses.iter().find(|address| text.contains(&format!("address={address}"))) {
        evidence.push(format!("it learnt the host's address {address}"));
    }
    let names_group = |line: &str| {
        line.contains("/sandbox-run-") || baseline.groups.iter().any(|group| line.contains(&format!(":{group}")))
    };
    if text.lines().any(|line| line.starts_with("cgroup=") && names_group(line)) {
        evidence.push("it learnt the real names of its cgroups".to_owned());
    }
    let late = result.metrics.wall_time - deadline;
    if late > LATE[usize::from(attack.expect.is_empty())] {
        evidence.push(format!("{ENDED} {late:.1} s after its deadline"));
    }
    let verdict = result.verdict.name();
    if result.verdict == Verdict::InternalError || (!attack.expect.is_empty() && !attack.expect.contains(&verdict)) {
        let error = result.error.as_deref().unwrap_or("no error");
        evidence.push(format!("{VERDICT} {verdict} ({})", shown(error)));
    }
    let (cap, used) = (share_cap(attack), result.metrics.cpu_time / result.metrics.wall_time.max(0.001));
    if let Some(cap) = cap.filter(|cap| used > cap * 2.0) {
        evidence.push(format!("it used {used:.2} CPUs of {cap:.2}"));
    }
    evidence.extend(files(result));
    evidence.extend(terminal(result, display));
    evidence
}

/// Why a result is inconclusive.
pub(crate) fn not_attempted(attack: &Attack, result: &RunResult) -> Option<String> {
    if !attack.expect.is_empty() || (result.verdict == Verdict::Ok && result.stdout.contains(TRIED)) {
        return None;
    }
    let error = result.error.as_deref().unwrap_or("it did not report that it had tried");
    Some(format!("{ENDED_WITH} {}: {}", result.verdict.name(), shown(error)))
}

/// The lines that two runs have in common although they should differ.
pub(crate) fn same_lines(first: &str, second: &str) -> Vec<String> {
    let pairs = first.lines().zip(second.lines());
    let same = pairs.filter(|(one, other)| one == other && *one != TRIED);
    same.map(|(line, _)| format!("two runs printed the same line: {}", shown(line))).collect()
}

/// The complete text of a result, including the content of files.
fn everything(result: &RunResult) -> String {
    let mut text = format!("{}\n{}\n", result.stdout, result.stderr);
    for part in [&result.error, &result.result] {
        text.push_str(part.as_deref().unwrap_or_default());
        text.push('\n');
    }
    if let Some(compile) = &result.compile {
        text.push_str(&format!("{}\n{}\n", compile.stdout, compile.stderr));
    }
    for (path, file) in &result.files {
        let bytes = file.bytes().unwrap_or_else(|_| file.content.clone().into_bytes());
        let content = String::from_utf8_lossy(&bytes);
        text.push_str(&format!("{path}\n{content}\n"));
    }
    text
}

/// The CPU share that a program may use, if it is at stake.
fn share_cap(attack: &Attack) -> Option<f64> {
    let cpus = attack.limits.iter().find(|(kind, _)| *kind == sandbox_base::LimitKind::Cpus)?;
    u32::try_from(cpus.1).ok().map(|thousandths| f64::from(thousandths) / 1000.0)
}

/// Output files under names that must not be accepted.
fn files(result: &RunResult) -> Vec<String> {
    let bad = |path: &&String| {
        path.starts_with('/') || path.contains('\0') || path.split('/').any(|part| ["", ".", ".."].contains(&part))
    };
    let found = result.files.keys().filter(bad);
    found.map(|path| format!("the output contains a file named '{}'", shown(path))).collect()
}

/// Control sequences that would reach the user's terminal.
fn terminal(result: &RunResult, display: ResultDisplay) -> Vec<String> {
    let mut evidence = vec![];
    for stream in [&result.stdout, &result.stderr] {
        let text = (display.output)(stream);
        if text.chars().any(|c| c.is_control() && !"\n\r\t".contains(c)) {
            evidence.push("its output would control the terminal".to_owned());
        }
    }
    // Our own colours are the only sequences in a summary.
    let mut plain = String::new();
    for part in (display.summary)(result).split("\u{1b}[") {
        plain.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').trim_start_matches('m'));
    }
    if plain.chars().any(char::is_control) {
        evidence.push("its error would control the terminal".to_owned());
    }
    evidence
}

/// A short excerpt of text from a hostile program.
pub(crate) fn shown(text: &str) -> String {
    printable(text).chars().take(120).collect()
}
