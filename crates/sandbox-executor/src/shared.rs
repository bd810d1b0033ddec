//! Texts and bytes of a request. Copies of a request share them, because they may be as long as a body.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::{Deserializer, Error, Visitor};

/// Bytes that are shared by everything they were passed to.
#[derive(Clone)]
pub struct SharedBytes(Holder);

#[derive(Clone)]
enum Holder {
    Text(Arc<str>),
    Bytes(Arc<Vec<u8>>),
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Holder::Text(text) => text.as_bytes(),
            Holder::Bytes(bytes) => bytes,
        }
    }
}

impl From<Arc<str>> for SharedBytes {
    fn from(text: Arc<str>) -> Self {
        Self(Holder::Text(text))
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Holder::Bytes(Arc::new(bytes)))
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// Makes a shared text of what the parser has, without another copy of it.
pub(crate) struct SharedText;

impl Visitor<'_> for SharedText {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Arc<str>, E> {
        Ok(text.into())
    }
}

/// Reads a text that may be missing.
pub fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    struct MaybeText;

    impl<'de> Visitor<'de> for MaybeText {
        type Value = Option<Arc<str>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            text(deserializer).map(Some)
        }
    }

    deserializer.deserialize_option(MaybeText)
}

/// Reads a text.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    deserializer.deserialize_str(SharedText)
}
