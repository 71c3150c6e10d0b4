//! Peers that misbehave hurt themselves alone: slow readers, floods, crash loops, doubled answers.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::client::{Client, LEGACY, Request, initialize};
use crate::support::gateway::{Config, Gateway, run_with};
use crate::support::json::get;
use crate::support::matrix::{Era, Transport};
use crate::support::script::Script;
use crate::support::turn::Gate;
use crate::support::{eventually, patience, process, scaled};

/// A client that does not read its stream must not stop the one pipe that serves all calls.
#[test]
fn a_slow_reader_stops_nobody_else() {
    for transport in Transport::LEGACY {
        let script = Script::echo(Era::Legacy).tool("flood", |turn| {
            let token = get(&turn.text, &["params", "_meta", "progressToken"]).unwrap_or("0").to_owned();
            let filler = "x".repeat(2_000);
            for progress in 0..6_000 {
                turn.send(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress},"message":"{filler}"}}}}"#
                ));
            }
            turn.text("flooded");
        });
        let up = script.over(transport);
        let gateway = Config::new().upstream("up", &up).ready();
        let client = Client::legacy(&gateway);
        let params = r#"{"name":"up__flood","arguments":{},"_meta":{"progressToken":"t"}}"#;
        let mut stalled = client.request("tools/call", params).open();
        assert!(stalled.event().is_some(), "the first event, and then no reading");
        for round in 0..20 {
            assert_eq!(client.echo("up__echo", &round.to_string()), round.to_string());
        }
        let rest = stalled.whole().message();
        assert!(rest.contains("flooded"), "the answer is never what gets lost: {rest:.200}");
    }
}

#[test]
fn answers_to_nothing_disturb_nobody() {
    for transport in Transport::LEGACY {
        let script = Script::echo(Era::Legacy).tool("odd", |turn| {
            let token = get(&turn.text, &["params", "_meta", "progressToken"]).unwrap_or("0").to_owned();
            turn.send(r#"{"jsonrpc":"2.0","id":987654,"result":{"content":[]}}"#);
            turn.send(r#"{"jsonrpc":"2.0","id":"nobody","error":{"code":1,"message":"x"}}"#);
            if turn.head.is_none() {
                // Over HTTP it would be about the one request of its stream; here it is about nobody's.
                turn.send(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#);
            }
            turn.send(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"alien","progress":1}}"#);
            turn.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
            turn.send(r#"{"jsonrpc":"2.0","method":"notifications/of/the/future"}"#);
            turn.text("once");
            if turn.head.is_none() {
                turn.text("twice");
                turn.send(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":9}}}}"#
                ));
            }
        });
        let up = script.over(transport);
        let gateway = Config::new().upstream("up", &up).ready();
        let client = Client::legacy(&gateway);
        let params = r#"{"name":"up__odd","arguments":{},"_meta":{"progressToken":"t"}}"#;
        let response = client.request("tools/call", params).send();
        assert_eq!(response.json()["result"]["content"][0]["text"], "once", "{}", response.text());
        assert!(
            !response.text().contains("alien") && !response.text().contains("987654"),
            "{}",
            response.text()
        );
        assert_eq!(client.echo("up__echo", "x"), "x");
        assert_eq!(gateway.metrics().sum("waypost_upstream_restarts_total", &[]).round() as i64, 0);
    }
}

fn memory_of(gateway: &Gateway) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default().to_owned();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or_default()
}

#[test]
fn std_02_a_line_that_never_ends_is_cut_off() {
    let healthy = Script::echo(Era::Legacy).stdio();
    let endless = json!({"command": "sh", "args": ["-c", "exec tr '\\0' x </dev/zero"]});
    let config = Config::new().raw_upstream("endless", endless).upstream("healthy", &healthy);
    let gateway = config.set("limits", json!({"message": "1MiB"})).start();
    let client = Client::legacy(&gateway);
    client.wait_tools(&["healthy__echo"]);
    let failures =
        || gateway.metrics().sum("waypost_upstream_connect_failures_total", &[("upstream", "endless")]);
    eventually("it is failed", || (failures() >= 1.0).then_some(()));
    std::thread::sleep(scaled(500));
    let kib = memory_of(&gateway);
    assert!(kib < 150 << 10, "{kib} KiB");
    assert_eq!(client.echo("healthy__echo", "x"), "x");
}

#[test]
fn std_07_a_failing_child_is_not_started_in_a_tight_loop() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("starts");
    let script = format!("echo x >> {}; exit 1", file.display());
    let healthy = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new()
        .raw_upstream("failing", json!({"command": "sh", "args": ["-c", script]}))
        .raw_upstream("missing", json!({"command": "no-such-program-here"}))
        .upstream("healthy", &healthy)
        .start();
    let client = Client::legacy(&gateway);
    client.wait_tools(&["healthy__echo"]);
    for round in 0..30 {
        assert_eq!(client.echo("healthy__echo", &round.to_string()), round.to_string());
        std::thread::sleep(scaled(100));
    }
    let starts = std::fs::read_to_string(&file).unwrap_or_default().lines().count();
    assert!((1..=8).contains(&starts), "{starts} starts in three seconds");
    assert_eq!(healthy.processes().len(), 1);
}

