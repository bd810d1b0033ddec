//! Keeping web pages out: without keys, a browser on the same machine must not be a way in for a page on another origin.
//!
//! `Host` defeats DNS rebinding, `Origin` and `Sec-Fetch-Site` defeat requests of other origins. A server with keys needs
//! neither, as no page knows a key and nothing here is sent by a browser on its own. CORS opens what the operator lists.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sandbox_base::units::shorten;
use tower_http::cors::{AllowOrigin, Any, CorsLayer};

use crate::problem::{Code, Problem};
use crate::state::App;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The time for which a browser may cache the answer to a preflight request.
const PREFLIGHT_AGE: Duration = Duration::from_secs(600);

/// The address at which a connection arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalAddress(pub(crate) IpAddr);

/// A host as a client names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Address(IpAddr),
    /// In lower case, without a final dot.
    Name(String),
}

impl Host {
    /// Reads the host of an authority. Only canonical IP addresses count as addresses: browsers send no others.
    fn of(authority: &Authority) -> Option<Self> {
        if authority.as_str().contains('@') {
            return None;
        }
        let host = authority.host();
        if let Some(address) = host.strip_prefix('[') {
            return address.strip_suffix(']')?.parse().ok().map(|ip: IpAddr| Self::Address(ip.to_canonical()));
        }
        if let Ok(address) = host.parse::<IpAddr>() {
            return Some(Self::Address(address));
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let fits = !name.is_empty() && name.len() <= 253 && !name.starts_with('.') && !name.ends_with('.');
        fits.then_some(Self::Name(name))
    }
}

/// Hosts that a setting allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AllowedHost {
    Any,
    Is(Host),
}

impl AllowedHost {
    /// Reads a host name, an IP address, or `*`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let wrong = || format!("invalid host '{text}': expected a host name or an IP address without a port, or *");
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Is(Host::Address(address.to_canonical())));
        }
        let authority = Authority::from_str(text).map_err(|_| wrong())?;
        let host = Host::of(&authority).filter(|_| authority.port().is_none() && !text.contains('*'));
        host.map(Self::Is).ok_or_else(wrong)
    }
}

/// The origin of a page, as browsers write it in `Origin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    scheme: String,
    host: Host,
    port: u16,
}

impl Origin {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let standard = standard_port(&scheme)?;
        let authority = Authority::from_str(authority).ok()?;
        let port = port_of(&authority, standard)?;
        Some(Self { host: Host::of(&authority)?, port, scheme })
    }

    /// Whether a page of this origin that asks for this authority asks its own server. The scheme is not compared: behind
    /// a proxy that ends TLS, the page has come by https and the request arrives by http.
    fn is_at(&self, authority: &Authority) -> bool {
        let port = standard_port(&self.scheme).and_then(|standard| port_of(authority, standard));
        Host::of(authority).as_ref() == Some(&self.host) && port == Some(self.port)
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://", self.scheme)?;
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            Host::Address(address) => write!(f, "{address}")?,
            Host::Name(name) => f.write_str(name)?,
        }
        if standard_port(&self.scheme) == Some(self.port) { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

fn standard_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

/// The port of an authority; none if what stands there is no port.
fn port_of(authority: &Authority, standard: u16) -> Option<u16> {
    let text = authority.as_str();
    let behind_host = text.rsplit_once(']').map_or(text, |(_, rest)| rest);
    if behind_host.contains(':') { authority.port_u16() } else { Some(standard) }
}

/// Origins whose pages may use the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cors {
    any: bool,
    /// Each origin as browsers write it, and parsed.
    origins: Vec<(HeaderValue, Origin)>,
}

