//! Replies of name servers: every parsed address is in the reply, and a reply to another query has none.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use sandbox_network::fuzz::dns_reply;

const QUESTION: &[u8] = b"\x03www\x07example\x03com\0";

fuzz_target!(|message: &[u8]| {
    for v6 in [false, true] {
        let Some(addresses) = dns_reply(message, v6) else { continue };
        assert!(message[..2] == [0, 0] && message[2] & 0x80 == 0x80, "a reply to this query");
        assert!(message[12..29].eq_ignore_ascii_case(QUESTION), "the same name");
        for address in addresses {
            let octets = match address {
                IpAddr::V4(v4) => v4.octets().to_vec(),
                IpAddr::V6(v6) => v6.octets().to_vec(),
            };
            assert_eq!(address.is_ipv6(), v6);
            assert!(message.windows(octets.len()).any(|window| window == octets), "{address}");
        }
    }
});
