//! The one reader of `http://` and `https://` URLs, for the proxy, package indexes and webhooks.
//!
//! It is deliberately stricter than a browser: hosts are read by [`HostName`], and nothing is rewritten. The `url` crate
//! follows the rules of browsers, which turn `http:\\127.1` into `http://127.0.0.1/`; a server or client that reads the same
//! text by other rules would then connect to another host than the one that was checked.

use crate::host::{HostName, host_and_port};

/// A URL of the web.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebAddress<'a> {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The user and password in front of the host, as they are written.
    pub user_info: Option<&'a str>,
    /// The host.
    pub host: HostName,
    /// The port, which is the scheme's usual one if the URL has none.
    pub port: u16,
    /// Path, query and fragment.
    pub rest: &'a str,
}

/// Why a text is no URL of the web.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebAddressError {
    /// It does not begin with `http://` or `https://`.
    Scheme,
    /// It has no host, or one that cannot be read.
    Host,
}

impl<'a> WebAddress<'a> {
    /// Reads a URL.
    pub fn parse(text: &'a str) -> Result<Self, WebAddressError> {
        let (scheme, address) = text.split_once("://").ok_or(WebAddressError::Scheme)?;
        let (scheme, usual) = known_scheme(scheme).ok_or(WebAddressError::Scheme)?;
        let (user_info, host, rest) = split_authority(address);
        // RFC 3986 allows a colon without a port.
        let host = host.strip_suffix(':').unwrap_or(host);
        let (host, port) = host_and_port(host, Some(usual)).ok_or(WebAddressError::Host)?;
        Ok(Self { scheme, user_info, host, port, rest })
    }

    /// Path and query.
    #[must_use]
    pub fn path_and_query(&self) -> &'a str {
        self.rest.split('#').next().unwrap_or_default()
    }

    /// The path without query and fragment.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.rest.split(['?', '#']).next().unwrap_or_default()
    }
}

/// A scheme of the web and its usual port.
pub(crate) fn known_scheme(scheme: &str) -> Option<(&'static str, u16)> {
    let schemes = [("https", 443), ("http", 80)];
    schemes.into_iter().find(|(known, _)| scheme.eq_ignore_ascii_case(known))
}

/// Splits the part of a URL behind `://` into user info, host with port, and the rest.
pub(crate) fn split_authority(address: &str) -> (Option<&str>, &str, &str) {
    let end = address.find(['/', '?', '#']).unwrap_or(address.len());
    let (authority, rest) = address.split_at(end);
    let (user_info, host) = authority.rsplit_once('@').map_or((None, authority), |(info, host)| (Some(info), host));
    (user_info, host, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_into_their_parts() {
        let url = WebAddress::parse("HTTPS://user:secret@Index.example:8443/a?b#c").expect("valid");
        assert_eq!((url.scheme, url.user_info, url.port), ("https", Some("user:secret"), 8443));
        assert_eq!((url.host.to_string().as_str(), url.path_and_query(), url.path()), ("index.example", "/a?b", "/a"));
        let port = |text: &str| WebAddress::parse(text).map(|url| url.port);
        assert_eq!([port("http://a"), port("https://a?x"), port("http://[::1]:/")], [Ok(80), Ok(443), Ok(80)]);
    }

    #[test]
    fn other_schemes_are_refused() {
        for text in ["ftp://example.com/", "/path", "", "example.com", "https:/example.com"] {
            assert_eq!(WebAddress::parse(text), Err(WebAddressError::Scheme), "{text}");
        }
        for text in ["http://0x7f000001/", "http://127.1/", "https://", "http://a:0/", "http://a:x/"] {
            assert_eq!(WebAddress::parse(text), Err(WebAddressError::Host), "{text}");
        }
    }
}
