//! The head of a request to the proxy: the forwarded head is a single one, for the host that was checked.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandbox_network::fuzz::proxy_head;
use sandbox_network::{HostName, hosts_in};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = hosts_in(text);
    }
    let Some((host, port, forward)) = proxy_head(bytes) else { return };
    assert!(port > 0);
    assert_eq!(HostName::parse(&host.to_string()), Some(host.clone()), "one spelling");
    let Some(head) = forward else {
        assert!(bytes.starts_with(b"CONNECT "));
        return;
    };
    let lines: Vec<&str> = head.split("\r\n").collect();
    let [first, headers @ .., "", ""] = lines.as_slice() else { panic!("not one head: {head:?}") };
    assert!(!headers.contains(&""), "more than one head: {head:?}");
    assert!(!head.replace("\r\n", "").contains(|c: char| c.is_control() && c != '\t'), "{head:?}");
    let words: Vec<&str> = first.split(' ').collect();
    let [method, path, version] = words.as_slice() else { panic!("not a request: {first:?}") };
    assert!(!method.is_empty() && path.starts_with('/') && version.starts_with("HTTP/1."), "{first:?}");
    let values = |name: &str| {
        let pairs = headers.iter().filter_map(|line| line.split_once(':'));
        let fits = pairs.filter(|(other, _)| other.trim().eq_ignore_ascii_case(name));
        fits.map(|(_, value)| value.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(values("connection"), ["close"]);
    let [named] = values("host").try_into().expect("one host");
    let known = HostName::parse(named.rsplit_once(':').map_or(named.as_str(), |(host, _)| host));
    assert!(known == Some(host.clone()) || HostName::parse(&named) == Some(host), "{named}");
});
