//! Values as literals of a language: what the template filter `literal` writes.

use serde_json::Value;

/// Writes a value as a literal of a language.
pub(crate) fn literal(value: &Value, language: &str) -> Result<String, String> {
    match language {
        "python" => Ok(python(value)),
        "javascript" | "typescript" => Ok(javascript(value)),
        "go" => go(value).map(|(text, _)| text),
        "rust" => rust(value),
        "java" => java(value).map(|(text, _)| text),
        "c" => c(value),
        "cpp" => cpp(value).map(|(text, _)| text),
        "bash" => bash(value),
        other => Err(format!("there is no way to write literals of {other}")),
    }
}

fn join<T>(items: impl IntoIterator<Item = T>, write: impl Fn(T) -> String) -> String {
    items.into_iter().map(write).collect::<Vec<_>>().join(", ")
}

fn try_join<T>(
    items: impl IntoIterator<Item = T>,
    write: impl Fn(T) -> Result<String, String>,
) -> Result<String, String> {
    items.into_iter().map(write).collect::<Result<Vec<_>, _>>().map(|words| words.join(", "))
}

/// A string in double quotes. `unusual` writes what is not plain.
fn quoted(text: &str, unusual: impl Fn(char) -> String) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || is_refused(c) => out.push_str(&unusual(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn four_digits(c: char) -> String {
    format!("\\u{:04x}", c as u32)
}

/// For C: three octal digits for each byte, which no following digit can join.
fn octal(c: char) -> String {
    let mut buffer = [0; 4];
    c.encode_utf8(&mut buffer).bytes().map(|byte| format!("\\{byte:03o}")).collect()
}

fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text, four_digits),
        Value::Array(items) => format!("[{}]", join(items, python)),
        Value::Object(map) => {
            format!("{{{}}}", join(map, |(key, value)| format!("{}: {}", quoted(key, four_digits), python(value))))
        }
    }
}

fn javascript(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text, four_digits),
        Value::Array(items) => format!("[{}]", join(items, javascript)),
        Value::Object(map) => {
            // Computed, because "__proto__" means something else otherwise.
            format!(
                "{{{}}}",
                join(map, |(key, value)| format!("[{}]: {}", quoted(key, four_digits), javascript(value)))
            )
        }
        plain => plain.to_string(),
    }
}

/// The type that all items have in common, in a language where lists have one.
fn common(types: &[String], otherwise: &str) -> String {
    match types.split_first() {
        Some((first, rest)) if rest.iter().all(|other| other == first) => first.clone(),
        _ => otherwise.to_owned(),
    }
}

/// Whether all numbers of a list should be written with a point because one of them is.
fn some_float(items: &[Value]) -> bool {
    items.iter().all(Value::is_number) && items.iter().any(Value::is_f64)
}

fn float(value: &Value) -> String {
    let text = value.to_string();
    if text.contains(['.', 'e', 'E']) { text } else { format!("{text}.0") }
}

/// Literals with their types.
type Typed = Result<(String, String), String>;

fn go(value: &Value) -> Typed {
    let typed = |text: String, kind: &str| Ok((text, kind.to_owned()));
    match value {
        Value::Null => typed("nil".to_owned(), "any"),
        Value::Bool(_) => typed(value.to_string(), "bool"),
        Value::Number(number) if number.is_f64() => typed(float(value), "float64"),
        Value::Number(_) => typed(value.to_string(), "int"),
        Value::String(text) => typed(quoted(text, four_digits), "string"),
        Value::Array(items) if some_float(items) => typed(format!("[]float64{{{}}}", join(items, float)), "[]float64"),
        Value::Array(items) => {
            let items = items.iter().map(go).collect::<Result<Vec<_>, _>>()?;
            let (texts, types): (Vec<_>, Vec<_>) = items.into_iter().unzip();
            let kind = format!("[]{}", common(&types, if texts.is_empty() { "int" } else { "any" }));
            Ok((format!("{kind}{{{}}}", texts.join(", ")), kind))
        }
        Value::Object(map) => {
            let values = map.values().map(go).collect::<Result<Vec<_>, _>>()?;
            let (texts, types): (Vec<_>, Vec<_>) = values.into_iter().unzip();
            let kind = format!("map[string]{}", common(&types, "any"));
            let pairs = join(map.keys().zip(texts), |(key, text)| format!("{}: {text}", quoted(key, four_digits)));
            Ok((format!("{kind}{{{pairs}}}"), kind))
        }
    }
}

fn rust(value: &Value) -> Result<String, String> {
    let braces = |c: char| format!("\\u{{{:x}}}", c as u32);
    match value {
        Value::Null => Ok("None".to_owned()),
        Value::Number(number) if number.is_f64() => Ok(float(value)),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::String(text) => Ok(quoted(text, braces)),
        Value::Array(items) if some_float(items) => Ok(format!("vec![{}]", join(items, float))),
        Value::Array(items) => Ok(format!("vec![{}]", try_join(items, rust)?)),
        Value::Object(map) => {
            let pairs = try_join(map, |(key, value)| Ok(format!("({}, {})", quoted(key, braces), rust(value)?)))?;
            Ok(format!("std::collections::BTreeMap::from([{pairs}])"))
        }
    }
}