impl Cors {
    /// Adds an origin, or `*`.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), String> {
        if text == "*" {
            self.any = true;
            return Ok(());
        }
        let wrong = || format!("invalid origin '{text}': expected one such as https://app.example.com");
        let origin = Origin::parse(text).filter(|_| !text.contains('*')).ok_or_else(wrong)?;
        self.origins.push((HeaderValue::from_str(&origin.to_string()).map_err(|_| wrong())?, origin));
        Ok(())
    }

    /// Whether pages of every origin are let in.
    pub(crate) fn is_any(&self) -> bool {
        self.any
    }

    fn allows(&self, origin: &Origin) -> bool {
        self.any || self.origins.iter().any(|(_, known)| known == origin)
    }

    /// What answers preflight requests and adds the headers of CORS; nothing unless an origin is allowed.
    pub(crate) fn layer(&self) -> Option<CorsLayer> {
        let origins = if self.any {
            AllowOrigin::from(Any)
        } else if self.origins.is_empty() {
            return None;
        } else {
            AllowOrigin::list(self.origins.iter().map(|(text, _)| text.clone()))
        };
        let x = HeaderName::from_static;
        let sent = [header::ACCEPT, header::AUTHORIZATION, header::CONTENT_TYPE, x("idempotency-key")];
        let sent = sent.into_iter().chain([x("last-event-id"), x("x-api-key"), x("x-request-id")]);
        Some(
            CorsLayer::new()
                .allow_origin(origins)
                .allow_methods([Method::GET, Method::POST, Method::DELETE])
                .allow_headers(sent.collect::<Vec<_>>())
                .expose_headers([header::LOCATION, header::RETRY_AFTER, x("x-request-id")])
                .allow_private_network(true)
                .max_age(PREFLIGHT_AGE),
        )
    }
}

/// Which requests are let in where no key is needed.
#[derive(Debug)]
pub(crate) struct Guard {
    hosts: Vec<AllowedHost>,
    /// The name of this machine.
    machine: Option<String>,
    cors: Cors,
}

impl Guard {
    pub(crate) fn new(hosts: Vec<AllowedHost>, cors: Cors) -> Self {
        let machine = rustix::system::uname().nodename().to_str().map(str::to_ascii_lowercase).ok();
        Self { hosts, machine: machine.filter(|name| !name.is_empty()), cors }
    }

    /// Whether every `Host` is accepted, so that DNS rebinding works.
    pub(crate) fn takes_any_host(&self) -> bool {
        self.hosts.contains(&AllowedHost::Any)
    }

    fn knows(&self, host: &Host, local_address: Option<IpAddr>) -> bool {
        let is_own = match host {
            Host::Address(address) => {
                address.is_loopback()
                    || local_address.is_some_and(|local_address| local_address.to_canonical() == *address)
            }
            Host::Name(name) => name == "localhost" || self.machine.as_ref() == Some(name),
        };
        is_own
            || self.hosts.iter().any(|allowed| match allowed {
                AllowedHost::Any => true,
                AllowedHost::Is(known) => known == host,
            })
    }

    /// Checks which host a request is addressed to. Returns the authority that counts, if the request has one.
    fn check_host(
        &self,
        uri: &Uri,
        version: Version,
        headers: &HeaderMap,
        local_address: Option<IpAddr>,
    ) -> Result<Option<Authority>, Problem> {
        let mut named = headers.get_all(header::HOST).iter();
        let host = named.next();
        if named.next().is_some() {
            return Err(Problem::new(Code::InvalidHost, "send exactly one Host header"));
        }
        let unknown = |given: &str| {
            let detail = format!(
                "the host '{}' is not allowed; add it to SANDBOX_ALLOWED_HOSTS, or set SANDBOX_API_KEYS",
                shorten(given)
            );
            Problem::new(Code::ForbiddenHost, detail)
        };
        let host = host.map(|host| {
            let text = String::from_utf8_lossy(host.as_bytes());
            Authority::from_str(text.trim()).map_err(|_| unknown(&text))
        });
        // The target's authority counts if there is one (HTTP/2, absolute form), but both have to be right.
        let authorities = [uri.authority().cloned(), host.transpose()?];
        for authority in authorities.iter().flatten() {
            let known = Host::of(authority).is_some_and(|host| self.knows(&host, local_address));
            if !known || port_of(authority, 0).is_none() {
                return Err(unknown(authority.as_str()));
            }
        }
        let authority = authorities.into_iter().flatten().next();
        // Browsers always name a host, so that a request of HTTP/1.0 without one comes from none.
        if authority.is_none() && version > Version::HTTP_10 {
            return Err(Problem::new(Code::InvalidHost, "send a Host header"));
        }
        Ok(authority)
    }

