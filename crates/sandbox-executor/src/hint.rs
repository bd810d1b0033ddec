//! Hints: what to change so that the next run succeeds, in one line.
//!
//! A hint is advice, and never evidence: the verdict is decided without it. Limits and refused connections are facts. The
//! rest follows from the program's own words, which may lie: of them a bounded part is read, and only names of harmless
//! characters are repeated.

mod hosts;
#[cfg(test)]
mod tests;

use sandbox_base::LimitKind;
use sandbox_cell::archive::Omission;
use sandbox_cell::{Layer, LayerSet, RunStatus, signal_name};
use sandbox_network::{NOT_ALLOWED, NetworkUse};
use sandbox_runtimes::LackedModule;

use self::hosts::Target;
use crate::network::NetworkMode;
use crate::plan::{Plan, Step};
use crate::result::{OmittedFile, Verdict};
use crate::settings::Settings;
use crate::verdict::Judgement;

/// How much is read of the program's words: of a program the end, of a compiler the beginning.
const MOST_READ: usize = 8 << 10;

/// The most packages that a hint names.
const MOST_PACKAGES: usize = 5;

/// Words of programs that could not use more of something, in lower case.
const EXHAUSTED: &[(&str, LimitKind)] = &[
    ("no space left on device", LimitKind::Disk),
    ("enospc", LimitKind::Disk),
    ("file too large", LimitKind::FileSize),
    ("efbig", LimitKind::FileSize),
    ("can't start new thread", LimitKind::Processes),
    ("unable to create native thread", LimitKind::Processes),
    ("fork: resource temporarily unavailable", LimitKind::Processes),
    ("fork: retry", LimitKind::Processes),
    ("too many open files", LimitKind::OpenFiles),
    ("cannot allocate memory", LimitKind::Memory),
    ("bad_alloc", LimitKind::Memory),
    ("memoryerror", LimitKind::Memory),
    ("enomem", LimitKind::Memory),
];

/// Words of programs that could not connect, in lower case.
const UNREACHABLE: &[&str] = &[
    "network is unreachable",
    "enetunreach",
    "name resolution",
    "name or service not known",
    "could not resolve",
    "failed to resolve",
    "unable to resolve",
    "no such host",
    "lookup address information",
    "getaddrinfo",
    "unknownhostexception",
];

/// Error texts of refused connections, in lower case.
const REFUSED: &[&str] = &["connection refused", "econnrefused"];

/// What is known about a run that has ended.
pub(crate) struct Symptoms<'a> {
    pub(crate) judgement: &'a Judgement,
    pub(crate) status: RunStatus,
    pub(crate) isolation: LayerSet,
    pub(crate) stderr: &'a [u8],
    pub(crate) stdin_is_empty: bool,
    pub(crate) network: Option<&'a NetworkUse>,
}

/// Gives hints for the runs of a plan.
pub(crate) struct Advisor<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) settings: &'a Settings,
}

