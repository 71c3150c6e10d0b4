//! One JSON text to one message.

use bytes::Bytes;
use serde::Deserialize as _;

use crate::mcp::{Body, DuplicateKey, Id, Look, Message, Notification, ObjectView, Raw, Request, Response};

/// How deep a message may nest before it is refused: what nests deeper breaks parsers behind us.
pub const MAX_DEPTH: usize = 128;

/// Why a text is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON at all. Code −32700.
    #[error("the body is not valid JSON: {0}")]
    Syntax(String),
    /// JSON, but no JSON-RPC message. Code −32600.
    #[error("{0}")]
    Shape(String),
    /// A JSON array where one message is due. Code −32600 where batches do not exist.
    #[error("the body is a batch (a JSON array); send one message a request")]
    Batch,
}

/// Reads one message.
///
/// Promises: the text is valid UTF-8 and JSON, nests at most [`MAX_DEPTH`] deep, is one JSON-RPC 2.0
/// request, notification or response, and names no key twice in its envelope, its `params`, its `result`
/// or `error`, or the `_meta` or `ref` of these. Whatever else it holds is untouched.
///
/// # Errors
/// See [`JsonError`]; nothing is kept.
pub fn parse(text: Bytes) -> Result<Message, JsonError> {
    let trimmed = trim(&text);
    if trimmed.first() == Some(&b'[') {
        return match serde_json::from_slice::<&serde_json::value::RawValue>(&trimmed) {
            Ok(_) => Err(JsonError::Batch),
            Err(error) => Err(JsonError::Syntax(error.to_string())),
        };
    }
    let envelope = read(&trimmed)?;
    check_depth(&trimmed)?;
    into_message(trimmed, envelope)
}

/// The text without a byte order mark and white space around it.
fn trim(text: &Bytes) -> Bytes {
    let body = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    text.slice_ref(body.trim_ascii())
}

/// Refuses text that nests deeper than [`MAX_DEPTH`]. The text is valid JSON.
fn check_depth(text: &[u8]) -> Result<(), JsonError> {
    let mut depth = 0_usize;
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(JsonError::Shape(format!(
                        "the message nests deeper than {MAX_DEPTH} levels"
                    )));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => rest = after_string(rest),
            _ => {}
        }
    }
    Ok(())
}

/// How many places of a line are tried for the message that it ends with.
const TRIES: usize = 64;

/// The message that a broken line ends with, and what stands before it: a print without a line end, or a
/// message that was broken off. An object within a message is none, even where that was cut off behind it:
/// what follows a colon, a comma or a bracket does not count.
///
/// Of the places where a message may begin, the last 64 are tried.
#[must_use]
pub fn parse_last(line: &Bytes) -> Option<(Bytes, Message)> {
    let starts = memchr::memrchr_iter(b'{', line).filter(|at| *at > 0 && begins_message(line, *at));
    let at = starts.take(TRIES).find(|at| line.get(*at..).is_some_and(is_one_value))?;
    let message = parse(line.slice(at..)).ok()?;
    Some((line.slice(..at), message))
}

fn begins_message(line: &[u8], at: usize) -> bool {
    let inside = line.get(at + 1..).unwrap_or_default().trim_ascii_start();
    let members: [&[u8]; 5] = [b"\"jsonrpc\"", b"\"id\"", b"\"result\"", b"\"error\"", b"\"method\""];
    let before = line.get(..at).unwrap_or_default().trim_ascii_end().last();
    !matches!(before, Some(b':' | b',' | b'[')) && members.iter().any(|member| inside.starts_with(member))
}

fn is_one_value(text: &[u8]) -> bool {
    let mut reader = serde_json::Deserializer::from_slice(text);
    serde::de::IgnoredAny::deserialize(&mut reader).is_ok() && reader.end().is_ok()
}

