// A recursive-descent JSON parser: enums with data, pattern matching, Result and `?`.
use std::{iter::Peekable, str::Chars};
type Parsed<T> = Result<T, String>;

#[derive(Debug, PartialEq)]
enum Json {
    Constant(Option<bool>),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

struct Parser<'a>(Peekable<Chars<'a>>);

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        while self.0.next_if(|c| c.is_whitespace()).is_some() {}
        self.0.peek().copied()
    }

    fn expect(&mut self, wanted: char) -> Parsed<()> {
        let found = self.peek();
        self.0.next_if_eq(&wanted).map(drop).ok_or_else(|| format!("expected {wanted:?}, found {found:?}"))
    }

    fn items<T>(&mut self, start: char, end: char, item: fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.expect(start)?;
        let mut items = Vec::new();
        while self.peek() != Some(end) {
            if !items.is_empty() {
                self.expect(',')?;
            }
            items.push(item(self)?);
        }
        self.expect(end).map(|()| items)
    }

    fn text(&mut self) -> Parsed<String> {
        self.expect('"')?;
        let mut text = String::new();
        loop {
            match self.0.next().ok_or("unfinished string")? {
                '"' => return Ok(text),
                '\\' => text.extend(self.0.next()),
                other => text.push(other),
            }
        }
    }

    fn pair(&mut self) -> Parsed<(String, Json)> {
        let key = self.text()?;
        self.expect(':')?;
        Ok((key, self.value()?))
    }

    fn value(&mut self) -> Parsed<Json> {
        match self.peek().ok_or("nothing to parse")? {
            '"' => self.text().map(Json::Text),
            '[' => self.items('[', ']', Self::value).map(Json::List),
            '{' => self.items('{', '}', Self::pair).map(Json::Object),
            _ => {
                let next = || self.0.next_if(|c| c.is_alphanumeric() || "+-.".contains(*c));
                let word: String = std::iter::from_fn(next).collect();
                match word.as_str() {
                    "null" => Ok(Json::Constant(None)),
                    "true" | "false" => Ok(Json::Constant(Some(word == "true"))),
                    _ => word.parse().map(Json::Number).map_err(|_| format!("bad word {word:?}")),
                }
            }
        }
    }
}

fn main() {
    let document = r#" {"name": "Ada", "tags": ["\"é\"", null], "nested": {"pi": 3.14}} "#;
    for source in [document, "[-2.5, true, [], {}]", "[1, 2", r#"{"a" 1}"#, "[1, oops]", r#""open"#] {
        println!("{:?}", Parser(source.chars().peekable()).value());
    }
}