impl Advisor<'_> {
    /// The hint for a program that has run.
    pub(crate) fn after_run(&self, symptoms: &Symptoms<'_>) -> Option<String> {
        let judgement = symptoms.judgement;
        if matches!(judgement.verdict, Verdict::Ok | Verdict::Cancelled | Verdict::InternalError) {
            return None;
        }
        if let Some(limit) = judgement.limit {
            return Some(self.raise(limit.kind));
        }
        let words = words(judgement, end(symptoms.stderr));
        let lacked = self.lacked_modules(&words);
        // The program coped with those before the last.
        self.install(&lacked[lacked.len().saturating_sub(1)..], symptoms.isolation)
            .or_else(|| self.connect(&words, symptoms))
            .or_else(|| self.feed(&words, symptoms))
            .or_else(|| self.exhausted(&words, symptoms.status))
    }

    /// The hint for a step that failed before the program could run.
    pub(crate) fn after_step(
        &self,
        step: Step,
        judgement: &Judgement,
        isolation: LayerSet,
        stderr: &[u8],
    ) -> Option<String> {
        if matches!(judgement.verdict, Verdict::Cancelled | Verdict::InternalError) {
            return None;
        }
        match (judgement.limit, step) {
            (Some(limit), _) => self.raise_of_step(step, limit.kind),
            (None, Step::Compile) => {
                self.install(&self.lacked_modules(&words(judgement, beginning(stderr))), isolation)
            }
            (None, Step::Prepare | Step::Install) => None,
        }
    }

    /// The hint for files that did not come back.
    pub(crate) fn after_collection(&self, omitted: &[OmittedFile]) -> Option<String> {
        let lacks = |why| omitted.iter().any(|file| file.why == why);
        if lacks(Omission::TooLarge) {
            return Some(self.raise(LimitKind::OutputSize));
        }
        let most = self.settings.files;
        lacks(Omission::TooMany)
            .then(|| format!("a result has at most {most} files; the operator can raise that with SANDBOX_FILES"))
    }

    /// How to raise a limit, unless the operator allows no more.
    fn raise(&self, kind: LimitKind) -> String {
        let info = kind.info();
        let (most, limit) = (self.settings.caps.most(kind), self.plan.cell.limits.get(kind));
        match limit {
            Some(limit) if limit >= most => {
                format!("the {} is at its maximum, which {} sets", info.title, info.cap_variable)
            }
            _ => {
                let more = limit.unwrap_or(info.least).saturating_mul(2).min(most);
                format!("raise the {}, for example with {}", info.title, self.plan.face.limit(kind, more))
            }
        }
    }

    /// The same for a step before the run, whose limits are the operator's.
    fn raise_of_step(&self, step: Step, kind: LimitKind) -> Option<String> {
        let (title, doing) = (kind.info().title, step.doing());
        if let Some(flag) = self.plan.face.limit_of_step(step, kind) {
            return Some(format!("raise the {title} for {doing} with {flag}"));
        }
        let what = match kind {
            LimitKind::WallTime => "TIMEOUT",
            LimitKind::Memory => "MEMORY",
            LimitKind::Disk => "DISK",
            _ => return None,
        };
        let variable = format!("SANDBOX_{}_{what}", step.stage().to_ascii_uppercase());
        Some(format!("the operator can raise the {title} for {doing} with {variable}"))
    }

    /// The modules that were not found, without those of packages that the request has installed.
    fn lacked_modules(&self, words: &str) -> Vec<LackedModule> {
        let Some(packages) = self.plan.definition.as_ref().and_then(|definition| definition.packages.as_ref()) else {
            return vec![];
        };
        let mut lacked = packages.lacked_modules(words);
        lacked.retain(|lacked| !lacked.package.as_deref().is_some_and(|package| self.has_installed(package)));
        lacked
    }

    /// Whether the request names a package, in whatever version.
    fn has_installed(&self, package: &str) -> bool {
        let is_it = |given: &String| {
            let rest = given.get(..package.len()).filter(|name| name.eq_ignore_ascii_case(package));
            let next = given.get(package.len()..).and_then(|rest| rest.chars().next());
            rest.is_some() && !next.is_some_and(|next| next.is_ascii_alphanumeric() || "-_./".contains(next))
        };
        self.plan.packages.iter().any(is_it)
    }

    /// How to install what is lacking, unless there are no network namespaces, which installations need.
    fn install(&self, lacked: &[LackedModule], isolation: LayerSet) -> Option<String> {
        if !isolation.contains(Layer::Net) {
            return None;
        }
        let face = self.plan.face;
        let known = lacked.iter().filter(|lacked| lacked.is_known);
        let known: Vec<&str> = known.filter_map(|lacked| lacked.package.as_deref()).take(MOST_PACKAGES).collect();
        let Some(guess) = lacked.first().filter(|_| known.is_empty()) else {
            let noun = if known.len() == 1 { "package" } else { "packages" };
            return (!known.is_empty()).then(|| format!("install the missing {noun} with {}", face.packages(&known)));
        };
        let module = &guess.module;
        if let Some(package) = &guess.package {
            let (install, add) = (face.packages(&[package]), face.file());
            return Some(format!(
                "if '{module}' belongs to a package, install it with {install}; if it is a file of yours, {add}"
            ));
        }
        let example = &self.plan.definition.as_ref()?.packages.as_ref()?.example;
        Some(format!("install the package that contains '{module}', in the form {}", face.packages(&[example])))
    }

    /// How to let the program connect.
    fn connect(&self, words: &str, symptoms: &Symptoms<'_>) -> Option<String> {
        if !symptoms.isolation.contains(Layer::Net) {
            return None;
        }
        let face = self.plan.face;
        let refused = symptoms.network.into_iter().flat_map(|network| &network.refusals);
        let refused: Vec<Target> = refused
            .filter(|refusal| refusal.why.ends_with(NOT_ALLOWED))
            .filter_map(|refusal| Target::new(&refusal.host, refusal.port))
            .collect();
        if let Some(last) = refused.last() {
            return Some(format!("allow the host with {}", face.host(&last.to_string())));
        }
        let (lower, mode) = (words.to_ascii_lowercase(), self.plan.network);
        let tells = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        if mode > NetworkMode::Localhost || !(tells(UNREACHABLE) || mode == NetworkMode::None && tells(REFUSED)) {
            return None;
        }
        let target = hosts::named_in(words).or_else(|| hosts::named_in(&end(symptoms.stderr)));
        let is_local = target.as_ref().is_some_and(Target::is_local);
        let needed = if is_local { NetworkMode::Localhost } else { NetworkMode::Allowlist };
        let most = self.settings.max_network;
        if mode >= needed {
            return None;
        }
        if most < needed {
            return Some(format!(
                "programs can connect nowhere: the maximum network mode is '{most}' (SANDBOX_MAX_NETWORK)"
            ));
        }
        let allow = match target {
            Some(_) if is_local => face.network(NetworkMode::Localhost),
            Some(target) => face.host(&target.to_string()),
            None if most < NetworkMode::Full => face.host("HOST"),
            None => format!("{}, or {}", face.host("HOST"), face.network(NetworkMode::Full)),
        };
        Some(match mode {
            NetworkMode::Localhost => format!("network mode localhost reaches no other hosts; allow one with {allow}"),
            _ => format!("programs have no network by default; allow it with {allow}"),
        })
    }

    /// How to give the program the input that it waited for.
    fn feed(&self, words: &str, symptoms: &Symptoms<'_>) -> Option<String> {
        let definition = self.plan.definition.as_ref().filter(|_| symptoms.stdin_is_empty)?;
        let wanted = definition.errors.stdin.iter().any(|pattern| pattern.0.is_match(words));
        wanted.then(|| format!("standard input is empty; {}", self.plan.face.stdin()))
    }

    /// The limit that the program's words or its end suggest, where the kernel has not told.
    fn exhausted(&self, words: &str, status: RunStatus) -> Option<String> {
        let lower = words.to_ascii_lowercase();
        if let Some((_, kind)) = EXHAUSTED.iter().find(|(word, _)| lower.contains(word)) {
            return Some(self.raise(*kind));
        }
        let signal = match status {
            RunStatus::Signaled(signal) => signal,
            RunStatus::Exited(code) => code.checked_sub(128)?,
        };
        match signal_name(signal).as_str() {
            "SIGKILL" => Some(format!("a process was killed; if memory ran out, {}", self.raise(LimitKind::Memory))),
            "SIGXFSZ" => Some(self.raise(LimitKind::FileSize)),
            _ => None,
        }
    }
}

/// The reason of a failure and a part of the error output.
fn words(judgement: &Judgement, output: String) -> String {
    match &judgement.error {
        Some(error) => format!("{error}\n{output}"),
        None => output,
    }
}

fn end(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(MOST_READ)..]).into_owned()
}

fn beginning(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_READ)]).into_owned()
}
