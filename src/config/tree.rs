//! The YAML text as a tree in which every key and value knows where it stands.
//!
//! Scalars keep the text that was written: whoever wants a name gets `no`, `123` or `1.0` as such, and whoever
//! wants a number reads it from the text. Merge keys and aliases are resolved; duplicate keys are kept, for the
//! reader to report them all.
//!
//! Must not know: which keys there are.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, Spanned};

/// Where a piece of the text stands. Byte offsets; line and column count from 1, the column in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
}

/// A key and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) span: Span,
    pub(crate) text: String,
}

/// What YAML knows.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<(Name, Node)>),
}

/// A scalar: its text as written (escapes and quotes resolved), and what YAML takes it for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    pub(crate) kind: ScalarKind,
}

/// What YAML takes a scalar for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    Text,
    Flag,
    Number,
}

impl Node {
    /// What it is, as a message says it.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Scalar(scalar) => match scalar.kind {
                ScalarKind::Text => "text",
                ScalarKind::Flag => "a true or false",
                ScalarKind::Number => "a number",
            },
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

/// Why a text is no YAML, and where.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) message: String,
    pub(crate) span: Option<Span>,
}

/// Reads a text of one document.
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, max_nodes: MAX_NODES, max_documents: 2 },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    let draft: Spanned<Draft> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let plain = error.without_snippet();
        let message = plain.render_with_options(serde_saphyr::render_options! {
            formatter: &serde_saphyr::UserMessageFormatter,
            snippets: serde_saphyr::SnippetMode::Off,
        });
        SyntaxError { message, span: plain.location().map(|at| Span::of(at, text)) }
    })?;
    draft_to_node(draft, text)
}

/// How deep values may nest.
const MAX_DEPTH: usize = 32;
/// How many values there may be, aliases expanded.
const MAX_NODES: usize = 100_000;

impl Span {
    fn of(location: Location, text: &str) -> Self {
        let number = |wide: u64| usize::try_from(wide).unwrap_or(usize::MAX);
        let span = location.span();
        let start = span.byte_offset().map_or(0, number).min(text.len());
        let end = start.saturating_add(span.byte_len().map_or(0, number)).min(text.len());
        Self { start, end, line: number(location.line()), column: number(location.column()) }
    }

    /// The text that stands there.
    pub(crate) fn slice(self, text: &str) -> &str {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// A value as serde hands it over: what is not text is known by its place only.
#[derive(Debug)]
enum Draft {
    Null,
    Text(String),
    Flag,
    Number,
    List(Vec<Spanned<Draft>>),
    Map(Vec<(Spanned<Draft>, Spanned<Draft>)>),
}

fn draft_to_node(draft: Spanned<Draft>, text: &str) -> Result<Node, SyntaxError> {
    let span = Span::of(draft.defined, text);
    let written = |kind| {
        let text = span.slice(text).trim().to_owned();
        Value::Scalar(Scalar { text, kind })
    };
    let value = match draft.value {
        Draft::Null => Value::Null,
        Draft::Text(text) => Value::Scalar(Scalar { text, kind: ScalarKind::Text }),
        Draft::Flag => written(ScalarKind::Flag),
        Draft::Number => written(ScalarKind::Number),
        Draft::List(items) => {
            Value::List(items.into_iter().map(|item| draft_to_node(item, text)).collect::<Result<_, _>>()?)
        }
        Draft::Map(entries) => {
            let mut nodes = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                nodes.push((draft_to_name(key, text)?, draft_to_node(value, text)?));
            }
            Value::Map(nodes)
        }
    };
    Ok(Node { span, value })
}

fn draft_to_name(draft: Spanned<Draft>, text: &str) -> Result<Name, SyntaxError> {
    let span = Span::of(draft.defined, text);
    let name = match draft.value {
        Draft::Text(name) => name,
        Draft::Flag | Draft::Number | Draft::Null => span.slice(text).trim().to_owned(),
        Draft::List(_) | Draft::Map(_) => {
            return Err(SyntaxError { message: "a key must be text".to_owned(), span: Some(span) });
        }
    };
    Ok(Name { span, text: name })
}

impl<'de> Deserialize<'de> for Draft {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DraftVisitor)
    }
}

struct DraftVisitor;

impl<'de> Visitor<'de> for DraftVisitor {
    type Value = Draft;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Draft, E> {
        Ok(Draft::Flag)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Draft, E> {
        Ok(Draft::Number)
    }

    fn visit_i128<E: de::Error>(self, _: i128) -> Result<Draft, E> {
        Ok(Draft::Number)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Draft, E> {
        Ok(Draft::Number)
    }

    fn visit_u128<E: de::Error>(self, _: u128) -> Result<Draft, E> {
        Ok(Draft::Number)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Draft, E> {
        Ok(Draft::Number)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Draft, E> {
        Ok(Draft::Text(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Draft, E> {
        Ok(Draft::Text(text))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Draft, E> {
        Ok(Draft::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Draft, E> {
        Ok(Draft::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Draft, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Draft::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Draft, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Draft::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn try_it() {
        for text in [
            "a: 1\nb: [no, 123, 1.0, 'q', \"x\\ty\", 0x1f, 1_000, .nan, 1e999, ~, null, true, 99999999999999999999999] # c\nc:\nd: &x {k: v, k: w, 12: 3, no: x, true: y}\ne: *x\nf:\n  <<: *x\n  z: 1\n",
            "",
            "# only\n",
            "a: 1\n---\nb: 2\n",
            "a:\n\tb: 1\n",
            "\u{feff}a: 1\n",
            "a: [1\n",
            "a: b: c\n",
            "{\"a\": {\"b\": [1, \"ü\", true]}}",
            "? [a, b]\n: c\n",
            "a: !!str 123\nb: !foo bar\nc: !!int '5'\n",
            "x: |\n  hello\n  w\ny: >-\n  a\n  b\nz: a\n  b c\n",
            "a: *nope\n",
            "a: &a [*a]\n",
            "a: \"unclosed\n",
            "just text",
            "ä: 1\nüb: é1\n",
            "a: \"\"\nb: ''\n? \n: 3\n",
            "a: !!binary aGVsbG8=\n",
            "a: 0755\nb: +1\nc: -0\nd: 2027-01-01\n",
            "  a: 1\n b: 2\n",
            "- a\n- b\n",
            "a: @x\n",
            "a: %x\n",
            "a: `x\n",
        ] {
            println!("=== {text:?}\n{:?}", parse(text));
        }
    }
}
