//! DNS messages of the stub resolver: writes queries, and reads the addresses in replies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HEADER: usize = 12;
const CLASS_IN: u16 = 1;
const TYPE_CNAME: u16 = 5;

/// The longest name, with the length of each label.
const LONGEST_NAME: usize = 255;

/// The most aliases that are followed from one name to the next.
const MOST_ALIASES: usize = 16;

/// The most addresses that are used.
const MOST_ADDRESSES: usize = 64;

/// The queried record type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordType {
    A = 1,
    Aaaa = 28,
}

/// A query for the addresses of a name.
#[derive(Debug)]
pub(super) struct DnsQuery {
    id: [u8; 2],
    /// The name in lower case, each label with its length before it, without the empty label at its end.
    name: Vec<u8>,
    record: RecordType,
}

/// The content of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DnsReply {
    /// The addresses; none if the name has none or does not exist.
    Addresses(Vec<IpAddr>),
    /// The reply was too long for a datagram.
    Truncated,
    /// The server could not answer.
    Failed,
}

impl DnsQuery {
    /// A query for a name; none if the name is too long.
    pub(super) fn new(id: [u8; 2], name: &str, record: RecordType) -> Option<Self> {
        let mut encoded = vec![];
        for label in name.split('.') {
            let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
            encoded.push(length);
            encoded.extend(label.to_ascii_lowercase().bytes());
        }
        (encoded.len() < LONGEST_NAME).then_some(Self { id, name: encoded, record })
    }

    /// The message to send: one question, to be answered by asking other servers.
    pub(super) fn message(&self) -> Vec<u8> {
        let mut message = vec![self.id[0], self.id[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend(&self.name);
        message.push(0);
        message.extend((self.record as u16).to_be_bytes());
        message.extend(CLASS_IN.to_be_bytes());
        message
    }

    /// Parses a reply; `None` if it is not a reply to this query.
    pub(super) fn read(&self, message: &[u8]) -> Option<DnsReply> {
        let header = message.get(..HEADER)?;
        let is_reply = header[2] & 0xf8 == 0x80;
        if header[..2] != self.id || !is_reply || number(header, 4)? != 1 {
            return None;
        }
        let (name, at) = read_name(message, HEADER)?;
        if name != self.name || number(message, at)? != self.record as u16 || number(message, at + 2)? != CLASS_IN {
            return None;
        }
        if header[2] & 2 != 0 {
            return Some(DnsReply::Truncated);
        }
        Some(match header[3] & 0xf {
            0 => self.read_answers(message, at + 4).map_or(DnsReply::Failed, DnsReply::Addresses),
            3 => DnsReply::Addresses(vec![]),
            _ => DnsReply::Failed,
        })
    }

    /// Reads the records of an answer, and follows aliases from the name that was asked for.
    fn read_answers(&self, message: &[u8], mut at: usize) -> Option<Vec<IpAddr>> {
        let (mut aliases, mut addresses) = (vec![], vec![]);
        for _ in 0..number(message, 6)? {
            let (owner, fixed) = read_name(message, at)?;
            let (kind, class) = (number(message, fixed)?, number(message, fixed + 2)?);
            let (start, length) = (fixed + 10, usize::from(number(message, fixed + 8)?));
            let data = message.get(start..start + length)?;
            at = start + length;
            if class != CLASS_IN {
                continue;
            }
            if kind == TYPE_CNAME {
                aliases.push((owner, read_name(message, start)?.0));
            } else if kind == self.record as u16 {
                addresses.push((owner, self.record.read(data)?));
            }
        }
        let mut name = &self.name;
        for _ in 0..MOST_ALIASES {
            let Some((_, target)) = aliases.iter().find(|(owner, _)| owner == name) else { break };
            name = target;
        }
        let own = addresses.iter().filter(|(owner, _)| owner == name).map(|(_, address)| *address);
        Some(own.take(MOST_ADDRESSES).collect())
    }
}

impl RecordType {
    fn read(self, data: &[u8]) -> Option<IpAddr> {
        match self {
            Self::A => Some(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into()),
            Self::Aaaa => Some(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).into()),
        }
    }
}

fn number(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?))
}