fn java(value: &Value) -> Typed {
    let typed = |text: String, kind: &str| Ok((text, kind.to_owned()));
    match value {
        Value::Null => typed("null".to_owned(), "Object"),
        Value::Bool(_) => typed(value.to_string(), "boolean"),
        Value::Number(number) if number.is_f64() => typed(float(value), "double"),
        Value::Number(number) if number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) => {
            typed(value.to_string(), "int")
        }
        Value::Number(_) => typed(format!("{value}L"), "long"),
        Value::String(text) => typed(java_string(text), "String"),
        Value::Array(items) if some_float(items) => {
            typed(format!("new double[]{{{}}}", join(items, float)), "double[]")
        }
        Value::Array(items) => {
            let items = items.iter().map(java).collect::<Result<Vec<_>, _>>()?;
            let (texts, types): (Vec<_>, Vec<_>) = items.into_iter().unzip();
            let kind = format!("{}[]", common(&types, if texts.is_empty() { "int" } else { "Object" }));
            Ok((format!("new {kind}{{{}}}", texts.join(", ")), kind))
        }
        Value::Object(map) => {
            let pairs = try_join(map, |(key, value)| {
                let (text, _) = java(value)?;
                Ok(format!("java.util.Map.entry({}, {text})", java_string(key)))
            })?;
            typed(format!("java.util.Map.ofEntries({pairs})"), "java.util.Map")
        }
    }
}

/// Java reads \u000a as a line's end, wherever it is: control characters are written in octal.
fn java_string(text: &str) -> String {
    quoted(text, |c| if c.is_ascii() { octal(c) } else { four_digits(c) })
}

fn c(value: &Value) -> Result<String, String> {
    match value {
        Value::Null => Ok("NULL".to_owned()),
        Value::Bool(flag) => Ok(u8::from(*flag).to_string()),
        Value::Number(number) if number.is_f64() => Ok(float(value)),
        Value::Number(_) => Ok(value.to_string()),
        Value::String(text) => Ok(quoted(text, octal)),
        Value::Array(items) if some_float(items) => Ok(format!("(double[]){{{}}}", join(items, float))),
        Value::Array(items) => {
            let kind = match items.as_slice() {
                items if items.iter().all(Value::is_string) => "const char *",
                items if items.iter().all(|item| item.is_number() || item.is_boolean()) => "int",
                _ => return Err("C has no literal for this list".to_owned()),
            };
            Ok(format!("({kind}[]){{{}}}", try_join(items, c)?))
        }
        Value::Object(_) => Err("C has no literal for a map".to_owned()),
    }
}

fn cpp(value: &Value) -> Typed {
    let typed = |text: String, kind: &str| Ok((text, kind.to_owned()));
    match value {
        Value::Null => typed("nullptr".to_owned(), "std::nullptr_t"),
        Value::Bool(_) => typed(value.to_string(), "bool"),
        Value::Number(number) if number.is_f64() => typed(float(value), "double"),
        Value::Number(number) if number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) => {
            typed(value.to_string(), "int")
        }
        Value::Number(_) => typed(format!("{value}LL"), "long long"),
        Value::String(text) => typed(cpp_string(text), "std::string"),
        Value::Array(items) if some_float(items) => {
            typed(format!("std::vector<double>{{{}}}", join(items, float)), "std::vector<double>")
        }
        Value::Array(items) => {
            let items = items.iter().map(cpp).collect::<Result<Vec<_>, _>>()?;
            let (texts, types): (Vec<_>, Vec<_>) = items.into_iter().unzip();
            let inner = match common(&types, "") {
                inner if !inner.is_empty() => inner,
                _ if texts.is_empty() => "int".to_owned(),
                _ => return Err("C++ has no literal for a list of different types".to_owned()),
            };
            let kind = format!("std::vector<{inner}>");
            Ok((format!("{kind}{{{}}}", texts.join(", ")), kind))
        }
        Value::Object(map) => {
            let values = map.values().map(cpp).collect::<Result<Vec<_>, _>>()?;
            let (texts, types): (Vec<_>, Vec<_>) = values.into_iter().unzip();
            let inner = common(&types, "");
            if inner.is_empty() {
                return Err("C++ has no literal for a map of different types".to_owned());
            }
            let kind = format!("std::map<std::string, {inner}>");
            let pairs = join(map.keys().zip(texts), |(key, text)| format!("{{{}, {text}}}", cpp_string(key)));
            Ok((format!("{kind}{{{pairs}}}"), kind))
        }
    }
}

/// With its length, because it may have a NUL.
fn cpp_string(text: &str) -> String {
    format!("std::string({}, {})", quoted(text, octal), text.len())
}

fn bash(value: &Value) -> Result<String, String> {
    let word = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    match value {
        Value::Null => Ok("''".to_owned()),
        Value::String(text) if text.contains('\0') => Err("a word of the shell cannot have a NUL".to_owned()),
        Value::String(text) => Ok(word(text)),
        Value::Bool(_) | Value::Number(_) => Ok(word(&value.to_string())),
        Value::Array(items) => Ok(items.iter().map(bash).collect::<Result<Vec<_>, _>>()?.join(" ")),
        Value::Object(_) => Err("bash has no literal for a map".to_owned()),
    }
}

/// Characters that some language does not take within a literal: the first three end a line, Go refuses the next one within a
/// file, and Rust those that change the direction of writing.
fn is_refused(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}' | '\u{85}' | '\u{feff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        assert!(literal(&nasty, "cobol").is_err());
    }

    #[test]
    fn what_compilers_refuse_in_a_string_is_escaped() {
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
}
