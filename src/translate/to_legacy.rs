//! Canonical to legacy, for a legacy server behind us: requests lose what only the modern revision has.

use bytes::Bytes;

use super::input::{INPUT_RESPONSES, REQUEST_STATE};
use crate::exchange::{Answer, Outcome, ResultForm};
use crate::mcp::{Body, HOP_KEYS, Id, Raw, Request, Response, key};

/// How a request is addressed on the next hop.
#[derive(Clone, Copy, Debug)]
pub struct Onward<'a> {
    /// The id that the hop uses.
    pub id: &'a Id,
    /// The name under which the server knows what is called.
    pub native: &'a str,
    /// The progress token that the hop uses, if the caller wants progress.
    pub progress_token: Option<&'a Raw>,
}

impl Onward<'_> {
    /// The members of `params` to change: the name, where it is another one here.
    #[must_use]
    pub fn params(&self, request: &Request) -> Vec<(&'static str, Option<Bytes>)> {
        match request.param_string("name") {
            Some(name) if name != self.native => {
                vec![("name", Some(Raw::from_text(self.native).bytes().clone()))]
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// The member of `_meta` that holds the progress token, to change.
    #[must_use]
    pub fn meta(&self) -> Vec<(&'static str, Option<Bytes>)> {
        self.progress_token
            .map(|token| (key::PROGRESS_TOKEN, Some(token.bytes().clone())))
            .into_iter()
            .collect()
    }
}

/// Writes a request for a legacy server: the reserved keys of the hop and what makes it a retry go, `_meta` with them where nothing
/// else is in it; all else stays as it came.
#[must_use]
pub fn write_request(request: &Request, onward: Onward<'_>) -> Bytes {
    let mut meta = onward.meta();
    meta.extend(HOP_KEYS.map(|name| (name, None)));
    let mut params = onward.params(request);
    params.extend([INPUT_RESPONSES, REQUEST_STATE].map(|name| (name, None)));
    request.draft(onward.id, &params, &meta).finish()
}

/// Reads the response of a legacy server. Whatever it calls `resultType` is a member like any other.
#[must_use]
pub fn read_response(response: Response) -> Outcome {
    let is_result = matches!(response.body, Body::Result(_));
    let answer = Answer { response, form: ResultForm::Bare };
    if is_result { Outcome::Complete(answer) } else { Outcome::Error(answer) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::Message;
    use crate::wire::json::parse;

    fn written(text: &str, native: &str, token: Option<&str>) -> String {
        let Message::Request(request) = parse(Bytes::from(text.to_owned())).unwrap() else { panic!() };
        let token = token.map(|token| Raw::trusted(Bytes::from(token.to_owned())));
        let id = Id::from(9);
        let onward = Onward { id: &id, native, progress_token: token.as_ref() };
        String::from_utf8(write_request(&request, onward).to_vec()).unwrap()
    }

    #[test]
    fn the_keys_of_the_hop_go_and_nothing_else() {
        let text = r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","a.b/c":1e2,"io.modelcontextprotocol/clientCapabilities":{},"progressToken":"mine","io.modelcontextprotocol/logLevel":"info"},"name":"s__t","arguments":{"z":1.0,"a":null}},"later":true}"#;
        assert_eq!(
            written(text, "t", Some("9")),
            r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"_meta":{"a.b/c":1e2,"progressToken":9},"name":"t","arguments":{"z":1.0,"a":null}},"later":true}"#
        );
    }

    #[test]
    fn meta_that_held_nothing_else_goes_whole() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        assert_eq!(
            written(text, "t", None),
            r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"t"}}"#
        );
    }

    #[test]
    fn a_name_that_is_right_keeps_its_spelling() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t\u0061","_meta":{}}}"#;
        assert_eq!(
            written(text, "ta", None),
            r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"t\u0061","_meta":{}}}"#
        );
    }

    #[test]
    fn a_result_type_of_a_legacy_server_means_nothing() {
        let text =
            Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required"}}"#);
        let Message::Response(response) = parse(text).unwrap() else { panic!() };
        let outcome = read_response(response);
        assert!(matches!(outcome, Outcome::Complete(Answer { form: ResultForm::Bare, .. })));
    }
}
