//! What arguments have to fit: shown in lists, enforced on calls, added up over all layers.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::{Config, Gateway};
use crate::support::json::get;
use crate::support::matrix::{Cell, Era};
use crate::support::script::Script;
use crate::support::upstream::Upstream;

crate::matrix! {
    nar_what_does_not_fit_never_reaches_the_server
}

const WRITE: &str =
    r#"{"name":"write","inputSchema":{"type":"object","properties":{"path":{"type":"string"}},"x":1.50e2}}"#;

fn server(era: Era) -> Script {
    Script::of(era).listed(WRITE).handled("write", |turn| turn.text("written")).tools(["other"])
}

fn layered(up: &Upstream) -> Config {
    let own = json!({"tools": {"narrow": {"write": {"required": ["path"]}}}});
    Config::new()
        .upstream_with("up", up, own)
        .set("roles", json!({"careful": {"tools": {"narrow": {"up__*": {"maxProperties": 2}}}}}))
        .clients(json!({
            "ci": {
                "tokens": [{"env": "CI"}], "roles": ["careful"],
                "tools": {"narrow": {"up__write": {"properties": {"path": {"type": "string", "pattern": "^/srv/shared/"}}}}},
            },
            "root": {"tokens": [{"env": "ROOT"}]},
        }))
        .env("CI", "t-ci")
        .env("ROOT", "t-root")
}

fn of(gateway: &Gateway, era: Era, token: &str) -> Client {
    match era {
        Era::Legacy => Client::legacy_with(gateway, token),
        Era::Modern => Client::modern_with(gateway, token),
    }
}

fn nar_what_does_not_fit_never_reaches_the_server(cell: Cell) {
    let up = server(cell.server).over(cell.transport);
    let gateway = layered(&up).ready();
    let (ci, root) = (of(&gateway, cell.client, "t-ci"), of(&gateway, cell.client, "t-root"));
    let good = r#"{"path":"/srv/shared/a","n":1.50e2}"#;
    assert!(ci.call_raw("up__write", good).contains("written"));
    assert!(up.calls()[0].text.contains(good), "untouched: {}", up.calls()[0].text);
    for bad in [
        r#"{"path":"/etc/passwd"}"#,
        r#"{"path":7}"#,
        "{}",
        r#"{"path":"/srv/shared/a","b":1,"c":2}"#,
        r#"{"path":"/srv/shared/a","path":"/etc/passwd"}"#,
        r#"{"path":"/etc/passwd","path":"/srv/shared/a"}"#,
        r#"{"path":"/srv/shared/a","PATH":"/etc/passwd"}"#,
        r#"{"path":"/srv/shared/a","deep":{"a":1,"a":2}}"#,
    ] {
        let answer: Value = serde_json::from_str(&ci.call_raw("up__write", bad)).unwrap();
        assert_eq!(answer["result"]["isError"], true, "{bad}: {answer}");
        let told = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(told.contains("do not fit"), "{bad}: {told}");
    }
    assert_eq!(up.calls().len(), 1, "none of them reached it");
    assert!(
        root.call_raw("up__write", r#"{"path":"/etc/passwd"}"#).contains("written"),
        "another client may"
    );
    assert!(root.call_raw("up__write", "{}").contains("do not fit"), "what the upstream asks holds for all");
    assert!(gateway.metrics().sum("waypost_calls_total", &[("outcome", "invalid")]) > 8.5);
}

#[test]
fn nar_each_client_is_shown_what_holds_for_it() {
    let up = server(Era::Legacy).http();
    let gateway = layered(&up).ready();
    for era in [Era::Legacy, Era::Modern] {
        let shown = |token: &str| {
            let tools = of(&gateway, era, token).tools_raw();
            let write = tools.into_iter().find(|tool| tool.contains("up__write")).unwrap();
            assert!(write.contains(r#""x":1.50e2"#), "the rest is untouched: {write}");
            get(&write, &["inputSchema", "allOf"]).unwrap().to_owned()
        };
        let own = r#"{"required":["path"]}"#;
        assert_eq!(shown("t-root"), format!("[{own}]"));
        let all: Value = serde_json::from_str(&shown("t-ci")).unwrap();
        assert_eq!(all.as_array().map(Vec::len), Some(3), "{all}");
        assert!(all.to_string().contains("^/srv/shared/") && all.to_string().contains("maxProperties"));
    }
    let explained = gateway.admin("/api/explain?client=ci&tool=up__write").1;
    let steps: Value = serde_json::from_str(&explained).unwrap();
    let narrows =
        steps["explanation"]["steps"].as_array().unwrap().iter().filter(|step| step["check"] == "narrow");
    assert_eq!(narrows.count(), 3, "{explained}");
}

#[test]
fn nar_what_is_no_schema_is_told_with_its_line() {
    for (schema, told) in [
        (json!({"type": 7}), "is no JSON Schema"),
        (json!({"$ref": "https://example.com/schema"}), "is no JSON Schema"),
        (json!("text"), "expected a JSON Schema"),
    ] {
        let config = Config::new()
            .raw_upstream("up", json!({"command": "x", "tools": {"narrow": {"a": schema}}}))
            .text();
        let output = crate::support::gateway::run_with(&["check"], &config, &[]);
        let said =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && said.contains(told) && said.contains("gateway.yaml:"), "{said}");
    }
}