/// Reads a name, which may end with a pointer to an earlier one. Returns it in lower case, and where the next field begins.
fn read_name(message: &[u8], mut at: usize) -> Option<(Vec<u8>, usize)> {
    let (mut name, mut next, mut earliest) = (vec![], None, at);
    loop {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => return Some((name, next.unwrap_or(at + 1))),
            1..=63 => {
                name.extend(message.get(at..=at + length)?.iter().map(u8::to_ascii_lowercase));
                at += 1 + length;
            }
            0xc0.. => {
                next = next.or(Some(at + 2));
                at = usize::from(number(message, at)? & 0x3fff);
                // Pointers lead backwards only, so that they cannot form a loop, and the header holds no names.
                if at >= earliest || at < HEADER {
                    return None;
                }
                earliest = at;
            }
            _ => return None,
        }
        if name.len() >= LONGEST_NAME {
            return None;
        }
    }
}

/// The addresses in a reply to a query for `www.example.com` with the number 0.
#[cfg(fuzzing)]
pub(crate) fn fuzz_reply(message: &[u8], v6: bool) -> Option<Vec<IpAddr>> {
    let record = if v6 { RecordType::Aaaa } else { RecordType::A };
    match DnsQuery::new([0, 0], "www.example.com", record)?.read(message)? {
        DnsReply::Addresses(addresses) => Some(addresses),
        DnsReply::Truncated | DnsReply::Failed => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query() -> DnsQuery {
        DnsQuery::new([7, 9], "WWW.example", RecordType::A).expect("short")
    }

    /// A record with the name at an offset of the message.
    fn record(name: u8, kind: u16, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(data.len()).expect("short");
        let fields = [kind.to_be_bytes(), CLASS_IN.to_be_bytes(), [0, 0], [0, 30], length.to_be_bytes()].concat();
        [&[0xc0, name], fields.as_slice(), data].concat()
    }

    fn reply(code: u8, records: &[Vec<u8>]) -> Vec<u8> {
        let mut message = query().message();
        (message[2], message[3]) = (0x81, 0x80 | code);
        message[7] = u8::try_from(records.len()).expect("few");
        [message, records.concat()].concat()
    }

    fn addresses(texts: &[&str]) -> DnsReply {
        DnsReply::Addresses(texts.iter().map(|text| text.parse().expect(text)).collect())
    }

    #[test]
    fn addresses_are_read_from_replies() {
        let own = |last: u8| record(12, 1, &[192, 0, 2, last]);
        assert_eq!(query().read(&reply(0, &[own(1), own(2)])), Some(addresses(&["192.0.2.1", "192.0.2.2"])));
        assert_eq!(query().read(&reply(3, &[])), Some(addresses(&[])), "no such name");
        assert_eq!(query().read(&reply(2, &[])), Some(DnsReply::Failed));
        // The record that ends here has a name of its own: 'example', at offset 16 in the question.
        assert_eq!(query().read(&reply(0, &[record(16, 1, &[192, 0, 2, 9])])), Some(addresses(&[])), "of another name");
        let mut truncated = reply(0, &[own(1)]);
        truncated[2] |= 2;
        assert_eq!(query().read(&truncated), Some(DnsReply::Truncated));
    }

    #[test]
    fn aliases_are_followed_in_any_order() {
        let alias = record(12, TYPE_CNAME, b"\x03CDN\xc0\x10");
        let address = [b"\x03cdn\xc0\x10", &record(0, 1, &[192, 0, 2, 7])[2..]].concat();
        for records in [[alias.clone(), address.clone()], [address, alias]] {
            assert_eq!(query().read(&reply(0, &records)), Some(addresses(&["192.0.2.7"])));
        }
        let round = record(12, TYPE_CNAME, &[0xc0, 12]);
        assert_eq!(query().read(&reply(0, &[round])), Some(addresses(&[])), "an alias of itself");
    }

    #[test]
    fn replies_to_other_queries_are_ignored() {
        let good = reply(0, &[record(12, 1, &[192, 0, 2, 1])]);
        for (at, byte) in [(0, 8), (2, 0x01), (5, 2), (13, b'v'), (query().message().len() - 3, 28)] {
            let mut other = good.clone();
            other[at] = byte;
            assert_eq!(query().read(&other), None, "{at}");
        }
        for length in 0..good.len() {
            assert!(matches!(query().read(&good[..length]), None | Some(DnsReply::Failed)), "{length}");
        }
        let into_header = [&good[..24], &[0xc0, 8], &good[25..]].concat();
        assert_eq!(query().read(&into_header), None, "a name that ends in the header");
        let looping = reply(0, &[[&[0xc0, 29], &record(0, 1, &[0; 4])[2..]].concat()]);
        assert_eq!(query().read(&looping), Some(DnsReply::Failed), "a name that points to itself");
        assert!(DnsQuery::new([0, 0], &["a"; 140].join("."), RecordType::A).is_none());
    }
}
