//! API keys: who somebody is, and what they may do.
//!
//! A key is compared by its digest, in constant time. Behind a key may stand what is particular to it:
//! `KEY;name=ci;scopes=execute+jobs;rate=10;runs=4;per-day=1000`.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use sandbox_jobs::{Filter, Job, JobStatus};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::problem::{Code, Problem};
use crate::slots::Owner;

/// The shortest key: long enough not to be guessed, if it is random.
const SHORTEST: usize = 16;

/// What a key opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Runs while the client waits: `/execute`, `/v1/batch`.
    Execute,
    /// Jobs: `/v1/execute`.
    Jobs,
    /// `/metrics`.
    Metrics,
    /// Everybody's jobs.
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

/// Somebody who asks.
#[derive(Debug)]
pub(crate) struct Client {
    /// Their name; nobody has one where no key is needed.
    pub(crate) name: Option<String>,
    scopes: Vec<Scope>,
    /// Requests a second, if that is particular to them.
    pub(crate) rate: Option<f64>,
    /// The most concurrent runs of all kinds, if that is particular to them.
    runs: Option<usize>,
    /// Runs a day.
    pub(crate) per_day: Option<u64>,
}

impl Client {
    /// Anybody, where no key is needed.
    fn anybody() -> Self {
        let scopes = Scope::ALL.iter().map(|(scope, _)| *scope).collect();
        Self { name: None, scopes, rate: None, runs: None, per_day: None }
    }

    /// Whether they may use this.
    pub(crate) fn may(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.contains(&scope) {
            return Ok(());
        }
        Err(Problem::new(Code::Forbidden, format!("the key does not have the scope '{}'", scope.name())))
    }

    fn is_admin(&self) -> bool {
        self.scopes.contains(&Scope::Admin)
    }

    /// Whether a job is there for them.
    pub(crate) fn sees(&self, job: &Job) -> bool {
        self.is_admin() || job.owner == self.name
    }

    /// The jobs that are there for them.
    pub(crate) fn jobs(&self, status: Option<JobStatus>) -> Filter {
        Filter { status, owner: self.name.clone().filter(|_| !self.is_admin()) }
    }
}

#[derive(Debug)]
struct Key {
    digest: [u8; 32],
    client: Arc<Client>,
}

/// The keys that are accepted. None means that everybody may come.
#[derive(Debug)]
pub(crate) struct Keys {
    keys: Vec<Key>,
    anybody: Arc<Client>,
}

impl Keys {
    /// Takes keys, each as it is or as `sha256:` and the digest in hexadecimal, with what is particular to it. Errors do
    /// not repeat a key.
    pub(crate) fn new(keys: &[String]) -> Result<Self, String> {
        let keys: Vec<Key> = keys.iter().map(|key| read_key(key)).collect::<Result<_, _>>()?;
        let mut names: Vec<_> = keys.iter().map(|key| &key.client.name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two keys have the name '{}'", pair[0].as_deref().unwrap_or_default()));
        }
        Ok(Self { keys, anybody: Arc::new(Client::anybody()) })
    }

    /// Whether no key is needed.
    pub(crate) fn is_open(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys with a limit of concurrent runs, and that limit.
    pub(crate) fn caps(&self) -> HashMap<Owner, usize> {
        self.keys.iter().filter_map(|key| Some((key.client.name.clone(), key.client.runs?))).collect()
    }

    /// Checks the key in a request's headers: `Authorization: Bearer KEY` or `X-API-Key: KEY`. Returns whose it is.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<Arc<Client>, Problem> {
        if self.is_open() {
            return Ok(Arc::clone(&self.anybody));
        }
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let key = bearer.or_else(|| headers.get("x-api-key")?.to_str().ok());
        let Some(key) = key else {
            return Err(Problem::new(Code::Unauthorized, "send a key as 'Authorization: Bearer KEY'"));
        };
        let given: [u8; 32] = Sha256::digest(key.trim().as_bytes()).into();
        // Every key is compared, so that the time does not tell which one is near.
        let matches: Vec<bool> = self.keys.iter().map(|key| key.digest.ct_eq(&given).into()).collect();
        let known = matches.iter().position(|matches| *matches);
        known
            .map(|known| Arc::clone(&self.keys[known].client))
            .ok_or_else(|| Problem::new(Code::Unauthorized, "the key is not valid"))
    }
}

