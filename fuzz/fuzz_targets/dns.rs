//! Queries to a cell's resolver: every answer belongs to its question.
#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use sandbox_network::HostName;
use sandbox_network::fuzz::dns_answer;

fuzz_target!(|message: &[u8]| {
    let Some((name, answer)) = dns_answer(message, Ipv4Addr::new(192, 0, 2, 1)) else { return };
    assert_eq!(answer[..2], message[..2], "the question's number");
    assert_eq!(answer[2] & 0x80, 0x80, "an answer");
    assert_eq!(answer[4..6], [0, 1], "one question");
    let mut end = 12;
    while message[end] != 0 {
        end += 1 + usize::from(message[end]);
    }
    end += 5;
    assert_eq!(answer[12..end], message[12..end], "the same question");
    assert!(answer.len() <= message.len() + 16);
    if let Some(HostName::Name(host)) = HostName::parse(&name) {
        assert!(!host.contains('\0') && host == name.trim_end_matches('.').to_ascii_lowercase());
    }
});
