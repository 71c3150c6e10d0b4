//! Capabilities of servers: what the gateway may promise.

use serde_json::{Map, Value, json};

use super::object::Raw;

/// The capabilities that Waypost can route, out of those that its upstreams declare.
///
/// A capability is promised as soon as one upstream has it, and only with what Waypost itself does about it.
#[must_use]
pub fn merge_capabilities<'a>(upstreams: impl Iterator<Item = &'a Raw>) -> Raw {
    let mut merged = Map::new();
    // Upstreams come and go, so the list may change even where none of them says that its own does.
    merged.insert("tools".to_owned(), json!({"listChanged": true}));
    for capabilities in upstreams {
        let view = capabilities.object();
        if view.get(capabilities.bytes(), "logging").is_some() {
            merged.insert("logging".to_owned(), Value::Object(Map::new()));
        }
    }
    Raw::from_value(&Value::Object(merged))
}
