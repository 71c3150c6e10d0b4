//! A message that is to be written: the text as it came, and the few edits to make in it.
//!
//! What no edit names is copied byte for byte.

use bytes::{Bytes, BytesMut};

use super::object::{ObjectView, Span};

/// A text with pending edits.
#[derive(Clone, Debug)]
pub struct Draft {
    text: Bytes,
    edits: Vec<(Span, Bytes)>,
}

impl Draft {
    /// The text unchanged.
    #[must_use]
    pub fn new(text: Bytes) -> Self {
        Self { text, edits: Vec::new() }
    }

    /// The text before any edit.
    #[must_use]
    pub fn source(&self) -> &Bytes {
        &self.text
    }

    /// Puts `with` in the place of `span`. Edits must not overlap; one at the same empty span is put behind
    /// the earlier one.
    pub fn replace(&mut self, span: Span, with: impl Into<Bytes>) {
        self.edits.push((span, with.into()));
    }

    /// Changes members of one object: each of `changes` sets the key to the text, or removes it (`None`).
    /// A key that is there keeps its place, a new one goes to the end. All changes of one object must come
    /// in one call.
    pub fn edit_object(&mut self, object: &ObjectView, changes: &[(&str, Option<Bytes>)]) {
        if !object.is_object {
            return;
        }
        let change_of = |index: usize| {
            let member = object.members.get(index)?;
            changes.iter().find(|(key, _)| member.is(&self.text, key))
        };
        let count = object.members.len();
        let removed: Vec<bool> =
            (0..count).map(|index| matches!(change_of(index), Some((_, None)))).collect();
        let mut edits = Vec::new();
        for index in 0..count {
            if let (Some(member), Some((_, Some(with)))) = (object.members.get(index), change_of(index)) {
                edits.push((member.value.clone(), with.clone()));
            }
        }
        edits.extend(removals(object, &removed));
        let missing = |key: &str| object.position(&self.text, key).is_none();
        let added = changes.iter().filter(|(key, value)| value.is_some() && missing(key));
        let kept_last = (0..count).rev().find(|index| removed.get(*index) == Some(&false));
        let at = match kept_last.and_then(|index| object.members.get(index)) {
            Some(member) => member.value.end,
            None => object.span.start + 1,
        };
        let mut insertion = BytesMut::new();
        for (key, value) in added {
            if kept_last.is_some() || !insertion.is_empty() {
                insertion.extend_from_slice(b",");
            }
            insertion.extend_from_slice(serde_json::Value::from(*key).to_string().as_bytes());
            insertion.extend_from_slice(b":");
            insertion.extend_from_slice(value.as_deref().unwrap_or_default());
        }
        if !insertion.is_empty() {
            edits.push((at..at, insertion.freeze()));
        }
        self.edits.extend(edits);
    }

    /// Whether anything is to be changed.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.edits.is_empty()
    }

    /// Writes the text with its edits; without edits it is the text itself, not a copy.
    #[must_use]
    pub fn finish(mut self) -> Bytes {
        if self.edits.is_empty() {
            return self.text;
        }
        self.edits.sort_by_key(|(span, _)| (span.start, span.end));
        let growth: usize = self.edits.iter().map(|(_, with)| with.len()).sum();
        let mut out = BytesMut::with_capacity(self.text.len() + growth);
        let mut done = 0;
        for (span, with) in &self.edits {
            debug_assert!(span.start >= done, "edits overlap");
            out.extend_from_slice(self.text.get(done..span.start).unwrap_or_default());
            out.extend_from_slice(with);
            done = span.end;
        }
        out.extend_from_slice(self.text.get(done..).unwrap_or_default());
        out.freeze()
    }
}

/// The spans to cut so that the removed members go and the commas stay right.
fn removals(object: &ObjectView, removed: &[bool]) -> Vec<(Span, Bytes)> {
    let is_removed = |index: usize| removed.get(index) == Some(&true);
    let mut cuts = Vec::new();
    let mut index = 0;
    while index < removed.len() {
        if !is_removed(index) {
            index += 1;
            continue;
        }
        let first = index;
        while is_removed(index) {
            index += 1;
        }
        let (Some(start), Some(last)) = (object.members.get(first), object.members.get(index - 1)) else {
            break;
        };
        let before = first.checked_sub(1).and_then(|kept| object.members.get(kept));
        cuts.push(match (object.members.get(index), before) {
            (Some(next), _) => start.key.start..next.key.start,
            (None, Some(kept)) => kept.value.end..last.value.end,
            (None, None) => start.key.start..last.value.end,
        });
    }
    cuts.into_iter().map(|span| (span, Bytes::new())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(text: &'static str, changes: &[(&str, Option<&'static str>)]) -> String {
        let bytes = Bytes::from_static(text.as_bytes());
        let changes: Vec<_> = changes.iter().map(|(key, value)| (*key, value.map(Bytes::from))).collect();
        let mut draft = Draft::new(bytes.clone());
        draft.edit_object(&ObjectView::of(&bytes), &changes);
        String::from_utf8(draft.finish().to_vec()).unwrap()
    }

    #[test]
    fn members_are_set_added_and_removed_in_place() {
        assert_eq!(edit(r#"{ "a":1 , "b":2 }"#, &[("a", Some("9"))]), r#"{ "a":9 , "b":2 }"#);
        assert_eq!(edit(r#"{ "a":1 , "b":2 }"#, &[("c", Some("3"))]), r#"{ "a":1 , "b":2,"c":3 }"#);
        assert_eq!(edit(r#"{ "a":1 , "b":2 }"#, &[("a", None)]), r#"{ "b":2 }"#);
        assert_eq!(edit(r#"{ "a":1 , "b":2 }"#, &[("b", None)]), r#"{ "a":1 }"#);
        assert_eq!(edit(r#"{"a":1,"b":2,"c":3}"#, &[("b", None), ("c", None)]), r#"{"a":1}"#);
        assert_eq!(edit(r#"{"a":1,"b":2}"#, &[("a", None), ("b", None)]), r#"{}"#);
        assert_eq!(edit(r#"{"a":1}"#, &[("a", None), ("z", Some("0"))]), r#"{"z":0}"#);
        assert_eq!(edit(r#"{"a":1,"b":2}"#, &[("b", None), ("z", Some("0"))]), r#"{"a":1,"z":0}"#);
        assert_eq!(edit("{}", &[("a", Some("1")), ("b", Some("2"))]), r#"{"a":1,"b":2}"#);
        assert_eq!(edit("[1]", &[("a", Some("1"))]), "[1]");
        assert_eq!(edit(r#"{"a":1}"#, &[("q", None)]), r#"{"a":1}"#);
    }

    #[test]
    fn a_draft_without_edits_is_the_same_allocation() {
        let text = Bytes::from_static(b"{}");
        assert_eq!(Draft::new(text.clone()).finish().as_ptr(), text.as_ptr());
    }
}
