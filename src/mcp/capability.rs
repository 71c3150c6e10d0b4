//! Capabilities of servers: what the gateway may promise.

use serde_json::{Map, Value, json};

use super::kind::ListKind;
use super::object::Raw;

/// What Waypost can route besides tools, which it always promises.
const ROUTABLE: [&str; 4] = ["completions", "logging", "prompts", "resources"];

/// The capabilities that Waypost can route, out of those that its upstreams declare.
///
/// A capability is promised as soon as one upstream has it, and only with what Waypost itself does about it.
#[must_use]
pub fn merge_capabilities<'a>(upstreams: impl Iterator<Item = &'a Raw>) -> Raw {
    let mut merged = Map::new();
    // Upstreams come and go, so the list may change even where none of them says that its own does.
    merged.insert("tools".to_owned(), json!({"listChanged": true}));
    for capabilities in upstreams {
        for name in ROUTABLE.into_iter().filter(|name| has_capability(capabilities, name)) {
            let is_list = ListKind::ALL.iter().any(|kind| kind.capability() == name);
            let promise = if is_list { json!({"listChanged": true}) } else { json!({}) };
            merged.insert(name.to_owned(), promise);
        }
    }
    Raw::from_value(&Value::Object(merged))
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
        ];
        assert_eq!(
            merge_capabilities(upstreams.iter()).text(),
            r#"{"prompts":{"listChanged":true},"resources":{"listChanged":true},"tools":{"listChanged":true}}"#
        );
        assert_eq!(merge_capabilities([].into_iter()).text(), r#"{"tools":{"listChanged":true}}"#);
    }
}
