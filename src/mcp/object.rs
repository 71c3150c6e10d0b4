//! Views on raw JSON text: where the members of an object stand, without decoding the rest.
//!
//! Must not know: what the members mean.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A range of bytes in the text of a message.
pub type Span = Range<usize>;

/// A piece of valid JSON text, shared and never decoded as a whole.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Raw(Bytes);

impl Raw {
    /// Takes text that somebody has validated already: a slice of a parsed message, or our own output.
    #[must_use]
    pub fn trusted(text: Bytes) -> Self {
        Self(text)
    }

    /// Checks a text and takes it.
    ///
    /// # Errors
    /// If `text` is not one JSON document.
    pub fn parse(text: Bytes) -> Result<Self, serde_json::Error> {
        serde_json::from_slice::<&RawValue>(&text)?;
        Ok(Self(text))
    }

    /// Writes a value as JSON.
    #[must_use]
    pub fn from_value(value: &serde_json::Value) -> Self {
        Self(Bytes::from(value.to_string()))
    }

    /// Writes a string as a JSON string.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self::from_value(&serde_json::Value::String(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The text as a `str`; the empty string if somebody vouched for text that is not UTF-8.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Where the members of this object stand. An empty view if this is no object.
    #[must_use]
    pub fn object(&self) -> ObjectView {
        ObjectView::of(&self.0)
    }

    /// The decoded text if this is a JSON string.
    #[must_use]
    pub fn string(&self) -> Option<String> {
        serde_json::from_slice(&self.0).ok()
    }

    /// Whether this is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }
}

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// One member of an object: where its key and its value stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The key with its quotes.
    pub key: Span,
    /// The value.
    pub value: Span,
    /// The decoded key, where the key has escapes.
    escaped: Option<Box<str>>,
    /// The members of the value, where it was asked for (`_meta`).
    inner: Option<Box<ObjectView>>,
}

/// Where the members of one object stand in a text. Spans count from the start of that text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectView {
    /// The whole value, braces included; empty where there is none.
    pub span: Span,
    /// The members in their order.
    pub members: Vec<Member>,
    /// Whether the value is an object.
    pub is_object: bool,
}

/// An object names one key twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateKey(pub String);

impl ObjectView {
    /// Reads the object that `text` is, and as many levels of the envelope below it as `look` says.
    ///
    /// # Errors
    /// If `text` is no JSON, or something follows it. What is no object gives an empty view.
    pub fn read(text: &str, look: Look) -> Result<Self, serde_json::Error> {
        if !text.trim_ascii_start().starts_with('{') {
            serde_json::from_str::<&RawValue>(text)?;
            return Ok(Self { span: 0..text.len(), ..Self::default() });
        }
        let mut de = serde_json::Deserializer::from_str(text);
        let mut view = ViewSeed { text, look }.deserialize(&mut de)?;
        de.end()?;
        view.span = 0..text.len();
        Ok(view)
    }

