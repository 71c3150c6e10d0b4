//! Aggregation with a sick upstream.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::eventually;
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::Era;
use crate::support::script::Script;

/// A port on which nobody listens.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The endpoint answers as if the sick were not there, and says so when they are called.
fn expect_only_healthy(gateway: &Gateway, sick: &[&str]) {
    for client in [Client::legacy(gateway), Client::modern(gateway)] {
        client.wait_tools(&["healthy__echo"]);
        assert_eq!(client.echo("healthy__echo", "x"), "x");
    }
    let status = |upstream: &str| -> Value {
        let (code, body) = gateway.admin("/api/status");
        assert_eq!(code, 200, "{body}");
        let parsed: Value = serde_json::from_str(&body).expect("JSON");
        let upstreams = parsed["upstreams"].clone();
        let named = |entry: &Value| entry["name"] == upstream;
        let in_list = upstreams.as_array().and_then(|all| all.iter().find(|entry| named(entry)).cloned());
        in_list.unwrap_or_else(|| upstreams[upstream].clone())
    };
    for upstream in sick {
        let is_down = |entry: &Value| entry.to_string().to_lowercase().contains("down");
        let entry = eventually(upstream, || Some(status(upstream)).filter(is_down));
        assert!(entry.to_string().len() > 40, "with a reason: {entry}");
        assert!(gateway.metrics().sum("waypost_upstream_up", &[("upstream", upstream)]) < 0.5);
    }
    assert_eq!(gateway.admin("/healthz").0, 200);
    assert_eq!(gateway.admin("/readyz").0, 200, "ready as soon as it serves");
    assert_ne!(gateway.admin("/readyz?upstreams=all").0, 200);
}

#[test]
fn agg_01_unreachable_http_upstreams_do_not_fail_the_others() {
    let healthy = Script::echo(Era::Legacy).http();
    let page = "<html>http://10.1.2.3/internal</html>";
    let broken = Script::echo(Era::Legacy)
        .first(move |turn| {
            turn.respond("500 Internal Server Error", "text/html", page);
            true
        })
        .http();
    let no_mcp = Script::echo(Era::Legacy)
        .first(|turn| {
            turn.respond("200 OK", "text/html", "<html>a web site</html>");
            true
        })
        .http();
    let gateway = Config::new()
        .raw_upstream("refusing", json!({"url": format!("http://127.0.0.1:{}/mcp", closed_port())}))
        .raw_upstream("nowhere", json!({"url": "http://no-such-host.invalid/mcp"}))
        .upstream("broken", &broken)
        .upstream("site", &no_mcp)
        .upstream("healthy", &healthy)
        .start();
    expect_only_healthy(&gateway, &["refusing", "nowhere", "broken", "site"]);
}

#[test]
fn agg_02_children_that_cannot_start_do_not_fail_the_others() {
    let healthy = Script::echo(Era::Legacy).stdio();
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
    let gateway = Config::new()
        .upstream("healthy", &healthy)
        .raw_upstream("missing", json!({"command": "no-such-program-here"}))
        .raw_upstream("forbidden", json!({"command": plain}))
        .raw_upstream(
            "dying",
            json!({"command": "sh", "args": ["-c", "echo first >&2; echo 'no licence found' >&2; exit 7"]}),
        )
        .raw_upstream("closing", json!({"command": "sh", "args": ["-c", "exec >&-; sleep 1; exit 0"]}))
        .start();
    expect_only_healthy(&gateway, &["missing", "forbidden", "dying"]);
    let tells_all =
        |line: &String| line.contains("dying") && line.contains('7') && line.contains("no licence found");
    eventually("the log has name, exit code and last words", || {
        gateway.log().iter().any(tells_all).then_some(())
    });
    let tells_path = |line: &String| line.contains("missing") && line.contains("no-such-program-here");
    eventually("the log says what is missing", || gateway.log().iter().any(tells_path).then_some(()));
}

