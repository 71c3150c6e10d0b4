//! Results for a person: what is text as text, what is not as a line that says what it is.
//!
//! Must not know: who asked.

use serde_json::Value;

use super::table::{line, plain};

/// A result, and whether it is one of a failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Good(String),
    Failed(String),
}

/// Whether a tool says that it failed.
pub(super) fn is_failure(result: &Value) -> bool {
    result.get("isError").and_then(Value::as_bool).unwrap_or_default()
}

/// The result of a call. Structured content is shown where there is no other.
pub(super) fn called(result: &Value) -> Shown {
    let mut out: String = list(result, "content").map(block).collect();
    if out.is_empty()
        && let Some(structured) = result.get("structuredContent")
    {
        out = format!("{structured:#}\n");
    }
    if is_failure(result) { Shown::Failed(out) } else { Shown::Good(out) }
}

/// What a resource holds.
pub(super) fn read(result: &Value) -> Shown {
    Shown::Good(list(result, "contents").map(contents).collect())
}

/// A prompt: each message under the name of its role.
pub(super) fn prompted(result: &Value) -> Shown {
    let message = |message: &Value| {
        let content = message.get("content").map(block).unwrap_or_default();
        format!("{}: {content}", line(text(message, "role")))
    };
    Shown::Good(list(result, "messages").map(message).collect())
}

fn list<'v>(result: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    result.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// One block of content.
fn block(block: &Value) -> String {
    match text(block, "type") {
        "text" => ended(plain(text(block, "text"))),
        "image" | "audio" => format!("[{}]\n", binary(text(block, "type"), block, "data")),
        "resource" => block.get("resource").map(contents).unwrap_or_default(),
        "resource_link" => format!("[resource {} {}]\n", line(text(block, "uri")), line(text(block, "name"))),
        other => format!("[{}]\n", line(other)),
    }
}

/// What stands in a resource.
fn contents(contents: &Value) -> String {
    match contents.get("text").and_then(Value::as_str) {
        Some(text) => ended(plain(text)),
        None => format!("[{} {}]\n", binary("binary", contents, "blob"), line(text(contents, "uri"))),
    }
}

/// What something is that is no text: its type, and its size.
fn binary(noun: &str, value: &Value, key: &str) -> String {
    let data = text(value, key);
    let padding = data.bytes().rev().take_while(|byte| *byte == b'=').count();
    let bytes = (data.len() / 4 * 3).saturating_sub(padding);
    format!("{noun} {} {bytes} bytes", line(text(value, "mimeType")))
}

/// A text with a line end behind it.
fn ended(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_content_is_shown_or_named() {
        let result = json!({"content": [
            {"type": "text", "text": "one\u{1b}[2J\ntwo"},
            {"type": "image", "mimeType": "image/png", "data": "AAAAAA=="},
            {"type": "resource", "resource": {"uri": "file:///x", "text": "three\n"}},
            {"type": "resource", "resource": {"uri": "file:///y", "mimeType": "a/b", "blob": "AAAA"}},
            {"type": "resource_link", "uri": "file:///z", "name": "z"},
            {"type": "hologram"},
        ], "structuredContent": {"a": 1}});
        let wanted = "one[2J\ntwo\n[image image/png 4 bytes]\nthree\n[binary a/b 3 bytes file:///y]\n\
                      [resource file:///z z]\n[hologram]\n";
        assert_eq!(called(&result), Shown::Good(wanted.to_owned()));
        assert_eq!(
            called(&json!({"content": [], "structuredContent": {"a": 1}})),
            Shown::Good("{\n  \"a\": 1\n}\n".to_owned())
        );
        let failed = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
        assert_eq!(called(&failed), Shown::Failed("no\n".to_owned()));
        let prompt = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]});
        assert_eq!(prompted(&prompt), Shown::Good("user: hi\n".to_owned()));
        let read_one = json!({"contents": [{"uri": "x", "text": "t"}]});
        assert_eq!(read(&read_one), Shown::Good("t\n".to_owned()));
    }
}