/// The numeric id of a message of which only the two ends are there, if it can be seen in one of them: as a
/// member of the outermost object near its beginning, or as its last member.
#[must_use]
pub fn glimpse_id(head: &[u8], tail: &[u8]) -> Option<u64> {
    id_in_head(head).or_else(|| id_in_tail(tail))
}

fn id_in_head(head: &[u8]) -> Option<u64> {
    let (mut depth, mut rest) = (0_usize, head);
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                rest = after_string(behind);
                let value = rest.trim_ascii_start().strip_prefix(b":");
                if let Some(value) = value.filter(|_| depth == 1 && behind.starts_with(b"id\"")) {
                    return leading_number(value.trim_ascii_start());
                }
            }
            _ => {}
        }
    }
    None
}

fn id_in_tail(tail: &[u8]) -> Option<u64> {
    let body = tail.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let digits = body.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = body.split_at_checked(body.len() - digits)?;
    let before = before.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end().strip_suffix(b"\"id\"")?;
    before.trim_ascii_end().ends_with(b",").then(|| leading_number(number))?
}

fn leading_number(text: &[u8]) -> Option<u64> {
    let end = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(text.get(..end)?).ok()?.parse().ok()
}

/// What follows the string whose opening quote has been read.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let is_end = rest.get(at) == Some(&b'"');
        rest = rest.get(at + if is_end { 1 } else { 2 }..).unwrap_or_default();
        if is_end {
            return rest;
        }
    }
    &[]
}

fn read(text: &[u8]) -> Result<ObjectView, JsonError> {
    if text.is_empty() {
        return Err(JsonError::Syntax("it is empty".to_owned()));
    }
    let text = std::str::from_utf8(text).map_err(|error| JsonError::Syntax(error.to_string()))?;
    ObjectView::read(text, Look::Envelope).map_err(|error| JsonError::Syntax(error.to_string()))
}

fn shape(text: &str) -> JsonError {
    JsonError::Shape(text.to_owned())
}

fn into_message(text: Bytes, envelope: ObjectView) -> Result<Message, JsonError> {
    if !envelope.is_object {
        return Err(shape("the body is not a JSON object"));
    }
    check_keys(&text, &envelope)?;
    if envelope.string(&text, "jsonrpc").as_deref() != Some("2.0") {
        return Err(shape("`jsonrpc` must be \"2.0\""));
    }
    let id = envelope.raw(&text, "id");
    let method = match envelope.get(&text, "method") {
        Some(_) => Some(envelope.string(&text, "method").ok_or_else(|| shape("`method` must be a string"))?),
        None => None,
    };
    match (method, id) {
        (Some(method), id) => into_call(text, envelope, method.into_boxed_str(), id),
        (None, id) => into_response(text, envelope, id),
    }
}

/// Names no key twice where somebody reads it.
fn check_keys(text: &[u8], envelope: &ObjectView) -> Result<(), JsonError> {
    let payloads = ["params", "result", "error"].map(|key| envelope.inner(text, key));
    let metas = payloads.map(|payload| payload.and_then(|payload| payload.inner(text, "_meta")));
    let reference = envelope.inner(text, "params").and_then(|params| params.inner(text, "ref"));
    let views = std::iter::once(envelope).chain(payloads.into_iter().flatten());
    for view in views.chain(metas.into_iter().flatten()).chain(reference) {
        view.unique(text).map_err(|DuplicateKey(key)| {
            JsonError::Shape(format!("the key {key:?} stands twice in one object"))
        })?;
    }
    Ok(())
}

/// The keys that decide what a message is.
const OF_ENVELOPE: [&str; 4] = ["jsonrpc", "id", "method", "params"];
/// Those of them in `params`.
const OF_PARAMS: [&str; 10] = [
    "name",
    "uri",
    "ref",
    "arguments",
    "_meta",
    "taskId",
    "task",
    "requestId",
    "requestState",
    "inputResponses",
];
/// Those of them in `params.ref`.
const OF_REFERENCE: [&str; 3] = ["type", "name", "uri"];

