//! The configuration: problems are told, all at once, and before anything listens.

use std::process::Output;

use serde_json::json;

use crate::support::client::{Client, Request};
use crate::support::gateway::{Config, run_with};
use crate::support::matrix::Era;
use crate::support::script::Script;

fn text_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout))
}

/// Both commands refuse the file; each of `words` is in what they say.
fn expect_refused(config: &str, words: &[&str]) {
    for command in ["check", "serve"] {
        let output = run_with(&[command], config, &[]);
        let text = text_of(&output);
        assert_ne!(output.status.code(), Some(0), "{command} takes\n{config}\n{text}");
        assert!(output.status.code().is_some(), "no panic, no signal: {text}");
        assert!(!text.contains("panicked"), "{text}");
        for word in words {
            assert!(text.contains(word), "{command}: no {word:?} in\n{text}\nfor\n{config}");
        }
    }
}

const HEAD: &str = "listen: 127.0.0.1:0\n";

#[test]
fn cfg_01_what_is_misspelt_is_refused_with_its_place() {
    let cases: [(&str, &[&str]); 12] = [
        ("upstraems: {a: {command: x}}\n", &["gateway.yaml:2", "upstraems", "upstreams"]),
        ("upstreams:\n  a:\n    comand: x\n", &["comand", "command", ":4"]),
        ("upstreams: {a: {command: x}}\nclients:\n  c:\n    tokns: [{env: T}]\n", &["tokns", "tokens", ":5"]),
        ("upstreams:\n  a:\n    command: x\n    tools: {denny: [y]}\n", &["denny", "deny", ":5"]),
        ("upstreams: {a: {command: x}}\nupstreams: {b: {command: y}}\n", &["upstreams", ":3"]),
        ("upstreams:\n  a: {command: x}\n  a: {command: y}\n", &["a", ":4"]),
        ("upstreams:\n  a: {command: [x]}\n", &[":3"]),
        ("upstreams:\n  a: {command: x, timeout: soon}\n", &["soon", ":3"]),
        ("upstreams:\n  a: {command: x, timeout: 30}\n", &["30", ":3"]),
        ("upstreams:\n\ta: {command: x}\n", &[":3"]),
        ("upstreams:\n  a: {command: x, url: \"http://127.0.0.1:1/\"}\n", &["command", "url"]),
        ("upstreams:\n  a: {args: [x]}\n", &["a"]),
    ];
    for (body, words) in cases {
        expect_refused(&format!("{HEAD}{body}"), words);
    }
    let output = run_with(&["check"], "", &[]);
    assert!(!text_of(&output).contains("panicked"), "{}", text_of(&output));
    for broken in ["upstreams: {a: {command: x}", "- a\n- b\n", "just text", "upstreams: 7\n", "\u{0}"] {
        expect_refused(broken, &[]);
    }
}

#[test]
fn cfg_01_all_problems_come_at_once() {
    let config = "listen: 127.0.0.1:0\nlimts: {}\nupstreams:\n  a: {comand: x}\n  b: {command: y, timeout: soon}\n  \
                  c: {url: \"not a url\"}\nclients:\n  d: {tokens: [{env: NOT_SET_ANYWHERE}]}\n";
    expect_refused(config, &["limts", "comand", "soon", "not a url", "NOT_SET_ANYWHERE"]);
}

#[test]
fn cfg_01_who_may_reach_it_must_say_who_they_are() {
    let open = "listen: 0.0.0.0:0\nupstreams: {a: {command: x}}\n";
    expect_refused(open, &["listen"]);
    let said = run_with(&["check"], &format!("{open}auth: {{anonymous: true}}\n"), &[]);
    assert!(said.status.success(), "{}", text_of(&said));
    let guarded = format!("{open}clients: {{c: {{tokens: [{{env: T}}]}}}}\n");
    assert!(run_with(&["check"], &guarded, &[("T", "t-0123456789")]).status.success());
}

#[test]
fn cfg_01_a_missing_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["check", "-c", "nowhere.yaml"];
    let output = crate::support::gateway::waypost(&arguments, folder.path()).output().unwrap();
    assert_ne!(output.status.code(), Some(0));
    assert!(text_of(&output).contains("nowhere.yaml"), "{}", text_of(&output));
}

