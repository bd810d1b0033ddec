//! DNS queries of a cell: parses one question, and writes an answer with or without addresses.

use std::net::Ipv4Addr;

const HEADER: usize = 12;
const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;

/// The time for which an answer may be cached, in seconds.
const TIME_TO_LIVE: u32 = 30;

/// A question.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DnsQuestion {
    id: [u8; 2],
    /// Whether recursion is desired, which is repeated in the answer.
    recursion: bool,
    /// The name as it was spelled in the query.
    pub(super) name: String,
    kind: u16,
    /// The question as it was sent, for the answer.
    raw: Vec<u8>,
}

impl DnsQuestion {
    /// Parses a message with one question. Names are not compressed in questions.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        let header = message.get(..HEADER)?;
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        // A standard query, with one question.
        if header[2] & 0xf8 != 0 || number(4) != 1 {
            return None;
        }
        let (mut at, mut labels) = (HEADER, vec![]);
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            if length > 63 || labels.len() > 127 {
                return None;
            }
            let label = message.get(at..at + length)?;
            // Labels that are not plain text stay visible as invalid host names.
            labels.push(String::from_utf8_lossy(label).replace('.', "\u{fffd}"));
            at += length;
        }
        let rest = message.get(at..at + 4)?;
        let (kind, class) = (u16::from_be_bytes([rest[0], rest[1]]), u16::from_be_bytes([rest[2], rest[3]]));
        if class != CLASS_IN {
            return None;
        }
        let raw = message[HEADER..at + 4].to_vec();
        Some(Self { id: [header[0], header[1]], recursion: header[2] & 1 != 0, name: labels.join("."), kind, raw })
    }

    /// The answer with these addresses, if they are of the requested type. Otherwise the name exists without such
    /// addresses.
    pub(super) fn answer(&self, addresses: &[Ipv4Addr]) -> Vec<u8> {
        let addresses = if self.kind == TYPE_A { &addresses[..addresses.len().min(16)] } else { &[] };
        let mut message = self.begin(0, addresses.len());
        for address in addresses {
            // A pointer to the name in the question.
            message.extend([0xc0, 12]);
            message.extend(TYPE_A.to_be_bytes());
            message.extend(CLASS_IN.to_be_bytes());
            message.extend(TIME_TO_LIVE.to_be_bytes());
            message.extend(4_u16.to_be_bytes());
            message.extend(address.octets());
        }
        message
    }

    /// The answer that the name does not exist.
    pub(super) fn unknown(&self) -> Vec<u8> {
        self.begin(3, 0)
    }

    fn begin(&self, code: u8, answers: usize) -> Vec<u8> {
        let mut message = vec![self.id[0], self.id[1], 0x80 | u8::from(self.recursion), 0x80 | code];
        for count in [1, u16::try_from(answers).unwrap_or_default(), 0, 0] {
            message.extend(count.to_be_bytes());
        }
        message.extend(&self.raw);
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut message = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            message.push(u8::try_from(label.len()).expect("short"));
            message.extend(*label);
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend(1_u16.to_be_bytes());
        message
    }

    #[test]
    fn a_question_is_read_and_answered() {
        let message = query(&[b"a", b"Example"], TYPE_A);
        let question = DnsQuestion::parse(&message).expect("valid");
        assert_eq!(question.name, "a.Example");
        let answer = question.answer(&[Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)]);
        assert_eq!(answer[..8], [7, 9, 0x81, 0x80, 0, 1, 0, 2]);
        assert_eq!(answer[HEADER..message.len()], message[HEADER..]);
        assert_eq!(answer[answer.len() - 4..], [192, 0, 2, 2]);
        assert_eq!(question.unknown()[3], 0x83);
        let other = DnsQuestion::parse(&query(&[b"a"], 28)).expect("valid");
        assert_eq!(other.answer(&[Ipv4Addr::LOCALHOST])[6..8], [0, 0], "known, but not of this kind");
    }

    #[test]
    fn invalid_queries_are_not_answered() {
        let good = query(&[b"a", b"example"], TYPE_A);
        for length in 0..good.len() {
            assert_eq!(DnsQuestion::parse(&good[..length]), None, "{length}");
        }
        let changed = |at: usize, byte: u8| {
            let mut message = good.clone();
            message[at] = byte;
            DnsQuestion::parse(&message)
        };
        assert!(changed(2, 0x81).is_none(), "an answer");
        assert!(changed(5, 2).is_none(), "two questions");
        assert!(changed(HEADER, 0xc0).is_none(), "a compressed name");
        assert_eq!(DnsQuestion::parse(&query(&[b"evil\0", b"a.b"], TYPE_A)).expect("read").name, "evil\0.a\u{fffd}b");
    }
}
