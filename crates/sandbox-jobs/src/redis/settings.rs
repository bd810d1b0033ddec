//! How to reach Redis: one URL, as operators know it from other programs, and files for TLS.

use std::path::{Path, PathBuf};

use redis::{
    ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates,
};

/// The port of Redis, and of Sentinel.
const PORTS: (u16, u16) = (6379, 26_379);

/// The name under which Sentinels know the primary, unless the URL has another one.
const USUAL_PRIMARY: &str = "mymaster";

/// The most Sentinels or cluster nodes in a URL.
const MOST_NODES: usize = 100;

/// The connection settings of Redis. Their debug output has no passwords.
#[derive(Clone)]
pub struct RedisSettings {
    pub(super) topology: Topology,
    tls: bool,
    username: Option<String>,
    password: Option<String>,
    database: i64,
    /// The user and the password for Sentinels.
    pub(super) sentinel: (Option<String>, Option<String>),
    /// Certificates that servers are checked against, instead of the public ones.
    ca: Option<Vec<u8>>,
    /// The certificate of this client, and its key.
    identity: Option<ClientTlsConfig>,
    /// The number of replicas that must have a job before it is acknowledged.
    pub(super) replicas: u32,
}

/// Which servers make up this Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Topology {
    /// One server.
    Server(RedisNode),
    /// Sentinels that know the current primary, by this name.
    Sentinel { nodes: Vec<RedisNode>, primary: String },
    /// Some nodes of a cluster.
    Cluster(Vec<RedisNode>),
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RedisNode {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl std::fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { topology, tls, username, database, .. } = self;
        f.debug_struct("RedisSettings")
            .field("topology", topology)
            .field("tls", tls)
            .field("username", username)
            .field("database", database)
            .finish_non_exhaustive()
    }
}

