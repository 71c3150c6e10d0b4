//! Protocol version and era.

use serde_json::{Value, json};

use crate::support::client::{Client, LEGACY, Request, initialize, with_meta};
use crate::support::gateway::Config;
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::script::Script;

crate::matrix! { ver_03_every_pair_of_eras_answers }

#[test]
fn ver_01_initialize_never_fails_on_a_version() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let cases = [
        ("2099-01-01", Some("2099-01-01"), LEGACY),
        ("2099-01-01", Some("2025-03-26"), LEGACY),
        ("2099-01-01", None, LEGACY),
        ("2026-07-28", None, LEGACY),
        ("2026-07-28", Some("2026-07-28"), LEGACY),
        ("1999-01-01", None, LEGACY),
        ("", None, LEGACY),
        ("latest", None, LEGACY),
        ("2024-11-05", None, "2024-11-05"),
        ("2025-03-26", None, "2025-03-26"),
        ("2025-06-18", Some("2025-06-18"), "2025-06-18"),
        ("2025-11-25", None, "2025-11-25"),
    ];
    for (asked, header, agreed) in cases {
        let request = Request::post(gateway.mcp, "/mcp", initialize(asked));
        let request =
            header.into_iter().fold(request, |request, value| request.header("MCP-Protocol-Version", value));
        let response = request.send();
        let answer = response.json();
        assert_eq!(response.status, 200, "{asked} {header:?}: {answer}");
        assert_eq!(answer["result"]["protocolVersion"], agreed, "{asked} {header:?}");
        assert!(answer["result"]["capabilities"]["tools"].is_object(), "{answer}");
        assert!(answer["result"]["serverInfo"]["name"].is_string(), "{answer}");
        assert!(response.header("mcp-session-id").is_some(), "{:?}", response.head);
    }
}

#[test]
fn ver_02_the_header_after_the_handshake() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy_at(&gateway, "2025-06-18");
    let cases = [
        (None, 200),
        (Some("2025-06-18"), 200),
        (Some("foobar"), 400),
        (Some("2025/11/25"), 400),
        (Some("2099-01-01"), 200),
        (Some("2025-11-25"), 200),
        (Some("2025-6-18"), 400),
    ];
    for (header, status) in cases {
        let with = |request: Request| {
            let request = request.without("MCP-Protocol-Version");
            header.into_iter().fold(request, |request, value| request.header("MCP-Protocol-Version", value))
        };
        let list = with(client.request("tools/list", "{}")).send();
        assert_eq!(list.status, status, "{header:?}: {}", list.text());
        if status == 400 {
            let text = list.json()["error"].to_string();
            assert!(
                text.contains("2025-11-25") && text.contains("2024-11-05"),
                "names what is supported: {text}"
            );
            let get = with(client.bodyless("GET")).send();
            assert_eq!(get.status, 400, "{header:?} GET: {}", get.text());
            let delete = with(client.bodyless("DELETE")).send();
            assert_eq!(delete.status, 400, "{header:?} DELETE: {}", delete.text());
        }
    }
    assert_eq!(client.echo("up__echo", "alive"), "alive", "no refused DELETE ended it");
    let last = client.bodyless("DELETE").header("MCP-Protocol-Version", "2099-01-01").send();
    assert!(matches!(last.status, 200 | 202 | 204), "{:?}", last.head);
}

#[test]
fn ver_02_a_modern_request_of_an_unknown_version_is_told_what_is_supported() {
    let up = Script::echo(Era::Modern).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::modern(&gateway);
    let body = client.body("tools/list", "{}").replace("2026-07-28", "2099-01-01");
    let response = client.message(&body).header("MCP-Protocol-Version", "2099-01-01").send();
    let answer = response.json();
    assert_eq!((response.status, &answer["error"]["code"]), (400, &json!(-32022)), "{answer}");
    let supported = answer["error"]["data"]["supported"].as_array().expect("a list");
    assert!(supported.contains(&json!("2026-07-28")), "{answer}");
    assert_eq!(answer["error"]["data"]["requested"], "2099-01-01", "{answer}");
}

