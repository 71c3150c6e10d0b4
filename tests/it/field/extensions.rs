//! Extensions of the protocol: what is promised of them, where their methods go, and who may use them.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::{Config, Gateway};
use crate::support::json::{get, string};
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::script::Script;
use crate::support::upstream::Upstream;

crate::matrix! {
    ext_methods_reach_their_upstream_and_come_back_untouched
    ext_questions_and_errors_of_a_method_come_back
}

const SEARCH: &str = "com.example/search/query";

/// A server with these extensions, which answers its methods with the server's name and the text that came.
fn extended(era: Era, own: &'static str, extensions: &str) -> Script {
    let mut script = Script::echo(era);
    script.capabilities = format!(r#"{{"tools":{{}},"extensions":{{{extensions}}}}}"#);
    for method in ["com.example/search/query", "com.example/other", "plain/method"] {
        script = script.on(method, move |turn| {
            turn.progress(1);
            let params = get(&turn.text, &["params"]).unwrap_or("null");
            turn.ok(&format!(r#"{{"own":"{own}","n":1.50e2,"params":{params}}}"#));
        });
    }
    script
}

fn promised(client: &Client) -> Value {
    match client.era {
        Era::Legacy => client.hello.clone().expect("a handshake")["result"]["capabilities"].clone(),
        Era::Modern => {
            client.request("server/discover", "{}").send().json()["result"]["capabilities"].clone()
        }
    }
}

fn both(gateway: &Gateway) -> [Client; 2] {
    [Client::legacy(gateway), Client::modern(gateway)]
}

fn ext_methods_reach_their_upstream_and_come_back_untouched(cell: Cell) {
    let up = extended(cell.server, "up", r#""com.example/search":{"v":1}"#).over(cell.transport);
    let plain = Script::echo(Era::Modern).http();
    let gateway = Config::new().upstream("plain", &plain).upstream("up", &up).ready();
    let client = Client::of(&gateway, cell.client);
    for method in [SEARCH, "com.example/other", "plain/method"] {
        let params = r#"{"name":"up__echo","uri":"a://b","big":9007199254740993,"x":{"b":1.0,"a":[null]},"_meta":{"progressToken":"p 1"}}"#;
        let response = client.request(method, params).send();
        assert_eq!(response.status, 200, "{}", response.text());
        let messages = response.messages();
        assert_eq!(
            string(&messages[0], &["params", "progressToken"]).as_deref(),
            Some("p 1"),
            "{messages:?}"
        );
        let answer = response.message();
        assert!(answer.contains(r#""own":"up","n":1.50e2"#), "{answer}");
        let seen = up.wait_method(method);
        for kept in
            [r#""name":"up__echo""#, r#""uri":"a://b""#, r#""big":9007199254740993,"x":{"b":1.0,"a":[null]}"#]
        {
            assert!(seen.text.contains(kept), "{}", seen.text);
        }
        assert_eq!(seen.text.contains("clientCapabilities"), cell.server == Era::Modern, "{}", seen.text);
        if seen.head.is_some() && cell.server == Era::Modern {
            assert_eq!(seen.header("mcp-method"), Some(method));
        }
    }
    let calls = gateway.metrics().sum("waypost_calls_total", &[("upstream", "up"), ("method", "extension")]);
    assert!((calls - 3.0).abs() < 0.5, "each is a call like any other: {calls}");
    assert!(plain.of_method(SEARCH).is_empty());
}

/// What the server of an extension refuses, it refuses in its own words; what nobody has is −32601.
fn ext_questions_and_errors_of_a_method_come_back(cell: Cell) {
    let script = extended(cell.server, "up", r#""com.example/search":{}"#);
    let script = script.on("com.example/refuse", |turn| turn.error(-7, "no \u{e9}"));
    let up = script.over(cell.transport);
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::of(&gateway, cell.client);
    let refused = client.request("com.example/refuse", "{}").send();
    assert_eq!((refused.status, refused.code()), (200, -7), "{}", refused.text());
    assert_eq!(refused.json()["error"]["message"], "no é");
    for (method, reaches) in
        [("com.example/nobody", true), ("tasks/unheard", false), ("resources/unheard", false)]
    {
        let answer = client.request(method, "{}").send();
        assert_eq!(answer.code(), -32601, "{}", answer.text());
        assert_eq!(answer.status, if cell.client == Era::Modern { 404 } else { 200 });
        assert_eq!(!up.of_method(method).is_empty(), reaches, "{method}");
    }
}

#[test]
fn ext_01_the_promise_is_the_union_and_only_what_all_keep() {
    let ui = r#""io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}"#;
    let auth = r#""io.modelcontextprotocol/oauth-client-credentials":{}"#;
    let one = format!(r#"{ui},"a.b/c":{{"n":9007199254740993,"same":1e2}},{auth}"#);
    let other = format!(r#"{ui},"a.b/c":{{"n":2,"same":1e2}},"a.b/d":{{}},"no-vendor":{{}}"#);
    let (one, other) =
        (extended(Era::Modern, "one", &one).http(), extended(Era::Legacy, "other", &other).stdio());
    let gateway = Config::new().upstream("one", &one).upstream("other", &other).ready();
    let expected = json!({
        "io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]},
        "a.b/c": {"same": 1e2},
        "a.b/d": {},
    });
    for client in both(&gateway) {
        assert_eq!(promised(&client)["extensions"], expected);
    }
    let plain = Script::echo(Era::Modern).http();
    let gateway = Config::new().upstream("plain", &plain).ready();
    for client in both(&gateway) {
        assert_eq!(promised(&client).get("extensions"), None, "nobody has one");
    }
}

#[test]
fn ext_02_a_method_that_several_may_mean_goes_to_none() {
    let start = |own, extensions: &str| extended(Era::Modern, own, extensions).http();
    let one = start("one", r#""com.example/search":{},"com.example/only":{}"#);
    let two = start("two", r#""com.example/search":{},"org.example/x":{}"#);
    let gateway = Config::new().upstream("one", &one).upstream("two", &two).ready();
    for client in both(&gateway) {
        let code = |method: &str| client.request(method, "{}").send().code();
        assert_eq!(code(SEARCH), -32601, "both declare it");
        assert_eq!(code("com.example/other"), -32601, "both have extensions of the vendor");
        assert_eq!(code("plain/method"), -32601, "both have extensions");
        assert_eq!(code("com.example/only/x"), -32601, "it reached the one that has it");
        assert_eq!(code("org.example/y"), -32601, "it reached the one that has the vendor's");
    }
    assert_eq!(one.of_method("com.example/only/x").len(), 2);
    assert_eq!(two.of_method("org.example/y").len(), 2);
    for method in [SEARCH, "com.example/other", "plain/method"] {
        assert!(one.of_method(method).is_empty() && two.of_method(method).is_empty(), "{method}");
    }
}

#[test]
fn ext_03_who_has_rules_that_cannot_judge_an_extension_has_none() {
    let ui = r#""io.modelcontextprotocol/ui":{},"com.example/search":{},"com.example/admin":{}"#;
    let up = extended(Era::Modern, "up", ui).http();
    let shut = extended(Era::Modern, "shut", r#""org.example/shut":{}"#).http();
    let client = |rules: Value, token: &str| {
        let mut client = json!({"tokens": [{"env": token}]});
        client.as_object_mut().unwrap().extend(rules.as_object().unwrap().clone());
        client
    };
    let tokens = ["OPEN", "SOME", "SAID", "LESS", "NONE"];
    let clients = json!({
        "open": client(json!({}), tokens[0]),
        "some": client(json!({"tools": {"allow": ["up__*"]}}), tokens[1]),
        "said": client(json!({"tools": {"allow": ["up__*"]}, "extensions": {"allow": ["com.example/search"]}}), tokens[2]),
        "less": client(json!({"extensions": {"deny": ["com.example/admin", "io.*"]}}), tokens[3]),
        "none": client(json!({"tools": {"allow": []}, "resources": {"allow": []}, "prompts": {"allow": []}}), tokens[4]),
    });
    let gateway = Config::new()
        .upstream("up", &up)
        .upstream_with("shut", &shut, json!({"tools": {"deny": ["drop_*"]}}))
        .clients(clients);
    let gateway = tokens.iter().fold(gateway, |config, name| config.env(name, &format!("t-{name}"))).ready();
    let cases: [(&str, &[&str], [bool; 4]); 5] = [
        (
            "open",
            &["com.example/admin", "com.example/search", "io.modelcontextprotocol/ui"],
            [true, true, true, true],
        ),
        ("some", &["io.modelcontextprotocol/ui"], [false, false, false, false]),
        ("said", &["com.example/search"], [true, false, false, false]),
        ("less", &["com.example/search"], [true, false, false, false]),
        ("none", &[], [false, false, false, false]),
    ];
    let methods = [SEARCH, "com.example/admin/x", "com.example/other", "plain/method"];
    for (index, (name, visible, reaches)) in cases.into_iter().enumerate() {
        let token = format!("t-{}", tokens[index]);
        for client in [Client::legacy_with(&gateway, &token), Client::modern_with(&gateway, &token)] {
            let promised = promised(&client);
            let shown = promised.get("extensions").and_then(Value::as_object).cloned().unwrap_or_default();
            assert_eq!(shown.keys().map(String::as_str).collect::<Vec<_>>(), visible, "{name}");
            for (method, reaches) in methods.iter().zip(reaches) {
                let before = up.of_method(method).len();
                let answer = client.request(method, "{}").send();
                assert_eq!(up.of_method(method).len() - before, usize::from(reaches), "{name}: {method}");
                if !reaches {
                    let expected = format!("Method not found: {method}");
                    assert_eq!(
                        answer.json()["error"],
                        json!({"code": -32601, "message": expected}),
                        "{name}"
                    );
                }
            }
            assert_eq!(client.request("org.example/shut/x", "{}").send().code(), -32601, "{name}");
        }
    }
    assert!(shut.of_method("org.example/shut/x").is_empty(), "its own rules cannot judge it either");
    let count = |outcome: &str, upstream: &str| {
        let labels =
            [("client", "said"), ("upstream", upstream), ("method", "extension"), ("outcome", outcome)];
        gateway.metrics().sum("waypost_calls_total", &labels)
    };
    // What rules hide is told from what nobody has: in the metrics, and to nobody who calls. Each came in two eras.
    for (outcome, upstream, expected) in [("denied", "up", 4.0), ("denied", "shut", 2.0), ("ok", "up", 2.0)] {
        let counted = count(outcome, upstream);
        assert!((counted - expected).abs() < 0.5, "{outcome} at {upstream}: {counted}");
    }
}

#[test]
fn ext_04_limits_hold_for_methods_of_extensions() {
    let up = extended(Era::Modern, "up", r#""com.example/search":{}"#).http();
    let gateway = Config::new().upstream_with("up", &up, json!({"limits": {"rate": "2/day"}})).ready();
    let client = Client::modern(&gateway);
    let codes: Vec<i64> = (0..3).map(|_| client.request(SEARCH, "{}").send().code()).collect();
    assert_eq!(codes, [0, 0, 429]);
    assert_eq!(up.of_method(SEARCH).len(), 2);
}

/// The client's own word reaches a modern server with each request; a legacy one is told of nothing at the
/// handshake, which is no client's.
#[test]
fn ext_05_a_server_sees_the_extensions_of_the_client_and_no_others() {
    let (new, old) = (Script::echo(Era::Modern).http(), Script::echo(Era::Legacy).http());
    let gateway = Config::new().upstream("new", &new).upstream("old", &old).ready();
    let said = r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]},"a.b/c":{"n":1e2}}}"#;
    let legacy = Client::bare(&gateway, Era::Legacy).able(said).connected("2025-11-25");
    let modern = Client::modern(&gateway).able(said);
    for client in [&legacy, &modern] {
        client.echo("new__echo", "x");
        let call = new.calls().pop().expect("a call");
        let passed = get(&call.text, &["params", "_meta", "io.modelcontextprotocol/clientCapabilities"]);
        assert_eq!(passed, Some(said));
    }
    let hello: Value = serde_json::from_str(&old.of_method("initialize").remove(0).text).unwrap();
    assert_eq!(hello["params"]["capabilities"].get("extensions"), None);
}

#[test]
fn ext_06_what_the_gateway_calls_itself_is_configured() {
    let up: Upstream = Script::echo(Era::Legacy).over(Transport::Stdio);
    let icon = json!({"src": "https://acme.example/i.png", "mime_type": "image/png", "sizes": ["48x48"], "theme": "dark"});
    let info = json!({"name": "acme", "title": "Tools of Acme", "version": "7", "website_url": "https://acme.example",
        "description": "All.", "icons": [icon]});
    let gateway = Config::new().upstream("up", &up).set("server_info", info).ready();
    let icon = json!({"src": "https://acme.example/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"});
    let all = json!({"name": "acme", "title": "Tools of Acme", "version": "7", "websiteUrl": "https://acme.example",
        "description": "All.", "icons": [icon]});
    let told =
        |version: &str| Client::legacy_at(&gateway, version).hello.unwrap()["result"]["serverInfo"].clone();
    assert_eq!(told("2024-11-05"), json!({"name": "acme", "version": "7"}));
    assert_eq!(told("2025-06-18"), json!({"name": "acme", "version": "7", "title": "Tools of Acme"}));
    assert_eq!(told("2025-11-25"), all);
    for method in ["server/discover", "tools/list"] {
        let answer = Client::modern(&gateway).request(method, "{}").send().json();
        assert_eq!(answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"], all, "{method}");
    }
}

/// Instructions come from what the client can see, each cut at its bound.
#[test]
fn ext_07_instructions_are_joined_within_bounds_and_reveal_nothing() {
    let instructing = |text: String| {
        Script::echo(Era::Legacy).first(move |turn| {
            if turn.method() != "initialize" {
                return false;
            }
            turn.result(&format!(
                r#"{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"1"}},"instructions":"{text}"}}"#
            ));
            true
        })
    };
    let long = format!("{}end", "é".repeat(3000));
    let (one, two) = (instructing(long).stdio(), instructing("The second one.".to_owned()).stdio());
    let gateway = Config::new()
        .upstream("one", &one)
        .upstream("two", &two)
        .set("instructions", json!("First of all."))
        .clients(json!({"all": {"tokens": [{"env": "ALL"}]},
            "few": {"tokens": [{"env": "FEW"}], "tools": {"allow": ["one__*"]}}}))
        .env("ALL", "t-all")
        .env("FEW", "t-few")
        .ready();
    let told = |token| {
        let hello = Client::legacy_with(&gateway, token).hello.expect("a handshake");
        hello["result"]["instructions"].as_str().expect("instructions").to_owned()
    };
    let all = told("t-all");
    assert!(
        all.starts_with("First of all.\n\n## one\né") && all.ends_with("é…\n\n## two\nThe second one."),
        "{all}"
    );
    assert!(all.len() < 4096 + 100, "{}", all.len());
    let few = told("t-few");
    assert!(few.contains("## one") && !few.contains("two") && !few.contains("second"), "{few}");
}
