//! Writes values as literals of a language, by the table `[literals]` of its definition. Templates use it as the filter
//! `literal`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The forms in which a language writes values. In each form, words in braces are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Literals {
    /// No value.
    pub null: String,
    /// True.
    pub r#true: String,
    /// False.
    pub r#false: String,
    /// Number: `{number}`, which is also the default.
    #[serde(default = "plain_number")]
    pub number: String,
    /// Integer that does not fit into 32 bits. By default, as other numbers.
    pub long: Option<String>,
    /// String: `{text}`, with everything escaped, and `{bytes}`, its length before that.
    pub string: String,
    /// Escapes of single characters in strings. By default, those of C for quotes, backslashes, tabs and line ends.
    #[serde(default = "backslashes")]
    pub escapes: BTreeMap<char, String>,
    /// Escape of other ASCII control characters: `{hex}`, `{hex4}`, or `{octal}` for each byte. By default they are not
    /// escaped, and a NUL is refused.
    pub control: Option<String>,
    /// The same for characters that some compilers refuse, such as line separators and changes of direction.
    pub special: Option<String>,
    /// List: `{items}`, and `{type}`, the type of the list.
    pub list: Option<String>,
    /// Whether lists cannot hold lists.
    #[serde(default)]
    pub flat_lists: bool,
    /// Map: `{items}`, and `{type}`, the type of the map.
    pub map: Option<String>,
    /// Entry of a map: `{key}` and `{value}`.
    pub entry: Option<String>,
    /// Separator of items. By default, a comma and a space.
    #[serde(default = "comma")]
    pub separator: String,
    /// Whether all numbers of a list are written with a point if one of them is.
    #[serde(default)]
    pub uniform_floats: bool,
    /// Types of values, for languages in which lists have one.
    pub types: Option<LiteralTypes>,
}

/// Types of values. A value without a type cannot be in a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiteralTypes {
    /// Type of no value.
    pub null: Option<String>,
    /// Type of true and false.
    pub bool: Option<String>,
    /// Type of integers.
    pub int: Option<String>,
    /// Type of integers that do not fit into 32 bits, if `[literals]` has a form for them.
    pub long: Option<String>,
    /// Type of numbers with a point.
    pub float: Option<String>,
    /// Type of strings.
    pub string: Option<String>,
    /// Type of lists; `{type}` is the type of their items.
    pub list: Option<String>,
    /// Type of maps; `{type}` is the type of their values.
    pub map: Option<String>,
    /// Common type of items whose types differ. Without it, they cannot be in one list.
    pub mixed: Option<String>,
    /// Type of the items of an empty list.
    pub empty: Option<String>,
}

fn plain_number() -> String {
    "{number}".to_owned()
}

fn comma() -> String {
    ", ".to_owned()
}

fn backslashes() -> BTreeMap<char, String> {
    [('"', "\\\""), ('\\', "\\\\"), ('\n', "\\n"), ('\r', "\\r"), ('\t', "\\t")]
        .map(|(from, to)| (from, to.to_owned()))
        .into()
}

/// A literal with its type, in languages where that matters.
type Typed = (String, Option<String>);

/// A literal with items: a list or a map.
#[derive(Clone, Copy)]
enum LiteralGroup {
    List,
    Map,
}

impl LiteralGroup {
    fn name(self) -> &'static str {
        match self {
            Self::List => "a list",
            Self::Map => "a map",
        }
    }
}

impl Literals {
    /// Writes a value. The error names the type that the language has no literal for.
    pub fn write(&self, value: &Value) -> Result<String, String> {
        self.typed(value).map(|(text, _)| text)
    }

