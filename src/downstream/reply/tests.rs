//! Every outcome and every refusal, as each era sees it.

use std::sync::Arc;

use super::*;
use crate::mcp::{Message, Response};
use crate::wire::json;

fn asked(era: Era, method: Method) -> Asked {
    Asked { era, method, id: Id::from_text(Bytes::from_static(b"\"\"")).unwrap() }
}

fn response(text: &str) -> Response {
    let Ok(Message::Response(response)) = json::parse(Bytes::copy_from_slice(text.as_bytes())) else {
        panic!("{text}")
    };
    response
}

fn answer(text: &str, form: ResultForm) -> Answer {
    Answer { response: response(text), form }
}

fn text(reply: &Reply) -> &str {
    std::str::from_utf8(&reply.body).unwrap()
}

fn body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

fn error(kind: GatewayErrorKind) -> GatewayError {
    let upstream: Arc<str> = "github".into();
    GatewayError::upstream(kind, &upstream, "is down: refused").retry_after(Duration::from_millis(1200))
}

#[test]
fn results_pass_byte_for_byte_between_equals() {
    let tagged = r#"{ "x":1, "id":7,"jsonrpc":"2.0","result":{"b":1e2, "a":null,"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{}}}}"#;
    let bare = r#"{"jsonrpc":"2.0","result":{"tools": "of its own"},"id": 7 }"#;
    let modern = reply(
        &asked(Era::Modern, Method::ToolsCall),
        Ok(Outcome::Complete(answer(tagged, ResultForm::Tagged))),
    );
    assert_eq!(text(&modern), tagged.replace("\"id\":7", "\"id\":\"\""));
    let legacy =
        reply(&asked(Era::Legacy, Method::ToolsCall), Ok(Outcome::Complete(answer(bare, ResultForm::Bare))));
    assert_eq!(text(&legacy), bare.replace("\"id\": 7", "\"id\": \"\""));
}

#[test]
fn what_an_era_adds_is_added_and_stripped() {
    let tagged = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[],"ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"},"k":1}}}"#;
    let legacy = reply(
        &asked(Era::Legacy, Method::ToolsCall),
        Ok(Outcome::Complete(answer(tagged, ResultForm::Tagged))),
    );
    assert_eq!(text(&legacy), r#"{"jsonrpc":"2.0","id":"","result":{"content":[],"_meta":{"k":1}}}"#);
    let bare = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#;
    let modern =
        reply(&asked(Era::Modern, Method::ToolsCall), Ok(Outcome::Complete(answer(bare, ResultForm::Bare))));
    assert_eq!(text(&modern), r#"{"jsonrpc":"2.0","id":"","result":{"content":[],"resultType":"complete"}}"#);
    let own = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"mine","ttlMs":1}}"#;
    let legacy =
        reply(&asked(Era::Legacy, Method::ToolsCall), Ok(Outcome::Complete(answer(own, ResultForm::Bare))));
    assert_eq!(
        text(&legacy),
        own.replace("\"id\":7", "\"id\":\"\""),
        "a legacy server's members are its own"
    );
}

#[test]
fn err_01_an_error_is_an_answer_in_legacy_and_a_status_in_modern() {
    for (code, modern) in [
        (-32601, 404),
        (-32020, 400),
        (-32021, 400),
        (-32022, 400),
        (-32602, 200),
        (-32603, 200),
        (-32000, 200),
        (7, 200),
    ] {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":{code},"message":"m","data":{{"z":1.0}}}}}}"#
        );
        for (era, expected) in [(Era::Modern, modern), (Era::Legacy, 200)] {
            let outcome = Outcome::Error(answer(&text, ResultForm::Bare));
            let reply = reply(&asked(era, Method::ToolsCall), Ok(outcome));
            assert_eq!(reply.status.as_u16(), expected, "{era:?} {code}");
            assert_eq!(reply.body, text.replace("\"id\":7", "\"id\":\"\""));
        }
    }
}

