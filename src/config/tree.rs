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
    /// The entries of a mapping; none for anything else.
    pub(crate) fn members(&self) -> &[(Name, Self)] {
        match &self.value {
            Value::Map(entries) => entries,
            Value::Null | Value::Scalar(_) | Value::List(_) => &[],
        }
    }

    /// The value of a key of a mapping.
    pub(crate) fn member(&self, key: &str) -> Option<&Self> {
        self.members().iter().find(|(name, _)| name.text == key).map(|(_, node)| node)
    }

    /// The text of a scalar, whatever YAML takes it for.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) => Some(&scalar.text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }

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
        // A tag makes a number of a quoted text too.
        let text = span.slice(text).trim().trim_matches(['"', '\'']).to_owned();
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

    /// A tree as one line: keys and scalars with line and column, kinds as a letter.
    fn shown(node: &Node) -> String {
        let at = |span: Span| format!("@{}:{}", span.line, span.column);
        match &node.value {
            Value::Null => format!("null{}", at(node.span)),
            Value::Scalar(scalar) => {
                let kind = match scalar.kind {
                    ScalarKind::Text => 't',
                    ScalarKind::Flag => 'f',
                    ScalarKind::Number => 'n',
                };
                format!("{kind}({}){}", scalar.text, at(node.span))
            }
            Value::List(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
            Value::Map(entries) => {
                let entries = entries
                    .iter()
                    .map(|(name, node)| format!("{}{}={}", name.text, at(name.span), shown(node)));
                format!("{{{}}}", entries.collect::<Vec<_>>().join(" "))
            }
        }
    }

    #[test]
    fn scalars_keep_their_text_and_place() {
        for (text, wanted) in [
            ("a: no", "{a@1:1=t(no)@1:4}"),
            (
                "a: [123, 1.0, 0x1f, 1_000, .nan, 1e999, 0755]",
                "{a@1:1=[n(123)@1:5 n(1.0)@1:10 n(0x1f)@1:15 n(1_000)@1:21 n(.nan)@1:28 n(1e999)@1:34 n(0755)@1:41]}",
            ),
            (
                "a: [true, ~, null, 'true', \"~\"]",
                "{a@1:1=[f(true)@1:5 null@1:11 null@1:14 t(true)@1:20 t(~)@1:28]}",
            ),
            ("a: 99999999999999999999999", "{a@1:1=n(99999999999999999999999)@1:4}"),
            ("a: !!str 12\nb: !!int '5'", "{a@1:1=t(12)@1:10 b@2:1=n(5)@2:10}"),
            ("no: 1\n12: x\ntrue: y", "{no@1:1=n(1)@1:5 12@2:1=t(x)@2:5 true@3:1=t(y)@3:7}"),
            ("\u{feff}ü: é # c", "{ü@1:1=t(é)@1:4}"),
            ("{\"a\": {\"b\": [\"\\u00fc\", false]}}", "{a@1:2={b@1:8=[t(ü)@1:14 f(false)@1:24]}}"),
        ] {
            assert_eq!(parse(text).map(|node| shown(&node)).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn duplicate_keys_are_kept_and_aliases_point_to_what_they_stand_for() {
        assert_eq!(shown(&parse("{a: 1, a: 2}").unwrap()), "{a@1:2=n(1)@1:5 a@1:8=n(2)@1:11}");
        assert_eq!(shown(&parse("a: &x 1\nb: *x").unwrap()), "{a@1:1=n(1)@1:7 b@2:1=n(1)@1:7}");
        let merged = "a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}";
        assert_eq!(
            shown(&parse(merged).unwrap()),
            "{a@1:1={k@1:8=n(1)@1:11 l@1:14=n(2)@1:17} b@2:1={k@2:13=n(3)@2:16 l@1:14=n(2)@1:17}}"
        );
    }

    #[test]
    fn what_is_no_yaml_has_a_place() {
        for (text, line, column) in [
            ("a:\n\tb: 1", 2, 2),
            ("a: [1", 1, 4),
            ("a: b: c", 1, 5),
            ("a: *b", 1, 4),
            ("a: &a [*a]", 1, 8),
            ("a: 1\n---\nb: 2", 3, 1),
            ("? [a]\n: b", 1, 3),
        ] {
            let error = parse(text).expect_err(text);
            let span = error.span.unwrap();
            assert_eq!((span.line, span.column), (line, column), "{text}: {}", error.message);
        }
    }

    #[test]
    fn bombs_do_not_go_off() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for at in 1..9 {
            let before = format!("*a{}", at - 1);
            bomb.push_str(&format!("a{at}: &a{at} [{}]\n", [before.as_str(); 9].join(", ")));
        }
        assert!(parse(&bomb).is_err());
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&format!("a: {}1{}", "[".repeat(40), "]".repeat(40))).is_err());
    }
}
