//! Named endpoints: views on the upstreams, one more layer of the same policy on every road.

use serde_json::{Value, json};

use crate::support::client::{Client, LEGACY, Request};
use crate::support::gateway::{Config, Gateway, run_with};
use crate::support::matrix::{Cell, Era};
use crate::support::pipe::Pipe;
use crate::support::script::{Script, plain_entry};
use crate::support::{eventually, scaled};

crate::matrix! {
    endpoint_is_one_more_layer_on_every_road
}

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// A tool that says of itself what it does.
fn hinted(name: &str, annotations: &str) -> String {
    format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"annotations":{annotations}}}"#)
}

/// A client of an endpoint, with a session where its era has them.
fn at(gateway: &Gateway, era: Era, path: &str) -> Client {
    let mut client = Client::bare(gateway, era);
    path.clone_into(&mut client.path);
    match era {
        Era::Legacy => client.connected(LEGACY),
        Era::Modern => client,
    }
}

fn expect_unknown(client: &Client, name: &str) {
    let answer = client.call(name, json!({}));
    assert_eq!(answer["error"]["code"], -32602, "{name:?}: {answer}");
    assert_eq!(answer["error"]["message"], format!("Unknown tool: {name}"), "{answer}");
}

/// `/mcp` with everything, `/mcp/read` with what only reads, `/one` with one upstream under its own names.
fn views(config: Config) -> Config {
    config.set(
        "endpoints",
        json!({
            "/mcp": {},
            "/mcp/read": {"tools": {"allow": [{"readOnlyHint": true}]}, "instructions": "Look."},
            "/one": {"upstreams": ["up"], "prefixes": {"up": ""}, "tools": {"deny": ["up__drop"]}},
        }),
    )
}

