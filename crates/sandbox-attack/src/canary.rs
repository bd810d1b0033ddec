//! The canary: proof that the checks can fail. It runs attacks in cells without the layers that stop them, where they
//! must succeed.
//!
//! An attack that one layer stops must succeed without it. An attack that several layers stop must still be stopped
//! without any single one of them, and succeed without all: otherwise its header claims too much or too little.

use sandbox_cell::{Layer, LayerSet};
use serde_json::{Value, json};

use crate::catalogue::Attack;
use crate::judge::AttackOutcome;
use crate::report::{BAD, BOLD, DIM, GOOD, WARN};
use crate::run_all;
use crate::runner::{AttackRecord, AttackRunner};

/// Layers that an ordinary user cannot disable.
const NEED_ROOT: [Layer; 3] = [Layer::User, Layer::Pid, Layer::Net];

/// One attack without some layers.
struct CanaryTrial<'a> {
    attack: &'a Attack,
    disabled: LayerSet,
    /// Whether it must succeed.
    breaches: bool,
}

/// Carries out every trial. Returns the report, and whether the absence of every layer was noticed.
pub(crate) fn canary(runner: &AttackRunner<'_>, attacks: &[Attack], partial: bool, as_json: bool) -> (String, bool) {
    let can_be_left_out = |layer: &Layer| match layer {
        _ if !runner.layers.contains(*layer) => false,
        _ if runner.baseline.root => true,
        // If cells have no cgroups, there is a name to find only if the suite itself is in a cgroup.
        Layer::Cgroup => !runner.baseline.groups.is_empty(),
        layer => !NEED_ROOT.contains(layer),
    };
    let mut testable: LayerSet = Layer::ALL.into_iter().filter(can_be_left_out).collect();
    let trials: Vec<CanaryTrial<'_>> = attacks.iter().flat_map(|attack| trials(attack, testable)).collect();
    if partial {
        // Some attacks are not expected to cover every layer.
        let tried = trials.iter().fold(LayerSet::default(), |all, trial| all.union(trial.disabled));
        testable = testable.without(testable.without(tried));
    }
    let jobs: Vec<_> = trials.iter().map(|trial| (trial.attack, trial.disabled)).collect();
    let records = run_all(runner, &jobs);
    let pairs: Vec<_> = trials.iter().zip(&records).collect();
    let noticed_by = |layer: Layer| -> Vec<String> {
        let of_layer = pairs.iter().filter(|(trial, _)| trial.breaches && trial.disabled.contains(layer));
        of_layer.filter(|pair| is_noticed(pair)).map(|(trial, _)| trial.attack.id()).collect()
    };
    let layers: Vec<(Layer, bool, Vec<String>)> =
        Layer::ALL.into_iter().map(|layer| (layer, testable.contains(layer), noticed_by(layer))).collect();
    let remains = runner.baseline.remains();
    let good = remains.is_empty() && layers.iter().all(|(_, testable, by)| !testable || !by.is_empty());
    let text = if as_json { as_value(&pairs, &layers, &remains, good) } else { as_text(&pairs, &layers, &remains) };
    (text, good)
}

/// The trials of an attack, if only layers stop it.
fn trials(attack: &Attack, testable: LayerSet) -> Vec<CanaryTrial<'_>> {
    let Some(walls) = attack.removable().filter(|walls| walls.without(testable) == LayerSet::default()) else {
        return vec![];
    };
    let mut trials = vec![];
    if walls.iter().count() > 1 {
        let alone = walls.iter().map(|layer| [layer].into_iter().collect());
        trials.extend(alone.map(|disabled| CanaryTrial { attack, disabled, breaches: false }));
    }
    trials.push(CanaryTrial { attack, disabled: walls, breaches: true });
    trials
}

