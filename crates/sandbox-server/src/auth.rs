//! API keys: authentication of clients, their scopes and limits.
//!
//! A key is compared by its digest, in constant time. Options may follow a key:
//! `KEY;name=ci;scopes=execute+jobs;rate=10;runs=4;per-day=1000`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, header};
use sandbox_jobs::{Filter, Job, JobStatus};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::capacity::Owner;
use crate::problem::{Code, Problem};
use crate::rate_limit::{ClientLimit, network};

/// The shortest key: long enough not to be guessed, if it is random.
const SHORTEST: usize = 16;

/// The rate of invalid keys from one address, per second.
const GUESSES_PER_SECOND: f64 = 1.0;

/// The burst of invalid keys from one address.
const GUESSES_AT_ONCE: f64 = 10.0;

/// The number of remembered pairs of an address and a key that was valid there.
const MOST_ACQUAINTED: usize = 10_000;

/// A permission of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Synchronous runs: `/execute`, `/v1/batch`.
    Execute,
    /// Jobs: `/v1/execute`.
    Jobs,
    /// `/metrics`.
    Metrics,
    /// The jobs of all keys.
    Admin,
}

impl Scope {
    const ALL: [(Self, &str); 4] =
        [(Self::Execute, "execute"), (Self::Jobs, "jobs"), (Self::Metrics, "metrics"), (Self::Admin, "admin")];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(scope, _)| *scope == self).map_or("", |(_, name)| name)
    }
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    /// The name of its key; none where no key is required.
    pub(crate) name: Option<String>,
    scopes: Vec<Scope>,
    /// Requests per second, if the key has a specific limit.
    pub(crate) rate: Option<f64>,
    /// The maximum number of concurrent runs, if the key has a specific limit.
    runs: Option<usize>,
    /// Runs per day.
    pub(crate) per_day: Option<u64>,
}

impl Client {
    /// The client of a server without keys: it has no name and every scope.
    pub(crate) fn anonymous() -> Self {
        let scopes = Scope::ALL.iter().map(|(scope, _)| *scope).collect();
        Self { name: None, scopes, rate: None, runs: None, per_day: None }
    }

    /// Refuses a request without this scope.
    pub(crate) fn may(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.contains(&scope) {
            return Ok(());
        }
        Err(Problem::new(Code::Forbidden, format!("the API key lacks the scope '{}'", scope.name())))
    }

    fn is_admin(&self) -> bool {
        self.scopes.contains(&Scope::Admin)
    }

    /// Whether the client may see a job.
    pub(crate) fn sees(&self, job: &Job) -> bool {
        self.is_admin() || job.owner == self.name
    }

    /// The jobs that the client may see.
    pub(crate) fn jobs(&self, status: Option<JobStatus>) -> Filter {
        Filter { status, owner: self.name.clone().filter(|_| !self.is_admin()) }
    }
}

#[derive(Debug)]
struct ApiKey {
    digest: [u8; 32],
    client: Arc<Client>,
}

/// The accepted keys. Without any, no key is required.
#[derive(Debug)]
pub(crate) struct Keys {
    accepted: Vec<ApiKey>,
    anonymous: Arc<Client>,
    /// Invalid keys by address.
    guesses: ClientLimit,
    /// The addresses at which each key was valid, so that guesses from the same address do not lock its owner out.
    acquainted: Mutex<HashSet<(String, usize)>>,
}

impl Keys {
    /// Parses keys, each as text or as `sha256:` and the digest in hexadecimal, with its options. Errors do not contain the
    /// key.
    pub(crate) fn new(keys: &[String]) -> Result<Self, String> {
        let accepted: Vec<ApiKey> = keys.iter().map(|key| read_key(key)).collect::<Result<_, _>>()?;
        let mut names: Vec<_> = accepted.iter().map(|key| &key.client.name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two API keys have the name '{}'", pair[0].as_deref().unwrap_or_default()));
        }
        let (guesses, acquainted) = (ClientLimit::new(GUESSES_PER_SECOND, GUESSES_AT_ONCE), Mutex::default());
        Ok(Self { accepted, anonymous: Arc::new(Client::anonymous()), guesses, acquainted })
    }

    /// Whether no key is required.
    pub(crate) fn is_open(&self) -> bool {
        self.accepted.is_empty()
    }

    /// The keys with a limit of concurrent runs, and that limit.
    pub(crate) fn caps(&self) -> HashMap<Owner, usize> {
        self.accepted.iter().filter_map(|key| Some((key.client.name.clone(), key.client.runs?))).collect()
    }