    /// The first key whose form lacks what has to be in it.
    pub(crate) fn problem(&self) -> Option<String> {
        let lacks = |key: &str, form: Option<&String>, words: &[&str]| {
            let word = words.iter().find(|word| form.is_some_and(|form| !form.contains(**word)))?;
            Some(format!("literals.{key}: {word} is missing"))
        };
        let unescaped = |key: &str, form: Option<&String>| {
            let known = ["{hex}", "{hex4}", "{octal}"];
            let useless = form.is_some_and(|form| !known.iter().any(|word| form.contains(word)));
            useless.then(|| format!("literals.{key}: expected one of {}", known.join(", ")))
        };
        let types = self.types.as_ref();
        let untyped = |key: &str, form: Option<&String>, own: Option<&String>| {
            let wants = form.is_some_and(|form| form.contains("{type}")) && own.is_none();
            wants.then(|| format!("literals.{key} uses {{type}}, but there is no literals.types.{key}"))
        };
        lacks("number", Some(&self.number), &["{number}"])
            .or_else(|| lacks("long", self.long.as_ref(), &["{number}"]))
            .or_else(|| lacks("string", Some(&self.string), &["{text}"]))
            .or_else(|| lacks("list", self.list.as_ref(), &["{items}"]))
            .or_else(|| lacks("map", self.map.as_ref(), &["{items}"]))
            .or_else(|| lacks("entry", self.entry.as_ref(), &["{key}", "{value}"]))
            .or_else(|| unescaped("control", self.control.as_ref()))
            .or_else(|| unescaped("special", self.special.as_ref()))
            .or_else(|| untyped("list", self.list.as_ref(), types.and_then(|types| types.list.as_ref())))
            .or_else(|| untyped("map", self.map.as_ref(), types.and_then(|types| types.map.as_ref())))
            .or_else(|| {
                let half = self.map.is_some() != self.entry.is_some();
                half.then(|| "literals: map and entry belong together".to_owned())
            })
    }