impl RedisSettings {
    /// Reads a URL. Errors do not repeat it, because it may contain a password.
    ///
    /// - `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`, `rediss://` for TLS
    /// - `unix:///PATH[?db=DB&user=USER&pass=PASSWORD]` or `redis+unix://`
    /// - `redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…][/PRIMARY[/DB]]`, `rediss+sentinel://` for TLS, with
    ///   the options `sentinel_username` and `sentinel_password`
    /// - `redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…]`, `rediss+cluster://` for TLS
    ///
    /// The schemes `valkey` and `valkeys` are the same as `redis` and `rediss`.
    pub fn from_url(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("expected a URL such as redis://HOST:6379/0")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if rest.contains('#') || query.contains('#') {
            return Err("a # must be written as %23".to_owned());
        }
        let (base, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match base {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            "unix" if kind.is_empty() => false,
            _ => return Err(unknown_scheme(scheme)),
        };
        let mut settings = Self::of(Topology::Cluster(vec![]), tls);
        if base == "unix" || (kind == "unix" && !tls) {
            settings.topology = Topology::Server(RedisNode::Unix(decoded(rest, "path")?.into()));
            if !rest.starts_with('/') {
                return Err("the path of a Unix socket must be absolute: unix:///PATH".to_owned());
            }
            settings.options(query, |settings, name, value| {
                match name {
                    "db" => settings.database = database(&value)?,
                    "user" => settings.username = Some(value),
                    "pass" => settings.password = Some(value),
                    _ => return Err(unknown_option(name)),
                }
                Ok(())
            })?;
            return Ok(settings);
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user_info, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        settings.username = Some(decoded(user, "user")?).filter(|user| !user.is_empty());
        settings.password = Some(decoded(password, "password")?).filter(|password| !password.is_empty());
        let path = path.trim_end_matches('/');
        match kind {
            "" => {
                let mut nodes = nodes(hosts, PORTS.0)?;
                if nodes.len() > 1 {
                    return Err("several hosts need redis+sentinel:// or redis+cluster://".to_owned());
                }
                settings.topology = Topology::Server(nodes.remove(0));
                settings.database = database(path)?;
                settings.options(query, |_, name, _| Err(unknown_option(name)))?;
            }
            "sentinel" => {
                let (primary, number) = path.split_once('/').unwrap_or((path, ""));
                let primary = if primary.is_empty() { USUAL_PRIMARY.to_owned() } else { decoded(primary, "path")? };
                settings.topology = Topology::Sentinel { nodes: nodes(hosts, PORTS.1)?, primary };
                settings.database = database(number)?;
                settings.options(query, |settings, name, value| {
                    match name {
                        "sentinel_username" => settings.sentinel.0 = Some(value),
                        "sentinel_password" => settings.sentinel.1 = Some(value),
                        _ => return Err(unknown_option(name)),
                    }
                    Ok(())
                })?;
            }
            "cluster" => {
                settings.topology = Topology::Cluster(nodes(hosts, PORTS.0)?);
                settings.options(query, |_, name, _| Err(unknown_option(name)))?;
                settings.database = database(path)?;
                if settings.database != 0 {
                    return Err("a Redis Cluster has database 0 only".to_owned());
                }
            }
            _ => return Err(unknown_scheme(scheme)),
        }
        Ok(settings)
    }

    /// One server, by `HOST:PORT`, without TLS.
    pub fn from_address(address: &str) -> Result<Self, String> {
        if address.contains(['/', '@', '?']) {
            return Err("expected HOST:PORT; a URL belongs into REDIS_URL".to_owned());
        }
        let mut nodes = nodes(address, PORTS.0)?;
        if nodes.len() > 1 {
            return Err("expected one HOST:PORT".to_owned());
        }
        Ok(Self::of(Topology::Server(nodes.remove(0)), false))
    }

    fn of(topology: Topology, tls: bool) -> Self {
        let (username, password, sentinel) = (None, None, (None, None));
        Self { topology, tls, username, password, database: 0, sentinel, ca: None, identity: None, replicas: 0 }
    }

    /// With this password, if it has none yet.
    #[must_use]
    pub fn or_password(mut self, password: Option<String>) -> Self {
        self.password = self.password.or(password);
        self
    }

    /// With this database, if it has none yet.
    pub fn or_database(mut self, number: i64) -> Result<Self, String> {
        if number != 0 && matches!(self.topology, Topology::Cluster(_)) {
            return Err("a Redis Cluster has database 0 only".to_owned());
        }
        if self.database == 0 {
            self.database = number;
        }
        Ok(self)
    }

    /// With files (PEM) for TLS: certificates that servers are checked against, instead of the public ones, and a
    /// certificate for this client with its key. They are read now, because the server may lose access to them later.
    pub fn with_tls_files(mut self, ca: Option<&Path>, identity: Option<(&Path, &Path)>) -> Result<Self, String> {
        if !self.tls && (ca.is_some() || identity.is_some()) {
            return Err("certificates need a URL with TLS: rediss://".to_owned());
        }
        let read =
            |file: &Path| std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()));
        self.ca = ca.map(read).transpose()?;
        if let Some((certificate, key)) = identity {
            self.identity = Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? });
        }
        Ok(self)
    }

    /// A job is acknowledged once so many replicas have it (`WAIT`).
    #[must_use]
    pub fn with_replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.tls
    }

    /// The number of the database.
    pub(super) fn database(&self) -> i64 {
        self.database
    }

    fn options(
        &mut self,
        query: &str,
        mut set: impl FnMut(&mut Self, &str, String) -> Result<(), String>,
    ) -> Result<(), String> {
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = decoded(value, "option")?;
            set(self, name, value)?;
        }
        Ok(())
    }

    /// Who this client is.
    pub(super) fn login(&self) -> RedisConnectionInfo {
        let mut login = RedisConnectionInfo::default().set_db(self.database);
        if let Some(username) = &self.username {
            login = login.set_username(username);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        login
    }

    /// The address of a node, as the client library has it.
    pub(super) fn address(&self, node: &RedisNode) -> ConnectionAddr {
        match node {
            RedisNode::Unix(path) => ConnectionAddr::Unix(path.clone()),
            RedisNode::Tcp(host, port) if self.tls => {
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
            RedisNode::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
        }
    }

    /// How to connect to a node.
    pub(super) fn connection(&self, node: &RedisNode) -> redis::RedisResult<ConnectionInfo> {
        Ok(self.address(node).into_connection_info()?.set_redis_settings(self.login()))
    }

    /// The certificates, if TLS is used.
    pub(super) fn certificates(&self) -> Option<TlsCertificates> {
        self.tls.then(|| TlsCertificates { client_tls: self.identity.clone(), root_cert: self.ca.clone() })
    }
}

fn unknown_scheme(scheme: &str) -> String {
    let shown: String = scheme.chars().take(20).collect();
    format!(
        "unknown scheme \"{shown}\": expected redis, rediss, unix, redis+sentinel, rediss+sentinel, redis+cluster or \
         rediss+cluster"
    )
}

fn unknown_option(name: &str) -> String {
    let shown: String = name.chars().take(20).collect();
    format!("unknown option \"{shown}\"")
}

fn database(text: &str) -> Result<i64, String> {
    match text {
        "" => Ok(0),
        _ => text.parse().ok().filter(|number| (0..=999).contains(number)).ok_or_else(|| {
            let shown: String = text.chars().take(20).collect();
            format!("invalid database \"{shown}\": expected a number from 0 to 999")
        }),
    }
}

/// Hosts with ports, separated by commas.
fn nodes(text: &str, usual_port: u16) -> Result<Vec<RedisNode>, String> {
    let nodes: Vec<_> = text.split(',').map(|node| host_and_port(node, usual_port)).collect::<Result<_, _>>()?;
    if nodes.len() > MOST_NODES { Err(format!("at most {MOST_NODES} hosts are allowed")) } else { Ok(nodes) }
}

fn host_and_port(text: &str, usual_port: u16) -> Result<RedisNode, String> {
    // An IPv6 address has colons, and brackets around it.
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) if rest.is_empty() || rest.starts_with(':') => (host, rest.strip_prefix(':')),
        Some(_) => return Err("expected [ADDRESS]:PORT for an IPv6 address".to_owned()),
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    if host.chars().any(|letter| letter.is_whitespace() || letter.is_control()) || (host == text && host.contains('@'))
    {
        return Err("invalid host".to_owned());
    }
    let port = match port {
        None => usual_port,
        Some(port) => {
            port.parse().ok().filter(|port| *port > 0).ok_or("invalid port: expected a number from 1 to 65535")?
        }
    };
    Ok(RedisNode::Tcp(host.to_owned(), port))
}

