//! The one list of addresses that are not public, and of the metadata services of cloud providers, which hand out
//! credentials and settings. Operators extend it with `SANDBOX_NETWORK_DENY`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use crate::host::{HostName, HostRule};

/// Addresses that are not in use on the Internet: <https://www.iana.org/assignments/iana-ipv4-special-registry>. The
/// ranges for documentation are left out on purpose: some networks use them for services. Of IPv6 only `2000::/3` is
/// assigned for general use, so that the rest need not be listed.
const NOT_PUBLIC: [&str; 13] = [
    "0.0.0.0/8",      // this network
    "10.0.0.0/8",     // private
    "100.64.0.0/10",  // carrier-grade NAT
    "127.0.0.0/8",    // this host
    "172.16.0.0/12",  // private
    "192.0.0.0/24",   // protocol assignments
    "192.88.99.0/24", // 6to4 relays, which lead elsewhere
    "192.168.0.0/16", // private
    "198.18.0.0/15",  // benchmarking
    "224.0.0.0/4",    // multicast
    "240.0.0.0/4",    // reserved, and broadcast
    "2001::/32",      // Teredo, which embeds IPv4 addresses
    "2001:2::/48",    // benchmarking
];

/// Addresses of metadata services, which hand out credentials, keys, settings, or control over the machine. They can be
/// reached only if a rule of the operator has the address itself; a rule for a name that resolves to it is not enough.
const OF_PROVIDERS: [&str; 14] = [
    // Link-local. Nearly all have 169.254.169.254; 169.254.170.2 and .170.23 are ECS and EKS, .42.42 is Scaleway, .0.23 Tencent.
    "169.254.0.0/16",
    "168.63.129.16",      // Azure: the wire server
    "100.100.100.200",    // Alibaba
    "100.100.2.136/30",   // Alibaba: names
    "100.96.0.96",        // Volcano Engine
    "192.0.0.192",        // Oracle
    "192.80.8.124",       // Equinix Metal
    "fe80::/10",          // link-local: OpenStack and others
    "fd00:ec2::/32",      // AWS: metadata, credentials, names, time
    "fd20:ce::254",       // Google
    "fd00:42::42",        // Scaleway
    "fd00:a9fe:a9fe::1",  // Linode
    "fd00:c1::a9fe:a9fe", // Oracle
    "fec0::/10",          // site-local (deprecated)
];

/// The names of such services. Their addresses are refused anyway, unless the operator allows a whole domain.
const NAMES_OF_PROVIDERS: [&str; 13] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.azure.internal",
    "instance-data",
    "instance-data.ec2.internal",
    "metadata.tencentyun.com",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "api.metadata.cloud.ibm.com",
    "metadata.aliyun.internal",
    "metadata.ovh.internal",
    "rancher-metadata",
];

static REFUSED: LazyLock<Vec<AddressRange>> = LazyLock::new(|| ranges(&NOT_PUBLIC));
static METADATA: LazyLock<Vec<AddressRange>> = LazyLock::new(|| ranges(&OF_PROVIDERS));

/// A test checks that every entry can be parsed.
fn ranges(list: &[&str]) -> Vec<AddressRange> {
    list.iter().filter_map(|text| AddressRange::parse(text)).collect()
}

/// Addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressRange {
    network: IpAddr,
    bits: u8,
}

impl AddressRange {
    /// Reads an address, optionally followed by the length of a prefix.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let network: IpAddr = address.parse().ok()?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.parse().ok().filter(|bits| *bits <= most))?;
        Some(Self { network, bits })
    }

    fn contains(self, address: IpAddr) -> bool {
        let same = |one: u128, other: u128, size: u8| {
            let shift = u32::from(size - self.bits);
            one.checked_shr(shift).unwrap_or_default() == other.checked_shr(shift).unwrap_or_default()
        };
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => same(network.to_bits().into(), address.to_bits().into(), 32),
            (IpAddr::V6(network), IpAddr::V6(address)) => same(network.to_bits(), address.to_bits(), 128),
            _ => false,
        }
    }
}

/// Hosts and addresses that the operator refuses in addition.
#[derive(Debug, Clone, Default)]
pub struct DenyList {
    hosts: Vec<HostRule>,
    ranges: Vec<AddressRange>,
}

