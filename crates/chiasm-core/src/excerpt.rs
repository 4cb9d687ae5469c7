//! A short, printable piece of untrusted text for error messages and log lines.
//!
//! It must never hold more than a bounded part of what was given, and never a character that could
//! break a log line or imitate another character.

use std::fmt;

use serde_json::Value;

use crate::limits::MAX_EXCERPT_CHARS;

/// The first [`MAX_EXCERPT_CHARS`] characters of a text, quoted; whatever is not printable ASCII is
/// escaped (`"5601\u{661}"`), and the length of the whole is said where some of it is left out.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Excerpt(Box<str>);

impl Excerpt {
    /// An excerpt of `text`.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut shown = String::from("\"");
        let mut chars = text.chars();
        for char in chars.by_ref().take(MAX_EXCERPT_CHARS) {
            match char {
                '"' | '\\' => shown.extend(['\\', char]),
                ' '..='~' => shown.push(char),
                _ => shown.extend(char.escape_default()),
            }
        }
        shown.push('"');
        if !chars.as_str().is_empty() {
            shown.extend(["... (", &text.len().to_string(), " bytes)"]);
        }
        Self(shown.into())
    }

    /// An excerpt of a JSON value: scalars as they are, of arrays and objects only their size, so
    /// that the cost does not grow with what was sent.
    #[must_use]
    pub fn of_json(value: &Value) -> Self {
        match value {
            Value::Null => Self("null".into()),
            Value::Bool(bool) => Self(bool.to_string().into()),
            Value::Number(number) => Self(number.to_string().into()),
            Value::String(text) => Self::of(text),
            Value::Array(elements) => Self(format!("an array of {}", elements.len()).into()),
            Value::Object(members) => Self(format!("an object of {}", members.len()).into()),
        }
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_bounded_and_on_one_line() {
        assert_eq!(Excerpt::of("10.0.0.5:x").to_string(), r#""10.0.0.5:x""#);
        assert_eq!(Excerpt::of("a\"\\\n\u{661}").to_string(), r#""a\"\\\n\u{661}""#);
        let long = "y".repeat(1_000_000);
        let shown = Excerpt::of(&long).to_string();
        assert!(shown.len() < 2 * MAX_EXCERPT_CHARS && shown.ends_with("... (1000000 bytes)"));
        let worst = "\u{10FFFF}".repeat(MAX_EXCERPT_CHARS + 1);
        assert!(Excerpt::of(&worst).to_string().len() < 11 * MAX_EXCERPT_CHARS);
    }

    #[test]
    fn json_values_are_named_by_kind_and_size() {
        let big = Value::Array(vec![Value::Null; 3_000_000]);
        assert_eq!(Excerpt::of_json(&big).to_string(), "an array of 3000000");
        assert_eq!(Excerpt::of_json(&serde_json::json!({"a": 1})).to_string(), "an object of 1");
        assert_eq!(Excerpt::of_json(&serde_json::json!(5601.5)).to_string(), "5601.5");
        assert_eq!(Excerpt::of_json(&Value::Null).to_string(), "null");
    }
}