    /// Checks the key in the headers of a request from this address. Returns its client.
    ///
    /// Once too many invalid keys have come from an address, a valid one is refused in the same way, unless it was used
    /// there before: otherwise one could guess as fast as before, and would only have to look for the answer that differs.
    pub(crate) fn check(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Result<Arc<Client>, Problem> {
        if self.is_open() {
            return Ok(Arc::clone(&self.anonymous));
        }
        let key = given(headers)
            .ok_or_else(|| Problem::new(Code::Unauthorized, "send an API key as 'Authorization: Bearer KEY'"))?;
        let from = from.map(network).unwrap_or_default();
        let known = self.find(key);
        let mut acquainted = self.acquainted.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = known.map(|index| (from.clone(), index));
        if pair.as_ref().is_none_or(|pair| !acquainted.contains(pair)) {
            let guessed = if known.is_some() { self.guesses.look(&from) } else { self.guesses.count(&from) };
            guessed.map_err(|wait| {
                let detail = "too many invalid API keys from this address";
                Problem::new(Code::TooManyRequests, detail).retry_after(wait)
            })?;
        }
        let (index, pair) = known.zip(pair).ok_or_else(|| Problem::new(Code::Unauthorized, "invalid API key"))?;
        if acquainted.len() >= MOST_ACQUAINTED {
            acquainted.clear();
        }
        acquainted.insert(pair);
        Ok(Arc::clone(&self.accepted[index].client))
    }

    fn find(&self, key: &str) -> Option<usize> {
        let given: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        // Every key is compared, so that the time does not tell which one is near.
        let matches: Vec<bool> = self.accepted.iter().map(|key| key.digest.ct_eq(&given).into()).collect();
        matches.iter().position(|matches| *matches)
    }
}

/// The key that a request carries: `Authorization: Bearer KEY` or `X-API-Key: KEY`.
fn given(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    bearer.or_else(|| headers.get("x-api-key")?.to_str().ok()).map(str::trim)
}

fn read_key(text: &str) -> Result<ApiKey, String> {
    let mut parts = text.split(';');
    let key = parts.next().unwrap_or_default().trim();
    let digest = digest_of(key)?;
    let short = sandbox_base::random::hex(&digest[..4]);
    let mut client = Client {
        name: Some(format!("key-{short}")),
        scopes: vec![Scope::Execute, Scope::Jobs, Scope::Metrics],
        rate: None,
        runs: None,
        per_day: None,
    };
    for part in parts {
        let (name, value) =
            part.split_once('=').ok_or("behind a key stand name=, scopes=, rate=, runs= or per-day=")?;
        match name.trim() {
            "name" => client.name = Some(read_name(value)?),
            "scopes" => client.scopes = value.split('+').map(read_scope).collect::<Result<_, _>>()?,
            "rate" => client.rate = Some(number(name, value).and_then(positive)?),
            "runs" => client.runs = Some(number(name, value).and_then(at_least_one)?),
            "per-day" => client.per_day = Some(number(name, value)?),
            other => return Err(format!("unknown option '{other}': expected name, scopes, rate, runs or per-day")),
        }
    }
    Ok(ApiKey { digest, client: Arc::new(client) })
}

fn read_name(value: &str) -> Result<String, String> {
    let fits = (1..=40).contains(&value.len()) && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if fits { Ok(value.to_owned()) } else { Err(format!("invalid key name '{value}'")) }
}

fn read_scope(value: &str) -> Result<Scope, String> {
    let found = Scope::ALL.iter().find(|(_, name)| *name == value.trim());
    found.map(|(scope, _)| *scope).ok_or_else(|| {
        let names: Vec<&str> = Scope::ALL.iter().map(|(_, name)| *name).collect();
        format!("unknown scope '{value}': expected one of {}", names.join(", "))
    })
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.trim().parse().map_err(|_| format!("invalid {name} '{value}': expected a number"))
}

fn positive(rate: f64) -> Result<f64, String> {
    if rate > 0.0 && rate.is_finite() { Ok(rate) } else { Err("invalid rate: expected requests per second".to_owned()) }
}

fn at_least_one(runs: usize) -> Result<usize, String> {
    if (1..=2000).contains(&runs) { Ok(runs) } else { Err("invalid runs: expected a number from 1 to 2000".to_owned()) }
}

fn digest_of(key: &str) -> Result<[u8; 32], String> {
    let Some(hex) = key.strip_prefix("sha256:") else {
        if key.len() < SHORTEST {
            return Err(format!("an API key of {} characters is too short: expected at least {SHORTEST}", key.len()));
        }
        return Ok(Sha256::digest(key.as_bytes()).into());
    };
    let mut digest = [0; 32];
    let valid = hex.len() == 64 && hex.is_ascii();
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)).filter(|_| valid) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16)
            .map_err(|_| "invalid key digest: expected hexadecimal digits".to_owned())?;
    }
    if valid { Ok(digest) } else { Err("invalid key digest: expected 64 hexadecimal digits".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().expect("header"));
        headers
    }

    fn check(keys: &Keys, headers: &HeaderMap) -> Result<Arc<Client>, Problem> {
        keys.check(headers, None)
    }

    #[test]
    fn guessing_keys_is_slow_and_locks_no_owner_out() {
        let keys = Keys::new(&["first-key-0123456".to_owned(), "second-key-0123456".to_owned()]).expect("valid");
        let right = headers("x-api-key", "first-key-0123456");
        let (other, wrong) = (headers("x-api-key", "second-key-0123456"), headers("x-api-key", "wrong"));
        let at = |address: &str, given: &HeaderMap| {
            let answer = keys.check(given, Some(address.parse().expect("an address")));
            answer.map_or_else(|problem| problem.code(), |_| Code::NotFound)
        };
        assert_eq!(at("192.0.2.1", &right), Code::NotFound);
        for _ in 0..10 {
            assert_eq!(at("192.0.2.1", &wrong), Code::Unauthorized);
        }
        assert_eq!(at("192.0.2.1", &wrong), Code::TooManyRequests);
        assert_eq!(at("192.0.2.1", &other), Code::TooManyRequests, "a guess that is right looks like any other");
        assert_eq!(at("192.0.2.1", &right), Code::NotFound, "a key that was used at this address is still accepted");
        assert_eq!(at("192.0.2.1", &HeaderMap::new()), Code::Unauthorized, "a request without a key is not a guess");
        assert_eq!(at("192.0.2.2", &other), Code::NotFound, "other addresses are not affected");
        keys.guesses.advance(std::time::Duration::from_secs(2));
        let guesses: Vec<Code> = (0..10).map(|_| at("192.0.2.1", &wrong)).collect();
        assert_eq!(guesses.iter().filter(|code| **code == Code::Unauthorized).count(), 2, "one a second");
    }

    #[test]
    fn only_configured_keys_are_accepted() {
        let digest = sandbox_base::random::hex(&Sha256::digest(b"second-key-0123456"));
        let keys = Keys::new(&["first-key-0123456".to_owned(), format!("sha256:{digest}")]).expect("valid");
        assert!(check(&keys, &headers("authorization", "Bearer first-key-0123456")).is_ok());
        assert!(check(&keys, &headers("x-api-key", "second-key-0123456")).is_ok());
        for (name, value) in
            [("authorization", "Bearer wrong"), ("authorization", "first-key-0123456"), ("x-api-key", "")]
        {
            assert!(check(&keys, &headers(name, value)).is_err(), "{value}");
        }
        assert!(check(&keys, &HeaderMap::new()).is_err());
        assert!(check(&Keys::new(&[]).expect("valid"), &HeaderMap::new()).is_ok());
    }

    #[test]
    fn key_options_are_parsed_and_checked() {
        let text = "first-key-0123456;name=ci;scopes=jobs+metrics;rate=2.5;runs=3;per-day=100";
        let keys = Keys::new(&[text.to_owned()]).expect("valid");
        let client = check(&keys, &headers("x-api-key", "first-key-0123456")).expect("known");
        assert_eq!((client.name.as_deref(), client.rate, client.per_day), (Some("ci"), Some(2.5), Some(100)));
        assert!(client.may(Scope::Jobs).is_ok() && client.may(Scope::Execute).is_err());
        assert_eq!((client.runs, keys.caps().get(&client.name).copied()), (Some(3), Some(3)));
        assert_eq!(client.jobs(None).owner.as_deref(), Some("ci"));
        for bad in [
            "short",
            "sha256:xyz",
            "first-key-0123456;scopes=all",
            "first-key-0123456;rate=0",
            "first-key-0123456;runs=0",
            "first-key-0123456;per-day=x",
            "first-key-0123456;name=a b",
            "first-key-0123456;colour=red",
            "first-key-0123456;jobs",
        ] {
            let error = Keys::new(&[bad.to_owned()]).expect_err(bad);
            assert!(!error.contains("first-key"), "{error}");
        }
        let twice = ["first-key-0123456;name=a".to_owned(), "second-key-0123456;name=a".to_owned()];
        assert!(Keys::new(&twice).is_err());
    }
}
