//! Decodes the percent-encoding of URLs.

/// The bytes of percent-encoded text; nothing if two hexadecimal digits do not follow each percent sign.
#[must_use]
pub fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        // `from_str_radix` would also accept a sign.
        let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|c| c.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_is_decoded() {
        assert_eq!(percent_decode("a%2Fb%25").as_deref(), Some(&b"a/b%"[..]));
        assert_eq!(percent_decode("%ff").as_deref(), Some(&b"\xff"[..]));
        for bad in ["%", "%2", "%+1", "%zz", "%é"] {
            assert_eq!(percent_decode(bad), None, "{bad}");
        }
    }
}
