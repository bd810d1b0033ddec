//! The hostile programs and their headers.
//!
//! Each program is a file in `attacks/GROUP/` that begins with comments of the form `key: value`: what it tries, where
//! that was seen to work, which walls stop it, and what it needs.

use sandbox_base::LimitKind;
use sandbox_cell::{Layer, LayerSet};
use sandbox_executor::NetworkMode;

/// Groups, in display order.
pub(crate) const GROUPS: [&str; 7] = ["escape", "secrets", "network", "exhaust", "persist", "interfere", "deceive"];

const FIXED_WALLS: [&str; 10] =
    ["kernel", "keeper", "limits", "collector", "gateway", "terminal", "compiler", "neighbour", "template", "language"];

/// The requirements of an attack besides its language. One that needs a terminal gets it as its standard streams.
const NEEDS: [&str; 7] = ["root", "key", "sysv", "x86_64", "cpu", "memory", "terminal"];

/// Every program: group, file name, text.
const FILES: &[(&str, &str, &str)] = &include!(concat!(env!("OUT_DIR"), "/attacks.rs"));

/// A hostile program.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is an optional line of the header")]
pub(crate) struct Attack {
    pub(crate) group: &'static str,
    /// The file name, whose extension determines the language.
    pub(crate) file: &'static str,
    pub(crate) text: &'static str,
    /// What it tries, in one sentence.
    pub(crate) tries: &'static str,
    /// Where it was seen to work.
    pub(crate) seen_in: &'static str,
    /// The layers that stop it.
    pub(crate) layers: LayerSet,
    /// Other walls that stop it.
    pub(crate) fixed: Vec<&'static str>,
    /// The expected verdicts. If there are none, the program has to report at its end that it has tried.
    pub(crate) expect: Vec<&'static str>,
    pub(crate) limits: Vec<(LimitKind, u64)>,
    pub(crate) network: NetworkMode,
    pub(crate) needs: Vec<&'static str>,
    /// Whether output files are collected.
    pub(crate) collect: bool,
    /// Whether layers are also disabled in the compiler's cell.
    pub(crate) compiler: bool,
    /// Whether it runs alone.
    pub(crate) alone: bool,
    /// Whether it runs a second time, to find what the first run left.
    pub(crate) twice: bool,
    /// Whether the output of two runs must differ.
    pub(crate) differs: bool,
    /// Whether it opens a port that must not be reachable.
    pub(crate) listens: bool,
    pub(crate) restricted: bool,
    pub(crate) workdir: Option<&'static str>,
    /// Whether it is a function that a template checks.
    pub(crate) template: bool,
    /// Why it succeeds, if that is a known limit.
    pub(crate) known: Option<&'static str>,
    /// Why it succeeds on hosts that lack a layer. The first layer that is missing counts.
    known_without: Vec<(Layer, &'static str)>,
    /// Its layers that this host lacks.
    missing: LayerSet,
}

impl Attack {
    /// The name for display.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.group, self.file)
    }

    /// The names of all its walls, as far as this host has them.
    pub(crate) fn walls(&self) -> Vec<&'static str> {
        self.layers.without(self.missing).iter().map(Layer::name).chain(self.fixed.iter().copied()).collect()
    }

    /// The attack as it is on a host with these layers.
    pub(crate) fn on_host(mut self, layers: LayerSet) -> Self {
        let without = self.known_without.iter().find(|(layer, _)| !layers.contains(*layer));
        self.known = self.known.or(without.map(|(_, why)| *why));
        self.missing = self.layers.without(layers);
        self
    }

    /// The attack with another deadline.
    pub(crate) fn with_wall_time(&self, microseconds: u64) -> Self {
        let mut attack = self.clone();
        attack.limits.push((LimitKind::WallTime, microseconds));
        attack
    }

    /// The layers to disable, if only layers stop it.
    #[cfg(any(test, feature = "canary"))]
    pub(crate) fn removable(&self) -> Option<LayerSet> {
        (self.fixed.is_empty() && self.known.is_none()).then_some(self.layers)
    }
}

