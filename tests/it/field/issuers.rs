//! Tokens of authorization servers, and the gateway as a protected resource.

use serde_json::{Value, json};

use crate::support::client::{Client, LEGACY, Request, Response, initialize};
use crate::support::eventually;
use crate::support::gateway::{Config, Gateway};
use crate::support::issuer::{Issuer, Key, now, signed_with_text, unsigned};
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::upstream::Upstream;

/// A gateway that takes tokens of an issuer for the audience `gw`.
fn trusting(up: &Upstream, issuer: &Issuer, more: Value) -> Config {
    let mut entry = json!({"issuer": issuer.url(), "audience": "gw", "clock_skew": "5s"});
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Config::new().upstream("up", up).set("auth", json!({"anonymous": false, "jwt": [entry]}))
}

fn ask(gateway: &Gateway, token: &str) -> Response {
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    Request::post(gateway.mcp, "/mcp", list).header("Authorization", &format!("Bearer {token}")).send()
}

fn refused(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metrics().sum("waypost_credentials_refused_total", &[("reason", reason)])
}

#[test]
fn aut_11_tokens_of_an_issuer_open_every_door() {
    let (rsa, ec) = (Key::rs256(), Key::es256());
    let issuer = Issuer::start(&[rsa.jwk("r"), ec.jwk("e"), json!({"kty": "new"})]);
    let up = Script::echo(Era::Legacy).http();
    let gateway = trusting(&up, &issuer, json!({})).ready();
    let tokens = [
        rsa.token(Some("r"), &issuer.claims(json!({}))),
        ec.token(Some("e"), &issuer.claims(json!({"aud": ["other", "gw"], "sub": "u2"}))),
        ec.token(None, &issuer.claims(json!({"nbf": null, "exp": now() - 2}))),
    ];
    for token in &tokens {
        assert_eq!(Client::legacy_with(&gateway, token).echo("up__echo", "x"), "x");
        assert_eq!(Client::modern_with(&gateway, token).echo("up__echo", "y"), "y");
    }
    assert_eq!(issuer.seen("/jwks").len(), 1, "keys are read once, not for every request");
    let label = format!("jwt:{}", issuer.address);
    let calls = gateway.metrics().sum("waypost_calls_total", &[("client", &*label)]);
    assert!(calls > 5.5, "all callers of an issuer are one label: {calls}");
    let log = gateway.log().join("\n");
    assert!(log.contains(&format!("{label}#u2")), "the log names the caller");
    assert!(!tokens.iter().any(|token| log.contains(token.as_str())), "no token in the log");
    let all = up.received().into_iter().map(|received| format!("{received:?}")).collect::<String>();
    assert!(!tokens.iter().any(|token| all.contains(token.as_str())), "no token at the upstream");
}

