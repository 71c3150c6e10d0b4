//! Apps: user interfaces of tools, which are resources that tools name (`io.modelcontextprotocol/ui`).

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::json::string;
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::script::Script;

crate::matrix! { app_interfaces_that_no_list_has_are_read_by_the_uri_that_tools_name }

/// Tools of an app: one with an interface, one that only the interface may call.
const SHOW: &str = r#"{"name":"show","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://app/view","visibility":["model","app"]},"x":1.0}}"#;
const OLDER: &str =
    r#"{"name":"older","inputSchema":{"type":"object"},"_meta":{"ui/resourceUri":"ui://app/older"}}"#;
const REFRESH: &str =
    r#"{"name":"refresh","inputSchema":{"type":"object"},"_meta":{"ui":{"visibility":["app"]}}}"#;
const HTML: &str = r#""mimeType":"text/html;profile=mcp-app","_meta":{"ui":{"csp":{"connectDomains":["https://a.example"]},"prefersBorder":true}}"#;

/// An app whose interfaces are in no list.
fn app(era: Era, own: &'static str) -> Script {
    let mut script = Script::of(era);
    script.capabilities =
        r#"{"tools":{},"resources":{},"extensions":{"io.modelcontextprotocol/ui":{}}}"#.to_owned();
    [SHOW, OLDER, REFRESH]
        .into_iter()
        .fold(script, |script, tool| script.listed(tool))
        .handled("refresh", move |turn| turn.text(own))
        .on("resources/read", move |turn| {
            let uri = turn.uri();
            let caching = if turn.era == Era::Modern { r#","ttlMs":0,"cacheScope":"private""# } else { "" };
            turn.ok(&format!(r#"{{"contents":[{{"uri":"{uri}","text":"{own}: {uri}",{HTML}}}]{caching}}}"#));
        })
}

fn text_of(answer: &Value) -> &str {
    answer["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

fn app_interfaces_that_no_list_has_are_read_by_the_uri_that_tools_name(cell: Cell) {
    let up = app(cell.server, "up").over(cell.transport);
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::of(&gateway, cell.client);
    let listed = client.tools_raw();
    for (entry, original) in listed.iter().zip([SHOW, OLDER, REFRESH]) {
        assert_eq!(entry.replace("up__", ""), original, "untouched but for its name");
    }
    assert!(client.resource_uris().is_empty(), "what is read is not listed for that");
    for uri in ["ui://app/view", "ui://app/older", "ui://app/view#@up"] {
        let answer = client.request("resources/read", &format!(r#"{{"uri":"{uri}"}}"#)).send().message();
        assert!(answer.contains(HTML), "{answer}");
        let native = uri.trim_end_matches("#@up");
        assert!(answer.contains(&format!("up: {native}")), "{answer}");
    }
    let reads = up.of_method("resources/read").len();
    for uri in ["ui://app/other", "ui://app/view/", "ui://app"] {
        let code = if cell.client == Era::Modern { -32602 } else { -32002 };
        assert_eq!(client.read(uri)["error"]["code"], code, "{uri}");
    }
    assert_eq!(up.of_method("resources/read").len(), reads, "nobody named those");
    let answer = client.call("up__refresh", json!({}));
    assert_eq!(answer["result"]["content"][0]["text"], "up", "tools of the interface are called like others");
}

#[test]
fn app_01_equal_interfaces_of_two_apps_are_told_apart() {
    for (first, second) in [(Era::Legacy, Era::Modern), (Era::Modern, Era::Legacy)] {
        let (one, two) = (app(first, "one").http(), app(second, "two").stdio());
        // Lists what the others only name, and comes last.
        let lists = Script::echo(first).resources("three", ["ui://app/view"]).over(Transport::Http);
        let gateway =
            Config::new().upstream("1|one", &one).upstream("2|two", &two).upstream("3|three", &lists).ready();
        for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
            let listed = client.tools_raw();
            let uris: Vec<_> = listed
                .iter()
                .filter_map(|tool| {
                    string(tool, &["_meta", "ui", "resourceUri"])
                        .or(string(tool, &["_meta", "ui/resourceUri"]))
                })
                .collect();
            assert_eq!(
                uris,
                ["ui://app/view", "ui://app/older", "ui://app/view#@two", "ui://app/older#@two"]
            );
            assert_eq!(client.resource_uris(), ["ui://app/view#@three"]);
            for (uri, text) in [
                ("ui://app/view", "one: ui://app/view"),
                ("ui://app/view#@two", "two: ui://app/view"),
                ("ui://app/older#@two", "two: ui://app/older"),
                ("ui://app/view#@three", "three: ui://app/view"),
            ] {
                let answer = client.read(uri);
                assert_eq!(text_of(&answer), text);
                assert_eq!(answer["result"]["contents"][0]["uri"], uri, "read as it was named");
            }
            let nobody = client.read("ui://app/older#@three");
            assert!(nobody["error"].is_object(), "{nobody}");
        }
    }
}

#[test]
fn app_02_rules_for_resources_hold_for_interfaces_that_no_list_has() {
    let up = app(Era::Modern, "up").http();
    let denied = json!({"resources": {"deny": ["ui://app/view"]}});
    let hidden = json!({"tools": {"deny": ["show"]}});
    for rules in [denied.clone(), hidden] {
        let gateway = Config::new().upstream_with("up", &up, rules).ready();
        for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
            for uri in ["ui://app/view", "ui://app/view#@up", "ui://app/%76iew", "ui://app/x/../view"] {
                let answer = client.read(uri);
                let said = answer["error"]["message"].as_str().unwrap_or_default();
                assert_eq!(said, format!("Resource not found: {uri}"));
            }
            assert_eq!(text_of(&client.read("ui://app/older")), "up: ui://app/older");
        }
    }
    let mut clients = json!({"few": denied, "all": {}});
    for (name, variable) in [("few", "FEW"), ("all", "ALL")] {
        clients[name]["tokens"] = json!([{"env": variable}]);
    }
    let config = Config::new().upstream("up", &up).clients(clients);
    let gateway = config.env("FEW", "t-few").env("ALL", "t-all").ready();
    let few = Client::modern_with(&gateway, "t-few");
    assert!(few.read("ui://app/view")["error"].is_object());
    assert_eq!(text_of(&few.read("ui://app/older")), "up: ui://app/older");
    assert_eq!(text_of(&Client::modern_with(&gateway, "t-all").read("ui://app/view")), "up: ui://app/view");
}

/// A task's result is that of a tool: the URIs in it are those that clients use.
#[test]
fn app_03_interfaces_in_the_result_of_a_task_are_told_apart() {
    let result = r#"{"content":[{"type":"resource_link","uri":"ui://app/view","name":"ui://app/view"}],"_meta":{"ui":{"resourceUri":"ui://app/view"}}}"#;
    let two = app(Era::Modern, "two")
        .handled("show", |turn| turn.result(r#"{"resultType":"task","taskId":"t","status":"working"}"#))
        .on("tasks/get", move |turn| {
            turn.ok(&format!(r#"{{"taskId":"t","status":"completed","result":{result}}}"#));
        });
    let mut two = two;
    two.capabilities = two.capabilities.replace(
        r#""io.modelcontextprotocol/ui":{}"#,
        r#""io.modelcontextprotocol/ui":{},"io.modelcontextprotocol/tasks":{}"#,
    );
    let (one, two) = (app(Era::Modern, "one").http(), two.http());
    let gateway = Config::new().upstream("1|one", &one).upstream("2|two", &two).ready();
    let client = Client::modern(&gateway).able(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
    let id = client.call("two__show", json!({}))["result"]["taskId"].clone();
    let answer = client.request("tasks/get", &format!(r#"{{"taskId":{id}}}"#)).send().json();
    let told = &answer["result"]["result"];
    assert_eq!(told["content"][0]["uri"], "ui://app/view#@two");
    assert_eq!(told["content"][0]["name"], "ui://app/view");
    assert_eq!(told["_meta"]["ui"]["resourceUri"], "ui://app/view#@two");
}
