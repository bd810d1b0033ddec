//! The report of the attacks, as text and as JSON.

use anstyle::{AnsiColor, Style};
use sandbox_cell::{Layer, LayerSet};
use serde_json::{Value, json};

use crate::catalogue::{Attack, GROUPS};
use crate::judge::AttackOutcome;
use crate::runner::AttackRecord;

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();

/// Lists the attacks.
pub(crate) fn list(attacks: &[Attack], as_json: bool) -> String {
    if as_json {
        let list: Vec<Value> = attacks.iter().map(describe).collect();
        return format!("{:#}\n", Value::from(list));
    }
    let width = width(attacks);
    let line = |attack: &Attack| {
        format!(
            "{:width$}  {} {DIM}({}; stopped by {}){DIM:#}\n",
            attack.id(),
            attack.tries,
            attack.seen_in,
            attack.walls().join(", ")
        )
    };
    attacks.iter().map(line).collect()
}

/// The header of an attack.
fn describe(attack: &Attack) -> Value {
    json!({
        "name": attack.id(),
        "group": attack.group,
        "file": attack.file,
        "tries": attack.tries,
        "seen_in": attack.seen_in,
        "walls": attack.walls(),
    })
}

pub(crate) fn width(attacks: &[Attack]) -> usize {
    attacks.iter().map(|attack| attack.id().len()).max().unwrap_or(0)
}

/// The number of attacks with each outcome.
#[derive(Default)]
struct OutcomeCounts {
    stopped: usize,
    breached: usize,
    known: usize,
    not_attempted: usize,
}

/// The report, and whether everything was stopped.
pub(crate) fn attacks(
    attacks: &[Attack],
    records: &[AttackRecord],
    layers: LayerSet,
    remains: &[String],
    as_json: bool,
) -> (String, bool) {
    let mut counts = OutcomeCounts::default();
    let pairs: Vec<_> = attacks.iter().zip(records).collect();
    for (attack, record) in &pairs {
        *match (&record.outcome, attack.known) {
            (AttackOutcome::Stopped, _) => &mut counts.stopped,
            (AttackOutcome::Breached(_), Some(_)) => &mut counts.known,
            (AttackOutcome::Breached(_), None) => &mut counts.breached,
            (AttackOutcome::NotAttempted(_), _) => &mut counts.not_attempted,
        } += 1;
    }
    let good = counts.breached == 0 && counts.stopped > 0 && remains.is_empty();
    let text =
        if as_json { as_value(&pairs, layers, remains, &counts, good) } else { as_text(&pairs, remains, &counts) };
    (text, good)
}

fn as_value(
    pairs: &[(&Attack, &AttackRecord)],
    layers: LayerSet,
    remains: &[String],
    counts: &OutcomeCounts,
    good: bool,
) -> String {
    let attacks: Vec<Value> = pairs
        .iter()
        .map(|(attack, record)| {
            let (outcome, evidence, why) = match (&record.outcome, attack.known) {
                (AttackOutcome::Stopped, _) => ("stopped", None, None),
                (AttackOutcome::Breached(evidence), Some(why)) => ("known", Some(evidence), Some(why)),
                (AttackOutcome::Breached(evidence), None) => ("breached", Some(evidence), None),
                (AttackOutcome::NotAttempted(why), _) => ("not_attempted", None, Some(why.as_str())),
            };
            let mut value = describe(attack);
            value["outcome"] = outcome.into();
            value["evidence"] = evidence.cloned().unwrap_or_default().into();
            value["why"] = why.into();
            value["verdict"] = record.verdict.into();
            value["start"] = record.start.into();
            value["time"] = record.seconds.into();
            value
        })
        .collect();
    let report = json!({
        "success": good,
        "isolation": layers.iter().map(Layer::name).collect::<Vec<_>>(),
        "stopped": counts.stopped,
        "breached": counts.breached,
        "known": counts.known,
        "not_attempted": counts.not_attempted,
        "left_behind": remains,
        "attacks": attacks,
    });
    format!("{report:#}\n")
}

fn as_text(pairs: &[(&Attack, &AttackRecord)], remains: &[String], counts: &OutcomeCounts) -> String {
    let width = pairs.iter().map(|(attack, _)| attack.file.len()).max().unwrap_or(0);
    let mut text = String::new();
    for group in GROUPS {
        let mut of_group = pairs.iter().filter(|(attack, _)| attack.group == group).peekable();
        if of_group.peek().is_none() {
            continue;
        }
        text.push_str(&format!("{BOLD}{group}{BOLD:#}\n"));
        for (attack, record) in of_group {
            let (name, tries) = (attack.file, attack.tries);
            text.push_str(&match (&record.outcome, attack.known) {
                (AttackOutcome::Stopped, _) => {
                    let walls = attack.walls();
                    let walls = if walls.is_empty() { "other walls".to_owned() } else { walls.join(", ") };
                    format!("  {GOOD}✓{GOOD:#} {name:width$}  {tries} {DIM}· stopped by {walls}{DIM:#}\n")
                }
                (AttackOutcome::Breached(_), Some(why)) => {
                    format!("  {WARN}!{WARN:#} {name:width$}  {tries} · {WARN}known limit:{WARN:#} {why}\n")
                }
                (AttackOutcome::Breached(evidence), None) => {
                    let evidence = evidence.join("; ");
                    format!("  {BAD}✗ {name:width$}{BAD:#}  {tries} · {BAD}BREACHED:{BAD:#} {evidence}\n")
                }
                (AttackOutcome::NotAttempted(why), _) => {
                    format!("  {WARN}–{WARN:#} {name:width$}  {tries} · {WARN}not attempted:{WARN:#} {why}\n")
                }
            });
        }
    }
    for left in remains {
        text.push_str(&format!("{BAD}✗ left behind:{BAD:#} {left}\n"));
    }
    let OutcomeCounts { stopped, breached, known, not_attempted } = counts;
    let style = if *breached == 0 && remains.is_empty() { GOOD } else { BAD };
    text.push_str(&format!("\n{style}{stopped} stopped, {breached} breached{style:#}"));
    if *known > 0 {
        text.push_str(&format!(", {known} known limits"));
    }
    if *not_attempted > 0 {
        text.push_str(&format!(", {not_attempted} not attempted"));
    }
    text.push('\n');
    text
}