    /// Views the object that `text` is; empty if it is none.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let text = std::str::from_utf8(text).unwrap_or_default();
        Self::read(text, Look::Members).unwrap_or_default()
    }

    /// Views the object at `span` of `text`.
    #[must_use]
    pub fn at(text: &[u8], span: Span) -> Self {
        let mut view = Self::of(text.get(span.clone()).unwrap_or_default());
        view.shift(span.start);
        view
    }

    fn shift(&mut self, by: usize) {
        let moved = |span: &Span| span.start + by..span.end + by;
        self.span = moved(&self.span);
        for member in &mut self.members {
            member.key = moved(&member.key);
            member.value = moved(&member.value);
            if let Some(inner) = &mut member.inner {
                inner.shift(by);
            }
        }
    }

    /// The index of the member called `key`.
    #[must_use]
    pub fn position(&self, text: &[u8], key: &str) -> Option<usize> {
        self.members.iter().position(|member| member.is(text, key))
    }

    /// Where the value of `key` stands.
    #[must_use]
    pub fn get(&self, text: &[u8], key: &str) -> Option<Span> {
        let index = self.position(text, key)?;
        self.members.get(index).map(|member| member.value.clone())
    }

    /// The members of the value of `key`, where the parser looked into it.
    #[must_use]
    pub fn inner(&self, text: &[u8], key: &str) -> Option<&ObjectView> {
        let index = self.position(text, key)?;
        self.members.get(index)?.inner.as_deref()
    }

    /// The value of `key` as a slice of `text`.
    #[must_use]
    pub fn raw(&self, text: &Bytes, key: &str) -> Option<Raw> {
        self.get(text, key).map(|span| Raw::trusted(text.slice(span)))
    }

    /// The value of the last member called `key`, as readers take it that do not refuse doubles.
    #[must_use]
    pub fn last(&self, text: &Bytes, key: &str) -> Option<Raw> {
        let member = self.members.iter().rev().find(|member| member.is(text, key))?;
        Some(Raw::trusted(text.slice(member.value.clone())))
    }

    /// The value of `key`, decoded, if it is a string.
    #[must_use]
    pub fn string(&self, text: &Bytes, key: &str) -> Option<String> {
        serde_json::from_slice(text.get(self.get(text, key)?)?).ok()
    }

    /// A key that stands here twice.
    ///
    /// # Errors
    /// The first key that repeats an earlier one, also where escapes hide it.
    pub fn unique(&self, text: &[u8]) -> Result<(), DuplicateKey> {
        let name = |member: &Member| member.name(text).into_owned();
        if self.members.len() > 32 {
            let mut seen = std::collections::HashSet::with_capacity(self.members.len());
            return match self.members.iter().map(name).find(|key| !seen.insert(key.clone())) {
                Some(key) => Err(DuplicateKey(key)),
                None => Ok(()),
            };
        }
        for (index, member) in self.members.iter().enumerate() {
            let key = member.name(text);
            if self.members.iter().take(index).any(|earlier| earlier.is(text, &key)) {
                return Err(DuplicateKey(key.into_owned()));
            }
        }
        Ok(())
    }
}

impl Member {
    /// The decoded key.
    #[must_use]
    pub fn name<'a>(&'a self, text: &'a [u8]) -> Cow<'a, str> {
        match &self.escaped {
            Some(name) => Cow::Borrowed(name),
            None => String::from_utf8_lossy(self.plain(text)),
        }
    }

    /// Whether this member is called `key`.
    #[must_use]
    pub fn is(&self, text: &[u8], key: &str) -> bool {
        match &self.escaped {
            Some(name) => &**name == key,
            None => self.plain(text) == key.as_bytes(),
        }
    }

    fn plain<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.key.start + 1..self.key.end.saturating_sub(1)).unwrap_or_default()
    }
}

/// Where the elements of the array at `span` of `text` stand; none if there is no array.
#[must_use]
pub fn elements(text: &[u8], span: Span) -> Vec<Span> {
    let array = text.get(span.clone()).unwrap_or_default();
    let found: Vec<&RawValue> = serde_json::from_slice(array).unwrap_or_default();
    let place = |raw: &&RawValue| {
        let start = (raw.get().as_ptr() as usize).wrapping_sub(array.as_ptr() as usize) + span.start;
        start..start + raw.get().len()
    };
    found.iter().map(place).collect()
}

/// How deep a view looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// At the members only.
    Members,
    /// Into `_meta` and `ref`, too.
    Meta,
    /// Into `params`, `result` and `error`, and there into `_meta` and `ref`.
    Envelope,
}

impl Look {
    /// How deep to look into the member `key`, if at all.
    fn below(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Envelope, "params" | "result" | "error") => Some(Self::Meta),
            (Self::Meta, "_meta" | "ref") => Some(Self::Members),
            (Self::Members | Self::Meta | Self::Envelope, _) => None,
        }
    }
}

/// Captures an object of `text` as a view in one pass.
struct ViewSeed<'de> {
    text: &'de str,
    look: Look,
}