/// Whether an attack ended as expected.
fn is_noticed((trial, record): &(&CanaryTrial<'_>, &AttackRecord)) -> bool {
    match record.outcome {
        AttackOutcome::Breached(_) => trial.breaches,
        AttackOutcome::Stopped => !trial.breaches,
        AttackOutcome::NotAttempted(_) => false,
    }
}

fn names(layers: LayerSet) -> Vec<&'static str> {
    layers.iter().map(Layer::name).collect()
}

/// The outcome as text.
fn describe(record: &AttackRecord) -> String {
    match &record.outcome {
        AttackOutcome::Stopped => "stopped".to_owned(),
        AttackOutcome::Breached(evidence) => evidence.join("; "),
        AttackOutcome::NotAttempted(why) => format!("not attempted: {why}"),
    }
}

type TrialResult<'a> = (&'a CanaryTrial<'a>, &'a AttackRecord);

fn as_value(
    pairs: &[TrialResult<'_>],
    layers: &[(Layer, bool, Vec<String>)],
    remains: &[String],
    good: bool,
) -> String {
    let trials: Vec<Value> = pairs
        .iter()
        .map(|pair| {
            let (trial, record) = pair;
            json!({
                "name": trial.attack.id(),
                "without": names(trial.disabled),
                "expected": if trial.breaches { "breached" } else { "stopped" },
                "noticed": is_noticed(pair),
                "happened": describe(record),
                "verdict": record.verdict,
                "time": record.seconds,
            })
        })
        .collect();
    let layers: serde_json::Map<String, Value> = layers
        .iter()
        .map(|(layer, testable, by)| {
            let value = json!({ "testable": testable, "noticed": !by.is_empty(), "by": by });
            (layer.name().to_owned(), value)
        })
        .collect();
    format!("{:#}\n", json!({ "success": good, "layers": layers, "left_behind": remains, "trials": trials }))
}

fn as_text(pairs: &[TrialResult<'_>], layers: &[(Layer, bool, Vec<String>)], remains: &[String]) -> String {
    let width = pairs.iter().map(|(trial, _)| trial.attack.id().len()).max().unwrap_or(0);
    let mut text = format!("{BOLD}Attacks on cells without layers{BOLD:#}\n");
    for pair in pairs {
        let (trial, record) = pair;
        let (name, without) = (trial.attack.id(), names(trial.disabled).join(", "));
        let wanted = if trial.breaches { "succeeds" } else { "is still stopped" };
        let happened = describe(record);
        text.push_str(&if is_noticed(pair) {
            format!("  {GOOD}✓{GOOD:#} {name:width$}  without {without}: {wanted} {DIM}· {happened}{DIM:#}\n")
        } else {
            format!("  {BAD}✗ {name:width$}{BAD:#}  without {without}: {BAD}NOT NOTICED{BAD:#} · {happened}\n")
        });
    }
    text.push_str(&format!("\n{BOLD}Layers{BOLD:#}\n"));
    for (layer, testable, by) in layers {
        let name = layer.name();
        text.push_str(&match (testable, by.as_slice()) {
            (false, _) => format!("  {WARN}–{WARN:#} {name:<9} not tested here\n"),
            (true, []) => format!("  {BAD}✗ {name:<9} its absence was not noticed{BAD:#}\n"),
            (true, by) => format!("  {GOOD}✓{GOOD:#} {name:<9} {DIM}{}{DIM:#}\n", by.join(", ")),
        });
    }
    for left in remains {
        text.push_str(&format!("{BAD}✗ left behind:{BAD:#} {left}\n"));
    }
    let untested = layers.iter().filter(|(_, testable, _)| !testable).count();
    let missed = layers.iter().filter(|(_, testable, by)| *testable && by.is_empty()).count();
    let style = if missed == 0 && remains.is_empty() { GOOD } else { BAD };
    let noticed = layers.len() - untested - missed;
    text.push_str(&format!("\n{style}the absence of {noticed} layers was noticed, of {missed} not{style:#}"));
    if untested > 0 {
        text.push_str(&format!(", {untested} were not tested"));
    }
    text.push('\n');
    text
}