/// Parses every program's header. A test finds all mistakes, so that users never see them.
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
        network: NetworkMode::None,
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
        known_without: vec![],
        missing: LayerSet::default(),
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
                return Err(format!("unknown need '{unknown}'"));
            }
        }
        "limits" => {
            for pair in value.split_whitespace() {
                let (name, value) = pair.split_once('=').ok_or("limits are name=value")?;
                let kind = LimitKind::by_name(name).ok_or_else(|| format!("unknown limit '{name}'"))?;
                attack.limits.push((kind, kind.parse(value).map_err(|error| error.to_string())?));
            }
        }
        "network" => attack.network = NetworkMode::parse(value)?,
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
        "known-without" => {
            let (layer, why) = value.split_once(':').ok_or("known-without needs a layer, a colon and a reason")?;
            attack.known_without.push((layer.parse()?, why.trim()));
        }
        other => return Err(format!("unknown key '{other}'")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attacks that have worked on similar systems, and what covers each of them here: attacks, or tests, as `test:`
    /// and the name of a test.
    const COVERED: [(u32, &[&str]); 30] = [
        (1, &["deceive/planted-links.py", "test:planted_links_are_not_followed"]),
        (2, &["deceive/output-links.py", "deceive/race-the-collector.c", "persist/change-what-is-shown.py"]),
        (3, &["network/loopback.py", "network/loopback-of-its-own.py", "network/routes.js", "network/addresses.py"]),
        (4, &["test:invalid_limits_are_refused"]),
        (5, &["deceive/output-links.py", "secrets/files-by-detours.c"]),
        (6, &["escape/leaked-descriptors.c", "secrets/descriptors.js", "secrets/files.go"]),
        (7, &["deceive/output-names.py", "test:unsafe_names_are_refused"]),
        (8, &["deceive/before-the-lock.py"]),
        (9, &["deceive/before-the-lock.py"]),
        (
            10,
            &[
                "interfere/neighbours-files.py",
                "network/neighbours-port.py",
                "interfere/signals.c",
                "secrets/command-lines.py",
            ],
        ),
        (11, &["escape/remount.c", "escape/gain-privileges.py", "persist/change-what-is-shown.py"]),
        (12, &["network/gateway.py", "test:disguised_names_are_refused"]),
        (
            13,
            &[
                "escape/python-without-builtins.py",
                "escape/restricted-python.py",
                "escape/javascript-constructor.js",
                "escape/native-code.py",
            ],
        ),
        (14, &["escape/proc-self-exe.c"]),
        (15, &["escape/workdir-in-proc.py", "escape/leaked-descriptors.c"]),
        (16, &["escape/kernel-settings.py"]),
        (17, &["persist/temporary-files.py", "escape/io-uring.c", "escape/vsock.c", "escape/int80.c", "escape/x32.c"]),
        (18, &["exhaust/stop-everybody.py", "exhaust/ignore-everything.c", "exhaust/daemon.py"]),
        (19, &["persist/residue.py", "persist/shared-memory.c", "interfere/posix-queues.c"]),
        (20, &["exhaust/output.js", "exhaust/output-and-exit.c"]),
        (21, &["exhaust/sparse.c", "exhaust/directories.py", "deceive/output-names.py"]),
        (22, &["deceive/same-random.py", "deceive/same-random.js"]),
        (23, &["deceive/exit-before-checks.py", "deceive/exit-before-checks.js", "deceive/exit-before-checks.c"]),
        (
            24,
            &[
                "exhaust/fork-bomb.c",
                "exhaust/fork-bomb.sh",
                "exhaust/threads.py",
                "exhaust/memory.c",
                "exhaust/memory-of-many.py",
                "exhaust/memory-of-files.py",
                "exhaust/socket-buffers.py",
                "exhaust/kernel-memory.c",
                "exhaust/address-space.c",
                "exhaust/zeroes.py",
                "exhaust/recursion.js",
                "exhaust/disk.py",
                "exhaust/inodes.py",
                "exhaust/all-cpus.c",
                "exhaust/spin.rs",
                "exhaust/spin.go",
                "exhaust/Sleep.java",
            ],
        ),
        (
            25,
            &[
                "escape/user-namespace.c",
                "escape/other-namespaces.c",
                "escape/release-agent.sh",
                "escape/bpf.c",
                "escape/perf-events.c",
                "secrets/keyring.c",
                "escape/userfaultfd.c",
                "escape/the-machine.c",
            ],
        ),
        (
            26,
            &[
                "secrets/include.c",
                "secrets/incbin.c",
                "secrets/include-str.rs",
                "secrets/embed.go",
                "secrets/build-script.rs",
                "secrets/annotation-processor.java",
                "secrets/compile-while-running.java",
                "secrets/compiler-environment.rs",
            ],
        ),
        (
            27,
            &[
                "secrets/files.py",
                "secrets/environments.py",
                "secrets/home-directories.sh",
                "secrets/host-name.py",
                "secrets/Files.java",
            ],
        ),
        (
            28,
            &[
                "network/abstract-socket.py",
                "interfere/shared-memory.c",
                "interfere/posix-queues.c",
                "interfere/signals.c",
                "interfere/watch-files.c",
            ],
        ),
        (
            29,
            &[
                "interfere/terminal-input.c",
                "interfere/own-terminal.c",
                "deceive/terminal-sequences.js",
                "test:a_terminal_is_protected",
            ],
        ),
        (
            30,
            &[
                "test:a_hostile_build_is_confined_to_its_cell",
                "test:a_build_script_does_not_see_the_password_of_the_index",
            ],
        ),
    ];

    /// The text of every test of this workspace.
    fn tests() -> String {
        fn read(dir: &std::path::Path, text: &mut String) {
            for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    read(&path, text);
                } else if path.extension().is_some_and(|ending| ending == "rs") {
                    text.push_str(&std::fs::read_to_string(&path).expect("text"));
                }
            }
        }
        let mut text = String::new();
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for member in std::fs::read_dir(crates).expect("the workspace's crates").flatten() {
            let dir = member.path().join("tests");
            if dir.is_dir() {
                read(&dir, &mut text);
            }
        }
        text
    }

    #[test]
    fn every_header_is_valid() {
        let attacks = all().expect("valid headers");
        let verdicts = [
            "ok",
            "runtime_error",
            "compile_error",
            "timeout",
            "memory_limit",
            "output_limit",
            "disk_limit",
            "process_limit",
            "refused",
        ];
        for attack in &attacks {
            let id = attack.id();
            assert!(attack.expect.iter().all(|verdict| verdicts.contains(verdict)), "{id}: {:?}", attack.expect);
            assert!(!attack.tries.ends_with('.') && attack.tries.starts_with(char::is_lowercase), "{id}");
            // Whether it was attempted must be visible: by a verdict, or by its own report.
            assert!(!attack.expect.is_empty() || attack.text.contains("attempted"), "{id}");
            // A run whose time is measured runs alone.
            let measures = attack.expect.contains(&"timeout") || attack.layers.contains(Layer::Cpu);
            assert!(!measures || attack.alone, "{id}");
        }
        for group in GROUPS {
            assert!(attacks.iter().any(|attack| attack.group == group), "{group}");
        }
    }

    #[test]
    fn every_known_attack_is_covered() {
        let (attacks, tests) = (all().expect("valid headers"), tests());
        for (number, (row, covers)) in (1..).zip(COVERED) {
            assert!(number == row && !covers.is_empty());
            for cover in covers {
                let there = match cover.strip_prefix("test:") {
                    Some(test) => tests.contains(&format!("fn {test}(")),
                    None => attacks.iter().any(|attack| attack.id() == *cover),
                };
                assert!(there, "{row}: {cover} does not exist");
            }
        }
    }

    #[test]
    fn every_layer_stops_some_attack() {
        let attacks = all().expect("valid headers");
        for layer in Layer::ALL {
            assert!(
                attacks.iter().filter_map(Attack::removable).any(|walls| walls.contains(layer)),
                "no attack would notice that {} is missing",
                layer.name()
            );
        }
    }

    #[test]
    fn mistakes_in_headers_are_reported() {
        for (text, what) in [
            ("// tries: x\n", "needs a known group"),
            ("// tries: x\n// seen-in: y\n// walls: moat\n", "unknown isolation layer 'moat'"),
            ("# limits: memory\n", "limits are name=value"),
            ("# limits: soul=1\n", "unknown limit 'soul'"),
            ("# collect: maybe\n", "collect can only be yes"),
            ("# known-without: hope: x\n", "unknown isolation layer 'hope'"),
            ("# needs: luck\n", "unknown need 'luck'"),
            ("# wals: user\n", "unknown key 'wals'"),
        ] {
            let error = parse("escape", "x.py", text).expect_err("refused");
            assert!(error.contains(what), "{error}");
        }
    }
}
