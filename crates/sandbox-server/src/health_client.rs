//! `sandbox-server --health`: queries a running server, so that a health check needs no other program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The health of the server at this address, or why it is not ready.
pub(crate) fn ask(listen: SocketAddr) -> Result<String, String> {
    // A server that listens on all addresses is reached on loopback.
    let host = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let address = SocketAddr::new(host, listen.port());
    let agent = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(5))).proxy(None);
    let agent = ureq::Agent::new_with_config(agent.http_status_as_error(false).build());
    let get = |path: &str| {
        let answer = agent.get(format!("http://{address}/{path}")).call();
        let read = answer.and_then(|mut answer| Ok((answer.status(), answer.body_mut().read_to_string()?)));
        match read {
            Ok((status, text)) if status.is_success() => Ok(text),
            Ok((status, text)) => {
                Err(format!("the server is not ready ({status}): {}", text.trim().replace('\n', "; ")))
            }
            Err(error) => Err(format!("cannot query the server at {address}: {error}")),
        }
    };
    get("readyz")?;
    get("health")
}
