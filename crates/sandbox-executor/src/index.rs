//! Package indexes whose addresses have credentials in them, which must not enter a cell.
//!
//! Every package may run code while it is installed, and that code sees what the installer sees. So an installer is given
//! another address for such an index, `http://index-1.sandbox.internal/…`, which only the cell's gateway knows. The gateway
//! fetches what is asked for there from the real index, with the credentials, over TLS if the index has it
//! (`gateway/fetch.rs`).

use std::ffi::OsString;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandbox_runtimes::Environment;

use crate::reach::{HostName, host_and_port};

/// What ends an address in a list of them.
const BETWEEN: [char; 8] = [',', '|', ' ', '\t', '\n', ';', '"', '\''];

/// An index with credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Index {
    /// The name by which installers know it.
    alias: String,
    scheme: &'static str,
    pub(crate) host: HostName,
    pub(crate) port: u16,
    /// Where everything of it is: a path that begins and ends with a slash.
    prefix: String,
    user: String,
    /// The value of the header that opens it.
    pub(crate) authorization: String,
}

/// What is written about it has no secret in it.
impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("alias", &self.alias).field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Index {
    /// Whether a host is the name by which installers know it.
    pub(crate) fn is_named(&self, host: &HostName) -> bool {
        matches!(host, HostName::Name(name) if *name == self.alias)
    }

    /// Where it really is, without credentials.
    fn address(&self) -> String {
        format!("{}{}", self.origin(), self.prefix)
    }

    /// What tells it from others, for the key of what was installed from it. A new password does not change that.
    pub(crate) fn identity(&self) -> String {
        format!("{} {}", self.user, self.address())
    }

    /// Its scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        origin(self.scheme, &self.host, self.port)
    }

    /// Whether a path belongs to it. Its credentials may open more at the same host than packages.
    pub(crate) fn admits(&self, path: &str) -> bool {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let Some(decoded) = percent_decode(path) else { return false };
        // What a server decodes twice could mean something else in the end.
        let plain = !decoded.contains(|c: char| c.is_control() || c == '%' || c == '\\');
        let climbs = decoded.split('/').any(|part| part == "." || part == "..");
        plain && !climbs && (decoded.starts_with(&self.prefix) || format!("{decoded}/") == self.prefix)
    }

    /// A link to it as installers have to see it; none if it leads elsewhere.
    pub(crate) fn translate(&self, link: &str) -> Option<String> {
        let patterns = self.patterns();
        patterns.iter().find_map(|(real, seen)| Some(format!("{seen}{}", link.strip_prefix(real.as_str())?)))
    }

    /// How links to it begin in what it answers, and how installers have to see them: with both schemes, because a server
    /// behind a proxy may not know its own, with the usual port and without, and as JSON may write them.
    pub(crate) fn patterns(&self) -> Vec<(String, String)> {
        let mut patterns = vec![];
        let seen = format!("http://{}{}", self.alias, self.prefix);
        for (scheme, usual) in [("https", 443), ("http", 80)] {
            let port = if self.is_at_usual_port() { usual } else { self.port };
            let named = format!("{scheme}://{}:{port}", in_url(&self.host));
            for origin in [origin(scheme, &self.host, port), named] {
                let real = format!("{origin}{}", self.prefix);
                patterns.push((real.replace('/', "\\/"), seen.replace('/', "\\/")));
                patterns.push((real, seen.clone()));
            }
        }
        patterns
    }

    fn is_at_usual_port(&self) -> bool {
        self.port == if self.scheme == "https" { 443 } else { 80 }
    }
}

fn in_url(host: &HostName) -> String {
    match host {
        HostName::Address(address) if address.is_ipv6() => format!("[{address}]"),
        host => host.to_string(),
    }
}

fn origin(scheme: &str, host: &HostName, port: u16) -> String {
    let usual = if scheme == "https" { 443 } else { 80 };
    let host = in_url(host);
    if port == usual { format!("{scheme}://{host}") } else { format!("{scheme}://{host}:{port}") }
}

