//! A legacy client's request in the shape of the model: what it agreed on once is filled in per request.
//!
//! Must not know: where the agreement is kept.

use bytes::Bytes;

use crate::exchange::Hop;
use crate::mcp::{Draft, ObjectView, Raw, Request, TaskMode, extension, key};

/// Capabilities that a request of the model does not have, or not in this form.
const LEGACY_ONLY: [&str; 1] = ["tasks"];
/// Capabilities by which a server asks the client something.
const ASKING: [&str; 3] = ["elicitation", "sampling", "roots"];

/// Whether a question of the server can be carried to the client while its request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// On the stream of the request.
    Possible,
    /// There is no stream that could carry it, so it must not be invited.
    Impossible,
}

/// What a legacy client agreed on in its handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// Its `Implementation`.
    pub client_info: Option<Raw>,
    /// Its `ClientCapabilities`.
    pub capabilities: Option<Raw>,
}

/// The metadata of one request of a legacy client.
///
/// `log_level` is the level that its session asked for, as JSON text. Without a handshake the client has
/// no capabilities.
#[must_use]
pub fn hop(request: &Request, handshake: Option<&Handshake>, log_level: Option<Raw>, asking: Asking) -> Hop {
    Hop {
        client_info: handshake.and_then(|agreed| agreed.client_info.clone()),
        capabilities: Some(capabilities(handshake, asking)),
        log_level,
        progress_token: request.meta(key::PROGRESS_TOKEN),
        tasks: Some(TaskMode::ByCaller),
        refused_inputs: Vec::new(),
        address: None,
    }
}

/// What a legacy client can do, as far as it can be used. Without a handshake that is nothing.
#[must_use]
pub fn capabilities(handshake: Option<&Handshake>, asking: Asking) -> Raw {
    let declared = handshake.and_then(|agreed| agreed.capabilities.as_ref());
    declared.map_or_else(nothing, |declared| bridged(declared, asking))
}

fn nothing() -> Raw {
    Raw::trusted(Bytes::from_static(b"{}"))
}

/// The capabilities of a legacy client, as far as they can be used. Its list of roots may change, but nobody
/// would hear of that; tasks are not the same thing in the extension that has their name.
fn bridged(capabilities: &Raw, asking: Asking) -> Raw {
    if !capabilities.is_object() {
        return nothing();
    }
    let view = ObjectView::of(capabilities.bytes());
    let mut draft = Draft::new(capabilities.bytes().clone());
    let mut changes: Vec<_> = LEGACY_ONLY.map(|name| (name, None)).into();
    match asking {
        Asking::Impossible => changes.extend(ASKING.map(|name| (name, None))),
        Asking::Possible if view.raw(capabilities.bytes(), "roots").is_some_and(|raw| raw.is_object()) => {
            changes.push(("roots", Some(Bytes::from_static(b"{}"))));
        }
        Asking::Possible => {}
    }
    if extension::declares(capabilities, extension::TASKS) {
        changes.push(("extensions", extensions_without_tasks(capabilities, &view)));
    }
    draft.edit_object(&view, &changes);
    Raw::trusted(draft.finish())
}

/// `extensions` without that of tasks; nothing where it holds no other.
fn extensions_without_tasks(capabilities: &Raw, view: &ObjectView) -> Option<Bytes> {
    let all = view.raw(capabilities.bytes(), "extensions")?;
    let others = all.object();
    let mut draft = Draft::new(all.bytes().clone());
    draft.edit_object(&others, &[(extension::TASKS, None)]);
    (others.members.len() > 1).then(|| draft.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::Message;
    use crate::wire::json;

    fn request(text: &'static str) -> Request {
        let Ok(Message::Request(request)) = json::parse(Bytes::from_static(text.as_bytes())) else {
            panic!()
        };
        request
    }

    fn raw(text: &'static str) -> Raw {
        Raw::parse(Bytes::from_static(text.as_bytes())).unwrap()
    }

    #[test]
    fn the_handshake_is_filled_in_with_what_can_be_asked() {
        let agreed = Handshake {
            client_info: Some(raw(r#"{"name":"c","version":"1"}"#)),
            capabilities: Some(raw(
                r#"{"roots":{"listChanged":true},"experimental":{"x":1e2},"sampling":{},"tasks":{}}"#,
            )),
        };
        let request = request(
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":9007199254740993}}}"#,
        );
        let asked = hop(&request, Some(&agreed), None, Asking::Possible);
        assert_eq!(asked.capabilities, Some(raw(r#"{"roots":{},"experimental":{"x":1e2},"sampling":{}}"#)));
        let hop = hop(&request, Some(&agreed), Some(raw("\"info\"")), Asking::Impossible);
        assert_eq!(hop.capabilities, Some(raw(r#"{"experimental":{"x":1e2}}"#)));
        assert_eq!(hop.client_info, agreed.client_info);
        assert_eq!(hop.progress_token, Some(raw("9007199254740993")));
        assert_eq!(hop.log_level, Some(raw("\"info\"")));
    }

    #[test]
    fn without_a_handshake_there_are_no_capabilities() {
        let request = request(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
        let hop = hop(&request, None, None, Asking::Possible);
        assert_eq!(hop.capabilities, Some(raw("{}")));
        assert!(hop.client_info.is_none() && hop.progress_token.is_none() && hop.log_level.is_none());
    }
}