#[test]
fn cfg_02_an_unset_variable_is_refused_by_its_name() {
    let with_token =
        |token: &str| format!("{HEAD}upstreams: {{a: {{command: x, env: {{K: \"{token}\"}}}}}}\n");
    expect_refused(&with_token("${WP_UNSET}"), &["WP_UNSET"]);
    expect_refused(&with_token("a ${WP_UNSET} b ${WP_OTHER}"), &["WP_UNSET", "WP_OTHER"]);
    expect_refused(&with_token("${WP_UNSET"), &[]);
    let header = format!(
        "{HEAD}upstreams: {{a: {{url: \"http://127.0.0.1:1/\", headers: {{Authorization: \"Bearer ${{WP_UNSET}}\"}}}}}}\n"
    );
    expect_refused(&header, &["WP_UNSET"]);
    for token in ["{env: WP_UNSET}", "{file: /no/such/file}", "\"\"", "sha256:xyz"] {
        expect_refused(
            &format!("{HEAD}upstreams: {{a: {{command: x}}}}\nclients: {{c: {{tokens: [{token}]}}}}\n"),
            &[],
        );
    }
    let empty =
        format!("{HEAD}upstreams: {{a: {{command: x}}}}\nclients: {{c: {{tokens: [{{env: WP_EMPTY}}]}}}}\n");
    let output = run_with(&["check"], &empty, &[("WP_EMPTY", "")]);
    assert!(!output.status.success() && text_of(&output).contains("WP_EMPTY"), "{}", text_of(&output));
}

#[test]
fn cfg_02_values_are_put_in_after_parsing() {
    let up = Script::echo(Era::Legacy).stdio();
    let env = json!({"env": {
        "BOTH": "${WP_A}${WP_B}", "LITERAL": "$${NOT}", "DEFAULT": "${WP_X:-dflt}", "EMPTY_DEFAULT": "${WP_X:-}",
        "ODD": "${WP_ODD}", "DOLLAR": "a$b $ c", "SET": "${WP_A:-other}",
    }});
    let odd = "quote \" brace } colon: # no comment\nline two $NOT ${WP_A}";
    let config = Config::new().upstream_with("up", &up, env).env("WP_A", "aa").env("WP_B", "bb");
    let gateway = config.env("WP_ODD", odd).ready();
    let env = up.process().hello["env"].clone();
    assert_eq!(env["BOTH"], "aabb");
    assert_eq!(env["LITERAL"], "${NOT}");
    assert_eq!(env["DEFAULT"], "dflt");
    assert_eq!(env["EMPTY_DEFAULT"], "");
    assert_eq!(env["ODD"], odd, "what comes in is never read again");
    assert_eq!(env["SET"], "aa");
    drop(gateway);
}

#[test]
fn cfg_02_secrets_are_never_shown() {
    let config = Config::new()
        .raw_upstream(
            "web",
            json!({"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer ${WP_SECRET}"}}),
        )
        .raw_upstream("child", json!({"command": "true", "env": {"KEY": "${WP_SECRET}"}}))
        .clients(json!({"c": {"tokens": [{"env": "WP_TOKEN"}]}}))
        .env("WP_SECRET", "hush-hush-77")
        .env("WP_TOKEN", "tell-no-one-88");
    let variables = [("WP_SECRET", "hush-hush-77"), ("WP_TOKEN", "tell-no-one-88")];
    for command in [&["check"][..], &["check", "--effective"]] {
        let output = run_with(command, &config.text(), &variables);
        let text = text_of(&output);
        assert!(output.status.success(), "{text}");
        assert!(!text.contains("hush-hush-77") && !text.contains("tell-no-one-88"), "{text}");
        if command.len() == 2 {
            assert!(text.contains("‹secret›"), "{text}");
        }
    }
    let gateway = config.start();
    let client = Client::modern_with(&gateway, "tell-no-one-88");
    drop(client.call("web__x", json!({})));
    let seen = [gateway.log().join("\n"), gateway.admin("/api/status").1, gateway.admin("/metrics").1];
    for text in seen {
        assert!(!text.contains("hush-hush-77") && !text.contains("tell-no-one-88"), "{text}");
    }
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let nothing = Request::post(gateway.mcp, "/mcp", list).header("Authorization", "Bearer ").send();
    assert_eq!(nothing.status, 401);
}

#[test]
fn cfg_01_what_other_tools_write_can_be_pasted() {
    let up = Script::echo(Era::Legacy).http();
    let config = format!(
        "{{\"listen\": \"127.0.0.1:0\", \"admin\": \"127.0.0.1:0\", \"auth\": {{\"anonymous\": true}}, \"log\": {{\"format\": \"json\"}},\n \
         \"mcpServers\": {{\"up\": {{\"type\": \"http\", \"url\": \"{}\"}}}}}}",
        up.url()
    );
    let gateway = crate::support::gateway::Gateway::start_text(&config, &[]);
    gateway.wait_ready();
    assert_eq!(Client::legacy(&gateway).echo("up__echo", "x"), "x");
}