#[test]
fn every_error_of_ours_has_its_form() {
    use GatewayErrorKind as Kind;
    for (kind, is_readable, code, modern) in [
        (Kind::Unknown, false, -32602, 200),
        (Kind::Denied, false, -32602, 200),
        (Kind::InvalidParams, false, -32602, 200),
        (Kind::MethodNotFound, false, -32601, 404),
        (Kind::MethodDenied, false, -32601, 404),
        (Kind::RateLimited, true, 429, 200),
        (Kind::EdgeLimited, false, 429, 429),
        (Kind::Unavailable, true, 503, 200),
        (Kind::UpstreamAuth, true, 503, 200),
        (Kind::BadUpstream, true, 502, 200),
        (Kind::Timeout, true, 504, 200),
        (Kind::Cancelled, false, 499, 200),
        (Kind::Internal, false, -32603, 200),
    ] {
        for era in [Era::Legacy, Era::Modern] {
            let of_call = reply(&asked(era, Method::ToolsCall), Err(error(kind)));
            assert_eq!(body(&of_call)["result"]["isError"].as_bool().is_some(), is_readable, "{kind:?}");
            let of_list = reply(&asked(era, Method::ToolsList), Err(error(kind)));
            assert_eq!(body(&of_list)["error"]["code"], code, "{kind:?}");
            let expected = if era == Era::Modern || kind == Kind::EdgeLimited { modern } else { 200 };
            assert_eq!(of_list.status.as_u16(), expected, "{kind:?} {era:?}");
            assert_eq!(body(&of_list)["id"], "");
            let wait = &of_call.headers.iter().find(|(name, _)| name == RETRY_AFTER).unwrap().1;
            assert_eq!(wait, "2");
        }
    }
}

#[test]
fn a_readable_refusal_says_which_why_whether_and_when() {
    let failed = error(GatewayErrorKind::Timeout).maybe_executed();
    let modern = body(&reply(&asked(Era::Modern, Method::ToolsCall), Err(failed.clone())));
    let said = modern["result"]["content"][0]["text"].as_str().unwrap();
    for part in ["\"github\"", "is down: refused", "may have been executed", "Try again in 2 s"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(modern["result"]["resultType"], "complete");
    assert_eq!(modern["result"]["_meta"][RETRY_AFTER_MS], 1200);
    let legacy = body(&reply(&asked(Era::Legacy, Method::ToolsCall), Err(failed.clone())));
    assert!(legacy["result"].get("resultType").is_none());
    let list = body(&reply(&asked(Era::Legacy, Method::ToolsList), Err(failed)));
    assert_eq!(
        list["error"]["data"],
        json!({"upstream": "github", "executed": "unknown", "retryAfterMs": 1200})
    );
}

#[test]
fn a_question_goes_to_modern_clients_only() {
    let asks = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"input_required","requestState":"s"}}"#;
    let outcome = || Ok(Outcome::InputRequired(answer(asks, ResultForm::Tagged)));
    let modern = reply(&asked(Era::Modern, Method::ToolsCall), outcome());
    assert_eq!(text(&modern), asks.replace("\"id\":7", "\"id\":\"\""));
    let legacy = body(&reply(&asked(Era::Legacy, Method::ToolsCall), outcome()));
    assert_eq!(legacy["result"]["isError"], true);
}

#[test]
fn waits_are_whole_seconds_and_never_none() {
    for (wait, expected) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
        assert_eq!(seconds(Duration::from_millis(wait)), expected);
    }
}

#[test]
fn refusals_before_a_request_is_read_have_no_id() {
    let reply = Reply::transport(StatusCode::FORBIDDEN, "no \"quotes\" break it");
    let body = body(&reply);
    assert!(body.get("id").is_none());
    assert_eq!(body["error"], json!({"code": 403, "message": "no \"quotes\" break it"}));
}
