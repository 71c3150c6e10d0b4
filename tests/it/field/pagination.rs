//! Pagination, on both sides.

use std::collections::HashSet;

use serde_json::json;

use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::json::string;
use crate::support::matrix::Era;
use crate::support::script::Script;

fn names(count: usize, stem: &str) -> Vec<String> {
    (0..count).map(|index| format!("{stem}{index:03}")).collect()
}

fn many(era: Era, count: usize, stem: &str) -> Script {
    let names = names(count, stem);
    Script::of(era).tools(names.iter().map(String::as_str))
}

/// Prompts and resources of the case belong to another step.
#[test]
fn pag_01_every_page_of_an_upstream_is_read() {
    let a = many(Era::Legacy, 101, "t").paged(50).http();
    let b = many(Era::Modern, 7, "u").paged(1).stdio();
    let c = many(Era::Legacy, 3, "v").stdio();
    let gateway = Config::new().upstream("a", &a).upstream("b", &b).upstream("c", &c).ready();
    let client = Client::legacy(&gateway);
    let listed = client.tool_names();
    let under = |prefix: &str, names: Vec<String>| {
        names.into_iter().map(|name| format!("{prefix}__{name}")).collect()
    };
    let wanted: Vec<Vec<String>> =
        vec![under("a", names(101, "t")), under("b", names(7, "u")), under("c", names(3, "v"))];
    assert_eq!(listed, wanted.concat());
    for (name, own) in [("a__t100", "t100"), ("b__u006", "u006"), ("c__v000", "v000"), ("a__t049", "t049")] {
        assert_eq!(client.echo(name, ""), own);
    }
}

/// A list that repeats its cursor ends with a warning, and what was read is served.
#[test]
fn pag_01_a_list_that_never_ends_is_bounded() {
    let script = many(Era::Legacy, 2, "t").first(|turn| {
        let is_list = turn.method() == "tools/list";
        if is_list {
            turn.result(r#"{"tools":[{"name":"t000","inputSchema":{}}],"nextCursor":"again"}"#);
        }
        is_list
    });
    let circular = script.stdio();
    let gateway = Config::new().upstream("up", &circular).ready();
    let client = Client::legacy(&gateway);
    client.wait_tools(&["up__t000"]);
    assert!(circular.of_method("tools/list").len() <= 4, "{}", circular.of_method("tools/list").len());
    gateway.wait_warning("cursor");
}

#[test]
fn pag_02_a_walk_ends_and_has_each_tool_once() {
    let upstream = many(Era::Legacy, 23, "t").http();
    let gateway = Config::new().upstream("up", &upstream).set("page_size", json!(5)).ready();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        let first = client.request("tools/list", "{}").send().json();
        assert_eq!(first["result"]["tools"].as_array().map(Vec::len), Some(5), "{first}");
        let walked = client.tool_names();
        assert_eq!(walked.len(), 23);
        assert_eq!(walked.iter().collect::<HashSet<_>>().len(), 23);
        for cursor in ["\"made up\"", "\"\"", "\"5\""] {
            let response = client.request("tools/list", &format!(r#"{{"cursor":{cursor}}}"#)).send();
            assert_eq!(response.code(), -32602, "{cursor}: {}", response.text());
        }
        let response = client.request("tools/list", r#"{"cursor":7}"#).send();
        assert_eq!(response.code(), -32602, "{}", response.text());
    }
}

#[test]
fn pag_02_without_pages_a_cursor_is_still_no_page_one() {
    let upstream = many(Era::Legacy, 3, "t").stdio();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::legacy(&gateway);
    let whole = client.request("tools/list", "{}").send().message();
    assert_eq!(string(&whole, &["result", "nextCursor"]), None);
    let response = client.request("tools/list", r#"{"cursor":"abc"}"#).send();
    assert_eq!(response.code(), -32602, "{}", response.text());
}
