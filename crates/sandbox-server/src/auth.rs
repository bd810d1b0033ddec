//! API keys: compared by their digests, in constant time.

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::problem::{Code, Problem};

/// The keys that are accepted, as digests. None means that everybody may come.
#[derive(Debug, Clone)]
pub(crate) struct Keys(Vec<[u8; 32]>);

impl Keys {
    /// Takes keys, each as it is or as `sha256:` and the digest in hexadecimal.
    pub(crate) fn new(keys: &[String]) -> Result<Self, String> {
        keys.iter().map(|key| digest_of(key)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether no key is needed.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks the key in a request's headers: `Authorization: Bearer KEY` or `X-API-Key: KEY`. Returns which one it is,
    /// if one is needed.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<Option<usize>, Problem> {
        if self.is_open() {
            return Ok(None);
        }
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let key = bearer.or_else(|| headers.get("x-api-key")?.to_str().ok());
        let Some(key) = key else {
            return Err(Problem::new(Code::Unauthorized, "send a key as 'Authorization: Bearer KEY'"));
        };
        let given: [u8; 32] = Sha256::digest(key.trim().as_bytes()).into();
        // Every key is compared, so that the time does not tell which one is near.
        let matches: Vec<bool> = self.0.iter().map(|digest| digest.ct_eq(&given).into()).collect();
        let known = matches.iter().position(|matches| *matches);
        known.map(Some).ok_or_else(|| Problem::new(Code::Unauthorized, "the key is not valid"))
    }
}

fn digest_of(key: &str) -> Result<[u8; 32], String> {
    let Some(hex) = key.strip_prefix("sha256:") else { return Ok(Sha256::digest(key.as_bytes()).into()) };
    let mut digest = [0; 32];
    let valid = hex.len() == 64 && hex.is_ascii();
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)).filter(|_| valid) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).map_err(|_| "a digest is not hexadecimal".to_owned())?;
    }
    if valid { Ok(digest) } else { Err("a digest does not have 64 hexadecimal digits".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().expect("header"));
        headers
    }

    #[test]
    fn keys_open_and_others_do_not() {
        let digest: String = Sha256::digest(b"second-key-0123456").iter().map(|byte| format!("{byte:02x}")).collect();
        let keys = Keys::new(&["first-key-0123456".to_owned(), format!("sha256:{digest}")]).expect("valid");
        assert!(keys.check(&headers("authorization", "Bearer first-key-0123456")).is_ok());
        assert!(keys.check(&headers("x-api-key", "second-key-0123456")).is_ok());
        for (name, value) in
            [("authorization", "Bearer wrong"), ("authorization", "first-key-0123456"), ("x-api-key", "")]
        {
            assert!(keys.check(&headers(name, value)).is_err(), "{value}");
        }
        assert!(keys.check(&HeaderMap::new()).is_err());
        assert!(Keys::new(&[]).expect("valid").check(&HeaderMap::new()).is_ok());
        assert!(Keys::new(&["sha256:xyz".to_owned()]).is_err());
    }
}