#[test]
fn aut_12_bad_tokens_are_told_apart_in_the_log_only() {
    let (rsa, other) = (Key::rs256(), Key::rs256());
    let issuer = Issuer::start(&[rsa.jwk("r")]);
    let up = Script::echo(Era::Legacy).http();
    let gateway = trusting(&up, &issuer, json!({})).ready();
    let before = up.received().len();
    let of = |more: Value| rsa.token(Some("r"), &issuer.claims(more));
    let good = issuer.claims(json!({}));
    let public = rsa.jwk("r")["n"].as_str().unwrap().to_owned();
    let cut = of(json!({})).rsplit_once('.').unwrap().0.to_owned() + ".AAAA";
    let swapped = {
        let (good, evil) = (of(json!({})), of(json!({"sub": "root"})));
        let good: Vec<&str> = good.split('.').collect();
        let evil: Vec<&str> = evil.split('.').collect();
        [good[0], evil[1], good[2]].join(".")
    };
    let cases = [
        ("expired", of(json!({"exp": now() - 60}))),
        ("not_yet_valid", of(json!({"nbf": now() + 600}))),
        ("audience", of(json!({"aud": "https://another.example/mcp"}))),
        ("audience", of(json!({"aud": []}))),
        ("claims", of(json!({"aud": null}))),
        ("claims", of(json!({"exp": null}))),
        ("claims", of(json!({"iss": null}))),
        ("issuer", of(json!({"iss": format!("{}/", issuer.url())}))),
        ("issuer", of(json!({"iss": "https://evil.example"}))),
        ("signature", other.token(Some("r"), &good)),
        ("signature", swapped),
        ("signature", cut),
        ("algorithm", unsigned(&good)),
        ("algorithm", signed_with_text(public.as_bytes(), "r", &good)),
        ("algorithm", signed_with_text(rsa.jwk("r").to_string().as_bytes(), "r", &good)),
        ("subject", of(json!({"sub": null}))),
        ("unknown", "opaque".to_owned()),
        ("unreadable", "a.b.c".to_owned()),
    ];
    let mut bodies = std::collections::BTreeSet::new();
    for (reason, token) in &cases {
        let counted = refused(&gateway, reason);
        let response = ask(&gateway, token);
        assert_eq!(response.status, 401, "{reason}: {}", response.text());
        let challenge = response.header("www-authenticate").unwrap().to_owned();
        assert!(challenge.starts_with(r#"Bearer error="invalid_token", resource_metadata=""#), "{challenge}");
        bodies.insert((challenge, response.text()));
        let after = refused(&gateway, reason);
        assert!(after > counted + 0.5, "{reason} is counted: {counted} {after}");
    }
    assert_eq!(bodies.len(), 1, "who sends a bad token learns nothing: {bodies:?}");
    assert_eq!(up.received().len(), before, "no upstream is contacted");
    let log = gateway.log().join("\n");
    assert!(log.contains("it has expired") && log.contains("it is for another audience"), "{log}");
    assert!(!cases.iter().any(|(_, token)| token.len() > 20 && log.contains(token.as_str())));
    assert_eq!(ask(&gateway, &of(json!({}))).status, 200);
}

#[test]
fn aut_13_keys_rotate_and_outages_pass() {
    let (old, new) = (Key::rs256(), Key::es256());
    let issuer = Issuer::start(&[old.jwk("old")]);
    let up = Script::echo(Era::Legacy).http();
    let gateway = trusting(&up, &issuer, json!({})).ready();
    let token = |key: &Key, id: &str| key.token(Some(id), &issuer.claims(json!({})));
    assert_eq!(ask(&gateway, &token(&old, "old")).status, 200);
    issuer.go_down();
    assert_eq!(ask(&gateway, &token(&old, "old")).status, 200, "known keys hold while the issuer is away");
    issuer.come_back();
    issuer.rotate(&[new.jwk("new")]);
    assert_eq!(ask(&gateway, &token(&new, "new")).status, 200, "a new key is found at once");
    assert_eq!(ask(&gateway, &token(&old, "old")).status, 401, "an old one is gone with it");
    let reads = issuer.seen("/jwks").len();
    for name in 0..200 {
        assert_eq!(ask(&gateway, &token(&old, &format!("made-up-{name}"))).status, 401);
    }
    assert_eq!(issuer.seen("/jwks").len(), reads, "made-up names of keys have nothing read");
    assert_eq!(ask(&gateway, &token(&new, "new")).status, 200);
}

#[test]
fn aut_14_without_keys_nobody_is_told_that_their_token_is_bad() {
    let key = Key::es256();
    let issuer = Issuer::start(&[key.jwk("k")]);
    issuer.go_down();
    let up = Script::echo(Era::Legacy).http();
    let config = trusting(&up, &issuer, json!({})).set("clients", json!({"a": {"tokens": [{"env": "A"}]}}));
    let gateway = config.env("A", "static-t0ken").ready();
    let token = key.token(Some("k"), &issuer.claims(json!({})));
    let response = ask(&gateway, &token);
    assert_eq!(response.status, 503, "{}", response.text());
    assert!(response.header("retry-after").is_some() && response.header("www-authenticate").is_none());
    assert_eq!(ask(&gateway, "static-t0ken").status, 200, "the tokens of the file go on");
    assert!(gateway.warnings().iter().any(|line| line.contains("issuer_keys_failed")), "{:?}", gateway.log());
    issuer.come_back();
    eventually("the keys are read", || (ask(&gateway, &token).status == 200).then_some(()));
}

#[test]
fn aut_15_claims_choose_client_and_roles() {
    let key = Key::es256();
    let issuer = Issuer::start(&[key.jwk("k")]);
    let up = Script::echo(Era::Legacy).tools(["drop"]).http();
    let more = json!({"client_claim": "email", "roles_claim": "realm_access.roles", "scopes": ["mcp"]});
    let gateway = trusting(&up, &issuer, more)
        .set("roles", json!({"reader": {"tools": {"deny": ["*drop"]}}, "writer": {}}))
        .set("clients", json!({"alice": {"tools": {"allow": ["up__drop"]}}}))
        .ready();
    let token = |more: Value| {
        let mut claims = json!({"scope": "mcp other"});
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        key.token(Some("k"), &issuer.claims(claims))
    };
    let seen = |token: &str| -> Vec<String> {
        let tools = ask(&gateway, token).json()["result"]["tools"].clone();
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let reader = token(json!({"realm_access": {"roles": ["reader", "x"]}}));
    let both = token(json!({"realm_access": {"roles": ["reader", "writer"]}}));
    let writer = token(json!({"realm_access": {"roles": ["writer"]}}));
    let alice = token(json!({"email": "alice"}));
    let reading_alice = token(json!({"email": "alice", "realm_access": {"roles": ["reader"]}}));
    assert_eq!(seen(&reader), ["up__echo"]);
    assert_eq!(seen(&both), ["up__echo"]);
    assert_eq!(seen(&writer), ["up__echo", "up__drop"]);
    assert_eq!(seen(&alice), ["up__drop"]);
    assert!(seen(&reading_alice).is_empty(), "layers only narrow");
    for client in [Client::legacy_with(&gateway, &reader), Client::modern_with(&gateway, &reader)] {
        let denied = client.calling("up__drop", "{}").send().json();
        assert_eq!(denied["error"]["message"], "Unknown tool: up__drop", "{denied}");
    }
    let stranger = ask(&gateway, &token(json!({"email": "mallory"})));
    assert_eq!((stranger.status, stranger.header("www-authenticate")), (403, None));
    let lacking = ask(&gateway, &key.token(Some("k"), &issuer.claims(json!({"email": "alice"}))));
    assert_eq!(lacking.status, 403);
    let challenge = lacking.header("www-authenticate").unwrap();
    assert!(
        challenge.starts_with(r#"Bearer error="insufficient_scope", scope="mcp", resource_metadata="#),
        "{challenge}"
    );
}

#[test]
fn aut_16_callers_of_one_issuer_do_not_meet() {
    let key = Key::es256();
    let issuer = Issuer::start(&[key.jwk("k")]);
    let up = Script::echo(Era::Legacy).http();
    let gateway = trusting(&up, &issuer, json!({})).ready();
    let token = |sub: &str| key.token(Some("k"), &issuer.claims(json!({"sub": sub})));
    let alice = Client::legacy_with(&gateway, &token("alice"));
    let list = || Request::post(gateway.mcp, "/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let in_session = |token: &str| {
        let request = list().header("Mcp-Session-Id", alice.session()).header("Mcp-Protocol-Version", LEGACY);
        request.header("Authorization", &format!("Bearer {token}")).send().status
    };
    assert_eq!(in_session(&token("bob")), 404, "a session belongs to its caller");
    let renewed = key.token(Some("k"), &issuer.claims(json!({"sub": "alice", "jti": "another"})));
    assert_eq!(in_session(&renewed), 200, "and outlives the token that it began with");
}

#[test]
fn aut_03_a_client_learns_where_tokens_come_from() {
    let key = Key::es256();
    let issuer = Issuer::start(&[key.jwk("k")]);
    let up = Script::echo(Era::Legacy).http();
    let config = trusting(&up, &issuer, json!({"scopes": ["mcp"]}));
    let gateway = config.clone().ready();
    let host = gateway.mcp.to_string();
    let missing = Request::post(gateway.mcp, "/mcp", initialize(LEGACY)).send();
    let well_known = "/.well-known/oauth-protected-resource";
    let wanted = format!(r#"Bearer scope="mcp", resource_metadata="http://{host}{well_known}/mcp""#);
    assert_eq!((missing.status, missing.header("www-authenticate")), (401, Some(&*wanted)));
    for path in [well_known.to_owned(), format!("{well_known}/mcp")] {
        let document = Request::get(gateway.mcp, &path).send();
        assert_eq!((document.status, document.content_type()), (200, "application/json"), "{path}");
        let document = document.json();
        assert_eq!(document["resource"], format!("http://{host}/mcp"));
        assert_eq!(document["authorization_servers"], json!([issuer.url()]));
        assert_eq!(document["scopes_supported"], json!(["mcp"]));
    }
    for path in
        ["/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource/x", "/register"]
    {
        assert_eq!(Request::get(gateway.mcp, path).send().status, 404, "{path}");
    }

    let public =
        config.set("public_url", json!("https://gw.example/team/mcp")).set("allowed_hosts", json!(["*"]));
    let gateway = public.ready();
    let spoofed = |path: &str| {
        Request::get(gateway.mcp, path)
            .header("Host", "inner:8080")
            .header("X-Forwarded-Host", "evil.example")
            .header("X-Forwarded-Proto", "http")
            .header("Forwarded", "host=evil.example")
            .send()
    };
    let challenge = spoofed("/mcp").header("www-authenticate").unwrap().to_owned();
    let place = format!("https://gw.example{well_known}/team/mcp");
    assert!(challenge.contains(&format!(r#"resource_metadata="{place}""#)), "{challenge}");
    for path in [well_known.to_owned(), format!("{well_known}/team/mcp"), format!("{well_known}/mcp")] {
        assert_eq!(spoofed(&path).json()["resource"], "https://gw.example/team/mcp", "{path}");
    }
}
