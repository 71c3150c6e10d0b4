//! The configuration as it came out: every key, its value, and where that came from. Secrets are never in it.
//!
//! Must not know: what the keys mean.

use std::fmt::Write as _;
use std::sync::Arc;

use super::problem::SECRET;

/// Every key with its value and where it came from, for `waypost check --effective`.
#[derive(Clone, Debug)]
pub struct Effective {
    pub(crate) file: Arc<str>,
    pub(crate) root: Block,
}

/// The keys of one mapping, in the order in which they were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block(Vec<(String, Entry)>);

#[derive(Clone, Debug)]
enum Entry {
    /// A value as YAML, on one line.
    Value(String, Origin),
    /// No value, and no default.
    Unset,
    Block(Block),
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    Line(usize),
}

impl Block {
    pub(crate) fn put(&mut self, key: &str, yaml: String, origin: Origin) {
        self.0.push((key.to_owned(), Entry::Value(yaml, origin)));
    }

    pub(crate) fn put_unset(&mut self, key: &str) {
        self.0.push((key.to_owned(), Entry::Unset));
    }

    pub(crate) fn put_block(&mut self, key: &str, block: Self) {
        self.0.push((key.to_owned(), Entry::Block(block)));
    }

    /// As YAML on one line; what is not set is left out.
    pub(crate) fn inline(&self) -> String {
        let members = self.0.iter().filter_map(|(key, entry)| match entry {
            Entry::Value(yaml, _) => Some(format!("{}: {yaml}", key_text(key))),
            Entry::Unset => None,
            Entry::Block(block) => Some(format!("{}: {}", key_text(key), block.inline())),
        });
        format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
    }

    /// Sorted by the places of its keys.
    pub(crate) fn ordered(mut self, place: impl Fn(&str) -> Option<usize>) -> Self {
        self.0.sort_by_key(|(key, _)| place(key));
        self
    }

    fn write(&self, file: &str, depth: usize, out: &mut String) {
        let indent = "  ".repeat(depth);
        let heads: Vec<String> = self.0.iter().map(|(key, entry)| head(key, entry)).collect();
        let width = heads.iter().map(|head| head.chars().count()).max().unwrap_or_default().min(MAX_ALIGNED);
        for ((key, entry), head) in self.0.iter().zip(heads) {
            // Writing to a string cannot fail.
            let _ = match entry {
                Entry::Value(_, Origin::Default) => writeln!(out, "{indent}{head:width$}  # default"),
                Entry::Value(_, Origin::Line(line)) => {
                    writeln!(out, "{indent}{head:width$}  # {file}:{line}")
                }
                Entry::Unset => writeln!(out, "{indent}{head:width$}  # not set"),
                Entry::Block(block) if block.0.iter().all(|(_, entry)| matches!(entry, Entry::Unset)) => {
                    writeln!(out, "{indent}{}: {{}}", key_text(key))
                }
                Entry::Block(_) => writeln!(out, "{indent}{}:", key_text(key)),
            };
            if let Entry::Block(block) = entry {
                block.write(file, depth + 1, out);
            }
        }
    }
}

/// Comments are lined up behind values up to this width.
const MAX_ALIGNED: usize = 44;

fn head(key: &str, entry: &Entry) -> String {
    match entry {
        Entry::Value(yaml, _) => format!("{}: {yaml}", key_text(key)),
        Entry::Unset => format!("# {}:", key_text(key)),
        Entry::Block(_) => String::new(),
    }
}

impl Effective {
    /// As YAML: one key a line, each with a comment that says where it came from.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        self.root.write(&self.file, 0, &mut out);
        out
    }
}

/// A text as a YAML scalar on one line; quoted where it would be something else without quotes.
pub(crate) fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '‹')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./+=$()‹›".contains(c))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { quote(text) }
}

/// A text in double quotes, with an escape for what YAML does not take as it is.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // Writing to a string cannot fail.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A list on one line.
pub(crate) fn list<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<String> = items.into_iter().map(scalar).collect();
    format!("[{}]", items.join(", "))
}

/// A list of as many secrets.
pub(crate) fn secrets(count: usize) -> String {
    list(std::iter::repeat_n(SECRET, count))
}

/// The name of a key, quoted where it would be something else without quotes.
pub(crate) fn key_text(key: &str) -> String {
    let is_number = !key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if is_number { quote(key) } else { scalar(key) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tree::{self, Value};

    #[test]
    fn any_text_survives_as_a_scalar() {
        for text in [
            "",
            "a",
            "no",
            "123",
            "a b",
            "a: b",
            "# x",
            "'",
            "\"",
            "\n",
            "ü",
            "-x",
            "@scope/pkg",
            "*",
            "${A}",
            "null",
            "1.0",
            "~",
            SECRET,
            "a,b",
            "[",
            "C:\\x",
            "\u{7f}\u{85}\u{2028}",
        ] {
            let yaml = format!("k: {}\nl: {}\n", scalar(text), list([text, text]));
            let node = tree::parse(&yaml).unwrap_or_else(|error| panic!("{yaml}: {}", error.message));
            let Value::Map(entries) = node.value else { panic!("no mapping") };
            let Value::Scalar(found) = &entries[0].1.value else { panic!("{yaml}: no scalar") };
            assert_eq!(found.text, text, "{yaml}");
            assert_eq!(found.kind, tree::ScalarKind::Text, "{yaml}");
        }
    }

    #[test]
    fn every_line_says_where_it_came_from() {
        let mut inner = Block::default();
        inner.put("rate", "60/min".into(), Origin::Line(7));
        inner.put_unset("burst");
        let mut root = Block::default();
        root.put("admin", "false".into(), Origin::Default);
        root.put_block("limits", inner);
        let effective = Effective { file: "g.yaml".into(), root };
        assert_eq!(
            effective.to_yaml(),
            "admin: false  # default\nlimits:\n  rate: 60/min  # g.yaml:7\n  # burst:      # not set\n"
        );
    }
}
