//! What fuzz targets see of this crate and nobody else does. It is there only when they are built.

use std::net::IpAddr;
use std::path::Path;

use crate::reach::HostName;

/// A value as a literal of a language.
pub fn literal(value: &serde_json::Value, language: &str) -> Result<String, String> {
    crate::literal::literal(value, language)
}

/// What a client asks of the proxy: host, port, and the head to send on.
#[must_use]
pub fn proxy_head(head: &[u8]) -> Option<(HostName, u16, Option<String>)> {
    crate::gateway::head(head)
}

/// The hosts in a list of addresses, as rules in words.
#[must_use]
pub fn hosts_in(text: &str) -> Vec<crate::HostRule> {
    crate::gateway::hosts_in(text)
}

/// Whether an address is one that anybody on the Internet could have.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    crate::reach::is_public(address)
}

/// Checks a working directory.
pub fn check_workdir(path: &Path) -> Result<(), String> {
    crate::volumes::check_workdir(path)
}

/// What a cell's resolver answers if the name has this address: the name that it read, and the message.
#[must_use]
pub fn dns_answer(message: &[u8], address: std::net::Ipv4Addr) -> Option<(String, Vec<u8>)> {
    crate::gateway::dns_answer(message, address)
}
