//! Authentication, and what passes to an upstream.

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

use crate::support::client::{Client, LEGACY, Request, Response, initialize};
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::upstream::Upstream;

/// One client `a` with the token `T0ken`.
fn guarded(up: &Upstream) -> Gateway {
    let clients = json!({"a": {"tokens": [{"env": "A"}]}});
    Config::new().upstream("up", up).clients(clients).env("A", "T0ken").ready()
}

fn expect_challenge(response: &Response) -> String {
    assert_eq!(response.status, 401, "{}", response.text());
    assert!(response.content_type().starts_with("application/json"), "{:?}", response.head);
    serde_json::from_slice::<serde_json::Value>(&response.body).expect("a JSON body");
    let challenge = response.header("www-authenticate").unwrap_or_else(|| panic!("{:?}", response.head));
    assert!(challenge.starts_with("Bearer"), "{challenge}");
    assert!(!challenge.contains("resource_metadata"), "no such document exists: {challenge}");
    challenge.to_owned()
}

#[test]
fn aut_01_who_is_not_known_gets_a_usable_challenge() {
    let up = Script::echo(Era::Legacy).http();
    let gateway = guarded(&up);
    let before = up.received().len();
    let requests = [
        Request::post(gateway.mcp, "/mcp", initialize(LEGACY)),
        Request::get(gateway.mcp, "/mcp").header("Accept", "text/event-stream"),
        Request::new(gateway.mcp, "DELETE", "/mcp").header("Mcp-Session-Id", "x"),
        Client::modern(&gateway).request("tools/list", "{}"),
    ];
    for request in requests {
        let none = expect_challenge(&request.send());
        assert!(!none.contains("invalid_token"), "nothing was wrong, only missing: {none}");
        let wrong = expect_challenge(&request.clone().header("Authorization", "Bearer wrong").send());
        assert!(wrong.contains(r#"error="invalid_token""#), "{wrong}");
        for other in ["Basic x", "Bearer ", "Bearer", "T0ken", ""] {
            expect_challenge(&request.clone().header("Authorization", other).send());
        }
    }
    assert_eq!(up.received().len(), before, "no upstream is contacted");
    assert!(gateway.metrics().sum("waypost_sessions", &[]) < 0.5, "no session is made");
    let log = gateway.log().join("\n");
    assert!(!log.contains("wrong\"") && !log.contains("T0ken"), "no credential in the log");
    assert_eq!(Client::legacy_with(&gateway, "T0ken").echo("up__echo", "x"), "x");
}

#[test]
fn aut_02_probing_for_oauth_finds_nothing() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = guarded(&up);
    let paths = [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/mcp",
        "/mcp/.well-known/openid-configuration",
    ];
    let gets = paths.map(|path| Request::get(gateway.mcp, path));
    let registers = Request::post(gateway.mcp, "/register", r#"{"redirect_uris":["http://localhost"]}"#);
    for request in gets.into_iter().chain([registers]) {
        for _ in 0..3 {
            let response = request.send();
            assert_eq!(response.status, 404, "{request:?}: {}", response.text());
            assert!(response.content_type().starts_with("application/json"), "{:?}", response.head);
            serde_json::from_slice::<serde_json::Value>(&response.body).expect("a JSON body");
        }
    }
}

#[test]
fn aut_04_nothing_of_the_client_passes_to_an_upstream() {
    let http = Script::echo(Era::Legacy).http();
    let modern = Script::echo(Era::Modern).http();
    let child = Script::echo(Era::Legacy).stdio();
    let clients = json!({"a": {"tokens": [{"env": "A"}]}});
    let own = json!({"headers": {"Authorization": "Bearer ${UP}", "X-Org": "acme"}});
    let gateway = Config::new()
        .upstream_with("http", &http, own)
        .upstream("modern", &modern)
        .upstream("child", &child)
        .clients(clients)
        .env("A", "GW-t0ken")
        .env("UP", "up-s3cret")
        .ready();
    for client in [Client::legacy_with(&gateway, "GW-t0ken"), Client::modern_with(&gateway, "GW-t0ken")] {
        for name in ["http__echo", "modern__echo", "child__echo"] {
            let response = client
                .calling(name, r#"{"text":"x"}"#)
                .header("Cookie", "c=GW-cookie")
                .header("X-Api-Key", "GW-key")
                .header("X-Forwarded-For", "192.0.2.77")
                .header("Forwarded", "for=192.0.2.77")
                .header("X-Custom", "GW-custom")
                .send();
            assert_eq!(response.json()["result"]["content"][0]["text"], "x", "{}", response.text());
        }
        if client.era == Era::Legacy {
            let session = client.session().to_owned();
            let everything = [http.received(), modern.received(), child.received()].concat();
            assert!(everything.iter().all(|received| !format!("{received:?}").contains(&session)));
        }
    }
    for received in [http.received(), modern.received(), child.received()].concat() {
        let whole = format!("{received:?}");
        for secret in ["GW-", "192.0.2.77", "t0ken"] {
            assert!(!whole.contains(secret), "{secret} passes: {whole}");
        }
        for header in ["cookie", "x-api-key", "x-forwarded-for", "forwarded", "x-custom", "via"] {
            assert_eq!(received.header(header), None, "{whole}");
        }
    }
    assert!(
        http.received().iter().all(|received| received.header("authorization") == Some("Bearer up-s3cret"))
    );
    assert!(modern.received().iter().all(|received| received.header("authorization").is_none()));
    assert!(!child.process().hello.to_string().contains("GW-t0ken"));
    let log = gateway.log().join("\n");
    assert!(!log.contains("up-s3cret") && !log.contains("GW-t0ken"), "no secret in the log");
}

#[test]
fn aut_06_configured_headers_are_on_every_request() {
    for era in [Era::Legacy, Era::Modern] {
        let script = Script::echo(era).first(|turn| {
            let is_known = turn.header("authorization") == Some("Bearer up-s3cret")
                && turn.header("x-org") == Some("acme");
            if !is_known {
                turn.respond("401 Unauthorized", "application/json", "{}");
            }
            !is_known
        });
        let up = script.http();
        let headers = json!({"headers": {"Authorization": "Bearer ${UP}", "X-Org": "acme"}});
        let mut gateway = Config::new().upstream_with("up", &up, headers).env("UP", "up-s3cret").ready();
        let client = Client::legacy(&gateway);
        assert_eq!(client.echo("up__echo", "x"), "x");
        up.forget_sessions();
        assert_eq!(client.echo("up__echo", "after a reconnect"), "after a reconnect");
        gateway.signal(rustix::process::Signal::TERM);
        assert_eq!(gateway.wait_exit(), Some(0));
        for received in up.received() {
            assert_eq!(received.header("authorization"), Some("Bearer up-s3cret"), "{received:?}");
            assert_eq!(received.header("x-org"), Some("acme"), "{received:?}");
        }
        if era == Era::Legacy {
            let starts = |received: &&crate::support::turn::Received| {
                received.head.as_ref().unwrap().start.starts_with("DELETE")
            };
            assert!(
                up.received().iter().filter(starts).count() >= 1,
                "a session that is not needed any more is ended"
            );
        }
    }
}

#[test]
fn aut_08_the_scheme_has_no_case_and_the_token_has() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = guarded(&up);
    let ask = |value: &str| {
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        Request::post(gateway.mcp, "/mcp", list).header("Authorization", value).send().status
    };
    assert_eq!(ask("bearer T0ken"), 200);
    assert_eq!(ask("BEARER T0ken"), 200);
    assert_eq!(ask("Bearer T0ken"), 200);
    let doubled = ask("Bearer  T0ken");
    assert!(matches!(doubled, 200 | 401), "{doubled}");
    let delete = Request::new(gateway.mcp, "DELETE", "/mcp").header("Mcp-Session-Id", "x");
    let same = delete.header("Authorization", "Bearer  T0ken").send().status;
    assert_eq!(same == 401, doubled == 401, "the same on every route");
    for bad in [
        "Bearer\tT0ken",
        "Bearer t0ken",
        "Bearer T0KEN",
        "Bearer T0ke",
        "Bearer T0ken0",
        "Bearer T0ken,",
        "Bearer T0ken T0ken",
        "Token T0ken",
        "BearerT0ken",
    ] {
        assert_eq!(ask(bad), 401, "{bad:?}");
    }
    let list = Request::post(gateway.mcp, "/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    for second in ["Bearer T0ken", "Bearer wrong", "Basic x"] {
        let twice = list.clone().also("Authorization", "Bearer T0ken").also("Authorization", second);
        assert!(matches!(twice.send().status, 400 | 401), "two headers");
    }
    for path in ["/mcp?access_token=T0ken", "/mcp?token=T0ken", "/mcp?Authorization=Bearer%20T0ken"] {
        let query = Request::post(gateway.mcp, path, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        assert_eq!(query.send().status, 401, "{path}");
    }
}

/// Tokens come as a digest, from a variable and from a file; a client may have several.
#[test]
fn aut_08_tokens_come_from_everywhere() {
    let hex: String =
        digest(&SHA256, b"t-digest").as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "t-file\n").unwrap();
    let up = Script::echo(Era::Legacy).stdio();
    let tokens = json!([format!("sha256:{hex}"), {"env": "A"}, {"file": file}]);
    let config =
        Config::new().upstream("up", &up).clients(json!({"a": {"tokens": tokens}})).env("A", "t-env");
    let gateway = config.ready();
    for token in ["t-digest", "t-env", "t-file"] {
        assert_eq!(Client::modern_with(&gateway, token).echo("up__echo", token), token);
    }
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for token in [hex.as_str(), &format!("sha256:{hex}"), "t-file\n", "t-fil", ""] {
        let request = Request::post(gateway.mcp, "/mcp", list)
            .header("Authorization", &format!("Bearer {}", token.trim_end_matches('\n')));
        let wanted = if token.starts_with("t-file") { 200 } else { 401 };
        assert_eq!(request.send().status, wanted, "{token:?}");
    }
}

/// With clients, who has no token is let in only where the config says so, and is the anonymous client.
#[test]
fn aut_01_anonymous_callers_are_a_client_like_others() {
    let up = Script::echo(Era::Legacy).stdio();
    let clients = json!({"a": {"tokens": [{"env": "A"}]}});
    let config = Config::new().upstream("up", &up).set("clients", clients).env("A", "T0ken");
    let gateway = config.ready();
    assert_eq!(Client::legacy(&gateway).echo("up__echo", "x"), "x");
    assert_eq!(Client::legacy_with(&gateway, "T0ken").echo("up__echo", "x"), "x");
    let wrong =
        Request::post(gateway.mcp, "/mcp", initialize(LEGACY)).header("Authorization", "Bearer wrong").send();
    assert_eq!(wrong.status, 401, "a bad credential is never a missing one");
    for client in ["anonymous", "a"] {
        gateway.wait_metric("waypost_calls_total", &[("client", client), ("method", "tools/call")], 1.0);
    }
}