fn read_key(text: &str) -> Result<Key, String> {
    let mut parts = text.split(';');
    let key = parts.next().unwrap_or_default().trim();
    let digest = digest_of(key)?;
    let short: String = digest[..4].iter().map(|byte| format!("{byte:02x}")).collect();
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
            other => return Err(format!("'{other}' is not name, scopes, rate, runs or per-day")),
        }
    }
    Ok(Key { digest, client: Arc::new(client) })
}

fn read_name(value: &str) -> Result<String, String> {
    let fits = (1..=40).contains(&value.len()) && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if fits { Ok(value.to_owned()) } else { Err(format!("'{value}' is not a name for a key")) }
}

fn read_scope(value: &str) -> Result<Scope, String> {
    let found = Scope::ALL.iter().find(|(_, name)| *name == value.trim());
    found.map(|(scope, _)| *scope).ok_or_else(|| {
        let names: Vec<&str> = Scope::ALL.iter().map(|(_, name)| *name).collect();
        format!("'{value}' is not a scope; the scopes are {}", names.join(", "))
    })
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.trim().parse().map_err(|_| format!("{name}: '{value}' is not a number"))
}

fn positive(rate: f64) -> Result<f64, String> {
    if rate > 0.0 && rate.is_finite() { Ok(rate) } else { Err("rate: give requests a second".to_owned()) }
}

fn at_least_one(runs: usize) -> Result<usize, String> {
    if (1..=2000).contains(&runs) { Ok(runs) } else { Err("runs: give a number from 1 to 2000".to_owned()) }
}

fn digest_of(key: &str) -> Result<[u8; 32], String> {
    let Some(hex) = key.strip_prefix("sha256:") else {
        if key.len() < SHORTEST {
            return Err(format!("a key of {} characters is too short; use at least {SHORTEST}", key.len()));
        }
        return Ok(Sha256::digest(key.as_bytes()).into());
    };
    let mut digest = [0; 32];
    let valid = hex.len() == 64 && hex.is_ascii();
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)).filter(|_| valid) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).map_err(|_| "a digest is not hexadecimal".to_owned())?;
    }
    if valid { Ok(digest) } else { Err("a digest does not have 64 hexadecimal digits".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().expect("header"));
        headers
    }

    #[test]
    fn keys_open_and_others_do_not() {
        let digest: String = Sha256::digest(b"second-key-0123456").iter().map(|byte| format!("{byte:02x}")).collect();
        let keys = Keys::new(&["first-key-0123456".to_owned(), format!("sha256:{digest}")]).expect("valid");
        assert!(keys.check(&headers("authorization", "Bearer first-key-0123456")).is_ok());
        assert!(keys.check(&headers("x-api-key", "second-key-0123456")).is_ok());
        for (name, value) in
            [("authorization", "Bearer wrong"), ("authorization", "first-key-0123456"), ("x-api-key", "")]
        {
            assert!(keys.check(&headers(name, value)).is_err(), "{value}");
        }
        assert!(keys.check(&HeaderMap::new()).is_err());
        assert!(Keys::new(&[]).expect("valid").check(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn a_key_may_have_particulars() {
        let text = "first-key-0123456;name=ci;scopes=jobs+metrics;rate=2.5;runs=3;per-day=100";
        let keys = Keys::new(&[text.to_owned()]).expect("valid");
        let client = keys.check(&headers("x-api-key", "first-key-0123456")).expect("known");
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
