//! Entries of tools whose arguments have to fit more than their own schema says.

use bytes::Bytes;

use crate::config::Narrow;
use crate::mcp::{Draft, ObjectView, elements};

/// The entry of a tool with these schemas and-ed into its `inputSchema`; unchanged without any.
pub(super) fn narrowed<'a>(entry: Bytes, narrows: impl Iterator<Item = &'a Narrow>) -> Bytes {
    const SCHEMA: &str = "inputSchema";
    const ALL: &str = "allOf";
    let mut all: Vec<Bytes> = narrows.map(|narrow| narrow.schema().to_string().into()).collect();
    if all.is_empty() {
        return entry;
    }
    let view = ObjectView::of(&entry);
    let own = view.raw(&entry, SCHEMA).filter(crate::mcp::Raw::is_object);
    let own = own.map_or(Bytes::from_static(b"{\"type\":\"object\"}"), |own| own.bytes().clone());
    let inner = ObjectView::of(&own);
    if let Some(there) = inner.raw(&own, ALL) {
        let text = there.bytes();
        let places = elements(text, 0..text.len());
        let mut together: Vec<Bytes> = places.into_iter().map(|place| text.slice(place)).collect();
        together.append(&mut all);
        all = together;
    }
    let mut schema = Draft::new(own.clone());
    let all = [b"[".as_slice(), &all.join(&b','), b"]"].concat();
    schema.edit_object(&inner, &[(ALL, Some(all.into()))]);
    let mut draft = Draft::new(entry.clone());
    draft.edit_object(&view, &[(SCHEMA, Some(schema.finish()))]);
    draft.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Pattern;

    #[test]
    fn schemas_are_added_and_the_rest_stays_as_it_is() {
        let rule = |schema| Narrow::new(Pattern::on_line("x", 1), schema).unwrap();
        let rules = [rule(json!({"required": ["a"]})), rule(json!({"maxProperties": 2}))];
        for (entry, wanted) in [
            (
                r#"{"name":"t","inputSchema":{"type":"object","x":1.50e2},"y":1.0}"#,
                r#"{"name":"t","inputSchema":{"type":"object","x":1.50e2,"allOf":[{"required":["a"]},{"maxProperties":2}]},"y":1.0}"#,
            ),
            (
                r#"{"name":"t","inputSchema":{"allOf":[{"n":1.0}]}}"#,
                r#"{"name":"t","inputSchema":{"allOf":[{"n":1.0},{"required":["a"]},{"maxProperties":2}]}}"#,
            ),
            (
                r#"{"name":"t"}"#,
                r#"{"name":"t","inputSchema":{"type":"object","allOf":[{"required":["a"]},{"maxProperties":2}]}}"#,
            ),
        ] {
            assert_eq!(narrowed(Bytes::from(entry), rules.iter()), wanted);
            assert_eq!(narrowed(Bytes::from(entry), [].iter()), entry);
        }
    }
}
