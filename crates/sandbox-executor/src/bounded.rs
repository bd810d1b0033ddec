//! Lists and maps of requests that end where too many entries begin, so that what is too much is never held in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The most input files.
pub const FILES: usize = crate::input_files::MOST_FILES;
/// The most arguments.
pub const ARGS: usize = 10_000;
/// The most environment variables.
pub const VARIABLES: usize = 10_000;
/// The most packages.
pub const PACKAGES: usize = crate::request::MOST_PACKAGES;
/// The most of what a request has few of: limits, volumes.
pub const FEW: usize = 100;
/// The most hosts in an allow list.
pub const HOSTS: usize = 1000;

fn too_many<E: Error>(most: usize) -> E {
    E::custom(format_args!("too many entries: the maximum is {most}"))
}

/// Reads a list.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct List<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
            let mut list = vec![];
            while let Some(entry) = entries.next_element()? {
                if list.len() == MOST {
                    return Err(too_many(MOST));
                }
                list.push(entry);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_seq(List::<T, MOST>(PhantomData))
}

/// Reads a map. Of entries with the same name, the last one counts.
pub fn map<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    struct Map<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Map<T, MOST> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a map of at most {MOST} entries")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<BTreeMap<String, T>, A::Error> {
            let mut map = BTreeMap::new();
            while let Some((name, value)) = entries.next_entry()? {
                if map.len() == MOST {
                    return Err(too_many(MOST));
                }
                map.insert(name, value);
            }
            Ok(map)
        }
    }

    deserializer.deserialize_map(Map::<T, MOST>(PhantomData))
}

#[cfg(test)]
mod tests {
    use crate::JsonRequest;
    use serde_json::json;

    #[test]
    fn entries_beyond_the_most_are_refused() {
        let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        let map = |count: usize| {
            json!(names(count).into_iter().map(|name| (name, "1")).collect::<std::collections::BTreeMap<_, _>>())
        };
        for (field, most, is_map) in [
            ("files", super::FILES, true),
            ("args", super::ARGS, false),
            ("env", super::VARIABLES, true),
            ("requirements", super::PACKAGES, false),
            ("limits", super::FEW, true),
            ("volumes", super::FEW, false),
        ] {
            let read = |count: usize| {
                let value = if is_map { map(count) } else { json!(names(count)) };
                serde_json::from_value::<JsonRequest>(json!({"code": "1", field: value}))
                    .map_err(|error| error.to_string())
            };
            assert!(read(most).is_ok(), "{field}");
            assert_eq!(read(most + 1).expect_err(field), format!("too many entries: the maximum is {most}"));
        }
        let network = json!({"code": "1", "network": {"mode": "allowlist", "hosts": names(super::HOSTS + 1)}});
        assert!(serde_json::from_value::<JsonRequest>(network).is_err());
    }
}