    /// Checks that a request does not come from a page of another origin.
    fn check_origin(&self, request: &Request, authority: Option<&Authority>) -> Result<(), Problem> {
        let headers = request.headers();
        let refuse = |from: &str| {
            let detail = format!(
                "the origin {} is not allowed; add it to SANDBOX_CORS_ORIGINS, or set SANDBOX_API_KEYS",
                shorten(from)
            );
            Problem::new(Code::ForbiddenOrigin, detail)
        };
        let mut origins = headers.get_all(header::ORIGIN).iter();
        if let Some(origin) = origins.next() {
            let text = String::from_utf8_lossy(origin.as_bytes());
            let read = Origin::parse(text.trim()).filter(|_| origins.next().is_none());
            let may = |origin: &Origin| {
                self.cors.allows(origin) || authority.is_some_and(|authority| origin.is_at(authority))
            };
            return if read.as_ref().is_some_and(may) { Ok(()) } else { Err(refuse(&text)) };
        }
        let word = |name: &HeaderName| headers.get(name).map(HeaderValue::as_bytes);
        match word(&SEC_FETCH_SITE) {
            None | Some(b"none" | b"same-origin") => Ok(()),
            // A link on another page may lead to the page for people, which is the same for all.
            Some(_)
                if ["/", "/docs"].contains(&request.uri().path())
                    && word(&SEC_FETCH_MODE) == Some(b"navigate")
                    && word(&SEC_FETCH_DEST) == Some(b"document") =>
            {
                Ok(())
            }
            Some(_) => Err(refuse("another origin")),
        }
    }

    fn check(&self, request: &Request) -> Result<(), Problem> {
        let local_address = request.extensions().get::<LocalAddress>().map(|local_address| local_address.0);
        let authority = self.check_host(request.uri(), request.version(), request.headers(), local_address)?;
        self.check_origin(request, authority.as_ref())
    }
}