/// A GET is a stream or 405, never 404 for a live session, never a document.
#[test]
fn str_04_a_get_is_a_stream_or_405() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    let check = |request: Request, refusals: &[u16]| {
        let response = request.header("Connection", "close").open();
        if response.status == 200 {
            let content_type = response.head.header("content-type").unwrap_or_default().to_owned();
            assert!(content_type.starts_with("text/event-stream"), "{content_type}");
        } else {
            assert!(refusals.contains(&response.status), "{:?}", response.head);
            let allow = response.head.header("allow").unwrap_or_default().to_owned();
            assert!(response.status != 405 || allow.contains("POST"), "{:?}", response.head);
        }
    };
    check(client.bodyless("GET").header("Accept", "text/event-stream"), &[405]);
    check(Request::get(gateway.mcp, "/mcp").header("Accept", "text/event-stream"), &[400, 405]);
    let json_alone = client.bodyless("GET").header("Accept", "application/json").send();
    assert!(matches!(json_alone.status, 405 | 406), "{:?}", json_alone.head);
    for method in ["PUT", "PATCH", "TRACE", "BREW"] {
        let response = client.bodyless(method).send();
        assert!(matches!(response.status, 405 | 501), "{method}: {:?}", response.head);
    }
}

/// Off by default: no answer lets a page of another origin read anything.
#[test]
fn cor_01_without_configuration_nothing_is_shared_across_origins() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let preflight = Request::new(gateway.mcp, "OPTIONS", "/mcp")
        .header("Origin", "http://evil.example")
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "content-type,authorization");
    let response = preflight.send();
    assert!(response.status >= 400, "{:?}", response.head);
    let same = Request::post(gateway.mcp, "/mcp", initialize(LEGACY)).send();
    for response in [response, same] {
        let has_cors =
            response.head.headers.iter().any(|(name, _)| name.to_lowercase().starts_with("access-control-"));
        assert!(!has_cors, "{:?}", response.head);
    }
}

/// What nobody here has is an unknown method, whatever the era.
#[test]
fn methods_of_capabilities_that_nobody_has_are_unknown() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        for method in [
            "resources/list",
            "prompts/list",
            "completion/complete",
            "tasks/get",
            "sampling/createMessage",
            "rpc.discover",
            "",
        ] {
            let response = client.request(method, "{}").send();
            let answer = response.json();
            assert_eq!(answer["error"]["code"], -32601, "{method:?}: {answer}");
            let status = if client.era == Era::Legacy { 200 } else { 404 };
            assert_eq!(response.status, status, "{method:?}: {answer}");
        }
    }
    let modern = Client::modern(&gateway);
    for method in ["initialize", "ping", "logging/setLevel"] {
        let answer = modern.request(method, "{}").send();
        assert_ne!(answer.status, 500, "{method}: {}", answer.text());
    }
}

/// One session is opened by each `initialize`, whatever came along with it.
#[test]
fn a_second_initialize_opens_a_second_session() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy_at(&gateway, "2025-06-18");
    let again = client.post(initialize("2025-11-25")).without("MCP-Protocol-Version").send();
    assert!(again.status == 200 || again.code() == -32600, "{}", again.text());
    assert_eq!(client.echo("up__echo", "the first one lives"), "the first one lives");
    let early = Client::bare(&gateway, Era::Legacy);
    let session = early.post(initialize(LEGACY)).send().header("mcp-session-id").unwrap().to_owned();
    let before_note = early.request("tools/list", "{}").header("Mcp-Session-Id", &session).send();
    assert_eq!(before_note.status, 200, "some never send `initialized`: {}", before_note.text());
}

