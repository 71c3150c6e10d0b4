//! Origin and Host, paths, signals: the edge of the process.

use std::time::Instant;

use rustix::process::Signal;
use serde_json::json;

use crate::support::client::{Client, LEGACY, Request, initialize};
use crate::support::gateway::Config;
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::{eventually, patience, process, scaled};

#[test]
fn cor_02_a_foreign_origin_or_host_is_refused() {
    let up = Script::echo(Era::Legacy).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let before = up.received().len();
    let port = gateway.mcp.port();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        let call = client.calling("up__echo", r#"{"text":"x"}"#);
        let refused = [
            call.clone().header("Origin", "http://evil.example"),
            call.clone().header("Origin", "null"),
            call.clone().header("Host", "evil.example"),
            call.clone().header("Host", &format!("evil.example:{port}")),
            call.clone().header("Origin", "http://localhost.evil.example"),
            call.clone().header("Origin", "http://127.0.0.1.evil.example"),
            call.clone().header("Host", "127.0.0.1.evil.example"),
            call.clone().header("Host", &format!("localhost@evil.example:{port}")),
            client.bodyless("GET").header("Origin", "http://evil.example"),
            client.bodyless("DELETE").header("Host", "evil.example"),
        ];
        for request in refused {
            let response = request.send();
            assert_eq!(response.status, 403, "{:?}: {}", request.headers, response.text());
            assert!(response.content_type().starts_with("application/json"), "{:?}", response.head);
            assert!(response.header("access-control-allow-origin").is_none(), "{:?}", response.head);
        }
        assert_eq!(up.calls().len(), 0, "nothing of it reaches an upstream");
    }
    assert_eq!(up.received().len(), before);
    let client = Client::legacy(&gateway);
    let call = client.calling("up__echo", r#"{"text":"x"}"#);
    let served = [
        call.clone(),
        call.clone().header("Host", &format!("127.0.0.1:{port}")),
        call.clone().header("Host", &format!("localhost:{port}")),
        call.clone().header("Origin", "http://localhost:6274"),
        call.clone().header("Origin", &format!("http://127.0.0.1:{port}")),
    ];
    for request in served {
        let response = request.send();
        assert_eq!(response.status, 200, "{:?}: {}", request.headers, response.text());
    }
}

#[test]
fn cor_02_the_config_names_further_hosts_and_origins() {
    let up = Script::echo(Era::Legacy).http();
    let config =
        Config::new().upstream("up", &up).set("allowed_hosts", json!(["mcp.example.com", "inner:8080"]));
    let gateway = config.set("allowed_origins", json!(["https://app.example.com"])).ready();
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let ask =
        |name: &str, value: &str| Request::post(gateway.mcp, "/mcp", list).header(name, value).send().status;
    for host in ["mcp.example.com", "mcp.example.com:443", "MCP.Example.Com", "inner:8080"] {
        assert_eq!(ask("Host", host), 200, "{host}");
    }
    for host in ["inner:9090", "example.com", "xmcp.example.com", "evil.example"] {
        assert_eq!(ask("Host", host), 403, "{host}");
    }
    assert_eq!(ask("Origin", "https://app.example.com"), 200);
    for origin in [
        "http://app.example.com",
        "https://app.example.com:8443",
        "https://app.example.com.evil",
        "https://evil.example",
    ] {
        assert_eq!(ask("Origin", origin), 403, "{origin}");
    }
}

/// The GET stream of the case belongs to another step. What runs is let end; then all is over.
#[test]
fn dep_01_sigterm_lets_calls_end_and_leaves_nothing() {
    for signal in [Signal::TERM, Signal::INT] {
        let script = Script::echo(Era::Legacy).tool("slow", |turn| {
            std::thread::sleep(scaled(1_000));
            turn.text("ended well");
        });
        let up = script.stdio();
        let mut gateway = Config::new().upstream("up", &up).ready();
        let client = Client::legacy(&gateway);
        let child = up.process().pid();
        let slow = client.calling("up__slow", "{}");
        std::thread::scope(|scope| {
            let running = scope.spawn(move || slow.send().json());
            eventually("the slow call is there", || (up.calls().len() == 1).then_some(()));
            gateway.signal(signal);
            eventually("nobody new is let in", || (!gateway.accepts()).then_some(()));
            let answer = running.join().unwrap();
            assert_eq!(answer["result"]["content"][0]["text"], "ended well", "{answer}");
        });
        assert_eq!(gateway.wait_exit(), Some(0));
        eventually("no child is left", || (!process::is_alive(child)).then_some(()));
    }
}

#[test]
fn dep_01_a_second_signal_ends_it_at_once() {
    let script =
        Script::echo(Era::Legacy).tool("slow", |_| std::thread::sleep(std::time::Duration::from_secs(120)));
    let up = script.stdio();
    let mut gateway = Config::new().upstream("up", &up).set("drain_timeout", json!("10m")).ready();
    let slow = Client::legacy(&gateway).calling("up__slow", "{}");
    let running = std::thread::spawn(move || drop(std::panic::catch_unwind(|| slow.send())));
    eventually("the slow call is there", || (up.calls().len() == 1).then_some(()));
    gateway.signal(Signal::TERM);
    std::thread::sleep(scaled(300));
    assert!(gateway.is_running(), "the first one waits for the call");
    let from = Instant::now();
    gateway.signal(Signal::TERM);
    gateway.wait_exit();
    assert!(from.elapsed() < patience());
    drop(running);
}

#[test]
fn dep_01_draining_has_an_end() {
    let script =
        Script::echo(Era::Legacy).tool("slow", |_| std::thread::sleep(std::time::Duration::from_secs(120)));
    let up = script.stdio();
    let mut gateway = Config::new().upstream("up", &up).set("drain_timeout", json!("1s")).ready();
    let child = up.process().pid();
    let slow = Client::legacy(&gateway).calling("up__slow", "{}");
    let running = std::thread::spawn(move || drop(std::panic::catch_unwind(|| slow.send())));
    eventually("the slow call is there", || (up.calls().len() == 1).then_some(()));
    gateway.signal(Signal::TERM);
    assert!(gateway.wait_exit().is_some(), "it ends by itself");
    eventually("no child is left", || (!process::is_alive(child)).then_some(()));
    drop(running);
}

#[test]
fn dep_01_an_idle_gateway_stops_at_once() {
    let (child, http) = (Script::echo(Era::Legacy).stdio(), Script::echo(Era::Modern).http());
    let mut gateway = Config::new().upstream("child", &child).upstream("http", &http).ready();
    let client = Client::legacy(&gateway);
    assert_eq!(client.echo("child__echo", "x"), "x");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_exit(), Some(0));
    assert!(child.process().has_eof() || !process::is_alive(child.process().pid()));
}

