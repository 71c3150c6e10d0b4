//! Sealed texts that clients keep for us: ids of sessions and tasks, states of questions. Each is refused when any
//! of its characters has changed, when some are missing or too many, and when it is of another kind.

use serde_json::{Value, json};

use super::{asks, tasks};
use crate::support::client::{Client, LEGACY};
use crate::support::gateway::Config;
use crate::support::matrix::Era;
use crate::support::script::Script;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What somebody may try who has one token: another bit in each of its characters, each beginning and each end of
/// it, and more of it.
fn forged(token: &str) -> Vec<String> {
    let mut tries = Vec::new();
    for (at, byte) in token.bytes().enumerate() {
        let value = ALPHABET.iter().position(|one| *one == byte).expect("base64");
        let mut bent = token.as_bytes().to_vec();
        bent[at] = ALPHABET[value ^ (1 << (at % 6))];
        tries.push(String::from_utf8(bent).unwrap());
        if at > 0 {
            tries.extend([token[..at].to_owned(), token[at..].to_owned()]);
        }
    }
    tries.extend([format!("{token}A"), format!("A{token}"), format!("{token}{token}"), format!("{token}=")]);
    tries
}

/// The status that a list is answered with in this session.
fn status_in(client: &Client, session: &str) -> u16 {
    client.request("tools/list", "{}").header("Mcp-Session-Id", session).send().status
}

#[test]
fn every_forged_session_is_a_dead_one() {
    let up = Script::echo(Era::Legacy).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::bare(&gateway, Era::Legacy).connected(LEGACY);
    let session = client.session().to_owned();
    for forgery in forged(&session) {
        assert_eq!(status_in(&client, &forgery), 404, "{forgery}");
    }
    assert_eq!(status_in(&client, &session), 200, "the session lives");
}

#[test]
fn every_forged_task_is_unknown() {
    for era in [Era::Legacy, Era::Modern] {
        let up = tasks::tasking(era, "up").http();
        let gateway = Config::new().upstream("up", &up).ready();
        let client = tasks::able(&gateway, era);
        let id = tasks::id_of(&tasks::start(&client, "up__slow", "mine"));
        for forgery in forged(&id) {
            let expected = json!({"code": -32602, "message": format!("Unknown task: {forgery}")});
            assert_eq!(tasks::ask(&client, "tasks/get", &forgery)["error"], expected);
        }
        assert_eq!(up.of_method("tasks/get").len(), 0, "none came to the server");
        let answer = tasks::ask(&client, "tasks/get", &id);
        assert!(answer["result"].is_object(), "the task lives: {answer}");
    }
}

#[test]
fn every_forged_state_answers_nothing() {
    let legacy = asks::Legacy::start();
    let gateway = Config::new().upstream("up", &legacy.up).ready();
    let client = Client::modern(&gateway).able(asks::ABLE);
    let asked = client.call("up__ask", json!({"nonce": "n"}));
    let first = asks::keys(&asked);
    let answers =
        json!({&first["elicitation/create"]: {"action": "accept"}, &first["roots/list"]: {"roots": []}});
    let with = |state: &str| {
        let mut asked = asked.clone();
        asked["result"]["requestState"] = json!(state);
        asks::retry(&client, &asked, "n", answers.clone())
    };
    let refused = |answer: &Value, state: &str| {
        assert_eq!(answer["error"]["code"], -32602, "{state}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("requestState"), "{answer}");
    };
    let state = asked["result"]["requestState"].as_str().unwrap();
    for forgery in forged(state) {
        refused(&with(&forgery), &forgery);
    }
    let next = with(state);
    assert!(asks::keys(&next).contains_key("sampling/createMessage"), "the call still waits: {next}");
    refused(&with(state), "used already");
    assert_eq!(legacy.up.calls().len(), 1, "the call itself ran once");
}

#[test]
fn a_sealed_text_is_nothing_of_another_kind() {
    let (legacy, up) = (asks::Legacy::start(), tasks::tasking(Era::Modern, "jobs").http());
    let gateway = Config::new().upstream("up", &legacy.up).upstream("jobs", &up).ready();
    let old = Client::legacy(&gateway);
    let worker = tasks::able(&gateway, Era::Modern);
    let asker = Client::modern(&gateway).able(asks::ABLE);
    let session = old.session().to_owned();
    let task = tasks::id_of(&tasks::start(&worker, "jobs__slow", "mine"));
    let asked = asker.call("up__ask", json!({"nonce": "n"}));
    let state = asked["result"]["requestState"].as_str().unwrap().to_owned();
    for other in [&task, &state] {
        assert_eq!(status_in(&old, other), 404, "{other}");
    }
    for other in [&session, &state] {
        let answer = tasks::ask(&worker, "tasks/get", other);
        assert_eq!(answer["error"]["message"], format!("Unknown task: {other}"));
    }
    for other in [&session, &task] {
        let mut asked = asked.clone();
        asked["result"]["requestState"] = json!(other);
        let answer = asks::retry(&asker, &asked, "n", json!({}));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
}
