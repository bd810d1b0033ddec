//! Translates line numbers in messages about a rendered file into those of the snippet.

use regex_lite::{Captures, Regex};

use super::Lines;

/// Translates messages about lines of a rendered file into messages about lines of the snippet.
#[derive(Debug, Clone)]
pub(crate) struct Translator {
    lines: Lines,
    /// Matches a line of the file by name: the file, the separator, the number.
    place: Option<Regex>,
    /// A line's number in front of the line, as compilers quote it.
    quote: Option<Regex>,
}

impl Translator {
    pub(crate) fn new(lines: Lines, entry: &str) -> Self {
        let name: String =
            entry.chars().map(|c| if c.is_alphanumeric() { c.to_string() } else { format!("\\{c}") }).collect();
        Self {
            lines,
            place: Regex::new(&format!("({name})(\", line |:|: line |\\()([0-9]+)")).ok(),
            quote: Regex::new("(?m)^( *)([0-9]+)( *\\|| [-+~] )").ok(),
        }
    }

    fn translate(&self, number: &str) -> Option<usize> {
        let line = number.parse::<usize>().ok()?.checked_sub(self.lines.before)?;
        (1..=self.lines.count).contains(&line).then_some(line)
    }

    /// Translates messages of a program. Lines of the template are marked as such.
    pub(crate) fn messages(&self, text: &str) -> String {
        let Some(place) = &self.place else { return text.to_owned() };
        let replaced = place.replace_all(text, |found: &Captures<'_>| match self.translate(&found[3]) {
            Some(line) => format!("{}{}{line}", &found[1], &found[2]),
            None => format!("{} (template){}{}", &found[1], &found[2], &found[3]),
        });
        replaced.into_owned()
    }

    /// Translates messages of a compiler, which also quotes lines with their numbers.
    pub(crate) fn compiler_messages(&self, text: &str) -> String {
        let text = self.messages(text);
        let Some(quote) = &self.quote else { return text };
        let replaced = quote.replace_all(&text, |found: &Captures<'_>| match self.translate(&found[2]) {
            Some(line) => format!("{}{line:>width$}{}", &found[1], &found[3], width = found[2].len()),
            None => found[0].to_owned(),
        });
        replaced.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_about_the_snippet() {
        let translator = Translator::new(Lines { before: 10, count: 5 }, "main.py");
        let text = "File \"/sandbox/main.py\", line 12, in f\nmain.py:15:3: error\nmain.py(11,2)\n";
        let expected = "File \"/sandbox/main.py\", line 2, in f\nmain.py:5:3: error\nmain.py(1,2)\n";
        assert_eq!(translator.messages(text), expected);
        assert_eq!(translator.messages("main.py:3: x"), "main.py (template):3: x");
        assert_eq!(translator.compiler_messages("12 | x\n 9 | y\n"), " 2 | x\n 9 | y\n");
        assert_eq!(translator.messages("main_py:12"), "main_py:12");
    }
}