/// A silent child holds nobody up: the endpoint answers while it connects.
#[test]
fn agg_02_a_child_that_never_answers_holds_nobody_up() {
    let (healthy, silent) = (Script::echo(Era::Modern).stdio(), Script::legacy().flag("deaf").stdio());
    let config = Config::new().upstream_with("silent", &silent, json!({"connect_timeout": "1s"}));
    let gateway = config.upstream("healthy", &healthy).start();
    let client = Client::legacy(&gateway);
    client.wait_tools(&["healthy__echo"]);
    let failures =
        || gateway.metrics().sum("waypost_upstream_connect_failures_total", &[("upstream", "silent")]);
    eventually("it is reported", || (failures() >= 1.0).then_some(()));
    assert_eq!(client.echo("healthy__echo", "x"), "x");
}

#[test]
fn agg_04_the_401_of_one_upstream_is_its_own() {
    let healthy = Script::echo(Era::Legacy).stdio();
    let locked = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let lock = std::sync::Arc::clone(&locked);
    let refusing = Script::echo(Era::Legacy)
        .first(move |turn| {
            let is_locked = lock.load(std::sync::atomic::Ordering::Relaxed);
            if is_locked {
                turn.with_header(
                    "WWW-Authenticate",
                    "Bearer realm=\"inner\", resource_metadata=\"http://10.0.0.9/x\"",
                );
                turn.respond("401 Unauthorized", "application/json", "{}");
            }
            is_locked
        })
        .lenient()
        .http();
    let gateway = Config::new().upstream("healthy", &healthy).upstream("refusing", &refusing).ready();
    let client = Client::legacy(&gateway);
    locked.store(true, std::sync::atomic::Ordering::Relaxed);
    let response = client.calling("refusing__echo", "{}").send();
    let answer = response.json();
    assert_eq!((response.status, &answer["result"]["isError"]), (200, &json!(true)), "{answer}");
    assert!(response.header("www-authenticate").is_none(), "{:?}", response.head);
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("refusing") && !text.contains("10.0.0.9"), "{text}");
    assert!(["credential", "auth", "401"].iter().any(|word| text.to_lowercase().contains(word)), "{text}");
    assert_eq!(client.echo("healthy__echo", "x"), "x");
}

#[test]
fn agg_04_an_upstream_that_refuses_from_the_start_is_absent() {
    let healthy = Script::echo(Era::Legacy).stdio();
    let refusing = Script::echo(Era::Legacy)
        .first(|turn| {
            turn.with_header("WWW-Authenticate", "Bearer");
            turn.respond("401 Unauthorized", "application/json", "{}");
            true
        })
        .http();
    let gateway = Config::new().upstream("healthy", &healthy).upstream("refusing", &refusing).start();
    expect_only_healthy(&gateway, &["refusing"]);
    assert!(refusing.received().len() < 12, "no storm: {}", refusing.received().len());
}

#[test]
fn agg_07_without_upstreams_the_list_is_empty() {
    let gateway = Config::new().start();
    let client = Client::legacy(&gateway);
    assert!(client.tool_names().is_empty());
    assert_eq!(client.call("a__b", json!({}))["error"]["code"], -32602);
    assert!(Client::modern(&gateway).tool_names().is_empty());
}

#[test]
fn agg_07_with_all_down_the_endpoint_still_answers() {
    let url = format!("http://127.0.0.1:{}/mcp", closed_port());
    let gateway = Config::new().raw_upstream("down", json!({"url": url})).start();
    let client = Client::legacy(&gateway);
    assert!(client.tool_names().is_empty());
    assert_eq!(client.request("ping", "{}").send().status, 200);
    assert_ne!(gateway.admin("/readyz?upstreams=all").0, 200);
    let (_, body) = gateway.admin("/readyz?upstreams=all");
    assert!(body.contains("down"), "{body}");
}

/// What was there is served for `grace`, and says so when called.
#[test]
fn agg_07_the_last_known_list_outlives_its_upstream_for_a_while() {
    let up = Script::echo(Era::Legacy).http();
    let gateway = Config::new().upstream_with("up", &up, json!({"grace": "1h"})).ready();
    let client = Client::legacy(&gateway);
    up.go_down();
    let answer = client.call("up__echo", json!({"text": "x"}));
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(client.tool_names(), ["up__echo"]);
    up.come_back();
    eventually("a use tries again", || {
        (client.call("up__echo", json!({"text": "x"}))["result"]["isError"] != true).then_some(())
    });
}
