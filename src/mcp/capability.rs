//! Capabilities of servers: what the gateway may promise.

use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::kind::ListKind;
use super::object::Raw;

/// What Waypost can route besides tools, which it always promises.
const ROUTABLE: [&str; 4] = ["completions", "logging", "prompts", "resources"];

/// The capabilities that Waypost can route, out of those that its upstreams declare, and `more` that it promises
/// by name.
///
/// A capability is promised as soon as one upstream has it, and only with what Waypost itself does about it.
#[must_use]
pub fn merge_capabilities<'a>(upstreams: impl Iterator<Item = &'a Raw>, more: &[(&str, Option<Raw>)]) -> Raw {
    let mut merged = Map::new();
    // Upstreams come and go, so the list may change even where none of them says that its own does.
    merged.insert("tools".to_owned(), json!({"listChanged": true}));
    for capabilities in upstreams {
        for name in ROUTABLE.into_iter().filter(|name| has_capability(capabilities, name)) {
            let is_list = ListKind::ALL.iter().any(|kind| kind.capability() == name);
            let promise = merged.entry(name).or_insert_with(|| match is_list {
                true => json!({"listChanged": true}),
                false => json!({}),
            });
            if name == ListKind::Resources.capability() && tells_of_resources(capabilities) {
                *promise = json!({"listChanged": true, "subscribe": true});
            }
        }
    }
    let merged = Raw::from_value(&Value::Object(merged));
    let mut draft = Draft::new(merged.bytes().clone());
    // Settings of extensions keep their text: no value is read and written again.
    let text = |raw: &Option<Raw>| raw.as_ref().map(|raw| raw.bytes().clone());
    let more: Vec<_> = more.iter().map(|(name, raw)| (*name, text(raw))).collect();
    draft.edit_object(&merged.object(), &more);
    Raw::trusted(draft.finish())
}

/// Whether `ServerCapabilities` promise updates of single resources.
#[must_use]
pub fn tells_of_resources(capabilities: &Raw) -> bool {
    let resources = capabilities.object().raw(capabilities.bytes(), ListKind::Resources.capability());
    let subscribe = resources.and_then(|resources| resources.object().raw(resources.bytes(), "subscribe"));
    subscribe.is_some_and(|subscribe| subscribe.bytes().as_ref() == b"true")
}

/// Whether `ServerCapabilities` name a capability.
#[must_use]
pub fn has_capability(capabilities: &Raw, name: &str) -> bool {
    let found = capabilities.object().raw(capabilities.bytes(), name);
    found.is_some_and(|raw| raw.bytes().as_ref() != b"null")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn one_upstream_is_enough_for_a_promise_and_nothing_else_is_promised() {
        let raw = |text: &'static str| Raw::trusted(Bytes::from_static(text.as_bytes()));
        let upstreams = [
            raw(r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"x":{}}"#),
            raw(r#"{"resources":{"subscribe":true},"completions":null}"#),
            raw(r#"{"resources":{"subscribe":false}}"#),
        ];
        let extensions = raw(r#"{"a/b":{"n":1e2}}"#);
        assert_eq!(
            merge_capabilities(upstreams.iter(), &[("tasks", None), ("extensions", Some(extensions))]).text(),
            r#"{"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true},"extensions":{"a/b":{"n":1e2}}}"#
        );
        assert_eq!(merge_capabilities([].into_iter(), &[]).text(), r#"{"tools":{"listChanged":true}}"#);
    }
}
