//! Random bytes from the kernel, and bytes as text.

use rustix::rand::{GetRandomFlags, getrandom};

/// Unpredictable random bytes.
pub fn random_bytes<const N: usize>() -> rustix::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}

/// A token of `N` random bytes as hexadecimal digits, unguessable if `N` is large enough.
pub fn random_token<const N: usize>() -> rustix::io::Result<String> {
    random_bytes::<N>().map(|bytes| hex(&bytes))
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_are_hexadecimal() {
        let (first, second) = (random_token::<16>().expect("random"), random_token::<16>().expect("random"));
        assert_ne!(first, second);
        assert!(first.len() == 32 && first.chars().all(|digit| digit.is_ascii_hexdigit()));
        assert_eq!(hex(&[0, 0x7f, 0xff]), "007fff");
    }
}
