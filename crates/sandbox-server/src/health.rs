//! `sandbox-server --health`: asks a server that runs how it is, so that a health check needs no other program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// What the server at this address says about itself, or why it takes no work.
pub(crate) fn ask(listen: SocketAddr) -> Result<String, String> {
    // Who listens everywhere is reached here.
    let host = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let address = SocketAddr::new(host, listen.port());
    let agent = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(3))).proxy(None).build();
    let agent = ureq::Agent::new_with_config(agent);
    let get = |path: &str| {
        let answer = agent.get(format!("http://{address}/{path}")).call();
        answer.and_then(|mut answer| answer.body_mut().read_to_string()).map_err(|error| match error {
            ureq::Error::StatusCode(503) => "the server is shutting down".to_owned(),
            error => format!("the server at {address} does not answer: {error}"),
        })
    };
    get("readyz")?;
    get("health")
}