    fn typed(&self, value: &Value) -> Result<Typed, String> {
        let of = |pick: fn(&LiteralTypes) -> &Option<String>| self.types.as_ref().and_then(|types| pick(types).clone());
        match value {
            Value::Null => Ok((self.null.clone(), of(|types| &types.null))),
            Value::Bool(true) => Ok((self.r#true.clone(), of(|types| &types.bool))),
            Value::Bool(false) => Ok((self.r#false.clone(), of(|types| &types.bool))),
            Value::Number(number) if number.is_f64() => Ok((self.float(value), of(|types| &types.float))),
            Value::Number(number) => {
                let is_small = number.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
                let written = |form: &str| fill(form, &[("number", &number.to_string())]);
                match &self.long {
                    Some(form) if !is_small => Ok((written(form), of(|types| &types.long))),
                    _ => Ok((written(&self.number), of(|types| &types.int))),
                }
            }
            Value::String(text) => Ok((self.string(text)?, of(|types| &types.string))),
            Value::Array(items) => {
                let form = self.list.as_ref().ok_or("a list")?;
                if self.flat_lists && items.iter().any(|item| item.is_array() || item.is_object()) {
                    return Err("a list of lists".to_owned());
                }
                let floats =
                    self.uniform_floats && items.iter().all(Value::is_number) && items.iter().any(Value::is_f64);
                let items = items.iter().map(|item| {
                    if floats { Ok((self.float(item), of(|types| &types.float))) } else { self.typed(item) }
                });
                let (texts, types): (Vec<_>, Vec<_>) = items.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
                self.collection(LiteralGroup::List, form, &texts, &types)
            }
            Value::Object(map) => {
                let (Some(form), Some(entry)) = (&self.map, &self.entry) else {
                    return Err("a map".to_owned());
                };
                let items = map.iter().map(|(key, value)| {
                    let (value, kind) = self.typed(value)?;
                    Ok((fill(entry, &[("key", &self.string(key)?), ("value", &value)]), kind))
                });
                let (texts, types): (Vec<_>, Vec<_>) = items.collect::<Result<Vec<_>, String>>()?.into_iter().unzip();
                self.collection(LiteralGroup::Map, form, &texts, &types)
            }
        }
    }

    fn collection(
        &self,
        collection: LiteralGroup,
        form: &str,
        texts: &[String],
        types: &[Option<String>],
    ) -> Result<Typed, String> {
        let kind = match &self.types {
            None => None,
            Some(own) => own.of_collection(collection, types)?,
        };
        let items = texts.join(&self.separator);
        let text = fill(form, &[("items", &items), ("type", kind.as_deref().unwrap_or_default())]);
        Ok((text, kind))
    }

    fn float(&self, value: &Value) -> String {
        let text = value.to_string();
        let text = if text.contains(['.', 'e', 'E']) { text } else { format!("{text}.0") };
        fill(&self.number, &[("number", &text)])
    }

    fn string(&self, text: &str) -> Result<String, String> {
        let mut escaped = String::with_capacity(text.len());
        for c in text.chars() {
            let form = if c.is_ascii_control() {
                self.control.as_ref()
            } else if c.is_control() || is_refused(c) {
                self.special.as_ref()
            } else {
                None
            };
            match (self.escapes.get(&c), form) {
                (Some(escape), _) => escaped.push_str(escape),
                (None, Some(form)) => escape(c, form, &mut escaped),
                (None, None) if c == '\0' => return Err("a NUL".to_owned()),
                (None, None) => escaped.push(c),
            }
        }
        Ok(fill(&self.string, &[("text", &escaped), ("bytes", &text.len().to_string())]))
    }
}

impl LiteralTypes {
    /// The type of a list or a map with items of these types.
    fn of_collection(&self, collection: LiteralGroup, types: &[Option<String>]) -> Result<Option<String>, String> {
        let (form, empty) = match collection {
            LiteralGroup::List => (&self.list, self.empty.as_ref()),
            LiteralGroup::Map => (&self.map, self.mixed.as_ref().or(self.empty.as_ref())),
        };
        let Some(form) = form else { return Ok(None) };
        if !form.contains("{type}") {
            return Ok(Some(form.clone()));
        }
        let impossible = |of: &str| format!("{} {of}", collection.name());
        let item = match types.split_first() {
            None => empty.ok_or_else(|| impossible("without items"))?,
            Some(_) if types.contains(&None) => return Err(impossible("of such items")),
            Some((Some(first), rest)) if rest.iter().all(|other| other.as_ref() == Some(first)) => first,
            Some(_) => self.mixed.as_ref().ok_or_else(|| impossible("of different types"))?,
        };
        Ok(Some(fill(form, &[("type", item)])))
    }
}

/// Replaces words in braces, once each from left to right: replacements are not replaced again.
fn fill(form: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(form.len());
    let mut rest = form;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        let inside = &rest[at + 1..];
        let found =
            values.iter().find_map(|(name, value)| Some((*value, inside.strip_prefix(*name)?.strip_prefix('}')?)));
        if let Some((value, after)) = found {
            out.push_str(value);
            rest = after;
        } else {
            out.push('{');
            rest = inside;
        }
    }
    out.push_str(rest);
    out
}

/// Writes a character by its number.
fn escape(c: char, form: &str, out: &mut String) {
    if form.contains("{octal}") {
        let mut buffer = [0; 4];
        for byte in c.encode_utf8(&mut buffer).bytes() {
            out.push_str(&fill(form, &[("octal", &format!("{byte:03o}"))]));
        }
    } else {
        let code = c as u32;
        out.push_str(&fill(form, &[("hex4", &format!("{code:04x}")), ("hex", &format!("{code:x}"))]));
    }
}

/// Characters that some language refuses within a literal: the first three end a line, Go refuses the next one within a
/// file, and Rust those that change the direction of writing.
fn is_refused(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}' | '\u{85}' | '\u{feff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use serde_json::json;

    fn literal(value: &Value, language: &str) -> Result<String, String> {
        let registry = Registry::shipped().expect("valid");
        registry.by_name(language).expect("known").literals.as_ref().expect("literals").write(value)
    }

    #[test]
    fn each_language_has_its_own_way() {
        let nasty = json!("a\"b\\c\n\u{1}é\u{2028}$'");
        for (language, expected) in [
            ("python", "\"a\\\"b\\\\c\\n\\u0001é\\u2028$'\""),
            ("javascript", "\"a\\\"b\\\\c\\n\\u0001é\\u2028$'\""),
            ("go", "\"a\\\"b\\\\c\\n\\u0001é\\u2028$'\""),
            ("rust", "\"a\\\"b\\\\c\\n\\u{1}é\\u{2028}$'\""),
            ("java", "\"a\\\"b\\\\c\\n\\001é\\u2028$'\""),
            ("c", "\"a\\\"b\\\\c\\n\\001é\\342\\200\\250$'\""),
            ("cpp", "std::string(\"a\\\"b\\\\c\\n\\001é\\342\\200\\250$'\", 14)"),
            ("bash", "'a\"b\\c\n\u{1}é\u{2028}$'\\'''"),
        ] {
            assert_eq!(literal(&nasty, language).as_deref(), Ok(expected), "{language}");
        }
    }

    #[test]
    fn characters_that_compilers_refuse_are_escaped() {
        let odd = json!("\u{feff}\u{202e}\u{2066}");
        assert_eq!(literal(&odd, "go").as_deref(), Ok("\"\\ufeff\\u202e\\u2066\""));
        assert_eq!(literal(&odd, "rust").as_deref(), Ok("\"\\u{feff}\\u{202e}\\u{2066}\""));
        assert_eq!(literal(&odd, "c").as_deref(), Ok("\"\\357\\273\\277\\342\\200\\256\\342\\201\\246\""));
    }

    #[test]
    fn names_in_maps_are_written_like_other_strings() {
        let map = json!({"a\0b": 1});
        let cpp = "std::map<std::string, int>{{std::string(\"a\\000b\", 3), 1}}";
        assert_eq!(literal(&map, "cpp").as_deref(), Ok(cpp));
        let java = "java.util.Map.ofEntries(java.util.Map.entry(\"a\\000b\", 1))";
        assert_eq!(literal(&map, "java").as_deref(), Ok(java));
    }

    #[test]
    fn lists_and_maps_have_types_where_types_are_needed() {
        let nested = json!([[1, 2], [3]]);
        assert_eq!(literal(&nested, "go").as_deref(), Ok("[][]int{[]int{1, 2}, []int{3}}"));
        assert_eq!(literal(&nested, "java").as_deref(), Ok("new int[][]{new int[]{1, 2}, new int[]{3}}"));
        assert_eq!(literal(&nested, "rust").as_deref(), Ok("vec![vec![1, 2], vec![3]]"));
        let expected = "std::vector<std::vector<int>>{std::vector<int>{1, 2}, std::vector<int>{3}}";
        assert_eq!(literal(&nested, "cpp").as_deref(), Ok(expected));
        assert!(literal(&nested, "c").is_err());
        let mixed = json!([1, 2.5]);
        assert_eq!(literal(&mixed, "go").as_deref(), Ok("[]float64{1.0, 2.5}"));
        assert_eq!(literal(&mixed, "c").as_deref(), Ok("(double[]){1.0, 2.5}"));
        assert_eq!(literal(&json!({"a": true}), "python").as_deref(), Ok("{\"a\": True}"));
        assert_eq!(literal(&json!({"a": 1}), "go").as_deref(), Ok("map[string]int{\"a\": 1}"));
        assert_eq!(literal(&json!(["a b", 1]), "bash").as_deref(), Ok("'a b' '1'"));
        assert_eq!(literal(&json!(3_000_000_000_u64), "java").as_deref(), Ok("3000000000L"));
        assert_eq!(literal(&json!([]), "go").as_deref(), Ok("[]int{}"));
    }

    #[test]
    fn errors_name_values_without_a_literal() {
        for (language, value, what) in [
            ("c", json!([[1]]), "a list of lists"),
            ("c", json!([null]), "a list of such items"),
            ("c", json!({}), "a map"),
            ("cpp", json!([1, "a"]), "a list of different types"),
            ("cpp", json!({"a": 1, "b": "c"}), "a map of different types"),
            ("bash", json!("a\0b"), "a NUL"),
        ] {
            assert_eq!(literal(&value, language), Err(what.to_owned()), "{language} {value}");
        }
    }

    #[test]
    fn inserted_text_is_not_expanded_again() {
        let text = json!(["{type}", "{items}", "{text}{bytes}"]);
        assert_eq!(literal(&text, "go").as_deref(), Ok(r#"[]string{"{type}", "{items}", "{text}{bytes}"}"#));
        assert_eq!(literal(&json!({"{value}": "{key}"}), "python").as_deref(), Ok(r#"{"{value}": "{key}"}"#));
    }

    #[test]
    fn forms_must_contain_what_they_write() {
        let registry = Registry::shipped().expect("valid");
        let go = registry.by_name("go").expect("known").literals.as_ref().expect("literals");
        let problem = |change: fn(&mut Literals)| {
            let mut changed = go.clone();
            change(&mut changed);
            changed.problem()
        };
        assert_eq!(problem(|_| ()), None);
        let found = |change| problem(change).expect("refused");
        assert_eq!(found(|go| go.list = Some("[]".to_owned())), "literals.list: {items} is missing");
        assert_eq!(found(|go| go.string = "x".to_owned()), "literals.string: {text} is missing");
        assert_eq!(found(|go| go.entry = Some("{key}".to_owned())), "literals.entry: {value} is missing");
        assert_eq!(
            found(|go| go.control = Some("?".to_owned())),
            "literals.control: expected one of {hex}, {hex4}, {octal}"
        );
        assert_eq!(found(|go| go.entry = None), "literals: map and entry belong together");
        assert!(found(|go| go.types = None).contains("there is no literals.types.list"));
    }
}
