//! Bytes in JSON: standard input, and how it and files are encoded.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandbox_base::units::shorten;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::shared::{self, SharedBytes};

/// Standard input: text, or an object if it is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum JsonInput {
    /// Text.
    Text(Arc<str>),
    /// Text or bytes, encoded as in files.
    Encoded(EncodedInput),
}

/// Standard input with its encoding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EncodedInput {
    /// Its content.
    #[serde(deserialize_with = "shared::text")]
    pub content: Arc<str>,
    /// `utf-8` or `base64`.
    #[serde(default)]
    pub encoding: Option<String>,
}

impl JsonInput {
    /// The bytes, or why there are none.
    pub(crate) fn into_bytes(self) -> Result<SharedBytes, String> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::Encoded(EncodedInput { content, encoding }) => decode(content, encoding.as_deref()),
        }
    }

    /// How much memory its bytes take besides the text that all copies share.
    #[must_use]
    pub fn own_size(&self) -> usize {
        match self {
            Self::Text(_) => 0,
            Self::Encoded(input) => decoded_size(&input.content, input.encoding.as_deref()),
        }
    }
}

impl<'de> Deserialize<'de> for JsonInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As for files: without a copy of the content.
        struct TextOrObject;

        impl<'de> Visitor<'de> for TextOrObject {
            type Value = JsonInput;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("standard input, as a string or an object")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<JsonInput, E> {
                Ok(JsonInput::Text(text.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<JsonInput, A::Error> {
                EncodedInput::deserialize(MapAccessDeserializer::new(map)).map(JsonInput::Encoded)
            }
        }

        deserializer.deserialize_any(TextOrObject)
    }
}

/// How much memory the bytes take that are decoded from a text.
pub(crate) fn decoded_size(content: &str, encoding: Option<&str>) -> usize {
    if encoding == Some("base64") { content.len() / 4 * 3 } else { 0 }
}

/// Decodes the content of an object.
pub(crate) fn decode(content: Arc<str>, encoding: Option<&str>) -> Result<SharedBytes, String> {
    match encoding {
        None | Some("utf-8") => Ok(content.into()),
        Some("base64") => {
            let bytes = STANDARD.decode(content.as_bytes()).map_err(|error| format!("invalid base64: {error}"))?;
            Ok(bytes.into())
        }
        Some(other) => Err(format!("unknown encoding '{}': expected utf-8 or base64", shorten(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn standard_input_is_text_or_bytes() {
        let read = |value| serde_json::from_value::<JsonInput>(value).expect("valid").into_bytes();
        assert_eq!(&*read(json!("ü")).expect("valid"), "ü".as_bytes());
        assert_eq!(&*read(json!({"content": "x"})).expect("valid"), b"x");
        assert_eq!(&*read(json!({"content": "/wA=", "encoding": "base64"})).expect("valid"), [255, 0]);
        assert!(
            read(json!({"content": "?", "encoding": "base64"})).expect_err("refused").starts_with("invalid base64")
        );
        let latin = read(json!({"content": "x", "encoding": "latin1"})).expect_err("refused");
        assert_eq!(latin, "unknown encoding 'latin1': expected utf-8 or base64");
        assert!(serde_json::from_value::<JsonInput>(json!({"content": "x", "executable": true})).is_err());
    }
}