fn script(era: Era) -> Script {
    let names = ["look", "drop", "shy", "liar"];
    let script = names
        .into_iter()
        .fold(Script::of(era), |script, name| script.handled(name, move |turn| turn.text(name)));
    script
        .listed(&hinted("look", r#"{"readOnlyHint":true,"title":"L"}"#))
        .listed(&hinted("drop", r#"{"readOnlyHint":false,"destructiveHint":true}"#))
        .listed(&plain_entry("shy"))
        .listed(&hinted("liar", r#"{"readOnlyHint":true,"readOnlyHint":false}"#))
}

fn endpoint_is_one_more_layer_on_every_road(cell: Cell) {
    let (up, other) = (script(cell.server).over(cell.transport), Script::echo(cell.server).http());
    let gateway = views(Config::new().upstream("up", &up).upstream("other", &other)).ready();
    let all = ["up__look", "up__drop", "up__shy", "up__liar", "other__echo"];
    let shown: [(&str, &[&str]); 3] =
        [("/mcp", &all), ("/mcp/read", &["up__look"]), ("/one", &["look", "shy", "liar"])];
    for (path, listed) in shown {
        let client = at(&gateway, cell.client, path);
        let mut names = client.tool_names();
        let mut wanted: Vec<String> = listed.iter().map(|name| (*name).to_owned()).collect();
        names.sort();
        wanted.sort();
        assert_eq!(names, wanted, "{path}");
        let native = |name: &str| name.rsplit("__").next().unwrap_or_default().to_owned();
        for name in all.iter().copied().chain(["look", "drop", "shy", "liar", "echo"]) {
            let before = up.calls().len() + other.calls().len();
            if listed.contains(&name) {
                let answer = client.call(name, json!({"text": "echo"}));
                assert_eq!(answer["result"]["content"][0]["text"], native(name), "{path} {name}: {answer}");
            } else {
                expect_unknown(&client, name);
            }
            let reached = up.calls().len() + other.calls().len() - before;
            assert_eq!(reached, usize::from(listed.contains(&name)), "{path} {name}");
        }
    }
    let metrics = gateway.metrics();
    let labels = |path| [("endpoint", path), ("outcome", "ok")];
    assert!(metrics.sum("waypost_endpoint_calls_total", &labels("/one")) == 3.0);
    assert!(metrics.sum("waypost_endpoint_calls_total", &labels("/mcp/read")) == 1.0);
    assert!(
        metrics.sum("waypost_calls_total", &[("tool", "up__look"), ("outcome", "ok")]) == 3.0,
        "one tool is one tool, whatever it is called where"
    );
}

#[test]
fn pol_06_only_the_paths_of_the_file_are_served() {
    let up = script(Era::Legacy).http();
    let gateway = views(Config::new().upstream("up", &up).upstream("other", &up)).ready();
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for path in [
        "/mcp/xyz",
        "/mcp/read/extra",
        "/mcp/READ",
        "/mcp/read%2f..%2f..%2fone",
        "/mcp/%72ead",
        "/mcp/read//",
        "/mcp//read",
        "/mcp/read/../../mcp",
        "/mcp/read;x",
        "/one/mcp",
        "//one",
        "/",
    ] {
        let answer = Request::post(gateway.mcp, path, hello).send();
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.text().contains("endpoint"), "{path}: {}", answer.text());
        assert!(!answer.text().contains("/one"), "which there are is nobody's business: {}", answer.text());
    }
    for path in ["/mcp", "/mcp/", "/mcp/read", "/mcp/read/", "/mcp/read?x=1", "/one"] {
        assert_eq!(Request::post(gateway.mcp, path, hello).send().status, 200, "{path}");
    }
    let without = Config::new().upstream("up", &up).set("endpoints", json!({"/tools": {}})).ready();
    let answer = Request::post(without.mcp, "/mcp", hello).send();
    assert_eq!(answer.status, 404, "with endpoints, those are all");
    assert!(answer.text().contains("the MCP endpoint is /tools"), "{}", answer.text());
    assert_eq!(at(&without, Era::Modern, "/tools").tool_names().len(), 4);
}

#[test]
fn session_is_unknown_at_another_endpoint() {
    let up = script(Era::Legacy).http();
    let gateway = views(Config::new().upstream("up", &up).upstream("other", &up)).ready();
    let mut client = at(&gateway, Era::Legacy, "/mcp");
    assert_eq!(client.request("ping", "{}").send().status, 200);
    "/mcp/read".clone_into(&mut client.path);
    for request in [
        client.request("ping", "{}"),
        client.calling("up__look", "{}"),
        client.bodyless("GET").header("Accept", "text/event-stream"),
        client.bodyless("DELETE"),
    ] {
        assert_eq!(request.send().status, 404);
    }
    "/mcp/".clone_into(&mut client.path);
    assert_eq!(client.request("ping", "{}").send().status, 200, "it lives on where it began");
}

#[test]
fn instructions_and_capabilities_are_those_of_the_endpoint() {
    let up = script(Era::Legacy).http();
    let other = Script::legacy().tools(["x"]).prompt("p").http();
    let config = views(Config::new().upstream("up", &up).upstream("other", &other));
    let gateway = config.set("instructions", json!("Welcome.")).ready();
    let hello = |path| at(&gateway, Era::Legacy, path).hello.unwrap_or_default()["result"].take();
    let said = |path| hello(path)["instructions"].as_str().unwrap_or_default().to_owned();
    assert!(said("/mcp").starts_with("Welcome.") && said("/one").starts_with("Welcome."));
    assert!(said("/mcp/read").starts_with("Look.") && !said("/mcp/read").contains("Welcome."));
    assert!(hello("/mcp")["capabilities"]["prompts"].is_object());
    assert!(hello("/one")["capabilities"].get("prompts").is_none(), "its upstream has none");
    for era in ERAS {
        let one = at(&gateway, era, "/one");
        let answer = one.request("prompts/list", "{}").send().json();
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        assert_eq!(at(&gateway, era, "/mcp").prompt_names(), ["other__p"]);
    }
}

#[test]
fn change_is_told_only_where_it_is_seen() {
    for era in ERAS {
        let up = script(Era::Legacy).telling().http();
        let gateway = views(Config::new().upstream("up", &up).upstream("other", &up)).ready();
        let (everything, reading) = (at(&gateway, era, "/mcp"), at(&gateway, era, "/mcp/read"));
        let (mut all, mut read) = (everything.listening(), reading.listening());
        up.wait_heard();
        let look = hinted("look", r#"{"readOnlyHint":true,"title":"L"}"#);
        up.change_tools(vec![look.clone(), plain_entry("fresh")]);
        assert_eq!(all.message().expect("a change")["method"], "notifications/tools/list_changed");
        assert!(read.is_silent(scaled(300)), "nothing that it sees has changed");
        up.change_tools(vec![look, hinted("peek", r#"{"readOnlyHint":true}"#)]);
        assert_eq!(read.message().expect("a change")["method"], "notifications/tools/list_changed");
        reading.wait_tools(&["other__look", "other__peek", "up__look", "up__peek"]);
    }
}

#[test]
fn rules_of_roles_hold_under_every_name() {
    let up = script(Era::Legacy).http();
    let config = views(Config::new().upstream("up", &up).upstream("other", &up))
        .set("roles", json!({"calm": {"tools": {"deny": ["up__shy", {"destructiveHint": true}]}}}))
        .clients(json!({"alice": {"tokens": [{"env": "ALICE"}], "roles": ["calm"]}}))
        .env("ALICE", "t-alice");
    let gateway = config.ready();
    for era in ERAS {
        let mut client = Client::bare(&gateway, era).bearer("t-alice");
        "/one".clone_into(&mut client.path);
        assert_eq!(client.tool_names(), ["look", "liar"]);
        for name in ["shy", "drop", "up__shy"] {
            expect_unknown(&client, name);
        }
    }
    assert_eq!(up.calls().len(), 0);
}

/// The next message of a stream of HTTP+SSE.
fn told(open: &mut crate::support::client::Open) -> Value {
    serde_json::from_str(&open.event().expect("an event").data).expect("a message")
}

#[test]
fn old_clients_and_launched_ones_have_endpoints_too() {
    let up = script(Era::Legacy).http();
    let config = views(Config::new().upstream("up", &up).upstream("other", &up));
    let gateway = config.ready();
    let names = |answer: &Value| -> Vec<String> {
        let tools = answer["result"]["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().map(|tool| tool["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let mut open = Request::get(gateway.mcp, "/one/sse").header("Accept", "text/event-stream").open();
    let first = open.event().expect("an event").data;
    assert!(first.starts_with("/one/messages?session="), "{first}");
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let call = |name: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"{name}"}}}}"#)
    };
    assert_eq!(Request::post(gateway.mcp, &first, list).send().status, 202);
    assert_eq!(names(&told(&mut open)), ["look", "shy", "liar"]);
    assert_eq!(Request::post(gateway.mcp, &first, call("drop")).send().status, 202);
    assert_eq!(told(&mut open)["error"]["code"], -32602);
    let elsewhere = first.replace("/one/messages", "/messages");
    assert_eq!(Request::post(gateway.mcp, &elsewhere, list).send().status, 404, "another endpoint's");
    drop(gateway);

    for era in ERAS {
        let config = config.clone().without("listen").without("admin");
        let mut pipe = Pipe::launch(&config, &["--endpoint", "/mcp/read"]);
        pipe.open(era, "{}");
        pipe.ask(era, 1, "tools/list", "{}");
        assert_eq!(names(&pipe.message()), ["other__look", "up__look"]);
        pipe.ask(era, 2, "tools/call", r#"{"name":"up__shy","arguments":{}}"#);
        assert_eq!(pipe.message()["error"]["code"], -32602);
    }
    let mut lost = Pipe::launch(&config, &["--endpoint", "/nowhere"]);
    assert_eq!(lost.wait_exit(), Some(1));
    eventually("it says which there are", || {
        lost.log().iter().any(|line| line.contains("/mcp/read")).then_some(())
    });
    assert_eq!(up.calls().len(), 0);
}

#[test]
fn explain_and_who_ask_at_an_endpoint() {
    let up = script(Era::Legacy).http();
    let config = views(Config::new().upstream("up", &up).upstream("other", &up));
    let gateway = config.ready();
    let admin = format!("http://{}", gateway.admin);
    let cases = [
        ("/mcp", "up__drop", "allowed", 0),
        ("/mcp/read", "up__look", "allowed", 0),
        ("/mcp/read", "up__drop", "denied", 3),
        ("/mcp/read", "up__shy", "denied", 3),
        ("/one", "drop", "denied", 3),
        ("/one", "shy", "allowed", 0),
        ("/one", "up__shy", "unknown", 4),
        ("/one", "other__look", "unknown", 4),
    ];
    for (endpoint, tool, verdict, code) in cases {
        for command in ["explain", "who"] {
            let arguments = [command, "--tool", tool, "--endpoint", endpoint, "--admin", &admin];
            let output = run_with(&arguments, &config.text(), &[]);
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(code), "{endpoint} {tool}: {text}");
            assert!(text.contains(verdict), "{endpoint} {tool}: {text}");
        }
    }
    let stop = ["explain", "--tool", "up__shy", "--endpoint", "/mcp/read", "--admin", &admin];
    let text = String::from_utf8_lossy(&run_with(&stop, &config.text(), &[]).stdout).into_owned();
    assert!(text.contains("endpoints./mcp/read.tools"), "{text}");
    let (status, page) = gateway.admin("/api/who?tool=up__shy&endpoint=/nowhere");
    assert_eq!(status, 404);
    assert!(page.contains("/mcp/read"), "{page}");
}