fn ver_03_every_pair_of_eras_answers(cell: Cell) {
    let up = Script::echo(cell.server).over(cell.transport);
    let opposite = if cell.server == Era::Legacy { Era::Modern } else { Era::Legacy };
    let other = Script::echo(opposite).http();
    let gateway = Config::new().upstream("up", &up).upstream("other", &other).ready();
    let client = Client::of(&gateway, cell.client);
    client.wait_tools(&["up__echo", "other__echo"]);
    assert_eq!(client.echo("up__echo", "one"), "one");
    assert_eq!(client.echo("other__echo", "two"), "two");
    assert_eq!(client.echo("up__echo", "three"), "three");
    let list = client.request("tools/list", "{}").send().json();
    let answer = client.call("up__echo", json!({"text": "x"}));
    for (result, is_list) in [(&list["result"], true), (&answer["result"], false)] {
        let is_modern = cell.client == Era::Modern;
        assert_eq!(result["resultType"].as_str(), is_modern.then_some("complete"), "{result}");
        assert_eq!(result["ttlMs"].is_u64(), is_modern && is_list, "{result}");
        assert_eq!(result["cacheScope"].is_string(), is_modern && is_list, "{result}");
        let has_info = result["_meta"]["io.modelcontextprotocol/serverInfo"].is_object();
        assert!(!has_info || is_modern, "{result}");
    }
    let handshakes = match (cell.server, cell.transport) {
        (Era::Modern, _) => 0,
        (Era::Legacy, Transport::Stdio) => 1,
        // One for the lists, and one for the calls of the client.
        (Era::Legacy, Transport::Http | Transport::Sse) => 2,
    };
    assert_eq!(up.of_method("initialize").len(), handshakes, "spoken to in its own era");
}

#[test]
fn ver_03_the_config_may_say_the_era() {
    let (old, new) = (Script::echo(Era::Legacy).stdio(), Script::echo(Era::Modern).stdio());
    let config = Config::new().upstream_with("old", &old, json!({"era": "legacy"}));
    let gateway = config.upstream_with("new", &new, json!({"era": "modern"})).ready();
    let client = Client::legacy(&gateway);
    assert_eq!(client.echo("old__echo", "1"), "1");
    assert_eq!(client.echo("new__echo", "1"), "1");
    assert!(old.of_method("server/discover").is_empty(), "no probe where the era is known");
    assert!(new.of_method("initialize").is_empty());
}

/// Every way in which a legacy server may answer a probe that it does not know.
#[test]
fn ver_03_whatever_a_legacy_server_says_to_the_probe_it_is_legacy() {
    let error = |code: i64| move |turn: &crate::support::turn::Turn| turn.error(code, "what?");
    let probed = |answer: Box<dyn Fn(&crate::support::turn::Turn) + Send + Sync>| {
        Script::echo(Era::Legacy).first(move |turn| {
            let is_probe = turn.method() == "server/discover";
            if is_probe {
                answer(turn);
            }
            is_probe
        })
    };
    let lines = [
        probed(Box::new(error(-32601))).stdio(),
        probed(Box::new(error(-32602))).stdio(),
        probed(Box::new(error(0))).stdio(),
        probed(Box::new(|turn| turn.break_off())).stdio(),
        probed(Box::new(error(-32601))).http(),
        probed(Box::new(|turn| turn.respond("404 Not Found", "text/plain", "no"))).http(),
        probed(Box::new(|turn| turn.respond("400 Bad Request", "", ""))).http(),
        probed(Box::new(|turn| {
            let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}"#;
            turn.respond("400 Bad Request", "application/json", body);
        }))
        .http(),
        probed(Box::new(|turn| turn.respond("406 Not Acceptable", "application/json", "{}"))).http(),
    ];
    let add = |config: Config, (index, up): (usize, &_)| config.upstream(&format!("up{index}"), up);
    let gateway = lines.iter().enumerate().fold(Config::new(), add).ready();
    let client = Client::modern(&gateway);
    for index in 0..lines.len() {
        assert_eq!(client.echo(&format!("up{index}__echo"), "x"), "x", "up{index}");
    }
}

