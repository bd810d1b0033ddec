//! Webhooks: messages to clients whose jobs have ended.
//!
//! Messages are signed according to the Standard Webhooks specification, so that receivers can use any of its libraries.
//! They are sent to public addresses and to the hosts that the operator allows, under the address policy of
//! `sandbox-network`. Redirects are not followed. A delivery without a successful answer is attempted again with exponential
//! back-off; the job shows its state.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sandbox_executor::JsonWebhook;
use sandbox_jobs::{Delivery, Job, Webhook};
use sandbox_network::{AddressPolicy, DenyList, HostName, HostRule, WebAddress, WebAddressError, webhook_agent};
use serde_json::json;
use sha2::Sha256;
use tokio::sync::Notify;
use ureq::http::Uri;

use crate::capacity::Owner;
use crate::config::Config;
use crate::jobs::shown;
use crate::problem::{Code, Problem};
use crate::state::App;

/// The most attempts of a delivery.
const ATTEMPTS: u32 = 6;

/// The time for one attempt.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most concurrent deliveries.
pub(crate) const AT_ONCE: usize = 16;

/// Checks and sends webhooks.
#[derive(Debug)]
pub(crate) struct Webhooks {
    policy: AddressPolicy,
    retry: Duration,
    agent: ureq::Agent,
}

impl Webhooks {
    pub(crate) fn new(config: &Config) -> Self {
        let policy = policy(config.webhook_allow.clone(), config.settings.network_deny.clone());
        let agent = webhook_agent(policy.clone(), PATIENCE, concat!("sandbox-server/", env!("CARGO_PKG_VERSION")));
        Self { policy, retry: config.webhook_retry, agent }
    }

    /// Checks the webhook of a request. A name is resolved, and its addresses are checked, when the webhook is sent.
    pub(crate) fn check(&self, webhook: JsonWebhook) -> Result<Webhook, Problem> {
        let wrong = |why: &str| Problem::new(Code::InvalidRequest, format!("webhook: {why}")).at("webhook");
        let JsonWebhook { url, secret } = webhook;
        if !(16..=256).contains(&secret.len()) || secret_bytes(&secret).is_none() {
            return Err(wrong("secret: expected 16 to 256 characters, or whsec_ and base64"));
        }
        let (host, port) = target(&url).map_err(|why| wrong(&format!("url: {why}")))?;
        let checked = match &host {
            HostName::Address(_) => self.policy.addresses(&host, port).map(drop),
            HostName::Name(_) => self.policy.allows(&host, port),
        };
        checked.map_err(|why| wrong(&format!("url: {why}{}", advice(&why, &host, port))))?;
        if url.len() > 2000 {
            return Err(wrong("url: is longer than 2000 characters"));
        }
        Ok(Webhook::new(url, secret))
    }

    /// Attempts a delivery. Blocks.
    fn send(&self, job: &Job, webhook: &Webhook) -> Result<(), String> {
        let shown = shown(job.clone());
        let body = json!({ "type": "job.ended", "timestamp": shown.finished_at, "data": shown }).to_string();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string();
        let id = job.id.to_string();
        let signature = sign(&webhook.secret, &id, &seconds, &body).ok_or("invalid secret")?;
        let answer = self
            .agent
            .post(&webhook.url)
            .header("content-type", "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", &seconds)
            .header("webhook-signature", &signature)
            .send(&body)
            .map_err(|error| {
                let why = error.to_string();
                let advice = target(&webhook.url).map(|(host, port)| advice(&why, &host, port)).unwrap_or_default();
                format!("{why}{advice}")
            })?;
        if answer.status().is_success() { Ok(()) } else { Err(format!("the response was {}", answer.status())) }
    }

    /// The state of a webhook after an attempt, and the time until the next one.
    fn conclude(&self, webhook: &Webhook, sent: Result<(), String>) -> (Webhook, Option<Duration>) {
        let attempts = webhook.attempts + 1;
        let (status, again) = match &sent {
            Ok(()) => (Delivery::Delivered, None),
            Err(_) if attempts >= ATTEMPTS => (Delivery::Failed, None),
            Err(_) => (Delivery::Pending, Some(self.retry * 4_u32.pow(attempts - 1))),
        };
        (Webhook { status, attempts, error: sent.err(), ..webhook.clone() }, again)
    }
}

/// Any public address, at any port, and the operator's exceptions.
fn policy(private: Vec<HostRule>, deny: DenyList) -> AddressPolicy {
    AddressPolicy { private, deny, ..AddressPolicy::default() }
}

/// How the operator can allow a host, if that is what a failure is about.
fn advice(why: &str, host: &HostName, port: u16) -> String {
    let reasons = ["its address is not public", "cannot be resolved to a public address"];
    if !reasons.iter().any(|reason| why.contains(reason)) {
        return String::new();
    }
    let host = match host {
        HostName::Address(IpAddr::V6(address)) => format!("[{address}]"),
        host => host.to_string(),
    };
    format!("; the operator can allow it with SANDBOX_WEBHOOK_ALLOW={host}:{port}")
}

/// The host and port of a webhook. The client reads the URL as a [`Uri`], so that is what has to be checked.
fn target(url: &str) -> Result<(HostName, u16), &'static str> {
    let uri = url.parse::<Uri>().map_err(|_| "is not a URL")?.to_string();
    let url = WebAddress::parse(&uri).map_err(|error| match error {
        WebAddressError::Scheme => "must begin with https:// or http://",
        WebAddressError::Host => "has no valid host",
    })?;
    if url.user_info.is_some() {
        return Err("must not have a user or a password");
    }
    Ok((url.host, url.port))
}

