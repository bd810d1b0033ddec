//! Readers that fuzz targets call directly. Compiled only for them.

use std::net::IpAddr;

use crate::host::HostName;

/// A request to the proxy: host, port, and the head to forward.
#[must_use]
pub fn proxy_head(head: &[u8]) -> Option<(HostName, u16, Option<String>)> {
    crate::gateway::proxy_head(head)
}

/// Whether an address is public.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    crate::special_addresses::is_public(address)
}

/// The answer of a cell's resolver for a name with this address: the name that it read, and the message.
#[must_use]
pub fn dns_answer(message: &[u8], address: std::net::Ipv4Addr) -> Option<(String, Vec<u8>)> {
    crate::gateway::dns_answer(message, address)
}

/// The addresses that the stub resolver reads from a reply to a query for `www.example.com` with the number 0.
#[must_use]
pub fn dns_reply(message: &[u8], v6: bool) -> Option<Vec<IpAddr>> {
    crate::resolver::fuzz_reply(message, v6)
}
