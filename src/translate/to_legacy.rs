//! Canonical to legacy, for a legacy server behind us: requests lose what only the modern revision has.

use bytes::Bytes;

use super::input::{INPUT_RESPONSES, REQUEST_STATE};
use crate::exchange::{Answer, Outcome, ResultForm};
use crate::mcp::{Body, Draft, HOP_KEYS, Id, Method, Raw, Request, Response, Routing, TaskMode, key, task};

/// How a request is addressed on the next hop.
#[derive(Clone, Copy, Debug)]
pub struct Onward<'a> {
    /// The id that the hop uses.
    pub id: &'a Id,
    /// The name under which the server knows what is called.
    pub native: &'a str,
    /// The progress token that the hop uses, if the caller wants progress.
    pub progress_token: Option<&'a Raw>,
    /// The kind of tasks that the caller knows.
    pub tasks: Option<TaskMode>,
}

impl Onward<'_> {
    /// The members of `params` to change: the name or URI, where it is another one here.
    #[must_use]
    pub fn params(&self, request: &Request) -> Vec<(&'static str, Option<Bytes>)> {
        let native = || Raw::from_text(self.native).bytes().clone();
        let differs = |key: &str| request.param_string(key).is_some_and(|name| name != self.native);
        match Method::known(&request.method).map(Method::routing) {
            Some(Routing::Name(_)) if differs("name") => vec![("name", Some(native()))],
            Some(Routing::Uri) if differs("uri") => vec![("uri", Some(native()))],
            Some(Routing::Task) => vec![(task::TASK_ID, Some(native()))],
            Some(Routing::Reference) => {
                self.reference(request).map(|changed| ("ref", Some(changed))).into_iter().collect()
            }
            Some(
                Routing::Name(_)
                | Routing::Uri
                | Routing::Local
                | Routing::List(_)
                | Routing::Extension
                | Routing::Tasks,
            )
            | None => Vec::new(),
        }
    }

    /// `params.ref` with the native name or URI, where that is another one.
    fn reference(&self, request: &Request) -> Option<Bytes> {
        let raw = request.param("ref")?;
        let view = raw.object();
        let key = match view.string(raw.bytes(), "type")?.as_str() {
            "ref/prompt" => "name",
            _ => "uri",
        };
        view.string(raw.bytes(), key).filter(|name| name != self.native)?;
        let mut draft = Draft::new(raw.bytes().clone());
        draft.edit_object(&view, &[(key, Some(Raw::from_text(self.native).bytes().clone()))]);
        Some(draft.finish())
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

/// Writes a request for a legacy server: the reserved keys of the hop and what makes it a retry go, `_meta` with
/// them where nothing else is in it, and so does a wish for a task of a caller that could not use one; all else
/// stays as it came.
#[must_use]
pub fn write_request(request: &Request, onward: Onward<'_>) -> Bytes {
    let mut meta = onward.meta();
    meta.extend(HOP_KEYS.map(|name| (name, None)));
    let mut params = onward.params(request);
    params.extend([INPUT_RESPONSES, REQUEST_STATE].map(|name| (name, None)));
    if onward.tasks != Some(TaskMode::ByCaller) && Method::known(&request.method) == Some(Method::ToolsCall) {
        params.push((task::TASK, None));
    }
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
        let onward = Onward { id: &id, native, progress_token: token.as_ref(), tasks: None };
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
    fn what_is_named_gets_its_native_name_wherever_the_method_puts_it() {
        for (method, params, expected) in [
            ("prompts/get", r#"{"name":"s__p","uri":"x"}"#, r#"{"name":"t","uri":"x"}"#),
            ("resources/read", r#"{"name":"x","uri":"a://b#@s"}"#, r#"{"name":"x","uri":"t"}"#),
            (
                "completion/complete",
                r#"{"ref":{"type":"ref/prompt","name":"s__p","title":"T"},"name":"x"}"#,
                r#"{"ref":{"type":"ref/prompt","name":"t","title":"T"},"name":"x"}"#,
            ),
            (
                "completion/complete",
                r#"{"ref":{"uri":"a://{b}#@s","type":"ref/resource"},"uri":"x"}"#,
                r#"{"ref":{"uri":"t","type":"ref/resource"},"uri":"x"}"#,
            ),
            ("completion/complete", r#"{"ref":7}"#, r#"{"ref":7}"#),
            ("x/y", r#"{"name":"s__t"}"#, r#"{"name":"s__t"}"#),
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            let wanted = format!(r#"{{"jsonrpc":"2.0","id":9,"method":"{method}","params":{expected}}}"#);
            assert_eq!(written(&text, "t", None), wanted);
        }
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
