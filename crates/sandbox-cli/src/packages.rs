//! `--package`: packages, each with an option of its own or several with commas between them.

/// Splits at commas that separate packages: not at those in brackets or quotes (`serde@1[derive,rc]`), nor before a
/// further condition on the version (`six>=1,<2`).
pub(crate) fn split(texts: &[String]) -> Vec<String> {
    texts.iter().flat_map(|text| split_one(text)).collect()
}

fn split_one(text: &str) -> Vec<String> {
    let (mut parts, mut start, mut depth, mut quote) = (vec![], 0, 0_usize, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) => quote = quote.filter(|_| open != c),
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '(') => depth += 1,
            (None, ']' | ')') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 && !text[at + 1..].trim_start().starts_with(['<', '>', '=', '!', '~']) => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    let named = |part: &&str| !part.trim().is_empty();
    let found: Vec<String> = parts.into_iter().filter(named).map(|part| part.trim().to_owned()).collect();
    // What names nothing is refused like any other invalid package.
    if found.is_empty() { vec![text.to_owned()] } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_packages_but_not_their_parts() {
        for (text, expected) in [
            ("numpy,pandas", vec!["numpy", "pandas"]),
            ("numpy, pandas ,", vec!["numpy", "pandas"]),
            ("six>=1,<2", vec!["six>=1,<2"]),
            ("six>=1, <2,attrs", vec!["six>=1, <2", "attrs"]),
            ("requests[socks,security]~=2.31,six", vec!["requests[socks,security]~=2.31", "six"]),
            ("serde@1[derive,rc]", vec!["serde@1[derive,rc]"]),
            ("org.x:a:[1.0,2.0),org.x:b:1", vec!["org.x:a:[1.0,2.0)", "org.x:b:1"]),
            ("six; sys_platform in 'linux,darwin',attrs", vec!["six; sys_platform in 'linux,darwin'", "attrs"]),
            ("@types/node@20,lodash@4", vec!["@types/node@20", "lodash@4"]),
            ("", vec![""]),
            (",", vec![","]),
        ] {
            assert_eq!(split(&[text.to_owned()]), expected, "{text}");
        }
    }
}
