//! Schemas and payload fidelity. The table of `lossless.rs` goes wider; these are the cases by name.

use serde_json::json;

use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::json::{get, replaced};
use crate::support::matrix::Cell;
use crate::support::script::Script;

crate::matrix! { sch_02_integers_above_2_to_53 }

#[test]
fn sch_01_fields_that_nobody_knows_survive() {
    let entry = r#"{"name":"t","title":"T","icons":[{"src":"data:,"}],"annotations":{"readOnlyHint":true,"x":1},"inputSchema":{"type":"object","x-unknown":{}},"outputSchema":{"type":"object"},"_meta":{"k":1},"execution":{"taskSupport":"optional"},"x-unknown":[1.0]}"#;
    let result = r#"{"content":[{"type":"text","text":"x","x-block":1}],"structuredContent":{"a":{"b":null}},"_meta":{"k":{"z":1,"a":2}},"x-unknown":"y"}"#;
    let upstream = Script::legacy().listed(entry).handled("t", move |turn| turn.result(result)).stdio();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::legacy(&gateway);
    assert_eq!(client.tools_raw(), [replaced(entry, &["name"], "\"up__t\"")]);
    assert_eq!(get(&client.call_raw("up__t", "{}"), &["result"]), Some(result));
}

fn sch_02_integers_above_2_to_53(cell: Cell) {
    let script = Script::of(cell.server).tool("mirror", |turn| {
        turn.progress(1);
        turn.ok(&format!(r#"{{"content":[],"structuredContent":{}}}"#, turn.arguments()));
    });
    let upstream = script.over(cell.transport);
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::of(&gateway, cell.client);
    let numbers = [
        "9007199254740993",
        "9223372036854775807",
        "18446744073709551615",
        "-9223372036854775808",
        "2512292042121000001",
        "9007199254740992.5",
    ];
    for number in numbers {
        let arguments = format!(r#"{{"n":{number},"deep":[{{"n":{number}}}]}}"#);
        let params = format!(
            r#"{{"name":"up__mirror","arguments":{arguments},"_meta":{{"progressToken":9007199254740993}}}}"#
        );
        // The id has its digits, too.
        let body = replaced(&client.body("tools/call", &params), &["id"], "9007199254740995");
        let messages = client.message(&body).send().messages();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert_eq!(get(&messages[0], &["params", "progressToken"]), Some("9007199254740993"));
        assert_eq!(get(&messages[1], &["id"]), Some("9007199254740995"));
        assert_eq!(get(&messages[1], &["result", "structuredContent"]), Some(&*arguments));
        assert_eq!(upstream.calls().last().map(|call| call.arguments().to_owned()), Some(arguments));
    }
}

#[test]
fn sch_05_all_content_blocks_survive_in_order() {
    let note = r#""annotations":{"audience":["user"],"priority":0.5}"#;
    let blocks = [
        format!(r#"{{"type":"text","text":"one",{note}}}"#),
        format!(r#"{{"type":"image","data":"iVBORw0KGgoAAAANSUhEUg==","mimeType":"image/png",{note}}}"#),
        format!(r#"{{"type":"audio","data":"UklGRiQAAABXQVZF","mimeType":"audio/wav",{note}}}"#),
        format!(r#"{{"type":"resource_link","uri":"file:///x","name":"x",{note}}}"#),
        format!(r#"{{"type":"resource","resource":{{"uri":"blob://y","blob":"AAECAw=="}},{note}}}"#),
        r#"{"type":"text","text":"two"}"#.to_owned(),
    ];
    let all = format!(r#"{{"content":[{}],"isError":true}}"#, blocks.join(","));
    let gift = all.clone();
    let script = Script::legacy().tool("all", move |turn| turn.result(&gift));
    let upstream = script.tool("none", |turn| turn.result(r#"{"content":[]}"#)).stdio();
    let gateway = Config::new().upstream("up", &upstream).ready();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        let message = client.call_raw("up__all", "{}");
        assert_eq!(get(&message, &["result", "content"]), get(&all, &["content"]));
        assert_eq!(get(&message, &["result", "isError"]), Some("true"));
        assert_eq!(get(&client.call_raw("up__none", "{}"), &["result", "content"]), Some("[]"));
    }
}

#[test]
fn sch_06_what_is_only_carried_is_not_validated() {
    let with_output = |name: &str, schema: &str| {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object","required":["a"]}},"outputSchema":{schema}}}"#
        )
    };
    let strict = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
    let alien = r#"{"$schema":"https://x.example/unknown","type":"object"}"#;
    let script = Script::legacy()
        .listed(&with_output("failing", strict))
        .handled("failing", |turn| turn.result(r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#))
        .listed(&with_output("lying", strict))
        .handled("lying", |turn| turn.result(r#"{"content":[],"structuredContent":{"n":"text"}}"#))
        .listed(&with_output("alien", alien))
        .handled("alien", |turn| turn.result(r#"{"content":[],"structuredContent":{"x":1}}"#))
        .listed(r#"{"name":"schemaless"}"#)
        .handled("schemaless", |turn| turn.result(r#"{"content":7}"#));
    let upstream = script.http();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::legacy(&gateway);
    assert_eq!(client.tool_names(), ["up__failing", "up__lying", "up__alien", "up__schemaless"]);
    // No argument has what the input schemas require: that is the server's to say.
    let results = [
        ("up__failing", r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#),
        ("up__lying", r#"{"content":[],"structuredContent":{"n":"text"}}"#),
        ("up__alien", r#"{"content":[],"structuredContent":{"x":1}}"#),
        ("up__schemaless", r#"{"content":7}"#),
    ];
    for (name, result) in results {
        assert_eq!(get(&client.call_raw(name, "{}"), &["result"]), Some(result), "{name}");
    }
    gateway.wait_metric("waypost_calls_total", &[("outcome", "ok")], 3.0);
    assert_eq!(json!(client.tools_raw().len()), json!(4));
}
