//! The hostile programs, and what their first lines say about them.
//!
//! Each is a file in `attacks/GROUP/` that begins with comments of the form `key: value`: what it tries, where that was
//! seen to work, which walls stop it, and what it needs.

use sandbox_cell::{Layer, LayerSet, LimitKind, Network};

/// Groups, in the order in which they are shown.
pub(crate) const GROUPS: [&str; 7] = ["escape", "secrets", "network", "exhaust", "persist", "interfere", "deceive"];

/// Walls that are no layer and cannot be left out.
const FIXED_WALLS: [&str; 8] =
    ["kernel", "keeper", "limits", "collector", "terminal", "compiler", "neighbour", "template"];

/// What an attack may need besides its language.
const NEEDS: [&str; 6] = ["root", "key", "sysv", "x86_64", "cpu", "memory"];

/// Every program: group, file name, text.
const FILES: &[(&str, &str, &str)] = &include!(concat!(env!("OUT_DIR"), "/attacks.rs"));

/// A hostile program.
#[derive(Debug, Clone)]
pub(crate) struct Attack {
    pub(crate) group: &'static str,
    /// The file's name, which tells the language.
    pub(crate) file: &'static str,
    pub(crate) text: &'static str,
    /// What it tries, in a sentence.
    pub(crate) tries: &'static str,
    /// Where it was seen to work.
    pub(crate) seen_in: &'static str,
    /// The layers that stop it.
    pub(crate) layers: LayerSet,
    /// What else stops it.
    pub(crate) fixed: Vec<&'static str>,
    /// The verdicts that are right. If none are given, the program has to say at its end that it has tried.
    pub(crate) expect: Vec<&'static str>,
    pub(crate) limits: Vec<(LimitKind, u64)>,
    pub(crate) network: Network,
    pub(crate) needs: Vec<&'static str>,
    /// Whether files are to come back.
    pub(crate) collect: bool,
    /// Whether layers are to be left out of the compiler's cell too.
    pub(crate) compiler: bool,
    /// Whether it runs while nothing else does.
    pub(crate) alone: bool,
    /// Whether it runs a second time, to find what the first one left.
    pub(crate) twice: bool,
    /// Whether two runs must not say the same.
    pub(crate) differs: bool,
    /// Whether it opens a port that must not be reachable.
    pub(crate) listens: bool,
    pub(crate) restricted: bool,
    pub(crate) workdir: Option<&'static str>,
    /// Whether it is a function that a template checks.
    pub(crate) template: bool,
    /// Why it succeeds, if that is known and cannot be helped.
    pub(crate) known: Option<&'static str>,
}

impl Attack {
    /// The name under which people know it.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.group, self.file)
    }

    /// The names of all its walls.
    pub(crate) fn walls(&self) -> Vec<&'static str> {
        self.layers.iter().map(Layer::name).chain(self.fixed.iter().copied()).collect()
    }

    /// The layers to leave out, if that is all that stops it.
    pub(crate) fn removable(&self) -> Option<LayerSet> {
        (self.fixed.is_empty() && self.known.is_none()).then_some(self.layers)
    }
}

/// Reads every program's header. All mistakes are found by a test, so nobody else sees them.
pub(crate) fn all() -> Result<Vec<Attack>, String> {
    let mut attacks: Vec<Attack> =
        FILES.iter().map(|(group, file, text)| parse(group, file, text)).collect::<Result<_, _>>()?;
    attacks.sort_by_key(|attack| (GROUPS.iter().position(|group| *group == attack.group), attack.file));
    Ok(attacks)
}

fn parse(group: &'static str, file: &'static str, text: &'static str) -> Result<Attack, String> {
    let wrong = |what: &str| format!("attacks/{group}/{file}: {what}");
    let mut attack = Attack {
        group,
        file,
        text,
        tries: "",
        seen_in: "",
        layers: LayerSet::default(),
        fixed: vec![],
        expect: vec![],
        limits: vec![],
        network: Network::None,
        needs: vec![],
        collect: false,
        compiler: false,
        alone: false,
        twice: false,
        differs: false,
        listens: false,
        restricted: false,
        workdir: None,
        template: false,
        known: None,
    };
    for line in text.lines() {
        let Some(comment) = line.strip_prefix("//").or_else(|| line.strip_prefix('#')) else { break };
        let Some((key, value)) = comment.split_once(':') else { break };
        set(&mut attack, key.trim(), value.trim()).map_err(|what| wrong(&what))?;
    }
    let walls = attack.layers != LayerSet::default() || !attack.fixed.is_empty();
    if !GROUPS.contains(&group) || attack.tries.is_empty() || attack.seen_in.is_empty() || !walls {
        return Err(wrong("needs a known group, tries, seen-in and walls"));
    }
    Ok(attack)
}

fn set(attack: &mut Attack, key: &str, value: &'static str) -> Result<(), String> {
    let yes = || if value == "yes" { Ok(true) } else { Err(format!("{key} can only be yes")) };
    let words = || value.split(',').map(str::trim).collect::<Vec<_>>();
    match key {
        "tries" => attack.tries = value,
        "seen-in" => attack.seen_in = value,
        "walls" => {
            for wall in words() {
                match wall.parse::<Layer>() {
                    Ok(layer) => attack.layers.insert(layer),
                    Err(_) if FIXED_WALLS.contains(&wall) => attack.fixed.push(wall),
                    Err(error) => return Err(error),
                }
            }
        }
        "expect" => attack.expect = words(),
        "needs" => {
            attack.needs = words();
            if let Some(unknown) = attack.needs.iter().find(|need| !NEEDS.contains(need)) {
                return Err(format!("'{unknown}' is nothing that can be needed"));
            }
        }
        "limits" => {
            for pair in value.split_whitespace() {
                let (name, value) = pair.split_once('=').ok_or("limits are name=value")?;
                let info = sandbox_cell::limits::TABLE.iter().find(|info| info.name == name);
                let kind = info.ok_or_else(|| format!("'{name}' is no limit"))?.kind;
                attack.limits.push((kind, kind.parse(value).map_err(|error| error.to_string())?));
            }
        }
        "network" if value == "localhost" => attack.network = Network::Localhost,
        "collect" => attack.collect = yes()?,
        "compiler" => attack.compiler = yes()?,
        "alone" => attack.alone = yes()?,
        "twice" => attack.twice = yes()?,
        "differs" => (attack.differs, attack.twice) = (yes()?, true),
        "listens" => attack.listens = yes()?,
        "restricted" => attack.restricted = yes()?,
        "template" => attack.template = yes()?,
        "workdir" => attack.workdir = Some(value),
        "known" => attack.known = Some(value),
        other => return Err(format!("'{other}' is no key")),
    }
    Ok(())
}
