//! The HTTP client for requests that the product sends on behalf of others: webhooks, and package indexes with credentials.
//! It connects only to addresses that an address policy has checked, uses no proxy and follows no redirects.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ureq::config::AutoHeaderValue;
use ureq::http::Uri;
use ureq::tls::{PemItem, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Connector, DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

use crate::address_policy::AddressPolicy;
use crate::resolver::LookupDeadline;
use crate::stop::StopSignal;
use crate::web_address::WebAddress;

/// The certificate authorities of the host, unless `SSL_CERT_FILE` names others.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The longest time for looking a name up, if the client has no deadline.
const LONGEST_LOOK_UP: Duration = Duration::from_secs(15);

/// The certificate authorities that the host trusts, or those of browsers if the host has no list.
fn authorities() -> RootCerts {
    let file = std::env::var_os("SSL_CERT_FILE").unwrap_or_else(|| AUTHORITIES.into());
    let pem = std::fs::read(file).unwrap_or_default();
    let found: Vec<_> = ureq::tls::parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() { RootCerts::WebPki } else { RootCerts::Specific(Arc::new(found)) }
}

/// A client for webhooks: each request has its own connection and must be complete within `timeout`, including the
/// look-up of the name.
#[must_use]
pub fn webhook_agent(policy: AddressPolicy, timeout: Duration, user_agent: &str) -> Agent {
    let options = AgentOptions { timeout: Some(timeout), user_agent: user_agent.into(), max_idle_connections: 0 };
    agent(options, DefaultConnector::default(), PublicOnlyResolver { policy, stop: Arc::new(StopSignal::NEVER) })
}

/// The settings that differ between clients.
pub(crate) struct AgentOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) user_agent: AutoHeaderValue,
    pub(crate) max_idle_connections: usize,
}

/// A client that connects with this connector to the addresses that the resolver returns.
pub(crate) fn agent(options: AgentOptions, connector: impl Connector, resolver: PublicOnlyResolver) -> Agent {
    let config = Agent::config_builder()
        .timeout_global(options.timeout)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .proxy(None)
        .max_idle_connections(options.max_idle_connections)
        .user_agent(options.user_agent)
        .tls_config(TlsConfig::builder().root_certs(authorities()).build())
        .build();
    Agent::with_parts(config, connector, resolver)
}

/// Resolves names to addresses that the policy permits.
#[derive(Debug)]
pub(crate) struct PublicOnlyResolver {
    pub(crate) policy: AddressPolicy,
    /// Ends a look-up early.
    pub(crate) stop: Arc<StopSignal>,
}

impl Resolver for PublicOnlyResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let refused = |why: String| Error::Io(io::Error::new(io::ErrorKind::PermissionDenied, why));
        let text = uri.to_string();
        let url = WebAddress::parse(&text).map_err(|_| refused("no host".to_owned()))?;
        // The operator has named the indexes.
        if !self.policy.indexes.iter().any(|index| index.host == url.host && index.port == url.port) {
            self.policy.allows(&url.host, url.port).map_err(refused)?;
        }
        let until = Instant::now() + (*timeout.after).min(LONGEST_LOOK_UP);
        let deadline = LookupDeadline { until, stop: &self.stop };
        let mut addresses = self.empty();
        let found = self.policy.look_up(&url.host, Some(url.port), deadline).map_err(refused)?;
        // The array holds sixteen.
        for address in found.into_iter().take(8) {
            addresses.push((address, url.port).into());
        }
        Ok(addresses)
    }
}
