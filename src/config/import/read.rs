//! Text → tree: JSON, JSON with comments and trailing commas as editors have it, and TOML.
//!
//! Must not know: what the keys mean.

use toml_span::value::ValueInner;

use super::{Foreign, ImportError};
use crate::config::tree::{self, Name, Node, Scalar, ScalarKind, Span, Value};

/// Reads a file, whichever of the forms it has.
///
/// # Errors
/// With the place at which it is none of them.
pub(super) fn read(file: &Foreign) -> Result<Node, ImportError> {
    let text = file.text.trim_start_matches('\u{feff}');
    let syntax = |line, message| ImportError::Syntax { file: file.name.clone(), line, message };
    let first = text.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with("//"));
    if first.is_some_and(|line| line.starts_with('{') || line.starts_with("/*")) {
        let plain = plain_json(text);
        return tree::parse(&plain)
            .map_err(|error| syntax(error.span.map_or(1, |span| span.line), error.message));
    }
    match toml_span::parse(text) {
        Ok(value) => Ok(from_toml(value, text)),
        Err(error) => Err(syntax(line_of(text, error.span.start), error.kind.to_string())),
    }
}

/// JSON without comments, trailing commas and tabs between its parts, every other character where it was.
fn plain_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '"' => {
                let end = end_of_string(rest);
                out.push_str(&without_surrogates(rest.get(..end).unwrap_or(rest)));
                end
            }
            '/' if rest.starts_with("//") => blank(&mut out, rest, rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => {
                blank(&mut out, rest, rest.find("*/").map_or(rest.len(), |end| end + 2))
            }
            ',' if is_trailing(rest) => blank(&mut out, rest, 1),
            '\t' => blank(&mut out, rest, 1),
            other => {
                out.push(other);
                other.len_utf8()
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    out
}

/// Writes a blank for each character but line ends.
fn blank(out: &mut String, rest: &str, length: usize) -> usize {
    out.extend(rest.get(..length).unwrap_or(rest).chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
    length
}

fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !is_escaped => return at + 1,
            _ => is_escaped = c == '\\' && !is_escaped,
        }
    }
    text.len()
}

/// A string of JSON whose pairs of `\u` escapes are the character that they stand for, which YAML has no pairs for.
fn without_surrogates(string: &str) -> String {
    if !string.contains("\\ud") && !string.contains("\\uD") {
        return string.to_owned();
    }
    let plain = serde_json::from_str::<String>(string).and_then(|text| serde_json::to_string(&text));
    plain.unwrap_or_else(|_| string.to_owned())
}

/// Whether nothing but blanks and comments stands between this comma and the end of its list or object.
fn is_trailing(text: &str) -> bool {
    let mut rest = text.get(1..).unwrap_or_default();
    loop {
        rest = rest.trim_start();
        let comment = match rest.get(..2) {
            Some("//") => rest.find('\n').unwrap_or(rest.len()),
            Some("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            _ => return rest.starts_with(['}', ']']),
        };
        rest = rest.get(comment..).unwrap_or_default();
    }
}

fn from_toml(mut value: toml_span::Value<'_>, text: &str) -> Node {
    let span = span_of(text, value.span);
    let scalar = |text: String, kind| Value::Scalar(Scalar { text, kind });
    let value = match value.take() {
        ValueInner::String(string) => scalar(string.into_owned(), ScalarKind::Text),
        ValueInner::Integer(number) => scalar(number.to_string(), ScalarKind::Number),
        ValueInner::Float(number) => scalar(number.to_string(), ScalarKind::Number),
        ValueInner::Boolean(flag) => scalar(flag.to_string(), ScalarKind::Flag),
        ValueInner::Array(items) => {
            Value::List(items.into_iter().map(|item| from_toml(item, text)).collect())
        }
        ValueInner::Table(table) => {
            let mut entries: Vec<(Name, Node)> = table
                .into_iter()
                .map(|(key, value)| {
                    let name = Name { span: span_of(text, key.span), text: key.name.into_owned() };
                    (name, from_toml(value, text))
                })
                .collect();
            entries.sort_by_key(|(name, _)| name.span.start);
            Value::Map(entries)
        }
    };
    Node { span, value }
}

fn span_of(text: &str, span: toml_span::Span) -> Span {
    Span { start: span.start, end: span.end, line: line_of(text, span.start), column: 1 }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<(String, usize)> {
        let file = Foreign { name: "f".to_owned(), text: text.to_owned() };
        let node = read(&file).unwrap_or_else(|error| panic!("{text}: {error}"));
        let Value::Map(entries) = node.value else { panic!("no mapping") };
        entries.into_iter().map(|(name, _)| (name.text, name.span.line)).collect()
    }

    #[test]
    fn editors_write_comments_trailing_commas_and_tabs() {
        let text = "\u{feff}// of an editor\n{\n\t\"a\": \"x // no, \\\" comment\", /* yes,\n */ \"b\": [1,\t2, ],\n\t\"c\": {\"\\ud83d\\ude00\": 1,},\n}\n";
        assert_eq!(keys(text), [("a".into(), 3), ("b".into(), 4), ("c".into(), 5)]);
    }

    #[test]
    fn tables_keep_the_order_of_the_file() {
        let text = "model = \"x\"\n\n[z]\nurl = 1\n[a.b]\nc = true\n";
        assert_eq!(keys(text), [("model".into(), 1), ("z".into(), 3), ("a".into(), 5)]);
    }

    #[test]
    fn what_is_neither_has_its_line() {
        for (text, line) in [("{\"a\": 1\n\"b\": 2}", 2), ("a = 1\nb = \n", 2), ("just words", 1)] {
            let file = Foreign { name: "f".to_owned(), text: text.to_owned() };
            let Err(ImportError::Syntax { line: found, .. }) = read(&file) else { panic!("{text}") };
            assert_eq!(found, line, "{text}");
        }
    }
}