#[test]
fn ver_06_a_dual_era_client_probes_first() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let modern = Client::modern(&gateway);
    let response = modern.request("server/discover", "{}").send();
    let answer = response.json();
    assert_eq!(response.status, 200, "{answer}");
    assert!(response.content_type().starts_with("application/json"), "{:?}", response.head);
    assert!(response.header("mcp-session-id").is_none(), "no session for who asked for none");
    let result = &answer["result"];
    assert_eq!(result["resultType"], "complete", "{answer}");
    assert!(
        result["supportedVersions"].as_array().is_some_and(|all| all.contains(&json!("2026-07-28"))),
        "{answer}"
    );
    assert!(result["capabilities"]["tools"].is_object(), "{answer}");
    assert!(result["ttlMs"].is_u64() && result["cacheScope"].is_string(), "{answer}");
    assert_eq!(Client::legacy(&gateway).echo("up__echo", "x"), "x");
    // A probe of a version from the future is answered with what there is.
    let future = modern.body("server/discover", "{}").replace("2026-07-28", "2099-01-01");
    let refused = modern.message(&future).header("MCP-Protocol-Version", "2099-01-01").send();
    assert_eq!((refused.status, refused.code()), (400, -32022), "{}", refused.text());
    // Without its metadata it is a malformed request of one era, or an unknown method of the other.
    let session = Client::legacy(&gateway);
    let code = session.request("server/discover", "{}").send().code();
    assert!(matches!(code, -32601 | -32602), "{code}");
    assert_eq!(session.echo("up__echo", "alive"), "alive");
    assert!(with_meta("{}").contains("2026-07-28"));
}

#[test]
fn ver_07_batches_exist_in_2025_03_26_alone() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let two =
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":"two","method":"tools/list"}]"#;
    let notes = r#"[{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}]"#;
    let old = Client::legacy_at(&gateway, "2025-03-26");
    let response = old.post(two).send();
    assert_eq!(response.status, 200, "{}", response.text());
    let answers: Value = serde_json::from_slice(&response.body).unwrap();
    let ids: Vec<_> =
        answers.as_array().expect("an array").iter().map(|answer| answer["id"].clone()).collect();
    assert!(ids.len() == 2 && ids.contains(&json!(1)) && ids.contains(&json!("two")), "{answers}");
    let response = old.post(notes).send();
    assert_eq!((response.status, response.body.len()), (202, 0), "{}", response.text());
    let response = old.post("[]").send();
    assert_eq!((response.status, response.code()), (400, -32600), "{}", response.text());
    let mixed = r#"[{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"up__echo","arguments":{"text":"in a batch"}}},{"jsonrpc":"2.0","id":6,"method":"no/such"},42]"#;
    let answers: Value = serde_json::from_slice(&old.post(mixed).send().body).unwrap();
    let text = answers.to_string();
    assert!(text.contains("in a batch") && text.contains("-32601") && text.contains("-32600"), "{text}");
    assert_eq!(old.echo("up__echo", "alive"), "alive");
    for version in ["2025-06-18", "2025-11-25"] {
        let new = Client::legacy_at(&gateway, version);
        for body in [two, notes, "[]"] {
            let response = new.post(body).send();
            assert_eq!((response.status, response.code()), (400, -32600), "{version}: {}", response.text());
        }
        assert_eq!(new.echo("up__echo", "alive"), "alive");
    }
}

/// Policy and limits see each element.
#[test]
fn ver_07_limits_see_each_element_of_a_batch() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream_with("up", &up, json!({"limits": {"rate": "2/h"}})).ready();
    let client = Client::legacy_at(&gateway, "2025-03-26");
    let call = |id: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"up__echo","arguments":{{"text":"x"}}}}}}"#
        )
    };
    let body = format!("[{},{},{},{}]", call(1), call(2), call(3), call(4));
    let answers: Value = serde_json::from_slice(&client.post(body).send().body).unwrap();
    let refused = answers
        .as_array()
        .expect("an array")
        .iter()
        .filter(|answer| answer["result"]["isError"] == true)
        .count();
    assert_eq!((refused, up.calls().len()), (2, 2), "{answers}");
}
