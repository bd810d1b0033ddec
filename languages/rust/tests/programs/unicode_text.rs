// Strings: bytes, chars and slices, invalid UTF-8, case mapping, a Caesar cipher, Roman numerals.
use std::borrow::Cow;
use std::collections::BTreeMap;

const NUMERALS: [(&str, u32); 13] = [
    ("M", 1000),
    ("CM", 900),
    ("D", 500),
    ("CD", 400),
    ("C", 100),
    ("XC", 90),
    ("L", 50),
    ("XL", 40),
    ("X", 10),
    ("IX", 9),
    ("V", 5),
    ("IV", 4),
    ("I", 1),
];

fn to_roman(mut n: u32) -> String {
    let mut out = String::new();
    for (numeral, value) in NUMERALS {
        while n >= value {
            out += numeral;
            n -= value;
        }
    }
    out
}

fn is_palindrome(text: &str) -> bool {
    let letters = || text.chars().filter(|c| c.is_alphabetic()).flat_map(char::to_lowercase);
    letters().eq(letters().collect::<Vec<_>>().into_iter().rev())
}

fn caesar(text: &str, shift: u8) -> String {
    let rotate = |c: char, base: u8| (base + (c as u8 - base + shift) % 26) as char;
    text.chars()
        .map(|c| match c {
            'a'..='z' => rotate(c, b'a'),
            'A'..='Z' => rotate(c, b'A'),
            _ => c,
        })
        .collect()
}

fn escape(text: &str) -> Cow<'_, str> {
    if text.contains(['<', '>']) {
        Cow::Owned(text.replace('<', "&lt;").replace('>', "&gt;"))
    } else {
        Cow::Borrowed(text)
    }
}

fn main() {
    for text in ["naïve", "日本語", "🎉"] {
        println!("{text} {} {} {}", text.len(), text.chars().count(), text.encode_utf16().count());
    }
    let word = "日本語";
    println!("{} {:?} {}", &word[3..6], word.get(1..4), word.chars().rev().collect::<String>());
    println!("{:?}", "aé日".char_indices().collect::<Vec<_>>());
    println!("{} {}", "straße".to_uppercase(), "ÀÉ".to_lowercase());
    println!("{} {}", String::from_utf8_lossy(b"ab\xffcd"), String::from_utf8(vec![0xff]).is_err());
    println!("{} {}", is_palindrome("A man, a plan, a canal: Panama!"), is_palindrome("A dog?"));
    println!("{} {}", caesar("Hello, World!", 13), caesar(&caesar("Zebra", 3), 23));
    println!("{} {} {}", to_roman(1994), to_roman(2024), to_roman(3999));
    println!("{} {}", escape("<b>"), matches!(escape("plain"), Cow::Borrowed(_)));

    let mut counts = BTreeMap::new();
    for word in "the cat the dog the end".split_whitespace() {
        *counts.entry(word).or_insert(0) += 1;
    }
    println!("{counts:?}");
    println!("|{:>8.2}|{:<6}|{:^7}|{:06}|{:#x}|{:08b}|", 3.14159, "rust", "mid", 42, 255, 5);
    println!("{:?}", "a=1; b=2;c".split(';').map(|p| p.trim().split_once('=')).collect::<Vec<_>>());
}
