//! What translation between the eras adds, takes away, and never lets through.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Client, LEGACY, Request, initialize};
use crate::support::eventually;
use crate::support::gateway::Config;
use crate::support::json::{get, string};
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::script::{Script, plain_entry};
use crate::support::turn::{Form, Turn};

crate::matrix! { questions_of_a_server_are_refused_at_once log_messages_reach_who_asked_for_them }

const REGION: &str = r#"{"name":"NAME","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"Count"},"deep":{"type":"object","properties":{"flag":{"type":"boolean","x-mcp-header":"Flag"}}},"plain":{"type":"string"}}}}"#;

fn mirrored(era: Era) -> Script {
    let entry = REGION.replace("NAME", "query");
    Script::of(era).listed(&entry).handled("query", |turn| turn.text("ok"))
}

/// Parameters that a tool wants in headers are put there on the way to a modern server, from the body alone.
#[test]
fn tagged_parameters_go_into_headers_upstream() {
    let up = mirrored(Era::Modern).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    let cases = [
        (
            r#"{"region":"us-west1","n":42,"deep":{"flag":true},"plain":"x"}"#,
            [Some("us-west1"), Some("42"), Some("true")],
        ),
        (r#"{"region":"Hello, 世界"}"#, [Some("=?base64?SGVsbG8sIOS4lueVjA==?="), None, None]),
        (r#"{"region":" padded ","n":-7}"#, [Some("=?base64?IHBhZGRlZCA=?="), Some("-7"), None]),
        (r#"{"region":"line1\nX-Evil: 1"}"#, [Some("=?base64?bGluZTEKWC1FdmlsOiAx?="), None, None]),
        (r#"{"region":"=?base64?literal?="}"#, [Some("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="), None, None]),
        (r#"{"region":null,"deep":{}}"#, [None, None, None]),
        ("{}", [None, None, None]),
    ];
    for (arguments, [region, count, flag]) in cases {
        let answer = client.call_raw("up__query", arguments);
        assert!(answer.contains("ok"), "{answer}");
        let call = up.calls().pop().expect("a call");
        assert_eq!(call.header("mcp-param-region"), region, "{arguments}");
        assert_eq!(call.header("mcp-param-count"), count, "{arguments}");
        assert_eq!(call.header("mcp-param-flag"), flag, "{arguments}");
        assert_eq!(call.header("mcp-param-plain"), None, "{arguments}");
        assert_eq!(call.arguments(), arguments);
    }
}

/// Headers of a modern client have to say what the body says; whatever the server's era.
#[test]
fn tagged_parameters_are_checked_downstream() {
    let (new, old) = (mirrored(Era::Modern).http(), mirrored(Era::Legacy).stdio());
    let gateway = Config::new().upstream("new", &new).upstream("old", &old).ready();
    let client = Client::modern(&gateway);
    for (name, up) in [("new__query", &new), ("old__query", &old)] {
        let call = client.calling(name, r#"{"region":"us-west1","n":42}"#);
        let good = call.clone().header("Mcp-Param-Region", "us-west1").header("Mcp-Param-Count", "42");
        assert_eq!(good.send().code(), 0, "{}", good.send().text());
        let encoded = good.clone().header("Mcp-Param-Region", "=?base64?dXMtd2VzdDE=?=");
        assert_eq!(encoded.send().code(), 0, "{}", encoded.send().text());
        let before = up.calls().len();
        for bad in [
            good.clone().header("Mcp-Param-Region", "eu-north1"),
            good.clone().without("Mcp-Param-Region"),
            good.clone().header("Mcp-Param-Count", "43"),
            good.clone().header("Mcp-Param-Region", "=?base64?!!!?="),
            good.clone().header("Mcp-Param-Flag", "true"),
        ] {
            let refused = bad.send();
            assert_eq!(
                (refused.status, refused.code()),
                (400, -32020),
                "{:?}: {}",
                bad.headers,
                refused.text()
            );
        }
        assert_eq!(up.calls().len(), before, "nothing of it reached {name}");
        let foreign = good.header("Mcp-Param-Unknown", "x").send();
        assert_eq!(foreign.code(), 0, "what nobody tagged is ignored: {}", foreign.text());
    }
}

/// A client over Streamable HTTP has to leave out tools whose tags are wrong, and only those.
#[test]
fn tools_with_wrong_tags_are_left_out() {
    let tagged = |name: &str, schema: &str| {
        format!(r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{schema}}}}}"#)
    };
    let script = Script::modern()
        .listed(&tagged("good", r#"{"a":{"type":"string","x-mcp-header":"A"}}"#))
        .listed(&tagged("empty", r#"{"a":{"type":"string","x-mcp-header":""}}"#))
        .listed(&tagged("space", r#"{"a":{"type":"string","x-mcp-header":"My Header"}}"#))
        .listed(&tagged(
            "twice",
            r#"{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}"#,
        ))
        .listed(&tagged("number", r#"{"a":{"type":"number","x-mcp-header":"A"}}"#))
        .listed(&tagged("object", r#"{"a":{"type":"object","x-mcp-header":"A"}}"#))
        .listed(&tagged("line", r#"{"a":{"type":"string","x-mcp-header":"A\r\nB"}}"#))
        .listed(&plain_entry("last"));
    let up = script.http();
    let gateway = Config::new().upstream("up", &up).ready();
    Client::legacy(&gateway).wait_tools(&["up__good", "up__last"]);
    gateway.wait_metric("waypost_entries_skipped_total", &[("upstream", "up")], 6.0);
    for name in ["empty", "space", "twice", "number", "object", "line"] {
        assert!(gateway.warnings().iter().any(|line| line.contains(name)), "{name} is reported");
    }
}

/// What a modern client says of itself reaches a modern server per request, never widened by the gateway.
#[test]
fn capabilities_of_a_client_are_never_widened() {
    let up = Script::echo(Era::Modern).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let key = "io.modelcontextprotocol/clientCapabilities";
    for capabilities in ["{}", r#"{"elicitation":{"form":{}},"x":1.0}"#, r#"{"roots":{"listChanged":true}}"#]
    {
        let client = Client::modern(&gateway);
        let body = client.body("tools/call", r#"{"name":"up__echo","arguments":{"text":"x"}}"#);
        let body =
            body.replace(r#"clientCapabilities":{}"#, &format!(r#"clientCapabilities":{capabilities}"#));
        assert_eq!(client.message(&body).send().code(), 0);
        let call = up.calls().pop().expect("a call");
        let passed: Value =
            serde_json::from_str(get(&call.text, &["params", "_meta", key]).expect("capabilities")).unwrap();
        let said: Value = serde_json::from_str(capabilities).unwrap();
        for (name, value) in passed.as_object().expect("an object") {
            assert_eq!(said.get(name), Some(value), "{name} is the gateway's invention");
        }
    }
    let legacy = Client::legacy(&gateway);
    assert_eq!(legacy.echo("up__echo", "x"), "x");
    let call = up.calls().pop().expect("a call");
    let passed = get(&call.text, &["params", "_meta", key]).expect("capabilities");
    assert_eq!(passed, "{}", "a session that declared nothing");
    let info = "io.modelcontextprotocol/clientInfo";
    assert!(get(&call.text, &["params", "_meta", info]).is_some(), "somebody says who asks: {}", call.text);
}

/// A client that can answer nothing is asked nothing, and its server is told at once.
fn questions_of_a_server_are_refused_at_once(cell: Cell) {
    if cell.server == Era::Modern {
        return;
    }
    let asking = |turn: &Turn| {
        turn.send(r#"{"jsonrpc":"2.0","id":"q 1","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#);
        turn.send(r#"{"jsonrpc":"2.0","id":2,"method":"roots/list"}"#);
        turn.send(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
        std::thread::sleep(Duration::from_millis(100));
        turn.text("asked");
    };
    let up = Script::echo(Era::Legacy).tool("ask", asking).over(cell.transport);
    let gateway = Config::new().upstream_with("up", &up, json!({"isolation": "shared"})).ready();
    let hello = up.of_method("initialize").remove(0);
    let promised: Value =
        serde_json::from_str(get(&hello.text, &["params", "capabilities"]).unwrap()).unwrap();
    for capability in ["sampling", "elicitation", "roots"] {
        // Only a stream of its own says for which call a question is.
        let is_promised = promised[capability].is_object();
        assert_eq!(is_promised, cell.transport == Transport::Http, "{capability}: {promised}");
    }
    let client = Client::of(&gateway, cell.client);
    let response = client.calling("up__ask", "{}").send();
    assert_eq!(response.json()["result"]["content"][0]["text"], "asked", "{}", response.text());
    for message in response.messages() {
        assert!(!message.contains("sampling/") && !message.contains("roots/list"), "asks nobody: {message}");
    }
    for (id, wanted) in [("\"q 1\"", Some(-32601)), ("2", Some(-32601)), ("3", None)] {
        let answer = up.wait_for(id, |received| received.method().is_empty() && received.id() == Some(id));
        let parsed: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!(parsed["error"]["code"].as_i64(), wanted, "{parsed}");
        assert_eq!(parsed["result"].is_object(), wanted.is_none(), "{parsed}");
    }
    assert_eq!(client.echo("up__echo", "usable"), "usable");
}

fn levels(response: &crate::support::client::Response) -> Vec<String> {
    let messages = response.messages();
    let logs =
        messages.iter().filter(|message| get(message, &["method"]) == Some("\"notifications/message\""));
    logs.map(|message| string(message, &["params", "level"]).expect("a level")).collect()
}

/// Over HTTP the log of a call belongs to the call. Over stdio nobody can tell whose line it is, so it goes to
/// our own log and to no client.
fn log_messages_reach_who_asked_for_them(cell: Cell) {
    let logging = |turn: &Turn| {
        for level in ["debug", "info", "error"] {
            turn.send(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":{{"n":1.0}},"x":1e2}}}}"#
            ));
        }
        turn.text("logged");
    };
    let mut script = Script::of(cell.server).tool("log", logging);
    script.capabilities = r#"{"tools":{},"logging":{}}"#.to_owned();
    let up = script
        .first(|turn| {
            let is_level = turn.method() == "logging/setLevel";
            if is_level {
                turn.result("{}");
            }
            is_level
        })
        .over(cell.transport);
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::of(&gateway, cell.client);
    let call = || {
        let response = match cell.client {
            Era::Legacy => client.calling("up__log", "{}").send(),
            Era::Modern => {
                let meta = r#""_meta":{"io.modelcontextprotocol/logLevel":"info"}"#;
                client
                    .request("tools/call", &format!(r#"{{"name":"up__log","arguments":{{}},{meta}}}"#))
                    .send()
            }
        };
        assert_eq!(response.json()["result"]["content"][0]["text"], "logged", "{}", response.text());
        response
    };
    if cell.client == Era::Legacy {
        let set = client.request("logging/setLevel", r#"{"level":"info"}"#).send();
        assert_eq!(set.json()["result"], json!({}), "{}", set.text());
    }
    let heard = levels(&call());
    if cell.transport == Transport::Http {
        assert_eq!(heard, ["info", "error"], "from the wanted level on");
    } else {
        assert!(heard.is_empty() || heard == ["info", "error"], "{heard:?}");
    }
    if cell.client == Era::Modern {
        let silent = client.calling("up__log", "{}").send();
        assert_eq!(levels(&silent), Vec::<String>::new(), "no level, no log: {}", silent.text());
    }
}

/// A modern server's answer of input is not to be had by a legacy client in this step, but is never taken for
/// a result.
#[test]
fn an_open_question_is_never_a_good_result() {
    let script = Script::modern().tool("ask", |turn| {
        let ask = r#"{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}"#;
        turn.result(&format!(r#"{{"resultType":"input_required","inputRequests":{{"q":{ask}}},"requestState":"s"}}"#));
    });
    let up = script.http();
    let gateway = Config::new().upstream("up", &up).ready();
    let modern = Client::modern(&gateway).call_raw("up__ask", "{}");
    assert_eq!(get(&modern, &["result", "resultType"]), Some("\"input_required\""), "{modern}");
    assert_eq!(get(&modern, &["result", "requestState"]), Some("\"s\""), "{modern}");
    let legacy = Client::legacy(&gateway).call("up__ask", json!({}));
    let is_failure = legacy["error"].is_object() || legacy["result"]["isError"] == true;
    assert!(is_failure, "{legacy}");
}

/// A modern server may answer under the status that its revision asks for; the message counts.
#[test]
fn errors_of_a_modern_server_pass_under_any_status() {
    let script = Script::modern()
        .tool("missing", |turn| {
            turn.error_with(
                "400 Bad Request",
                r#"{"code":-32021,"message":"needs more","data":{"requiredCapabilities":{"sampling":{}}}}"#,
            )
        })
        .tool("unknown", |turn| {
            turn.error_with("404 Not Found", r#"{"code":-32601,"message":"no such method"}"#)
        })
        .tool("own", |turn| {
            turn.error_with("500 Internal Server Error", r#"{"code":-32603,"message":"own words"}"#)
        });
    let up = script.http();
    let gateway = Config::new().upstream("up", &up).ready();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        for (name, code) in [("up__missing", -32021), ("up__unknown", -32601), ("up__own", -32603)] {
            let response = client.calling(name, "{}").send();
            assert_eq!(response.code(), code, "{name}: {}", response.text());
            if client.era == Era::Legacy {
                assert_eq!(response.status, 200, "{name}: {}", response.text());
            }
        }
    }
    assert_eq!(gateway.metrics().sum("waypost_upstream_up", &[("upstream", "up")]).round() as i64, 1);
}

/// `initialize` and `server/discover` say the same about the gateway; instructions come with their upstream's
/// name.
#[test]
fn both_openings_tell_the_same() {
    let instructing = |era: Era, text: &'static str| {
        Script::echo(era).first(move |turn| {
            let opening = match &*turn.method() {
                "initialize" if turn.era == Era::Legacy => format!(
                    r#"{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"1"}},"instructions":"{text}"}}"#
                ),
                "server/discover" if turn.era == Era::Modern => format!(
                    r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{{"tools":{{}}}},"instructions":"{text}","ttlMs":60000,"cacheScope":"public"}}"#
                ),
                _ => return false,
            };
            turn.result(&opening);
            true
        })
    };
    let (old, new) = (
        instructing(Era::Legacy, "Ask the old one.").stdio(),
        instructing(Era::Modern, "Ask the new one.").stdio(),
    );
    let gateway = Config::new()
        .upstream("old", &old)
        .upstream("new", &new)
        .set("instructions", json!("Ask away."))
        .ready();
    let hello = Request::post(gateway.mcp, "/mcp", initialize(LEGACY)).send().json()["result"].clone();
    let found = Client::modern(&gateway).request("server/discover", "{}").send().json()["result"].clone();
    for result in [&hello, &found] {
        let text = result["instructions"].as_str().unwrap_or_else(|| panic!("{result}"));
        for part in ["Ask away.", "Ask the old one.", "Ask the new one.", "old", "new"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(text.find("Ask away.") < text.find("Ask the old one."), "{text}");
    }
    assert_eq!(hello["instructions"], found["instructions"]);
    assert_eq!(hello["capabilities"]["tools"].is_object(), found["capabilities"]["tools"].is_object());
    assert_eq!(hello["serverInfo"]["name"], found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"]);
}

/// A server changes its tools: the list follows without being asked.
#[test]
fn a_changed_list_is_read_again() {
    for transport in Transport::LEGACY {
        let script = Script::echo(Era::Legacy)
            .form(Form::Sse("\n"))
            .handled("late", |turn| turn.text("late"))
            .tool("change", |turn| {
                turn.send(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
                turn.text("changed");
            });
        let mut script = script;
        script.capabilities = r#"{"tools":{"listChanged":true}}"#.to_owned();
        let up = script.over(transport);
        let gateway = Config::new().upstream("up", &up).ready();
        let client = Client::legacy(&gateway);
        client.wait_tools(&["up__echo", "up__change"]);
        up.set_tools([plain_entry("echo"), plain_entry("change"), plain_entry("late")].to_vec());
        assert_eq!(client.echo("up__change", ""), "changed");
        client.wait_tools(&["up__echo", "up__change", "up__late"]);
        assert_eq!(client.echo("up__late", ""), "late");
        up.set_tools([plain_entry("change")].to_vec());
        assert_eq!(client.echo("up__change", ""), "changed");
        client.wait_tools(&["up__change"]);
        let gone = client.call("up__late", json!({}));
        assert_eq!(gone["error"]["message"], "Unknown tool: up__late", "{gone}");
    }
}

/// A server that comes back with other tools: the old ones are gone, the new ones there.
#[test]
fn a_restarted_server_has_its_new_tools() {
    for transport in Transport::LEGACY {
        let up =
            Script::echo(Era::Legacy).tools(["v1"]).handled("v2", |turn| turn.text("v2")).over(transport);
        let gateway = Config::new().upstream_with("up", &up, json!({"isolation": "shared"})).ready();
        let client = Client::legacy(&gateway);
        client.wait_tools(&["up__echo", "up__v1"]);
        up.set_tools([plain_entry("echo"), plain_entry("v2")].to_vec());
        match transport {
            Transport::Stdio => {
                crate::support::process::signal(up.process().pid(), rustix::process::Signal::KILL)
            }
            Transport::Http => {
                up.forget_sessions();
                assert_eq!(client.echo("up__echo", "x"), "x");
            }
            Transport::Sse => {
                up.go_down();
                up.come_back();
            }
        }
        client.wait_tools(&["up__echo", "up__v2"]);
        assert_eq!(client.echo("up__v2", ""), "v2");
        assert_eq!(client.call("up__v1", json!({}))["error"]["message"], "Unknown tool: up__v1");
    }
}

/// The revisions that a legacy server may insist on.
#[test]
fn a_server_may_choose_an_older_revision() {
    let versions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    let ups: Vec<_> =
        versions.iter().map(|version| Script::echo(Era::Legacy).version(version).http()).collect();
    let alien = Script::echo(Era::Legacy).version("1999-12-31").http();
    let config = ups
        .iter()
        .enumerate()
        .fold(Config::new(), |config, (index, up)| config.upstream(&format!("up{index}"), up));
    let gateway = config.upstream("zz", &alien).start();
    let client = Client::modern(&gateway);
    for (index, version) in versions.iter().enumerate() {
        let name = format!("up{index}__echo");
        eventually(version, || client.tool_names().contains(&name).then_some(()));
        assert_eq!(client.echo(&name, "x"), "x");
        let header = ups[index].calls()[0].header("mcp-protocol-version").map(str::to_owned);
        let has_header = *version >= "2025-06-18";
        assert!(!has_header || header.as_deref() == Some(*version), "{version}: {header:?}");
    }
    assert!(
        !client.tool_names().contains(&"zz__echo".to_owned()),
        "a revision that nobody knows is not spoken"
    );
}

/// A probe of a modern server that wants another modern revision is repeated with one that both know.
#[test]
fn a_modern_server_that_knows_us_after_all_is_modern() {
    let first = Mutex::new(true);
    let script = Script::echo(Era::Modern).first(move |turn| {
        let mut first = first.lock().unwrap();
        let is_first = std::mem::replace(&mut *first, false);
        if is_first {
            let error = r#"{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}"#;
            turn.error_with("400 Bad Request", error);
        }
        is_first
    });
    let up = script.http();
    let gateway = Config::new().upstream("up", &up).ready();
    assert_eq!(Client::legacy(&gateway).echo("up__echo", "x"), "x");
    assert!(up.of_method("initialize").is_empty(), "no fall back where the answer was a modern one");
}