impl DenyList {
    /// Reads a list of hosts, addresses and ranges of addresses.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut deny = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match AddressRange::parse(part) {
                Some(range) => deny.ranges.push(range),
                None if part.contains('/') => {
                    return Err(format!("'{part}' is not an address range: expected a prefix such as 203.0.113.0/24"));
                }
                None => deny.hosts.push(HostRule::parse(part)?),
            }
        }
        Ok(deny)
    }

    /// Whether a host at a port is refused by its name.
    pub(crate) fn names(&self, host: &HostName, port: u16) -> bool {
        self.hosts.iter().any(|rule| rule.fits(host, port))
    }

    /// Whether a host is refused by its name, at every port.
    pub(crate) fn names_all(&self, host: &HostName) -> bool {
        self.hosts.iter().any(|rule| rule.port().is_none() && rule.names(host))
    }

    /// Whether an address is refused, in any of its forms.
    pub(crate) fn covers(&self, address: IpAddr) -> bool {
        is_in(&self.ranges, address)
    }
}

/// Whether an address is public: assigned for general use on the Internet.
pub(crate) fn is_public(address: IpAddr) -> bool {
    if let IpAddr::V6(v6) = destination(address)
        && (v6.segments()[0] & 0xe000) != 0x2000
    {
        return false;
    }
    !is_in(&REFUSED, address) && !is_metadata(address)
}

/// Whether an address is that of a metadata service.
pub(crate) fn is_metadata(address: IpAddr) -> bool {
    is_in(&METADATA, address)
}

/// Whether a name is that of a metadata service.
pub(crate) fn is_metadata_name(host: &HostName) -> bool {
    matches!(host, HostName::Name(name) if NAMES_OF_PROVIDERS.contains(&name.as_str()))
}

fn is_in(ranges: &[AddressRange], address: IpAddr) -> bool {
    ranges.iter().any(|range| range.contains(address) || range.contains(destination(address)))
}

/// The destination of an address: the embedded IPv4 address if it has one.
pub(crate) fn destination(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => embedded_v4(address).map_or(IpAddr::V6(address), IpAddr::V4),
        canonical @ IpAddr::V4(_) => canonical,
    }
}

/// The IPv4 address that is embedded in an IPv6 address by NAT64, 6to4 or ISATAP.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let ([0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] | [_, _, _, _, 0 | 0x200, 0x5efe, high, low]) =
        address.segments()
    else {
        return None;
    };
    Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn every_entry_can_be_read() {
        assert_eq!((REFUSED.len(), METADATA.len()), (NOT_PUBLIC.len(), OF_PROVIDERS.len()));
        for name in NAMES_OF_PROVIDERS {
            assert!(is_metadata_name(&HostName::parse(name).expect(name)), "{name}");
        }
    }

    #[test]
    fn ranges_contain_addresses_with_their_prefix() {
        let contains = |range: &str, other: &str| AddressRange::parse(range).expect(range).contains(address(other));
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("192.0.2.7", "192.0.2.7") && !contains("192.0.2.7", "192.0.2.6"));
        assert!(contains("0.0.0.0/0", "1.2.3.4") && contains("::/0", "2001:db8::1") && !contains("::/0", "1.2.3.4"));
        assert!(contains("fd00:ec2::/32", "fd00:ec2::254") && !contains("fd00:ec2::/32", "fd00:ec3::254"));
        for odd in ["10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "x/8", "10.0/8", ""] {
            assert_eq!(AddressRange::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn metadata_services_are_recognised_in_every_encoding() {
        for text in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.42.42",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fe80::a9fe:a9fe",
            "::ffff:168.63.129.16",
            "64:ff9b::a83f:8110",
            "2002:a83f:8110::1",
            "2001:db8::5efe:a83f:8110",
            "2001:db8::200:5efe:168.63.129.16",
        ] {
            assert!(is_metadata(address(text)) && !is_public(address(text)), "{text}");
        }
        for text in ["168.63.129.17", "100.100.100.201", "203.0.113.80", "2606:4700::1111"] {
            assert!(!is_metadata(address(text)), "{text}");
        }
    }

    #[test]
    fn an_operator_adds_names_addresses_and_ranges() {
        let deny = DenyList::parse("*.corp.example, 203.0.113.0/24, 2001:db8::1, db.example:5432").expect("valid");
        let names = |host: &str, port| deny.names(&HostName::parse(host).expect(host), port);
        assert!(names("a.corp.example", 80) && names("db.example", 5432) && !names("db.example", 80));
        assert!(deny.covers(address("203.0.113.9")) && deny.covers(address("64:ff9b::cb00:7109")));
        assert!(deny.covers(address("2001:db8::1")) && !deny.covers(address("2001:db8::2")));
        for bad in ["10.0.0.0/40", "a b", "http://x/"] {
            assert!(DenyList::parse(bad).is_err(), "{bad}");
        }
    }
}
