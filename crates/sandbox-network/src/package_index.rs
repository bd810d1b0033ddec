//! Package indexes whose URLs contain credentials, which must not enter a cell.
//!
//! A package may run code while it is installed, and that code sees what the installer sees. The installer therefore gets an
//! alias for such an index, `http://index-1.sandbox.internal/…`, which only the cell's gateway knows. The gateway
//! (`gateway/fetch.rs`) fetches from the real index, with the credentials, over TLS if the URL has it.

use std::ffi::OsString;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandbox_base::percent_decode;

use crate::host::{HostName, HostRule};
use crate::web_address::{WebAddress, known_scheme, split_authority};

/// The characters that end a URL in a list.
const SEPARATORS: [char; 8] = [',', '|', ' ', '\t', '\n', ';', '"', '\''];

/// An index with credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct PackageIndex {
    /// The host name by which installers know it.
    alias: String,
    scheme: &'static str,
    pub(crate) host: HostName,
    pub(crate) port: u16,
    /// The path below which the index lies, with a slash at both ends.
    prefix: String,
    user: String,
    /// The value of the `Authorization` header.
    pub(crate) authorization: String,
}

/// Without the credentials.
impl fmt::Debug for PackageIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackageIndex")
            .field("alias", &self.alias)
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

impl PackageIndex {
    /// Whether a host is its alias.
    pub(crate) fn is_named(&self, host: &HostName) -> bool {
        matches!(host, HostName::Name(name) if *name == self.alias)
    }

    /// Its URL without credentials.
    fn address(&self) -> String {
        format!("{}{}", self.origin(), self.prefix)
    }

    /// Identifies it in the cache key of installed packages. A new password does not change it.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{} {}", self.user, self.address())
    }

    /// Its scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        origin(self.scheme, &self.host, self.port)
    }

    /// Whether a path belongs to it. The credentials may give access to more than packages at the same host.
    pub(crate) fn admits(&self, path: &str) -> bool {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let Some(decoded) = decoded_text(path) else { return false };
        // A server that decodes twice could see another path.
        let plain = !decoded.contains(|c: char| c.is_control() || c == '%' || c == '\\');
        let climbs = decoded.split('/').any(|part| part == "." || part == "..");
        plain && !climbs && (decoded.starts_with(&self.prefix) || format!("{decoded}/") == self.prefix)
    }

    /// A link to it with the alias as its host; none if the link leads elsewhere.
    pub(crate) fn translate(&self, link: &str) -> Option<String> {
        let patterns = self.patterns();
        patterns.iter().find_map(|(real, seen)| Some(format!("{seen}{}", link.strip_prefix(real.as_str())?)))
    }

    /// The beginnings of links to it in its answers, and their replacements: with both schemes, because a server behind a
    /// proxy may not know its own, with and without the usual port, and with slashes escaped as in JSON.
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

/// The hosts and ports in a list of URLs, such as the operator's package indexes.
#[must_use]
pub fn hosts_in(text: &str) -> Vec<HostRule> {
    let urls = text.split([',', '|', ' ']).filter_map(|url| WebAddress::parse(url.trim()).ok());
    urls.map(|url| HostRule::exactly(url.host, url.port)).collect()
}

/// Removes the credentials from the URLs in some of an installer's variables and returns the indexes to which they belong.
/// Fails, without quoting the value, if credentials cannot be told apart from the rest of it.
pub fn hide_credentials(
    environment: &mut [(OsString, OsString)],
    names: &[String],
) -> Result<Vec<PackageIndex>, String> {
    let mut indexes = vec![];
    for (name, value) in environment.iter_mut().filter(|(name, _)| names.iter().any(|known| name == known.as_str())) {
        let unclear = || {
            format!(
                "{}: cannot separate the credentials from the URL; encode special characters in them as %XX",
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

/// Removes the credentials from one value.
fn hide_in(text: &str, indexes: &mut Vec<PackageIndex>) -> Option<String> {
    let (mut hidden, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("://") {
        let (before, after) = (&rest[..at], &rest[at + 3..]);
        let end = after.find(SEPARATORS).unwrap_or(after.len());
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
    // An at sign outside a URL may belong to a secret that contains a separator.
    if rest.contains('@') {
        return None;
    }
    hidden.push_str(rest);
    Some(hidden)
}

/// The URL that an installer gets for an index.
fn place(mut index: PackageIndex, address: &str, indexes: &mut Vec<PackageIndex>) -> String {
    let known = indexes.iter().find(|known| PackageIndex { alias: known.alias.clone(), ..index.clone() } == **known);
    let alias =
        known.map_or_else(|| format!("index-{}.sandbox.internal", indexes.len() + 1), |known| known.alias.clone());
    if known.is_none() {
        index.alias.clone_from(&alias);
        indexes.push(index);
    }
    let path = &address[address.find(['/', '?', '#']).unwrap_or(address.len())..];
    format!("http://{alias}{path}")
}

/// Reads the part of a URL behind `://`. No index if it has no credentials; nothing at all if that is not clear.
#[expect(clippy::option_option, reason = "a URL may have no credentials, and it may be unclear whether it has")]
fn read(scheme: &str, address: &str, doubtful: bool) -> Option<Option<PackageIndex>> {
    if known_scheme(scheme).is_none() {
        return if doubtful { None } else { Some(None) };
    }
    let text = format!("{scheme}://{address}");
    let url = WebAddress::parse(&text);
    let (user_info, _, _) = split_authority(address);
    let Some(user_info) = user_info.filter(|info| !info.is_empty()) else {
        return if url.is_err() && doubtful { None } else { Some(None) };
    };
    let url = url.ok()?;
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let (user, password) = (decoded_text(user)?, decoded_text(password)?);
    let authorization = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    let prefix = prefix(url.path());
    let (scheme, host, port) = (url.scheme, url.host, url.port);
    Some(Some(PackageIndex { alias: String::new(), scheme, host, port, prefix, user, authorization }))
}

/// The path below which an index lies. Python's indexes list packages at `simple` and keep the files beside it.
fn prefix(path: &str) -> String {
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix("/simple").or_else(|| path.strip_suffix("/+simple")).unwrap_or(path);
    format!("{path}/")
}

fn decoded_text(text: &str) -> Option<String> {
    String::from_utf8(percent_decode(text)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(text: &str) -> Option<(String, Vec<PackageIndex>)> {
        let mut indexes = vec![];
        hide_in(text, &mut indexes).map(|text| (text, indexes))
    }

    #[test]
    fn hosts_are_read_from_urls() {
        let hosts = hosts_in("https://user:secret@Index.example/simple/,http://[::1]:8080|direct");
        let rule = |text: &str| HostRule::parse(text).expect("valid");
        assert_eq!(hosts, [rule("index.example:443"), rule("[::1]:8080")]);
        assert!(hosts_in("").is_empty() && hosts_in("off").is_empty() && hosts_in("https://").is_empty());
    }

    #[test]
    fn urls_without_credentials_are_unchanged() {
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
    fn credentials_are_removed_from_urls() {
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
    fn ambiguous_credentials_are_refused() {
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
        let error = hide_credentials(&mut environment, &["INDEX".to_owned()]).expect_err("refused");
        assert!(error.starts_with("INDEX: ") && !error.contains("ss@"), "{error}");
    }

    #[test]
    fn credentials_apply_only_below_the_path_of_the_index() {
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
