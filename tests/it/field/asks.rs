//! Questions of a server to its client during a call: elicitation, sampling, roots.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Client, Open};
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::{Era, Transport};
use crate::support::script::Script;
use crate::support::turn::Turn;
use crate::support::upstream::Upstream;
use crate::support::{at_once, eventually};

/// What a client says that can answer everything.
const ABLE: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#;

/// A question with a nonce in it.
fn elicitation(nonce: &str) -> String {
    format!(
        r#"{{"method":"elicitation/create","params":{{"x-more":1.0,"message":"{nonce}","requestedSchema":{{"type":"object","properties":{{"name":{{"type":"string"}}}}}}}}}}"#
    )
}

/// A modern server whose tool `ask` wants a name and some roots, then a sample, and then tells all answers.
fn modern_asking() -> Script {
    Script::modern().tool("ask", |turn| {
        let nonce = turn.argument("nonce").unwrap_or_default();
        let message: Value = serde_json::from_str(&turn.text).unwrap();
        let params = &message["params"];
        let state = params["requestState"].as_str().unwrap_or_default().to_owned();
        let ask = |requests: &str, state: &str| {
            turn.result(&format!(r#"{{"resultType":"input_required","inputRequests":{{{requests}}},"requestState":{state}}}"#));
        };
        if state.is_empty() {
            let first = elicitation(&nonce);
            return ask(&format!(r#""b":{first},"a":{{"method":"roots/list"}}"#), &format!(r#""one \u0061 {nonce}""#));
        }
        if state == format!("one a {nonce}") {
            let answers = params["inputResponses"].to_string();
            let sample = r#"{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":9007199254740993,"tools":[]}}"#;
            return ask(&format!(r#""s":{sample}"#), &Value::from(format!("two {answers}")).to_string());
        }
        turn.text(&format!("{state} {}", params["inputResponses"]));
    })
}

/// A legacy client that can answer everything.
fn able(gateway: &Gateway) -> Client {
    Client::bare(gateway, Era::Legacy).able(ABLE).connected("2025-11-25")
}

fn answer(client: &Client, question: &Value, body: &str) {
    let id = &question["id"];
    let sent = client.post(format!(r#"{{"jsonrpc":"2.0","id":{id},{body}}}"#)).send();
    assert_eq!(sent.status, 202, "{}", sent.text());
}

fn next(stream: &mut Open) -> Value {
    let event = stream.event().expect("another event");
    serde_json::from_str(&event.data).unwrap()
}

fn text_of(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

#[test]
fn s2c_01_a_modern_server_asks_a_legacy_client_on_the_stream_of_its_call() {
    for transport in Transport::ALL {
        let up = modern_asking().over(transport);
        let gateway = Config::new().upstream("up", &up).ready();
        let client = able(&gateway);
        let mut stream = client.calling("up__ask", r#"{"nonce":"n1"}"#).open();
        let (first, second) = (next(&mut stream), next(&mut stream));
        assert_eq!(first["method"], "elicitation/create");
        assert_eq!(first["params"]["message"], "n1");
        assert_eq!(second["method"], "roots/list");
        assert_ne!(first["id"], second["id"]);
        answer(&client, &second, r#""result":{"roots":[]}"#);
        answer(&client, &first, r#""result":{"action":"accept","content":{"name":"é"}}"#);
        let third = next(&mut stream);
        assert_eq!(third["method"], "sampling/createMessage");
        assert_eq!(third["params"]["maxTokens"], 9_007_199_254_740_993_u64);
        answer(
            &client,
            &third,
            r#""result":{"role":"assistant","model":"m","content":{"type":"text","text":"t"}}"#,
        );
        let end = next(&mut stream);
        let expected = concat!(
            r#"two {"a":{"roots":[]},"b":{"action":"accept","content":{"name":"é"}}} "#,
            r#"{"s":{"content":{"text":"t","type":"text"},"model":"m","role":"assistant"}}"#
        );
        assert_eq!(text_of(&end), expected);
        assert!(stream.event().is_none());
        let calls = up.calls();
        assert!(
            calls[1].text.contains(r#""requestState":"one \u0061 n1""#),
            "byte for byte: {}",
            calls[1].text
        );
        let ids: std::collections::HashSet<_> =
            calls.iter().map(|call| call.id().unwrap().to_owned()).collect();
        assert_eq!(ids.len(), 3, "each try has an id of its own");
        assert!(calls[0].text.contains(&format!(r#""io.modelcontextprotocol/clientCapabilities":{ABLE}"#)));
    }
}

#[test]
fn s2c_05_who_cannot_answer_is_not_asked() {
    let up = modern_asking().http();
    let gateway = Config::new().upstream("up", &up).ready();
    let declared = || {
        let call = up.calls().pop().unwrap();
        let message: Value = serde_json::from_str(&call.text).unwrap();
        message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone()
    };
    let unable = Client::legacy(&gateway).call("up__ask", json!({"nonce": "n"}));
    assert_eq!(unable["result"]["isError"], true, "{unable}");
    assert!(text_of(&unable).contains("which this client cannot answer"), "{unable}");
    assert_eq!(declared(), json!({}));
    let only_json =
        able(&gateway).calling("up__ask", r#"{"nonce":"n"}"#).header("Accept", "application/json");
    let only_json = only_json.send().json();
    assert_eq!(only_json["result"]["isError"], true, "{only_json}");
    assert_eq!(declared(), json!({}));
}

#[test]
fn s2c_01_refusals_reach_a_modern_server_as_far_as_it_has_them() {
    let up = modern_asking().http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = able(&gateway);
    let mut stream = client.calling("up__ask", r#"{"nonce":"n"}"#).open();
    let (first, second) = (next(&mut stream), next(&mut stream));
    answer(&client, &first, r#""error":{"code":-32603,"message":"no window"}"#);
    answer(&client, &second, r#""result":{"roots":[]}"#);
    let sample = next(&mut stream);
    assert!(up.calls()[1].text.contains(r#""b":{"action":"cancel"}"#), "{}", up.calls()[1].text);
    answer(&client, &sample, r#""error":{"code":-1,"message":"user says no"}"#);
    let end = next(&mut stream);
    assert_eq!(end["result"]["isError"], true, "{end}");
    assert!(text_of(&end).contains("user says no"), "{end}");
    assert_eq!(up.calls().len(), 2, "there is no answer that it could be tried again with");
}

#[test]
fn s2c_05_a_question_waits_for_its_client_until_the_session_ends() {
    let legacy = Legacy::start();
    let gateway = Config::new().upstream("up", &legacy.up).ready();
    let client = able(&gateway);
    let mut stream = client.calling("up__ask", r#"{"nonce":"n"}"#).open();
    stream.wait_comment();
    let last = stream.last_id.clone().expect("an id");
    let first = next(&mut stream);
    stream.hang_up();
    let back = client.bodyless("GET").header("Accept", "text/event-stream");
    let mut stream = back.header("Last-Event-ID", &last).open();
    assert_eq!(next(&mut stream), first, "the question is there again");
    assert!(legacy.up.of_method("notifications/cancelled").is_empty(), "a lost connection is no cancel");
    assert_eq!(client.bodyless("DELETE").send().status, 204);
    legacy.up.wait_method("notifications/cancelled");
    let is_empty = || (gateway.metrics().sum("waypost_parked_calls", &[]) < 0.5).then_some(());
    eventually("nothing is parked", is_empty);
}

#[test]
fn questions_that_nobody_answers_end() {
    let up = modern_asking().http();
    let config = Config::new().upstream("up", &up).set("limits", json!({"answer_timeout": "1s"}));
    let gateway = config.ready();
    let client = able(&gateway);
    let mut stream = client.calling("up__ask", r#"{"nonce":"n"}"#).open();
    let first = next(&mut stream);
    next(&mut stream);
    let withdrawn = next(&mut stream);
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], first["id"]);
    let end = next(&mut stream);
    assert_eq!(end["result"]["isError"], true, "{end}");
    assert!(text_of(&end).contains("no answer came within 1 s"), "{end}");
}

/// A legacy server whose tool `ask` asks for a name and for roots at once, then for a sample, and then tells
/// what it heard.
struct Legacy {
    up: Upstream,
}

impl Legacy {
    fn start() -> Self {
        let heard: std::sync::Arc<std::sync::Mutex<Vec<(String, String)>>> = std::sync::Arc::default();
        let hearing = std::sync::Arc::clone(&heard);
        let wait = move |id: &str| {
            eventually("an answer to a question", || {
                let mut heard = heard.lock().unwrap();
                let at = heard.iter().position(|(answered, _)| answered == id)?;
                Some(heard.remove(at).1)
            })
        };
        let script = Script::legacy()
            .first(move |turn| {
                let message: Value = serde_json::from_str(&turn.text).unwrap_or_default();
                if message.get("method").is_none() && message.get("id").is_some() {
                    let body = message.get("result").or(message.get("error")).unwrap();
                    hearing.lock().unwrap().push((message["id"].as_str().unwrap().to_owned(), body.to_string()));
                }
                false
            })
            .tool("ask", move |turn| {
                let nonce = turn.argument("nonce").unwrap_or_default();
                turn.progress(1);
                ask(turn, &format!("b-{nonce}"), &elicitation(&nonce));
                ask(turn, &format!("a-{nonce}"), r#"{"method":"roots/list"}"#);
                let first = (wait(&format!("b-{nonce}")), wait(&format!("a-{nonce}")));
                turn.progress(2);
                ask(turn, &format!("s-{nonce}"), r#"{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":9007199254740993}}"#);
                let second = wait(&format!("s-{nonce}"));
                turn.progress(3);
                turn.text(&format!("{nonce} {} {} {second}", first.0, first.1));
            });
        Self { up: script.http() }
    }
}

/// Sends a question, given as method and parameters, under an id of the server's.
fn ask(turn: &Turn, id: &str, question: &str) {
    turn.send(&format!(r#"{{"jsonrpc":"2.0","id":"{id}",{}"#, question.strip_prefix('{').unwrap()));
}

const SAMPLE: &str = r#"{"content":{"text":"t","type":"text"},"model":"m","role":"assistant"}"#;

#[test]
fn s2c_01_a_legacy_server_asks_a_legacy_client() {
    let legacy = Legacy::start();
    let gateway = Config::new().upstream("up", &legacy.up).ready();
    let client = able(&gateway);
    let params = r#"{"name":"up__ask","arguments":{"nonce":"n"},"_meta":{"progressToken":"mine"}}"#;
    let mut stream = client.request("tools/call", params).open();
    assert_eq!(next(&mut stream)["params"]["progress"], 1);
    let (first, second) = (next(&mut stream), next(&mut stream));
    assert_eq!((&first["method"], &second["method"]), (&json!("elicitation/create"), &json!("roots/list")));
    assert_eq!(first["params"]["x-more"].to_string(), "1.0");
    answer(&client, &second, r#""error":{"code":-32603,"message":"no roots","data":{"x":1}}"#);
    answer(&client, &first, r#""result":{"action":"decline"}"#);
    assert_eq!(
        next(&mut stream)["params"],
        json!({"progressToken": "mine", "progress": 2, "total": 10, "x-more": 1.0})
    );
    let third = next(&mut stream);
    answer(&client, &third, &format!(r#""result":{SAMPLE}"#));
    assert_eq!(next(&mut stream)["params"]["progress"], 3);
    let end = next(&mut stream);
    let expected = format!(
        r#"n {{"action":"decline"}} {{"code":-32603,"data":{{"x":1}},"message":"no roots"}} {SAMPLE}"#
    );
    assert_eq!(text_of(&end), expected);
    assert_eq!(legacy.up.calls().len(), 1, "the call itself runs once");
    let hello = legacy.up.of_method("initialize").pop().unwrap();
    assert!(hello.text.contains(r#""elicitation":{"form":{},"url":{}}"#), "{}", hello.text);
    let metrics = gateway.metrics();
    assert!((metrics.sum("waypost_questions_total", &[("upstream", "up")]) - 3.0).abs() < 0.1);
    assert!(metrics.sum("waypost_parked_calls", &[]) < 0.5);
}

#[test]
fn s2c_05_a_legacy_server_hears_at_once_that_its_caller_cannot_answer() {
    let legacy = Legacy::start();
    let gateway = Config::new().upstream("up", &legacy.up).ready();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        let answer = client.call("up__ask", json!({"nonce": "n"}));
        let text = text_of(&answer);
        assert_eq!(text.matches("-32601").count(), 3, "{text}");
        assert!(text.contains("does not support elicitation/create"), "{text}");
    }
}

/// The retry of a call whose questions were `asked`, by a modern client.
fn retry(client: &Client, asked: &Value, nonce: &str, answers: Value) -> Value {
    let state = &asked["result"]["requestState"];
    let params = format!(
        r#"{{"name":"up__ask","arguments":{{"nonce":"{nonce}"}},"inputResponses":{answers},"requestState":{state},"_meta":{{"progressToken":"second"}}}}"#
    );
    client.request("tools/call", &params).send().json()
}

/// The keys of the questions by their methods.
fn keys(asked: &Value) -> std::collections::HashMap<String, String> {
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let requests = asked["result"]["inputRequests"].as_object().unwrap();
    requests.iter().map(|(key, asked)| (asked["method"].as_str().unwrap().to_owned(), key.clone())).collect()
}

#[test]
fn a_legacy_server_asks_a_modern_client_by_the_outcome() {
    let legacy = Legacy::start();
    let gateway = Config::new().upstream("up", &legacy.up).ready();
    let client = Client::modern(&gateway).able(ABLE);
    let asked = client.call("up__ask", json!({"nonce": "n"}));
    let first = keys(&asked);
    assert_eq!(first.len(), 2, "both at once: {asked}");
    let (name, roots) = (&first["elicitation/create"], &first["roots/list"]);
    assert_eq!(asked["result"]["inputRequests"][name]["params"]["message"], "n");
    let partly = retry(&client, &asked, "n", json!({roots: {"roots": []}}));
    assert_eq!(
        keys(&partly).keys().collect::<Vec<_>>(),
        ["elicitation/create"],
        "what is missing is asked again"
    );
    let replayed = retry(&client, &asked, "n", json!({name: {"action": "accept"}}));
    assert_eq!(replayed["error"]["code"], -32602, "a state is used once: {replayed}");
    let second = retry(&client, &partly, "n", json!({name: {"action": "accept"}, "unknown": 7}));
    let sample = &keys(&second)["sampling/createMessage"];
    let sampled: Value = serde_json::from_str(SAMPLE).unwrap();
    let end = retry(&client, &second, "n", json!({sample: sampled}));
    assert_eq!(text_of(&end), format!(r#"n {{"action":"accept"}} {{"roots":[]}} {SAMPLE}"#));
    assert_eq!(end["result"]["resultType"], "complete");
    assert_eq!(legacy.up.calls().len(), 1, "the call itself runs once");
}

#[test]
fn a_state_is_for_its_own_request_only() {
    let legacy = Legacy::start();
    let clients = json!({"a": {"tokens": [{"env": "A"}]}, "b": {"tokens": [{"env": "B"}]}});
    let config = Config::new().upstream("up", &legacy.up).clients(clients).env("A", "t-a").env("B", "t-b");
    let gateway = config.ready();
    let client = Client::modern_with(&gateway, "t-a").able(ABLE);
    let other = Client::modern_with(&gateway, "t-b").able(ABLE);
    let asked = client.call("up__ask", json!({"nonce": "n"}));
    let first = keys(&asked);
    let answers =
        json!({&first["elicitation/create"]: {"action": "accept"}, &first["roots/list"]: {"roots": []}});
    let refused = |answer: Value, what: &str| {
        assert_eq!(answer["error"]["code"], -32602, "{what}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("requestState"), "{answer}");
    };
    refused(retry(&other, &asked, "n", answers.clone()), "another principal");
    refused(retry(&client, &asked, "m", answers.clone()), "other arguments");
    let state = asked["result"]["requestState"].as_str().unwrap();
    for at in [0, state.len() / 2, state.len() - 2] {
        let mut bent = state.to_owned().into_bytes();
        bent[at] = if bent[at] == b'A' { b'B' } else { b'A' };
        let mut asked = asked.clone();
        asked["result"]["requestState"] = json!(String::from_utf8(bent).unwrap());
        refused(retry(&client, &asked, "n", answers.clone()), "a flipped bit");
    }
    let next = retry(&client, &asked, "n", answers);
    assert!(keys(&next).contains_key("sampling/createMessage"), "and the call still waits: {next}");
}

#[test]
fn a_parked_call_ends_with_its_time() {
    let legacy = Legacy::start();
    let config = Config::new().upstream("up", &legacy.up).set("limits", json!({"answer_timeout": "1s"}));
    let gateway = config.ready();
    let client = Client::modern(&gateway).able(ABLE);
    let asked = client.call("up__ask", json!({"nonce": "n"}));
    let id = legacy.up.calls()[0].id().unwrap().to_owned();
    assert!(gateway.metrics().sum("waypost_parked_calls", &[]) > 0.5);
    let cancelled = legacy.up.wait_method("notifications/cancelled");
    assert!(cancelled.text.contains(&format!(r#""requestId":{id}"#)), "{}", cancelled.text);
    let late = retry(&client, &asked, "n", json!({}));
    assert_eq!(late["error"]["code"], -32602, "{late}");
    assert!(late["error"]["message"].as_str().unwrap().contains("expired"), "{late}");
    assert!(gateway.metrics().sum("waypost_parked_calls", &[]) < 0.5);
}

#[test]
fn parked_calls_are_bounded_for_each_client() {
    let legacy = Legacy::start();
    let limits = json!({"parked_calls_per_client": 2});
    let gateway = Config::new().upstream("up", &legacy.up).set("limits", limits).ready();
    let client = Client::modern(&gateway).able(ABLE);
    let call = |nonce: &str| client.call("up__ask", json!({"nonce": nonce}));
    keys(&call("1"));
    keys(&call("2"));
    let third = call("3");
    assert_eq!(third["result"]["isError"], true, "{third}");
    assert!(text_of(&third).contains("too many calls wait"), "{third}");
    legacy.up.wait_method("notifications/cancelled");
}

/// The clock of the call stands still while its client thinks.
#[test]
fn thinking_takes_nothing_of_the_timeout() {
    let legacy = Legacy::start();
    let gateway = Config::new().upstream_with("up", &legacy.up, json!({"timeout": "1s"})).ready();
    let client = Client::modern(&gateway).able(ABLE);
    let asked = client.call("up__ask", json!({"nonce": "n"}));
    std::thread::sleep(Duration::from_millis(1_500));
    let first = keys(&asked);
    let answers =
        json!({&first["elicitation/create"]: {"action": "accept"}, &first["roots/list"]: {"roots": []}});
    let next = retry(&client, &asked, "n", answers);
    assert!(keys(&next).contains_key("sampling/createMessage"), "{next}");
}

#[test]
fn s2c_01_questions_of_twenty_clients_never_cross() {
    let legacy = Legacy::start();
    let modern = modern_asking().http();
    let gateway = Config::new().upstream("up", &legacy.up).upstream("new", &modern).ready();
    let turn = |index: u64, round: u64| {
        let gateway = &gateway;
        move || {
            let nonce = format!("nonce-{index}-{round}");
            std::thread::sleep(Duration::from_millis(index * 7 % 30));
            let tool = if round.is_multiple_of(2) { "up__ask" } else { "new__ask" };
            if index.is_multiple_of(2) {
                let client = Client::modern(gateway).able(ABLE);
                let mut answer = client.call(tool, json!({"nonce": nonce}));
                while answer["result"]["resultType"] == "input_required" {
                    let answers: serde_json::Map<String, Value> = keys(&answer)
                        .into_iter()
                        .map(|(method, key)| (key, json!({"method": method, "of": nonce})))
                        .collect();
                    let params = json!({"name": tool, "arguments": {"nonce": nonce}, "inputResponses": answers,
                        "requestState": answer["result"]["requestState"]});
                    answer = client.request("tools/call", &params.to_string()).send().json();
                }
                return (nonce, text_of(&answer).to_owned());
            }
            let client = able(gateway);
            let mut stream = client.calling(tool, &json!({"nonce": nonce}).to_string()).open();
            loop {
                let message = next(&mut stream);
                let Some(method) = message.get("method") else {
                    return (nonce, text_of(&message).to_owned());
                };
                if let Some(asked) = message["params"]["message"].as_str() {
                    assert_eq!(asked, nonce, "a question of somebody else");
                }
                answer(&client, &message, &format!(r#""result":{{"method":{method},"of":"{nonce}"}}"#));
            }
        }
    };
    for round in 0..6 {
        for (nonce, text) in at_once((0..20).map(|index| turn(index, round)).collect()) {
            assert_eq!(text.matches(&nonce).count(), text.matches("nonce-").count(), "{nonce}: {text}");
            assert!(text.matches(&nonce).count() >= 3, "nothing is lost: {text}");
        }
    }
    assert!(gateway.metrics().sum("waypost_parked_calls", &[]) < 0.5);
}

#[test]
fn an_url_that_has_to_be_opened_is_a_question_to_a_modern_client() {
    let up = Script::legacy()
        .tool("open", |turn| {
            turn.error_with("200 OK", r#"{"code":-32042,"message":"open it","data":{"elicitations":[{"mode":"url","elicitationId":"e1","url":"https://x.example/","message":"m"}]}}"#);
        })
        .http();
    let gateway = Config::new().upstream("up", &up).ready();
    let asked = Client::modern(&gateway).able(ABLE).call("up__open", json!({}));
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    assert_eq!(asked["result"]["inputRequests"]["e1"]["params"]["url"], "https://x.example/");
    for untouched in [Client::modern(&gateway), able(&gateway)] {
        let answer = untouched.call("up__open", json!({}));
        assert_eq!(answer["error"]["code"], -32042, "{answer}");
        assert_eq!(answer["error"]["data"]["elicitations"][0]["elicitationId"], "e1");
    }
}

#[test]
fn modern_questions_to_modern_clients_pass_untouched() {
    for transport in Transport::ALL {
        let up = modern_asking().over(transport);
        let gateway = Config::new().upstream("up", &up).ready();
        let client = Client::modern(&gateway).able(r#"{"roots":{},"x-own":{"a":1.0}}"#);
        let raw = client.call_raw("up__ask", r#"{"nonce":"n"}"#);
        assert!(raw.contains(r#""requestState":"one \u0061 n""#), "{raw}");
        let params = r#"{"name":"up__ask","arguments":{"nonce":"n"},"inputResponses":{"b":{"action":"acc\u0065pt","n":1.50}},"requestState":"one \u0061 n"}"#;
        client.request("tools/call", params).send();
        let calls = up.calls();
        assert!(
            calls[1].text.contains(
                r#""inputResponses":{"b":{"action":"acc\u0065pt","n":1.50}},"requestState":"one \u0061 n""#
            ),
            "{}",
            calls[1].text
        );
        assert_ne!(calls[0].id(), calls[1].id());
        for call in &calls {
            assert!(
                call.text.contains(
                    r#""io.modelcontextprotocol/clientCapabilities":{"roots":{},"x-own":{"a":1.0}}"#
                ),
                "never widened: {}",
                call.text
            );
        }
    }
}