#[test]
fn a_port_that_is_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for key in ["listen", "admin"] {
        let other = if key == "listen" { "admin: 127.0.0.1:0" } else { "listen: 127.0.0.1:0" };
        let output = run_with(&["serve"], &format!("{key}: {address}\n{other}\nupstreams: {{}}\n"), &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(code) if code != 0), "{key}: {text}");
        assert!(text.contains(&address), "{text}");
    }
}

#[test]
fn without_an_admin_listener_the_endpoint_serves_all_the_same() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).set("admin", json!(false)).start();
    let client = Client::legacy(&gateway);
    client.wait_tools(&["up__echo"]);
    assert_eq!(client.echo("up__echo", "x"), "x");
    assert_eq!(gateway.admin.port(), 0, "none is announced");
}

#[test]
fn the_admin_listener_answers_its_own_host_only() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    for path in ["/healthz", "/readyz", "/metrics", "/api/status"] {
        assert_eq!(Request::get(gateway.admin, path).send().status, 200, "{path}");
        let foreign = Request::get(gateway.admin, path).header("Host", "evil.example").send();
        assert!(matches!(foreign.status, 403 | 421), "{path}: {:?}", foreign.head);
        let posted = Request::new(gateway.admin, "POST", path).send();
        assert!(posted.status >= 400, "{path}: {:?}", posted.head);
    }
    assert_eq!(Request::get(gateway.admin, "/nope").send().status, 404);
    let metrics = Request::get(gateway.admin, "/metrics").send();
    assert!(metrics.content_type().starts_with("text/plain"), "{:?}", metrics.head);
    let status: Value = serde_json::from_str(&gateway.admin("/api/status").1).expect("JSON");
    assert!(status.to_string().contains("up"), "{status}");
}

/// A service manager hears when the endpoint listens, and when it stops: after that `Type=notify` counts.
#[test]
fn the_service_manager_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(patience())).expect("a timeout");
    let heard = || {
        let mut text = [0; 256];
        let length = socket.recv(&mut text).expect("it is told");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let up = Script::echo(Era::Legacy).stdio();
    let config = Config::new().upstream("up", &up).env("NOTIFY_SOCKET", &path.to_string_lossy());
    let mut gateway = config.start();
    assert_eq!(heard().trim(), "READY=1");
    gateway.wait_ready();
    let environments: Vec<_> = process::children(gateway.pid())
        .iter()
        .map(|child| std::fs::read(format!("/proc/{child}/environ")).expect("an environment"))
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .collect();
    assert!(environments.iter().any(|environment| environment.contains("PATH=")), "{environments:?}");
    assert!(!environments.concat().contains("NOTIFY_SOCKET"), "{environments:?}");
    gateway.signal(Signal::TERM);
    assert_eq!(heard().trim(), "STOPPING=1");
    assert_eq!(gateway.wait_exit(), Some(0));
}

/// The one line of a call in the log says whose it was, where it went, and how it ended.
#[test]
fn each_call_is_one_line_of_the_log() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::modern(&gateway);
    assert_eq!(client.echo("up__echo", "not in the log"), "not in the log");
    client.call("up__nope", json!({}));
    let calls = || {
        let lines = gateway.events("call");
        let of_tools = lines.into_iter().filter(|line| line["method"] == "tools/call").collect::<Vec<_>>();
        (of_tools.len() == 2).then_some(of_tools)
    };
    let lines = eventually("two lines", calls);
    assert_eq!((&lines[0]["client"], &lines[0]["upstream"]), (&json!("anonymous"), &json!("up")));
    assert_eq!((&lines[0]["tool"], &lines[0]["outcome"]), (&json!("up__echo"), &json!("ok")));
    assert_eq!(lines[1]["outcome"], "unknown");
    let log = gateway.log().join("\n");
    assert!(!log.contains("not in the log"), "no arguments in the log");
}

/// A call that waits for its upstream's first connection is served by it, or says what it waits for.
#[test]
fn a_call_before_the_upstream_is_ready_says_so() {
    let (gate, held) = Gate::new("");
    let script = Script::echo(Era::Legacy).first(move |turn| {
        if turn.method() == "tools/list" {
            held(turn);
            return true;
        }
        false
    });
    let up = script.lenient().stdio();
    let healthy = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("slow", &up).upstream("healthy", &healthy).start();
    let client = Client::legacy(&gateway);
    client.wait_tools(&["healthy__echo"]);
    let answer = client.call("slow__echo", json!({}));
    let text = answer.to_string();
    assert!(answer["result"]["isError"] == true || answer["error"]["code"] == -32602, "{text}");
    assert!(text.contains("slow"), "{text}");
    gate.open();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(client.echo("healthy__echo", "x"), "x");
}
