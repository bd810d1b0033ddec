//! Host names and rules. Input is two lines: a host, and a rule.
//!
//! An accepted name has one spelling and is nothing that a C library would parse as an address. A rule matches its host
//! and no name that merely ends with the same text.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libfuzzer_sys::fuzz_target;
use sandbox_network::fuzz::is_public;
use sandbox_network::{HostName, HostRule};

/// What `inet_aton` takes for an address: up to four numbers, decimal, octal or hexadecimal.
fn looks_like_an_address(name: &str) -> bool {
    let number = |part: &str| match part.strip_prefix("0x").or_else(|| part.strip_prefix("0X")) {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()),
    };
    let parts: Vec<&str> = name.split('.').collect();
    parts.len() <= 4 && parts.into_iter().all(number)
}

fn check_address(address: IpAddr) {
    assert_eq!(address, address.to_canonical(), "one spelling");
    if !is_public(address) {
        return;
    }
    match address {
        IpAddr::V4(v4) => assert!(
            !(v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_multicast() || v4.is_unspecified())
        ),
        IpAddr::V6(v6) => {
            let segments = v6.segments();
            let nat64 = segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
            assert!(segments[0] & 0xe000 == 0x2000 || nat64, "{v6} is in no public range");
            let inner = match segments {
                [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some([high, low]),
                _ => None,
            };
            if let Some([high, low]) = inner {
                assert!(is_public(IpAddr::V4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))), "{v6}");
            }
        }
    }
}

fuzz_target!(|text: &str| {
    let (host, rule) = text.split_once('\n').unwrap_or((text, ""));
    let parsed = HostName::parse(host);
    match &parsed {
        Some(HostName::Name(name)) => {
            assert!(!looks_like_an_address(name) && name.parse::<IpAddr>().is_err(), "{name:?}");
            assert!(!name.is_empty() && name.len() <= 253 && !name.starts_with(['-', '.']) && !name.ends_with('.'));
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c);
            assert!(name.chars().all(plain), "{name:?}");
            for spelling in [name.clone(), name.to_ascii_uppercase(), format!("{name}.")] {
                assert_eq!(HostName::parse(&spelling).as_ref(), parsed.as_ref(), "one spelling");
            }
            let below = HostRule::parse(&format!("*.{name}"));
            if let Ok(below) = below {
                let parse = |text: String| HostName::parse(&text);
                assert!(!below.names(&HostName::Name(name.clone())));
                assert!(parse(format!("evil{name}")).is_none_or(|evil| !below.names(&evil)));
                assert!(parse(format!("{name}.evil")).is_none_or(|evil| !below.names(&evil)));
                assert!(parse(format!("a.{name}")).is_none_or(|inner| below.names(&inner)));
            }
        }
        Some(HostName::Address(address)) => {
            check_address(*address);
            assert_eq!(HostName::parse(&address.to_string()).as_ref(), parsed.as_ref(), "one spelling");
        }
        None => {}
    }
    if host.len() == 16 {
        let bytes: [u8; 16] = host.as_bytes().try_into().expect("sixteen");
        check_address(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical());
    }
    match (HostRule::parse(rule), &parsed) {
        (Ok(known), Some(host)) => {
            for port in [1, 80, 443, 65535] {
                assert!(!known.fits(host, port) || known.names(host));
            }
            if known.names(host) {
                let spelled = host.to_string();
                let lower = rule.to_ascii_lowercase();
                let pattern = lower.strip_prefix("*.").unwrap_or(&lower);
                let same = matches!(host, HostName::Address(_)) || pattern.contains(spelled.as_str());
                let suffix = pattern.split(':').next().unwrap_or_default().trim_end_matches('.').to_owned();
                assert!(same || (lower.starts_with("*.") && spelled.ends_with(&format!(".{suffix}"))), "{rule} {host}");
            }
        }
        (Err(error), _) => assert!(!error.is_empty() && error.len() < 500),
        _ => {}
    }
});