fn secret_bytes(secret: &str) -> Option<Vec<u8>> {
    match secret.strip_prefix("whsec_") {
        Some(encoded) => STANDARD.decode(encoded).ok(),
        None => Some(secret.as_bytes().to_vec()),
    }
}

/// The signature of a message: `v1,` and base64.
fn sign(secret: &str, id: &str, seconds: &str, body: &str) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret_bytes(secret)?).ok()?;
    mac.update(format!("{id}.{seconds}.{body}").as_bytes());
    Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

/// The current deliveries of each owner. An owner may start another one only while more are free than it has, so that slow
/// receivers of one owner leave some for the next.
#[derive(Debug, Default)]
struct Deliveries {
    counts: Mutex<HashMap<Owner, usize>>,
    ended: Notify,
}

/// A current delivery.
struct Delivering {
    deliveries: Arc<Deliveries>,
    owner: Owner,
}

impl Deliveries {
    fn counts(&self) -> MutexGuard<'_, HashMap<Owner, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owners that may not start another delivery; none at all if every delivery is taken.
    fn full(&self) -> Option<Vec<Owner>> {
        let counts = self.counts();
        let free = AT_ONCE.saturating_sub(counts.values().sum());
        (free > 0).then(|| counts.iter().filter(|(_, held)| **held >= free).map(|(owner, _)| owner.clone()).collect())
    }

    fn begin(self: &Arc<Self>, owner: Owner) -> Delivering {
        *self.counts().entry(owner.clone()).or_default() += 1;
        Delivering { deliveries: Arc::clone(self), owner }
    }
}

impl Drop for Delivering {
    fn drop(&mut self) {
        let mut counts = self.deliveries.counts();
        if let Some(held) = counts.get_mut(&self.owner) {
            *held = held.saturating_sub(1);
        }
        counts.retain(|_, held| *held > 0);
        self.deliveries.ended.notify_one();
    }
}

/// Delivers webhooks until the server closes.
pub(crate) async fn deliver(app: Arc<App>) {
    let deliveries = Arc::new(Deliveries::default());
    while !app.closing.load(Ordering::Relaxed) {
        let Some(full) = deliveries.full() else {
            deliveries.ended.notified().await;
            continue;
        };
        let due = match app.jobs.take_delivery(3 * PATIENCE, full).await {
            Ok(Some(job)) => job,
            Ok(None) => {
                tokio::select! {
                    () = app.jobs.delivery_due(Duration::from_millis(250)) => {}
                    () = deliveries.ended.notified() => {}
                }
                continue;
            }
            Err(error) => {
                tracing::error!(%error, "cannot read the due webhooks");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let (app, delivering) = (Arc::clone(&app), deliveries.begin(due.owner.clone()));
        tokio::spawn(async move {
            let Some(webhook) = due.webhook.clone() else { return };
            let (id, sender) = (due.id, Arc::clone(&app));
            let sending = tokio::task::spawn_blocking(move || {
                let sent = sender.webhooks.send(&due, &webhook);
                sender.webhooks.conclude(&webhook, sent)
            });
            let Ok((webhook, again)) = sending.await else { return };
            tracing::info!(%id, attempts = webhook.attempts, error = webhook.error, "webhook");
            if let Err(error) = app.jobs.note_delivery(id, webhook, again).await {
                tracing::error!(%error, %id, "cannot store the state of a webhook");
            }
            drop(delivering);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_the_specification() {
        // The example in its documents.
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let signature = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", r#"{"test": 2432232314}"#);
        assert_eq!(signature.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    #[test]
    fn a_plain_secret_is_the_same_as_its_base64_in_a_library() {
        let plain = "at least 16 characters";
        let encoded = format!("whsec_{}", STANDARD.encode(plain));
        assert_eq!(sign(plain, "id", "1", "{}"), sign(&encoded, "id", "1", "{}"));
    }

    #[test]
    fn advice_is_given_where_the_operator_can_help() {
        let name = |url: &str| target(url).expect("valid");
        let (host, port) = name("http://[::1]:9000/x");
        let why = format!("{host}: its address is not public");
        assert_eq!(advice(&why, &host, port), "; the operator can allow it with SANDBOX_WEBHOOK_ALLOW=[::1]:9000");
        let (host, port) = name("http://localhost:9000/x");
        let why = "localhost: cannot be resolved to a public address";
        assert_eq!(advice(why, &host, port), "; the operator can allow it with SANDBOX_WEBHOOK_ALLOW=localhost:9000");
        assert_eq!(advice("localhost:9000 is refused by the operator", &host, port), "");
    }

    #[test]
    fn no_owner_takes_all_deliveries() {
        let deliveries = Arc::new(Deliveries::default());
        let owner = |number: usize| Some(number.to_string());
        let mut going = vec![];
        let mut most = vec![];
        for number in 0..6 {
            let before = going.len();
            while deliveries.full().is_some_and(|full| !full.contains(&owner(number))) {
                going.push(deliveries.begin(owner(number)));
            }
            most.push(going.len() - before);
        }
        assert_eq!(most, [8, 4, 2, 1, 1, 0]);
        drop(going);
        assert_eq!(deliveries.full(), Some(vec![]));
    }

    #[test]
    fn only_web_urls_are_accepted() {
        assert!(
            target("https://example.com/x?y")
                .is_ok_and(|(host, port)| host.to_string() == "example.com" && port == 443)
        );
        assert!(target("http://example.com:8080/").is_ok_and(|(_, port)| port == 8080));
        for bad in ["ftp://example.com/", "/path", "https://u:p@example.com/", "http://0x7f000001/", "http://127.1/"] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }
}