/// Refuses spellings of a deciding key that differ in case only: some servers match keys without case, and
/// would read another name than the policy.
fn check_case(text: &[u8], envelope: &ObjectView, params: &ObjectView) -> Result<(), JsonError> {
    check_case_of(text, envelope, &OF_ENVELOPE)?;
    check_case_of(text, params, &OF_PARAMS)?;
    params.inner(text, "ref").map_or(Ok(()), |reference| check_case_of(text, reference, &OF_REFERENCE))
}

fn check_case_of(text: &[u8], view: &ObjectView, deciding: &[&str]) -> Result<(), JsonError> {
    for member in &view.members {
        let key = member.name(text);
        let is_alike = |known: &&&str| key.chars().map(fold).eq(known.chars().map(fold));
        if let Some(known) = deciding.iter().find(is_alike).filter(|known| **known != key) {
            let text = format!("the key {key:?} differs from {known:?} in case only");
            return Err(JsonError::Shape(text));
        }
    }
    Ok(())
}

/// A letter without case, as JSON readers that ignore it fold it (long s and the Kelvin sign included).
fn fold(letter: char) -> char {
    match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    }
}

fn into_call(
    text: Bytes,
    envelope: ObjectView,
    method: Box<str>,
    id: Option<Raw>,
) -> Result<Message, JsonError> {
    let params = match envelope.raw(&text, "params") {
        Some(raw) if !raw.is_object() && raw.bytes().as_ref() != b"null" => {
            return Err(shape("`params` must be an object"));
        }
        Some(_) | None => envelope.inner(&text, "params").cloned().unwrap_or_default(),
    };
    check_case(&text, &envelope, &params)?;
    let Some(raw) = id else {
        return Ok(Message::Notification(Notification { text, envelope, method, params }));
    };
    let id =
        Id::from_text(raw.bytes().clone()).ok_or_else(|| shape("`id` must be a string or an integer"))?;
    Ok(Message::Request(Request { text, envelope, id, method, params }))
}

