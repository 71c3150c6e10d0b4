//! A crowd on one upstream, on one shared connection and on own ones: twenty clients of both eras, fifty calls each,
//! every word with a nonce in it.
//!
//! Nothing may cross from one call to another, nothing may be lost, and what is counted is counted exactly. What
//! a round is like is drawn from a seed, which a failure prints; `WAYPOST_TEST_SEED` repeats it.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::support::client::{Client, LEGACY, Open};
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::{Era, Transport};
use crate::support::script::Script;
use crate::support::turn::Turn;
use crate::support::{at_once, patience};

const CLIENTS: usize = 20;
const ROUNDS: usize = 50;
const ABLE: &str = r#"{"elicitation":{"form":{}}}"#;

/// A seed that tells itself when the test fails.
struct Seed(u64);

impl Seed {
    fn new() -> Self {
        let wanted = std::env::var("WAYPOST_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
        Self(wanted.unwrap_or_else(|| u64::from(now.subsec_nanos()) ^ now.as_secs()))
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- repeat it with WAYPOST_TEST_SEED={}", self.0);
        }
    }
}

/// Numbers that look random (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What the server does in one call.
struct Round {
    nonce: String,
    delay: u64,
    steps: u64,
    logs: u64,
    asks: bool,
    padding: u64,
}

impl Round {
    fn draw(dice: &mut Dice, client: usize, round: usize) -> Self {
        Self {
            nonce: format!("client {client} round {round} {:x}", dice.below(1 << 32)),
            delay: dice.below(4),
            steps: dice.below(4),
            logs: dice.below(3),
            asks: dice.below(4) == 0,
            // Now and then an answer does not fit in one read.
            padding: if dice.below(16) == 0 { dice.below(100_000) } else { dice.below(200) },
        }
    }

    fn arguments(&self) -> Value {
        json!({
            "nonce": self.nonce, "delay": self.delay, "steps": self.steps, "logs": self.logs, "asks": self.asks,
            "padding": self.padding,
        })
    }
}

/// The answers that a legacy server waits for, by the ids of its questions.
#[derive(Default)]
struct Answers {
    heard: Mutex<HashMap<String, Value>>,
    more: Condvar,
}

impl Answers {
    fn hear(&self, turn: &Turn) -> bool {
        let message: Value = serde_json::from_str(&turn.text).unwrap_or_default();
        if let (None, Some(id)) = (message.get("method"), message["id"].as_str()) {
            self.heard.lock().unwrap().insert(id.to_owned(), message["result"].clone());
            self.more.notify_all();
        }
        false
    }

    fn wait(&self, id: &str) -> Value {
        let waiting = self.heard.lock().unwrap();
        let (mut heard, late) =
            self.more.wait_timeout_while(waiting, patience(), |heard| !heard.contains_key(id)).unwrap();
        assert!(!late.timed_out(), "no answer to {id}");
        heard.remove(id).unwrap()
    }
}

const FORM: &str = r#""requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}"#;

/// A server whose tool `work` does what its arguments say, and tells the nonce with everything that it says.
fn working(era: Era) -> Script {
    let answers = Arc::new(Answers::default());
    let hearing = Arc::clone(&answers);
    let mut script = Script::of(era).tool("work", move |turn| work(turn, &answers));
    script.capabilities = r#"{"tools":{},"logging":{}}"#.to_owned();
    script.on("logging/setLevel", |turn| turn.result("{}")).first(move |turn| hearing.hear(turn))
}