impl<'de> ViewSeed<'de> {
    fn span(&self, raw: &RawValue) -> Span {
        let start = (raw.get().as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        start..start + raw.get().len()
    }

    /// The first place from `at` on that holds neither white space nor one of `skip`.
    fn skip(&self, at: usize, skip: &[u8]) -> usize {
        let rest = self.text.as_bytes().get(at..).unwrap_or_default();
        let is_skipped = |byte: &u8| byte.is_ascii_whitespace() || skip.contains(byte);
        at + rest.iter().take_while(|byte| is_skipped(byte)).count()
    }

    /// Reads one value, looking into it where that is due and it is an object.
    fn value<A: MapAccess<'de>>(&self, key: &Span, name: &str, map: &mut A) -> Result<Value, A::Error> {
        let start = self.skip(key.end, b":");
        let is_object = self.text.as_bytes().get(start) == Some(&b'{');
        let Some(look) = self.look.below(name).filter(|_| is_object) else {
            return Ok((self.span(map.next_value::<&'de RawValue>()?), None));
        };
        let mut inner = map.next_value_seed(ViewSeed { text: self.text, look })?;
        let last = inner.members.last().map_or(start + 1, |member| member.value.end);
        inner.span = start..self.skip(last, &[]) + 1;
        Ok((inner.span.clone(), Some(Box::new(inner))))
    }
}

type Value = (Span, Option<Box<ObjectView>>);

impl<'de> DeserializeSeed<'de> for ViewSeed<'de> {
    type Value = ObjectView;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ObjectView, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ViewSeed<'de> {
    type Value = ObjectView;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ObjectView, A::Error> {
        let mut members = Vec::with_capacity(4);
        while let Some(raw) = map.next_key::<&'de RawValue>()? {
            let text = raw.get();
            let key = self.span(raw);
            let escaped = match text.contains('\\') {
                true => Some(serde_json::from_str::<Box<str>>(text).map_err(de::Error::custom)?),
                false => None,
            };
            let name = escaped.as_deref().unwrap_or_else(|| text.trim_matches('"'));
            let (value, inner) = self.value(&key, name, &mut map)?;
            members.push(Member { key, value, escaped, inner });
        }
        Ok(ObjectView { span: 0..0, members, is_object: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_stand_where_the_view_says() {
        let text = br#" {"a" : 1, "b\u0063":{"x":[1,2]} , "_meta":{}}"#;
        let view = ObjectView::of(text);
        assert!(view.is_object);
        assert_eq!(&text[view.get(text, "a").unwrap()], b"1");
        assert_eq!(&text[view.get(text, "bc").unwrap()], br#"{"x":[1,2]}"#);
        assert_eq!(view.get(text, "x"), None);
    }

    #[test]
    fn elements_stand_where_they_say() {
        let text = br#"{"a": [ 1 , {"b":2},"c"]}"#;
        let span = ObjectView::of(text).get(text, "a").unwrap();
        let found: Vec<&[u8]> = elements(text, span).into_iter().map(|span| &text[span]).collect();
        assert_eq!(found, [b"1".as_slice(), br#"{"b":2}"#, br#""c""#]);
        assert!(elements(text, 0..text.len()).is_empty());
    }

    #[test]
    fn duplicates_are_seen_through_escapes() {
        let text = br#"{"name":1,"n\u0061me":2}"#;
        assert_eq!(ObjectView::of(text).unique(text), Err(DuplicateKey("name".into())));
        let text = br#"{"name":1,"Name":2}"#;
        assert_eq!(ObjectView::of(text).unique(text), Ok(()));
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        for text in ["null", "1e2", "[1,{}]", "\"a\"", "true", "1"] {
            let view = ObjectView::of(text.as_bytes());
            assert!(!view.is_object && view.members.is_empty(), "{text}");
        }
    }

    #[test]
    fn private_tokens_of_the_parser_are_plain_keys() {
        let text = br#"{"$serde_json::private::RawValue":"{\"a\":1}"}"#;
        let view = ObjectView::of(text);
        assert_eq!(view.members.len(), 1);
        assert_eq!(view.members[0].name(text), "$serde_json::private::RawValue");
    }
}