fn into_response(text: Bytes, envelope: ObjectView, id: Option<Raw>) -> Result<Message, JsonError> {
    let payload = |key: &str| {
        let inner = envelope.inner(&text, key).cloned();
        envelope.get(&text, key).map(|span| inner.unwrap_or(ObjectView { span, ..ObjectView::default() }))
    };
    let body = match (payload("result"), payload("error")) {
        (Some(result), None) => Body::Result(result),
        (None, Some(error)) => Body::Error(error),
        (Some(_), Some(_)) => return Err(shape("a response has both `result` and `error`")),
        (None, None) => return Err(shape("the message has neither `method` nor `result` nor `error`")),
    };
    let id = id.and_then(|raw| Id::from_text(raw.bytes().clone()));
    Ok(Message::Response(Response { text, envelope, id, body }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Result<Message, JsonError> {
        parse(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn text_of(message: &Message) -> &[u8] {
        match message {
            Message::Request(request) => &request.text,
            Message::Notification(notification) => &notification.text,
            Message::Response(response) => &response.text,
        }
    }

    fn nested(depth: usize) -> String {
        // The envelope and `params` are two levels.
        let inner = depth - 2;
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"x":{}{}}}}}"#,
            "[".repeat(inner),
            "]".repeat(inner)
        )
    }

    #[test]
    fn a_message_behind_something_else_is_found() {
        let cases = [
            ("Loading… ", r#"{"jsonrpc":"2.0","id":2,"result":{"a":[{"id":1}]}}"#),
            (r#"{"jsonrpc":"2.0","i"#, r#"{"result":{"id":{"id":3}},"jsonrpc":"2.0","id":2}"#),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"text":"{\"id\":5"#, r#"{"jsonrpc":"2.0","method":"n"}"#),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
                r#"{ "id": 2, "error": {"code":1,"message":"{"}, "jsonrpc":"2.0"} "#,
            ),
        ];
        for (front, message) in cases {
            let line = Bytes::from(format!("{front}{message}"));
            assert!(parse(line.clone()).is_err());
            let (before, found) = parse_last(&line).unwrap_or_else(|| panic!("{front}{message}"));
            assert_eq!((before.as_ref(), text_of(&found)), (front.as_bytes(), message.trim().as_bytes()));
        }
    }

    #[test]
    fn what_a_broken_message_holds_is_no_message() {
        let lines = [
            r#"{"jsonrpc":"2.0","id":1,"result":{"inner":{"jsonrpc":"2.0","id":2,"result":{}}}"#,
            r#"x{"jsonrpc":"2.0","id":1,"result":{"inner":{"jsonrpc":"2.0","id":2,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":[1, {"jsonrpc":"2.0","id":2,"result":{}}"#,
            r#"noise {"id":2}"#,
            "noise",
            "",
        ];
        for line in lines {
            assert!(parse_last(&Bytes::from_static(line.as_bytes())).is_none(), "{line}");
        }
        // Nor does a line that tries to cost much.
        let line = Bytes::from(r#"{"id":"#.repeat(1 << 20));
        assert!(parse_last(&line).is_none());
    }

    #[test]
    fn the_three_kinds_are_told_apart() {
        let text = r#"{"jsonrpc":"2.0","id":"a","method":"tools\/call","params":{"name":"x"}}"#;
        let Message::Request(request) = parse_text(text).unwrap() else { panic!("no request") };
        assert_eq!(&*request.method, "tools/call");
        assert_eq!(request.param_string("name").unwrap(), "x");
        let notification = parse_text(r#"{"jsonrpc":"2.0","method":"n"}"#).unwrap();
        assert!(matches!(notification, Message::Notification(_)));
        let response = parse_text(r#"{"id":1,"jsonrpc":"2.0","result":{"_meta":{"a":1}}}"#).unwrap();
        assert!(matches!(response, Message::Response(Response { body: Body::Result(_), .. })));
        let text = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m"}}"#;
        let Message::Response(response) = parse_text(text).unwrap() else { panic!("no response") };
        assert_eq!((response.id.clone(), response.error_code()), (None, Some(-32000)));
    }

    #[test]
    fn bad_ids_shapes_and_syntax_are_refused_apart() {
        for bad in ["null", "1.5", "true", "{}", "[]"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{bad},"method":"m"}}"#);
            assert!(matches!(parse_text(&text), Err(JsonError::Shape(_))), "{bad}");
        }
        for bad in [
            r#"{"id":1,"method":"m"}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0"}"#,
            "42",
            "\"x\"",
            "null",
        ] {
            assert!(matches!(parse_text(bad), Err(JsonError::Shape(_))), "{bad}");
        }
        for bad in ["{", "", " ", r#"{"jsonrpc":"2.0","id":1,"method":"m"} x"#, r#"{"a":01}"#] {
            assert!(matches!(parse_text(bad), Err(JsonError::Syntax(_))), "{bad}");
        }
        assert!(matches!(parse(Bytes::from_static(b"{\"a\":\"\xff\"}")), Err(JsonError::Syntax(_))));
        assert_eq!(parse_text("[]").unwrap_err(), JsonError::Batch);
        assert!(matches!(parse_text("[").unwrap_err(), JsonError::Syntax(_)));
    }

    #[test]
    fn keys_that_are_read_stand_once() {
        for bad in [
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","n\u0061me":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"k":1,"k":2}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a"},"p\u0061rams":{"name":"b"}}"#,
        ] {
            assert!(matches!(parse_text(bad), Err(JsonError::Shape(_))), "{bad}");
        }
        let inside = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"k":1,"k":2}}}"#;
        assert!(parse_text(inside).is_ok(), "what nobody reads is not ours to judge");
    }

    #[test]
    fn keys_that_differ_in_case_only_are_refused_where_they_decide() {
        for bad in [
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","Name":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"NAME":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"argument\u017f":{}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","Params":{"name":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","METHOD":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"taskId":"a","taskid":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"TASKID":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"ref":{"name":"a","Name":"b"}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"ref":{"name":"a","name":"b"}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"Ref":{}}}"#,
        ] {
            assert!(matches!(parse_text(bad), Err(JsonError::Shape(_))), "{bad}");
        }
        let inside =
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"a":1,"A":2},"x":1,"X":2}}"#;
        assert!(parse_text(inside).is_ok());
    }

    #[test]
    fn an_id_is_seen_in_either_end_of_a_message_and_nowhere_else() {
        for (head, tail, expected) in [
            (r#"{"jsonrpc":"2.0","id":17,"result":{"x"#, "xx\"}}", Some(17)),
            (r#" { "id" : 5 , "result""#, "", Some(5)),
            (r#"{"jsonrpc":"2.0","result":{"id":9,"x"#, r#"xx"}, "id" : 23 } "#, Some(23)),
            (r#"{"result":{"id":9,"x"#, r#""},"jsonrpc":"2.0"}"#, None),
            (r#"{"method":"id","params":{"id":3"#, r#""id":4}}"#, None),
            (r#"{"id":"a","result"#, "", None),
            ("", "", None),
        ] {
            assert_eq!(glimpse_id(head.as_bytes(), tail.as_bytes()), expected, "{head} … {tail}");
        }
    }

    #[test]
    fn depth_ends_at_128() {
        assert!(parse_text(&nested(128)).is_ok());
        assert!(matches!(parse_text(&nested(129)), Err(JsonError::Shape(_))));
        assert!(matches!(parse_text(&nested(100_000)), Err(JsonError::Shape(_))));
        let brackets_in_text = format!(r#"{{"jsonrpc":"2.0","method":"\"{}"}}"#, "[".repeat(500));
        assert!(parse_text(&brackets_in_text).is_ok());
    }

    #[test]
    fn a_draft_changes_what_it_names_and_nothing_else() {
        let text = r#" { "x":1, "jsonrpc" : "2.0","params":{ "arguments" : {"n":1e2 },"name":"a__b", "_meta" : {"progressToken":7, "z":null} },"id": 5,"method":"tools/call"} "#;
        let Message::Request(request) = parse_text(text).unwrap() else { panic!() };
        let draft = request.draft(
            &Id::from(9),
            &[("name", Some(Bytes::from_static(b"\"b\"")))],
            &[("progressToken", Some(Bytes::from_static(b"9")))],
        );
        let expected = r#"{ "x":1, "jsonrpc" : "2.0","params":{ "arguments" : {"n":1e2 },"name":"b", "_meta" : {"progressToken":9, "z":null} },"id": 9,"method":"tools/call"}"#;
        assert_eq!(draft.finish(), expected.as_bytes());
    }

    #[test]
    fn meta_comes_and_goes_whole() {
        let parsed = |text: &str| {
            let Message::Request(request) = parse_text(text).unwrap() else { panic!("no request") };
            request
        };
        let bare = parsed(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#);
        let with = bare.draft(&Id::from(2), &[], &[("k", Some(Bytes::from_static(b"1")))]).finish();
        assert_eq!(with, br#"{"jsonrpc":"2.0","id":2,"method":"m","params":{"_meta":{"k":1}}}"#.as_slice());
        let again = parsed(std::str::from_utf8(&with).unwrap());
        let without = again.draft(&Id::from(1), &[], &[("k", None)]).finish();
        assert_eq!(without, br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{}}"#.as_slice());
        let null = parsed(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#);
        let set = null.draft(&Id::from(1), &[], &[("k", Some(Bytes::from_static(b"1")))]).finish();
        assert_eq!(set, br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"k":1}}}"#.as_slice());
    }
}