fn work(turn: &Turn, answers: &Answers) {
    let message: Value = serde_json::from_str(&turn.text).expect("JSON");
    let params = &message["params"];
    let given = &params["arguments"];
    let number = |name: &str| given[name].as_u64().expect("a number");
    let nonce = given["nonce"].as_str().expect("a nonce");
    let token = &params["_meta"]["progressToken"];
    let pause = || std::thread::sleep(Duration::from_millis(number("delay")));
    let step = |done: u64| {
        let told = json!({"progressToken": token, "progress": done, "message": nonce});
        turn.send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": told}).to_string());
    };
    let mut answer = params["inputResponses"]["q"]["content"]["name"].clone();
    if answer.is_null() {
        (1..=number("steps")).for_each(|done| {
            step(done);
            pause();
        });
        for _ in 0..number("logs") {
            let told = json!({"level": "info", "data": nonce});
            turn.send(
                &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": told}).to_string(),
            );
        }
        pause();
    }
    if given["asks"] == true && answer.is_null() {
        let question =
            format!(r#""method":"elicitation/create","params":{{"message":{},{FORM}}}"#, given["nonce"]);
        if turn.era == Era::Modern {
            let asked =
                format!(r#""inputRequests":{{"q":{{{question}}}}},"requestState":{}"#, given["nonce"]);
            return turn.result(&format!(r#"{{"resultType":"input_required",{asked}}}"#));
        }
        turn.send(&format!(r#"{{"jsonrpc":"2.0","id":"q {nonce}",{question}}}"#));
        answer = answers.wait(&format!("q {nonce}"))["content"]["name"].clone();
    }
    if given["asks"] == true {
        if turn.era == Era::Modern {
            assert_eq!(params["requestState"], given["nonce"], "the state of another call");
        }
        step(100);
    }
    let padding = "·".repeat(usize::try_from(number("padding")).expect("a size"));
    turn.text(&format!("{nonce} heard {answer} {padding}"));
}

/// What a client heard in one round.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    steps: u64,
    logs: u64,
    questions: u64,
}

/// One client: its calls, one after the other, and what it holds against every message that reaches it.
struct Caller<'a> {
    client: Client,
    can_hear_logs: &'a dyn Fn(u64, u64) -> bool,
}

impl Caller<'_> {
    fn play(&self, round: &Round) {
        let mut heard = Heard::default();
        let mut more = String::new();
        let mut attempt = 1;
        let result = loop {
            let token = format!("{} attempt {attempt}", round.nonce);
            let result = self.attempt(round, &token, &more, &mut heard);
            if result["resultType"] != "input_required" {
                break result;
            }
            heard.questions += 1;
            attempt += 1;
            more = self.retry_members(round, &result);
        };
        let answer = if round.asks { json!(round.nonce) } else { Value::Null };
        let padding = "·".repeat(usize::try_from(round.padding).expect("a size"));
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"));
        assert_eq!(text, format!("{} heard {answer} {padding}", round.nonce));
        let (steps, questions) = (round.steps + u64::from(round.asks), u64::from(round.asks));
        assert_eq!((heard.steps, heard.questions), (steps, questions), "{}", round.nonce);
        assert!((self.can_hear_logs)(heard.logs, round.logs), "{}: {heard:?}", round.nonce);
    }

    /// The answers to what was asked in a result.
    fn retry_members(&self, round: &Round, result: &Value) -> String {
        let asked = result["inputRequests"].as_object().expect("questions");
        let answers = asked.iter().map(|(key, question)| {
            assert_eq!(question["params"]["message"], round.nonce, "the question of another call");
            (key.clone(), json!({"action": "accept", "content": {"name": round.nonce}}))
        });
        let answers = Value::Object(answers.collect());
        format!(r#","inputResponses":{answers},"requestState":{}"#, result["requestState"])
    }

    fn attempt(&self, round: &Round, token: &str, more: &str, heard: &mut Heard) -> Value {
        let level = match self.client.era {
            Era::Legacy => "",
            Era::Modern => r#","io.modelcontextprotocol/logLevel":"info""#,
        };
        let (token, arguments) = (json!(token), round.arguments());
        let meta = format!(r#""_meta":{{"progressToken":{token}{level}}}"#);
        let params = format!(r#"{{"name":"up__work","arguments":{arguments},{meta}{more}}}"#);
        let mut open = self.client.request("tools/call", &params).open();
        assert_eq!(open.status, 200, "{:?}", open.head);
        let is_stream = open.head.header("content-type") == Some("text/event-stream");
        let end = if is_stream {
            self.follow(round, &token, &mut open, heard)
        } else {
            serde_json::from_slice(&open.whole().body).expect("JSON")
        };
        assert!(end["error"].is_null(), "{}: {end}", round.nonce);
        end["result"].clone()
    }

    /// Reads a stream to its end, which is the response.
    fn follow(&self, round: &Round, token: &Value, open: &mut Open, heard: &mut Heard) -> Value {
        loop {
            let message = open.message().unwrap_or_else(|| panic!("no response to {}", round.nonce));
            let params = &message["params"];
            match message["method"].as_str() {
                Some("notifications/progress") => {
                    assert_eq!(&params["progressToken"], token, "the progress of another call");
                    assert_eq!(params["message"], round.nonce, "the progress of another call");
                    heard.steps += 1;
                }
                Some("notifications/message") => {
                    assert_eq!(params["data"], round.nonce, "the log of another call");
                    heard.logs += 1;
                }
                Some("elicitation/create") => {
                    assert_eq!(params["message"], round.nonce, "the question of another call");
                    heard.questions += 1;
                    let answer = json!({"action": "accept", "content": {"name": round.nonce}});
                    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": answer});
                    assert_eq!(self.client.post(body.to_string()).send().status, 202);
                }
                Some(other) => panic!("{other} in {}", round.nonce),
                None => {
                    assert!(open.message().is_none(), "more after the response to {}", round.nonce);
                    return message;
                }
            }
        }
    }
}

/// A client with a token of its own; every second one is modern.
fn member(gateway: &Gateway, number: usize) -> Client {
    let era = if number.is_multiple_of(2) { Era::Legacy } else { Era::Modern };
    let client = Client::bare(gateway, era).bearer(&format!("token-{number}")).able(ABLE);
    if era == Era::Modern {
        return client;
    }
    let client = client.connected(LEGACY);
    let set = client.request("logging/setLevel", r#"{"level":"info"}"#).send();
    assert_eq!(set.json()["result"], json!({}), "{}", set.text());
    client
}

/// Who shares what towards the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// All calls one connection.
    All,
    /// The calls of one session.
    Session,
}

fn crowd(era: Era, transport: Transport, sharing: Sharing) {
    let seed = Seed::new();
    let up = working(era).over(transport);
    let named =
        |number: usize| (format!("c{number}"), json!({"tokens": [{"env": format!("TOKEN_{number}")}]}));
    let clients = Value::Object((0..CLIENTS).map(named).collect());
    let isolation = match sharing {
        Sharing::All => "shared",
        Sharing::Session => "per_session",
    };
    let keys = json!({"isolation": isolation, "max_connections": 2 * CLIENTS});
    let config = Config::new().upstream_with("up", &up, keys).clients(clients);
    let config = (0..CLIENTS)
        .fold(config, |config, number| config.env(&format!("TOKEN_{number}"), &format!("token-{number}")));
    let gateway = config.ready();
    let is_own = sharing == Sharing::Session;
    let can_ask = is_own || era == Era::Modern || transport == Transport::Http;
    // What all calls share does not say whose a log message is: Waypost keeps it from everybody rather than guess.
    let can_hear_logs = |heard: u64, told: u64| match (transport, era) {
        (Transport::Http, _) => heard == told,
        _ if is_own => heard == told,
        (Transport::Stdio | Transport::Sse, Era::Legacy) => heard == 0,
        (Transport::Stdio | Transport::Sse, Era::Modern) => heard <= told,
    };
    let start = Barrier::new(CLIENTS);
    let calls: usize = at_once(
        (0..CLIENTS)
            .map(|number| {
                let (gateway, seed, start) = (&gateway, &seed, &start);
                move || {
                    let mut dice = Dice(seed.0 ^ (number as u64) << 48);
                    let caller = Caller { client: member(gateway, number), can_hear_logs: &can_hear_logs };
                    start.wait();
                    let rounds = (0..ROUNDS).map(|round| Round::draw(&mut dice, number, round));
                    let rounds = rounds.map(|round| Round { asks: round.asks && can_ask, ..round });
                    let play = |round: Round| {
                        caller.play(&round);
                        // A modern server is called again with the answer.
                        1 + usize::from(round.asks && era == Era::Modern)
                    };
                    rounds.map(play).sum::<usize>()
                }
            })
            .collect(),
    )
    .into_iter()
    .sum();
    assert_eq!(up.calls().len(), calls, "every call reaches the server once");
    let metrics = gateway.metrics();
    assert!(metrics.sum("waypost_parked_calls", &[]) < 0.5, "no call is left behind");
    assert!(metrics.sum("waypost_calls_in_flight", &[]) < 0.5, "no call is left behind");
}

#[test]
fn nothing_crosses_on_a_legacy_server_over_http() {
    crowd(Era::Legacy, Transport::Http, Sharing::All);
}

#[test]
fn nothing_crosses_on_a_legacy_server_over_stdio() {
    crowd(Era::Legacy, Transport::Stdio, Sharing::All);
}

#[test]
fn nothing_crosses_on_a_legacy_server_over_http_and_sse() {
    crowd(Era::Legacy, Transport::Sse, Sharing::All);
}

#[test]
fn nothing_crosses_on_a_modern_server_over_http() {
    crowd(Era::Modern, Transport::Http, Sharing::All);
}

#[test]
fn nothing_crosses_on_a_modern_server_over_stdio() {
    crowd(Era::Modern, Transport::Stdio, Sharing::All);
}

#[test]
fn nothing_crosses_on_own_sessions_over_http() {
    crowd(Era::Legacy, Transport::Http, Sharing::Session);
}

#[test]
fn nothing_crosses_on_own_sessions_over_http_and_sse() {
    crowd(Era::Legacy, Transport::Sse, Sharing::Session);
}