/// Text without its percent-encoding.
fn decoded(text: &str, part: &str) -> Result<String, String> {
    let bytes = sandbox_base::percent_decode(text);
    let bytes = bytes.ok_or_else(|| format!("invalid percent-encoding in the {part}: write % as %25"))?;
    String::from_utf8(bytes).map_err(|_| format!("the {part} is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> RedisNode {
        RedisNode::Tcp(host.to_owned(), port)
    }

    #[test]
    fn urls_name_every_topology() {
        let read = |url: &str| RedisSettings::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        let one = read("rediss://ann:p%40s%3As@db.example:6380/3");
        assert_eq!(one.topology, Topology::Server(tcp("db.example", 6380)));
        assert_eq!((one.username.as_deref(), one.password.as_deref()), (Some("ann"), Some("p@s:s")));
        assert_eq!((one.tls, one.database), (true, 3));
        assert_eq!(read("redis://[::1]").topology, Topology::Server(tcp("::1", 6379)));
        assert_eq!(read("redis://:secret@h").password.as_deref(), Some("secret"));
        let socket = read("redis+unix:///run/re%20dis.sock?db=2&user=ann&pass=x");
        assert_eq!(socket.topology, Topology::Server(RedisNode::Unix("/run/re dis.sock".into())));
        assert_eq!(
            (socket.database, socket.username.as_deref(), socket.password.as_deref()),
            (2, Some("ann"), Some("x"))
        );
        assert_eq!(read("unix:///s").topology, Topology::Server(RedisNode::Unix("/s".into())));
        let watched = read("redis+sentinel://:p@a,b:7/main/4?sentinel_password=q");
        let nodes = vec![tcp("a", 26_379), tcp("b", 7)];
        assert_eq!(watched.topology, Topology::Sentinel { nodes, primary: "main".to_owned() });
        assert_eq!((watched.database, watched.sentinel.1.as_deref()), (4, Some("q")));
        assert!(
            matches!(&read("redis+sentinel://a").topology, Topology::Sentinel { primary, .. } if primary == "mymaster")
        );
        let cluster = read("rediss+cluster://a:1,b:2");
        assert_eq!((cluster.topology, cluster.tls), (Topology::Cluster(vec![tcp("a", 1), tcp("b", 2)]), true));
    }

    #[test]
    fn invalid_urls_are_refused_without_repeating_them() {
        for url in [
            "hunter2",
            "http://:hunter2@a",
            "redis://:hunter2@a,b",
            "redis://:hunter2@a:port",
            "redis://:hunter2@a/x",
            "redis://:hunter2@",
            "redis://:hunter2@a?x=1",
            "redis://:hunter2%@a",
            "redis://a#hunter2",
            "redis+cluster://:hunter2@a/1",
            "rediss+unix:///hunter2",
            "unix://hunter2",
        ] {
            let error = RedisSettings::from_url(url).expect_err(url);
            assert!(!error.contains("hunter2"), "{url}: {error}");
        }
        let settings = RedisSettings::from_url("redis://ann:hunter2@a").expect("valid");
        assert!(!format!("{settings:?}").contains("hunter2"));
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        let read = |address: &str| RedisSettings::from_address(address).map(|settings| settings.topology);
        assert_eq!(read("localhost:7000"), Ok(Topology::Server(tcp("localhost", 7000))));
        assert_eq!(read("redis"), Ok(Topology::Server(tcp("redis", 6379))));
        assert!(read("redis://a").is_err() && read("a:1,b:2").is_err() && read(":1").is_err());
    }
}