#[test]
fn dep_05_the_endpoint_is_where_it_is() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    for path in ["/mcp", "/mcp/", "/mcp?x=1", "/mcp/?x=1"] {
        let response = Request::post(gateway.mcp, path, initialize(LEGACY)).send();
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        assert!(response.json()["result"]["protocolVersion"].is_string(), "{}", response.text());
    }
    for path in ["/", "/nope", "/MCP", "/mcp/extra", "//mcp", "/mcp%2f", "/mcp/../mcp/x", "/sse2"] {
        let response = Request::post(gateway.mcp, path, initialize(LEGACY)).send();
        assert_eq!(response.status, 404, "{path}: {}", response.text());
        assert!(response.content_type().starts_with("application/json"), "{path}: {:?}", response.head);
        assert!(response.text().contains("/mcp"), "names the right path: {}", response.text());
    }
    let health = Request::get(gateway.mcp, "/healthz").send();
    assert_eq!(health.status, 200);
    assert!(!health.text().contains("up"), "without any detail: {}", health.text());
    for path in ["/metrics", "/readyz", "/api/status"] {
        assert_eq!(Request::get(gateway.mcp, path).send().status, 404, "{path} is the admin listener's");
    }
    assert_eq!(Request::post(gateway.admin, "/mcp", initialize(LEGACY)).send().status, 404);
}

/// What a client sends too slowly, or too much of, ends its own connection and nothing else.
#[test]
fn dep_05_slow_and_large_requests_are_bounded() {
    use std::io::{Read, Write};
    let up = Script::echo(Era::Legacy).stdio();
    let limits = json!({"header_timeout": "1s", "body_timeout": "1s", "body": "64KiB"});
    let gateway = Config::new().upstream("up", &up).set("limits", limits).ready();
    let client = Client::legacy(&gateway);
    let half = |text: &str| {
        let mut stream = std::net::TcpStream::connect(gateway.mcp).unwrap();
        stream.set_read_timeout(Some(patience())).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_ok() || !rest.is_empty(), "it is ended, not held: {ended:?}");
        String::from_utf8_lossy(&rest).into_owned()
    };
    half("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n");
    let body = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{{",
        gateway.mcp
    );
    let answer = half(&body);
    assert!(answer.is_empty() || answer.contains(" 408 ") || answer.contains(" 400 "), "{answer}");
    let chunks = format!("{:x}\r\n{}\r\n", 30_000, "x".repeat(30_000)).repeat(4);
    let endless = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}",
        gateway.mcp
    );
    let answer = half(&endless);
    assert!(answer.contains(" 413 "), "{answer}");
    assert_eq!(client.echo("up__echo", "alive"), "alive");
}
