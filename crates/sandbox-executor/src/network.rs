//! The network mode of a request, and the address policy that follows from it.

use std::fmt;

use sandbox_base::units::shorten;
use sandbox_cell::{Gateway, MOST_PORTS, Network};
use sandbox_network::{AddressPolicy, HostRule};

use crate::settings::Settings;

/// The ports at which the web is.
pub(crate) const WEB: [u16; 2] = [80, 443];

/// The network access of programs. Each mode includes those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkMode {
    /// Nowhere: no interface is up.
    #[default]
    None,
    /// A private loopback interface.
    Localhost,
    /// The hosts that are named.
    Allowlist,
    /// Every public address.
    Full,
}

impl NetworkMode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::None, Self::Localhost, Self::Allowlist, Self::Full];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Localhost => "localhost",
            Self::Allowlist => "allowlist",
            Self::Full => "full",
        }
    }

    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| {
            format!("unknown network mode '{}': expected none, localhost, allowlist or full", shorten(text))
        })
    }
}

impl fmt::Display for NetworkMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The network access that a request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkRequest {
    /// The mode.
    pub mode: NetworkMode,
    /// The hosts, for [`NetworkMode::Allowlist`].
    pub hosts: Vec<HostRule>,
    /// Whether names can be resolved. By default, only in modes in which hosts can be reached.
    pub dns: Option<bool>,
}

impl NetworkRequest {
    /// Checks the request against the limits of the operator.
    pub(crate) fn check(&self, settings: &Settings) -> Result<(), String> {
        let most = settings.max_network;
        if self.mode > most {
            return Err(format!("network mode '{}' exceeds the maximum '{most}' (SANDBOX_MAX_NETWORK)", self.mode));
        }
        if self.dns == Some(true) && self.mode < NetworkMode::Allowlist && most < NetworkMode::Full {
            // Questions for names go out, and can carry anything.
            return Err(format!("DNS lookups exceed the maximum network mode '{most}' (SANDBOX_MAX_NETWORK)"));
        }
        match (self.mode, self.hosts.is_empty()) {
            (NetworkMode::Allowlist, true) => {
                return Err("network mode allowlist requires at least one host".to_owned());
            }
            (NetworkMode::Allowlist, false) | (_, true) => {}
            (mode, false) => return Err(format!("hosts require network mode allowlist, not '{mode}'")),
        }
        if self.ports().len() > MOST_PORTS {
            return Err(format!("the hosts use more than {MOST_PORTS} ports"));
        }
        Ok(())
    }

    /// The ports at which connections are taken from programs that know of no proxy.
    fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = match self.mode {
            NetworkMode::None | NetworkMode::Localhost => vec![],
            NetworkMode::Full => WEB.to_vec(),
            NetworkMode::Allowlist => self
                .hosts
                .iter()
                .flat_map(|host| host.port().map_or_else(|| WEB.to_vec(), |port| vec![port]))
                // These are the cell's own; a host there can be reached through the proxy.
                .filter(|port| ![53, sandbox_cell::PROXY_PORT].contains(port))
                .collect(),
        };
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// The cell's network, and what may be reached from it.
    pub(crate) fn plan(&self, settings: &Settings) -> (Network, AddressPolicy) {
        let reaches = self.mode >= NetworkMode::Allowlist;
        let dns = self.dns.unwrap_or(reaches);
        let network = match self.mode {
            NetworkMode::None if !dns => Network::None,
            NetworkMode::Localhost if !dns => Network::Localhost,
            _ => Network::Gateway(Gateway { proxy: reaches, dns, ports: self.ports() }),
        };
        let (hosts, ports) = match self.mode {
            NetworkMode::Allowlist => (Some(self.hosts.clone()), Some(WEB.to_vec())),
            _ => (None, None),
        };
        (
            network,
            AddressPolicy {
                hosts,
                ports,
                always: vec![],
                private: settings.network_allow.clone(),
                deny: settings.network_deny.clone(),
                indexes: vec![],
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(mode: NetworkMode, hosts: &[&str], dns: Option<bool>) -> NetworkRequest {
        NetworkRequest { mode, hosts: hosts.iter().map(|host| HostRule::parse(host).expect("valid")).collect(), dns }
    }

    #[test]
    fn modes_are_checked() {
        let settings = Settings::default();
        let limited = Settings { max_network: NetworkMode::Allowlist, ..Settings::default() };
        let ok = |request: &NetworkRequest, settings: &Settings| request.check(settings).is_ok();
        assert!(ok(&request(NetworkMode::Full, &[], None), &settings));
        assert!(!ok(&request(NetworkMode::Full, &[], None), &limited));
        assert!(!ok(&request(NetworkMode::None, &[], Some(true)), &limited));
        assert!(ok(&request(NetworkMode::Allowlist, &["a.example"], Some(true)), &limited));
        assert!(!ok(&request(NetworkMode::Allowlist, &[], None), &settings));
        assert!(!ok(&request(NetworkMode::Localhost, &["a.example"], None), &settings));
        let many: Vec<String> = (1000..1010).map(|port| format!("a.example:{port}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(!ok(&request(NetworkMode::Allowlist, &many, None), &settings));
    }

    #[test]
    fn network_mode_decides_the_gateway() {
        let plan = |mode, hosts: &[&str], dns| request(mode, hosts, dns).plan(&Settings::default()).0;
        let gateway = |proxy, dns, ports: &[u16]| Network::Gateway(Gateway { proxy, dns, ports: ports.to_vec() });
        assert_eq!(plan(NetworkMode::None, &[], None), Network::None);
        assert_eq!(plan(NetworkMode::None, &[], Some(true)), gateway(false, true, &[]));
        assert_eq!(plan(NetworkMode::Localhost, &[], Some(false)), Network::Localhost);
        assert_eq!(plan(NetworkMode::Full, &[], None), gateway(true, true, &[80, 443]));
        assert_eq!(
            plan(NetworkMode::Allowlist, &["a.example:5432", "b.example:53"], None),
            gateway(true, true, &[5432])
        );
        assert_eq!(plan(NetworkMode::Allowlist, &["a.example"], Some(false)), gateway(true, false, &[80, 443]));
    }
}