/// Refuses what a page of another origin could have sent, where no key is needed.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if app.keys().is_open()
        && let Err(problem) = app.guard.check(&request)
    {
        return problem.into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn guard_with(hosts: &[&str], origins: &[&str]) -> Guard {
        let mut cors = Cors::default();
        for origin in origins {
            cors.add(origin).expect("valid");
        }
        let hosts = hosts.iter().map(|host| AllowedHost::parse(host).expect("valid")).collect();
        Guard { hosts, machine: Some("box".to_owned()), cors }
    }

    fn request(target: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).expect("request");
        request.extensions_mut().insert(LocalAddress([192, 0, 2, 7].into()));
        request
    }

    fn passes(guard: &Guard, target: &str, headers: &[(&str, &str)]) -> bool {
        guard.check(&request(target, headers)).is_ok()
    }

    #[test]
    fn only_names_of_this_server_are_accepted() {
        let guard = guard_with(&["sandbox.example.com", "2001:db8::1", "198.51.100.4"], &[]);
        for host in [
            "localhost",
            "LocalHost:8080",
            "localhost.",
            "127.0.0.1:80",
            "127.9.9.9",
            "[::1]:8080",
            "[::ffff:127.0.0.1]",
            "192.0.2.7:8080",
            "box",
            "BOX.:1",
            "sandbox.example.com",
            "[2001:db8:0::1]",
            "198.51.100.4",
        ] {
            assert!(passes(&guard, "/health", &[("host", host)]), "{host}");
        }
        for host in [
            "evil.test",
            "evil.test:8080",
            "localhost.evil.test",
            "evil.localhost",
            "localhost..",
            "127.0.0.1.evil.test",
            "127.1",
            "0x7f000001",
            "2130706433",
            "0.0.0.0",
            "192.0.2.8",
            "[::2]",
            "[::1",
            "::1",
            "user@localhost",
            "localhost@evil.test",
            "localhost:x",
            "localhost:99999",
            "localhost:",
            "",
            " ",
            "localhost/x",
            "localhost, evil.test",
            "sub.sandbox.example.com",
        ] {
            assert!(!passes(&guard, "/health", &[("host", host)]), "{host}");
        }
        assert!(passes(&guard_with(&["*"], &[]), "/health", &[("host", "evil.test")]));
    }

    #[test]
    fn every_way_to_name_a_host_counts() {
        let guard = guard_with(&[], &[]);
        assert!(passes(&guard, "http://localhost:8080/health", &[]));
        assert!(!passes(&guard, "http://evil.test/health", &[("host", "localhost")]));
        assert!(!passes(&guard, "http://localhost/health", &[("host", "evil.test")]));
        assert!(!passes(&guard, "/health", &[("host", "localhost"), ("host", "localhost")]));
        assert!(!passes(&guard, "/health", &[]), "HTTP/1.1 needs a host");
        let mut old = request("/health", &[]);
        *old.version_mut() = Version::HTTP_10;
        assert!(guard.check(&old).is_ok(), "no browser speaks HTTP/1.0");
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let guard = guard_with(&["proxy.example.com"], &["https://app.example.com", "http://localhost:3000"]);
        let from = |origin: &str| passes(&guard, "/execute", &[("host", "localhost:8080"), ("origin", origin)]);
        for origin in
            ["http://localhost:8080", "HTTP://LOCALHOST:8080", "https://app.example.com", "http://localhost:3000"]
        {
            assert!(from(origin), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://localhost",
            "http://localhost:8081",
            "http://127.0.0.1:8080",
            "https://evil.test",
            "http://app.example.com",
            "https://app.example.com.evil.test",
            "https://app.example.com:444",
            "file://",
            "chrome-extension://localhost:8080",
            "localhost:8080",
        ] {
            assert!(!from(origin), "{origin}");
        }
        let local = ("origin", "http://localhost:8080");
        assert!(!passes(&guard, "/execute", &[("host", "localhost:8080"), local, local]), "two origins");
        // The port that a scheme implies need not be written; a proxy may end TLS.
        assert!(passes(&guard, "/", &[("host", "localhost"), ("origin", "http://localhost:80")]));
        assert!(passes(&guard, "/", &[("host", "proxy.example.com"), ("origin", "https://proxy.example.com")]));
        assert!(!passes(&guard, "/", &[("host", "proxy.example.com:80"), ("origin", "https://proxy.example.com")]));
    }

    #[test]
    fn fetch_metadata_is_checked_if_origin_is_missing() {
        let guard = guard_with(&[], &[]);
        let site = |path: &str, site: &str, mode: &str, dest: &str| {
            let headers =
                [("host", "localhost"), ("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            passes(&guard, path, &headers)
        };
        assert!(site("/health", "none", "navigate", "document"), "typed into the address bar");
        assert!(site("/health", "same-origin", "cors", "empty"));
        assert!(site("/docs", "cross-site", "navigate", "document"), "a link");
        for (path, where_from, mode, dest) in [
            ("/health", "cross-site", "no-cors", "script"),
            ("/health", "same-site", "no-cors", "image"),
            ("/health", "cross-site", "navigate", "document"),
            ("/docs", "cross-site", "navigate", "iframe"),
            ("/docs", "cross-site", "no-cors", "empty"),
            ("/health", "anything", "", ""),
        ] {
            assert!(!site(path, where_from, mode, dest), "{path} {where_from} {mode} {dest}");
        }
    }

    #[test]
    fn settings_that_are_no_hosts_or_origins_are_refused() {
        for bad in ["", "a b", "http://a", "a:80", "a/b", "*.example.com", "u@a", "[::1"] {
            assert!(AllowedHost::parse(bad).is_err(), "{bad}");
        }
        for bad in
            ["", "null", "example.com", "https://", "https://a/", "https://a/b", "ftp://a", "https://a:x", "https://*"]
        {
            assert!(Cors::default().add(bad).is_err(), "{bad}");
        }
        let mut cors = Cors::default();
        for origin in ["HTTPS://App.example.com:443", "http://[::1]:3000"] {
            cors.add(origin).expect("valid");
        }
        let written: Vec<&HeaderValue> = cors.origins.iter().map(|(text, _)| text).collect();
        assert_eq!(written, ["https://app.example.com", "http://[::1]:3000"], "as browsers write them");
    }
}