/// Takes the credentials out of the addresses in some of an installer's variables. Returns the indexes that have them.
/// Fails, without a word of the value, if it is not clear what of it is a secret.
pub(crate) fn hide(environment: &mut Environment, names: &[String]) -> Result<Vec<Index>, String> {
    let mut indexes = vec![];
    for (name, value) in environment.iter_mut().filter(|(name, _)| names.iter().any(|known| name == known.as_str())) {
        let unclear = || {
            format!(
                "{}: cannot tell the credentials in the address apart; write special characters in them as %XX",
                name.to_string_lossy()
            )
        };
        let Some(text) = value.to_str() else {
            if value.as_encoded_bytes().contains(&b'@') {
                return Err(unclear());
            }
            continue;
        };
        let hidden = hide_in(text, &mut indexes).ok_or_else(unclear)?;
        *value = OsString::from(hidden);
    }
    Ok(indexes)
}

/// The same for one value.
fn hide_in(text: &str, indexes: &mut Vec<Index>) -> Option<String> {
    let (mut hidden, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("://") {
        let (before, after) = (&rest[..at], &rest[at + 3..]);
        let end = after.find(BETWEEN).unwrap_or(after.len());
        let (address, next) = after.split_at(end);
        let scheme = before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let lead = &before[..before.len() - scheme.len()];
        if lead.contains('@') {
            return None;
        }
        hidden.push_str(lead);
        match read(scheme, address, text.contains('@'))? {
            Some(index) => hidden.push_str(&place(index, address, indexes)),
            None => hidden.push_str(&format!("{scheme}://{address}")),
        }
        rest = next;
    }
    // An at sign that belongs to no address may belong to a secret with a comma in it.
    if rest.contains('@') {
        return None;
    }
    hidden.push_str(rest);
    Some(hidden)
}

/// The address that an installer gets for an index.
fn place(mut index: Index, address: &str, indexes: &mut Vec<Index>) -> String {
    let known = indexes.iter().find(|known| Index { alias: known.alias.clone(), ..index.clone() } == **known);
    let alias =
        known.map_or_else(|| format!("index-{}.sandbox.internal", indexes.len() + 1), |known| known.alias.clone());
    if known.is_none() {
        index.alias.clone_from(&alias);
        indexes.push(index);
    }
    let path = &address[address.find(['/', '?', '#']).unwrap_or(address.len())..];
    format!("http://{alias}{path}")
}

/// Reads what follows a scheme: nothing if there are no credentials in it; fails if that is not clear.
#[expect(clippy::option_option, reason = "there may be nothing to read, and there may be no way to")]
fn read(scheme: &str, address: &str, doubtful: bool) -> Option<Option<Index>> {
    let end = address.find(['/', '?', '#']).unwrap_or(address.len());
    let (authority, path) = address.split_at(end);
    let (user_info, host) = authority.rsplit_once('@').map_or((None, authority), |(info, host)| (Some(info), host));
    let (scheme, usual) = match scheme.to_ascii_lowercase().as_str() {
        "https" => ("https", 443),
        "http" => ("http", 80),
        _ if doubtful => return None,
        _ => return Some(None),
    };
    let found = host_and_port(host, Some(usual));
    let Some(user_info) = user_info.filter(|info| !info.is_empty()) else {
        return if found.is_none() && doubtful { None } else { Some(None) };
    };
    let ((host, port), path) = (found?, path.split(['?', '#']).next()?);
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let (user, password) = (percent_decode(user)?, percent_decode(password)?);
    let authorization = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    let (alias, prefix) = (String::new(), prefix(path));
    Some(Some(Index { alias, scheme, host, port, prefix, user, authorization }))
}

/// Where all of an index is, by the path of its address. Python's list their packages at `simple`, and have the packages
/// beside it.
fn prefix(path: &str) -> String {
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix("/simple").or_else(|| path.strip_suffix("/+simple")).unwrap_or(path);
    format!("{path}/")
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok().filter(|digits| !digits.starts_with('+'))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(text: &str) -> Option<(String, Vec<Index>)> {
        let mut indexes = vec![];
        hide_in(text, &mut indexes).map(|text| (text, indexes))
    }

    #[test]
    fn addresses_without_credentials_stay_as_they_are() {
        for text in [
            "https://index.example/simple/",
            "https://proxy.example,https://other.example|direct",
            "off",
            "sum.golang.org https://sums.example/x",
            "https://registry.example/@scope/",
            "file:///srv/wheels",
        ] {
            assert_eq!(hidden(text), Some((text.to_owned(), vec![])), "{text}");
        }
    }

    #[test]
    fn credentials_are_taken_out_of_addresses() {
        let (text, indexes) = hidden("https://user:p%40ss@index.example/pypi/simple/").expect("clear");
        assert_eq!(text, "http://index-1.sandbox.internal/pypi/simple/");
        let index = &indexes[0];
        assert_eq!((index.origin().as_str(), index.prefix.as_str()), ("https://index.example", "/pypi/"));
        assert_eq!(index.authorization, format!("Basic {}", STANDARD.encode("user:p@ss")));
        let shown = format!("{index:?} {}", index.identity());
        assert!(!shown.contains("p@ss") && !shown.contains(&index.authorization), "{shown}");
        let list = "corp=https://TOKEN@a.example:8443/simple https://b.example/ http://u:p@[::1]:80,https://TOKEN@a.example:8443/simple";
        let (text, indexes) = hidden(list).expect("clear");
        assert_eq!(
            text,
            "corp=http://index-1.sandbox.internal/simple https://b.example/ http://index-2.sandbox.internal,http://index-1.sandbox.internal/simple"
        );
        assert_eq!(
            (indexes[0].origin().as_str(), indexes[1].origin().as_str()),
            ("https://a.example:8443", "http://[::1]")
        );
        assert_eq!(indexes[0].authorization, format!("Basic {}", STANDARD.encode("TOKEN:")));
    }

    #[test]
    fn what_is_not_clear_is_refused() {
        for text in [
            "https://user:pa/ss@index.example/simple",
            "https://user:12,34@index.example/simple",
            "https://user:pa ss@index.example/simple",
            "https://user:%zz@index.example/",
            "https://user:secret@",
            "https://user:secret@in%dex/",
            "ftp://user:secret@index.example/",
            "git+ssh://user:secret@index.example/",
            "user:secret@index.example",
            "x@y,https://index.example",
        ] {
            assert_eq!(hidden(text), None, "{text}");
        }
        let mut environment = vec![("INDEX".into(), "https://user:pa/ss@index.example/simple".into())];
        let error = hide(&mut environment, &["INDEX".to_owned()]).expect_err("refused");
        assert!(error.starts_with("INDEX: ") && !error.contains("ss@"), "{error}");
    }

    #[test]
    fn credentials_open_the_index_and_nothing_else() {
        let (_, indexes) = hidden("https://u:p@host.example/repository/pypi/simple/").expect("clear");
        let admits = |path: &str| indexes[0].admits(path);
        assert!(admits("/repository/pypi/simple/six/") && admits("/repository/pypi/packages/six-1.whl?x=y"));
        assert!(admits("/repository/pypi/@scope%2fname") && admits("/repository/pypi"));
        for path in [
            "/",
            "/repository/",
            "/repository/pypi2/",
            "/repository/pypi/../secret/",
            "/repository/pypi/%2e%2e/secret",
            "/repository/pypi/..%2fsecret",
            "/repository/pypi/%252e%252e/secret",
            "/repository/pypi/..\\secret",
            "/repository/pypi/%0d%0aX:y",
            "/repository/pypi/%zz",
            "//repository/pypi/",
        ] {
            assert!(!admits(path), "{path}");
        }
    }

    #[test]
    fn links_lead_back_to_the_gateway() {
        let (_, indexes) = hidden("https://u:p@host.example/pypi/simple/").expect("clear");
        let translated = |link: &str| indexes[0].translate(link);
        let seen = Some("http://index-1.sandbox.internal/pypi/files/x.whl#sha256=0".to_owned());
        for origin in
            ["https://host.example", "https://host.example:443", "http://host.example", "http://host.example:80"]
        {
            assert_eq!(translated(&format!("{origin}/pypi/files/x.whl#sha256=0")), seen);
        }
        for link in [
            "https://host.example/other/x",
            "https://host.example.evil.net/pypi/",
            "/pypi/x",
            "https://cdn.example/pypi/x",
        ] {
            assert_eq!(translated(link), None, "{link}");
        }
    }
}
