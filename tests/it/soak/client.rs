//! A client that does one thing after the other, well or badly, and books what comes of it.

mod asking;
mod leaving;

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::connection::{Answer, Connection};
use super::dice::Dice;
use super::world::{NEIGHBOUR, World};
use crate::support::client::{Client, Open, Request};
use crate::support::fault::Fault;
use crate::support::json::{self, quoted};
use crate::support::matrix::{Era, Transport};
use crate::support::patience;

/// What a client says that can answer questions.
const ABLE: &str = r#"{"elicitation":{"form":{},"url":{}}}"#;
/// How many connections each client holds that it will never use again.
const GHOSTS: usize = 4;

/// What a client does, each as often as its weight says.
const ACTS: [(usize, Act); 18] = [
    (30, Act::Echo),
    (10, Act::Neighbour),
    (12, Act::Fault),
    (8, Act::List),
    (10, Act::Read),
    (5, Act::Peek),
    (6, Act::Slow),
    (4, Act::Large),
    (6, Act::Ask),
    (2, Act::LeaveQuestion),
    (4, Act::Cancel),
    (4, Act::LeaveStream),
    (4, Act::LeaveCall),
    (3, Act::LeaveRequest),
    (5, Act::Listen),
    (4, Act::Subscribe),
    (3, Act::Renew),
    (2, Act::Nonsense),
];

#[derive(Clone, Copy, Debug)]
enum Act {
    Echo,
    /// A call to the server that nothing is done to.
    Neighbour,
    /// A call that breaks its server, or its answer.
    Fault,
    List,
    /// One of the other methods that go to a server.
    Read,
    /// A call that may be repeated.
    Peek,
    /// A call with progress.
    Slow,
    Large,
    Ask,
    LeaveQuestion,
    Cancel,
    /// Goes away in the middle of an answer.
    LeaveStream,
    /// Goes away before it begins.
    LeaveCall,
    /// Goes away in the middle of a request.
    LeaveRequest,
    Listen,
    Subscribe,
    /// Another session, where the era has them; the old one is ended, or just left.
    Renew,
    /// A request that is refused.
    Nonsense,
}

/// A connection that nobody will read any more: without a word, for as long as it is held.
enum Ghost {
    Answer(Box<Open>),
    Bytes(TcpStream),
}

/// One client.
pub struct Actor<'a> {
    world: &'a World,
    dice: Dice,
    client: Client,
    connection: Connection,
    ghosts: VecDeque<Ghost>,
    /// Tells the calls of one run from those of another.
    run: u64,
    name: usize,
    calls: u64,
}

impl<'a> Actor<'a> {
    /// The client number `name`.
    pub fn new(world: &'a World, seed: u64, name: usize) -> Self {
        let dice = Dice::new(seed, name as u64 + 1);
        let era = if name.is_multiple_of(2) { Era::Legacy } else { Era::Modern };
        let client = connect(world, era);
        let connection = Connection::new(world.gateway.mcp, patience() * 2);
        Self { world, dice, client, connection, ghosts: VecDeque::new(), run: seed % 1_000, name, calls: 0 }
    }

    /// Acts until `is_over`.
    pub fn live(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            self.act();
            std::thread::sleep(self.dice.time(1, 20));
        }
    }

    fn act(&mut self) {
        let act = self.dice.weighted(&ACTS);
        match act {
            Act::Echo => drop(self.call("echo", "echo", "")),
            Act::Peek => drop(self.call("peek", "peek", "")),
            Act::Slow => drop(self.call("with progress", "slow", "")),
            Act::Large => {
                let size = self.dice.below(900_000);
                drop(self.call("large", "large", &format!(r#","size":"{size}""#)));
            }
            Act::Neighbour => self.call_neighbour(),
            Act::Fault => self.call_faulty(),
            Act::List => self.list(),
            Act::Read => self.read(),
            Act::Ask => self.ask(),
            Act::LeaveQuestion => self.leave_question(),
            Act::Cancel => self.cancel(),
            Act::LeaveStream => self.leave_stream(),
            Act::LeaveCall => self.leave_call(),
            Act::LeaveRequest => self.leave_request(),
            Act::Listen => self.listen(),
            Act::Subscribe => self.subscribe(),
            Act::Renew => self.renew(),
            Act::Nonsense => self.be_refused(),
        }
    }

    fn server(&mut self) -> &'a str {
        self.dice.one_of(&self.world.servers).name
    }

    fn token(&mut self) -> String {
        self.calls += 1;
        format!("t{}-{}-{}", self.run, self.name, self.calls)
    }

    /// The text of a call of `tool` with more arguments, each with a comma in front.
    fn body(&self, server: &str, tool: &str, token: &str, more: &str) -> String {
        let params = format!(
            r#"{{"name":"{server}__{tool}","arguments":{{"token":"{token}"{more}}},"_meta":{{"progressToken":"p-{token}"}}}}"#
        );
        self.client.body("tools/call", &params)
    }

    /// Sends a request on the client's connection; a session that is gone is replaced.
    fn exchange(&mut self, what: &'static str, body: &str) -> Answer {
        let request = self.client.message(body);
        let mut answer = Answer::of(body, self.connection.exchange(&request));
        if matches!(answer, Answer::Status(404, _)) && self.client.era == Era::Legacy {
            self.world.ledger.ended("session", "gone, made anew");
            self.client = connect(self.world, Era::Legacy);
            answer = Answer::of(body, self.connection.exchange(&self.client.message(body)));
        }
        self.book(what, &answer);
        answer
    }

    fn book(&self, what: &'static str, answer: &Answer) {
        self.world.ledger.ended(what, answer.name());
        match answer {
            Answer::Lost(text) => self.world.ledger.breach("answer lost", format!("{what}: {text}")),
            Answer::Doubled(text) => self.world.ledger.breach("answer doubled", format!("{what}: {text}")),
            Answer::Right(_)
            | Answer::Failed(_)
            | Answer::Asked(_)
            | Answer::Error(_)
            | Answer::Status(..) => {}
        }
    }

    /// A call, whose right answer begins with its token, and which no server runs twice.
    fn call(&mut self, what: &'static str, tool: &str, more: &str) -> Answer {
        let server = self.server();
        let token = self.token();
        self.call_at(what, server, tool, (&token, more))
    }

    fn call_at(
        &mut self,
        what: &'static str,
        server: &str,
        tool: &str,
        (token, more): (&str, &str),
    ) -> Answer {
        self.world.ledger.begin(token);
        let body = self.body(server, tool, token, more);
        let answer = self.exchange(what, &body);
        let runs = self.world.ledger.end(token);
        if runs > 1 {
            self.world.ledger.breach("run twice", format!("{body}: {answer:?}"));
        }
        self.check(&answer, token);
        answer
    }

    fn check(&self, answer: &Answer, token: &str) {
        if let Answer::Right(message) = answer {
            let text = json::get(message, &["result", "content"]).unwrap_or_default();
            let wanted = format!("\"{token}");
            let is_own = text
                .match_indices(&wanted)
                .any(|(at, _)| text[at + wanted.len()..].starts_with(|next: char| !next.is_ascii_digit()));
            if !is_own {
                self.world.ledger.breach("wrong answer", format!("to {token}: {message}"));
            }
        }
    }

    fn call_neighbour(&mut self) {
        let token = self.token();
        let answer = self.call_at("neighbour", NEIGHBOUR, "echo", (&token, ""));
        if !matches!(answer, Answer::Right(_)) {
            self.world.ledger.breach("neighbour affected", format!("{answer:?}"));
        }
    }

    fn call_faulty(&mut self) {
        let all = Fault::all();
        let fault = *self.dice.one_of(&all);
        let server = self.dice.one_of(&self.world.servers);
        // A flood is megabytes, and faults of HTTP+SSE are mishaps of the whole stream.
        let is_flood = fault.name().ends_with("flood") && !self.dice.once_in(10);
        if server.transport == Transport::Sse || is_flood {
            return;
        }
        let token = self.token();
        let more = format!(r#","fault":"{}""#, fault.name());
        let answer = self.call_at("faulty", server.name, "echo", (&token, &more));
        self.world.ledger.fault(fault.name());
        if matches!(answer, Answer::Right(_)) && !fault.is_answered() {
            self.world.ledger.breach("wrong answer", format!("to {}: {answer:?}", fault.name()));
        }
    }

    fn list(&mut self) {
        let lists = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"];
        let method = self.dice.one_of(&lists);
        let body = self.client.body(method, "{}");
        let answer = self.exchange("list", &body);
        let is_whole = |message: &str| {
            let has = |name: &str| {
                message.contains(&format!("{name}__")) || message.contains(&format!("{name}://"))
            };
            self.world.servers.iter().all(|server| has(server.name))
        };
        if !matches!(&answer, Answer::Right(message) if is_whole(message)) {
            self.world.ledger.breach("list blinks", format!("{body}: {answer:?}"));
        }
    }

    fn read(&mut self) {
        let server = self.server();
        let (method, params) = match self.dice.below(3) {
            0 => ("resources/read", format!(r#"{{"uri":"{server}://more/{}"}}"#, self.calls)),
            1 => ("prompts/get", format!(r#"{{"name":"{server}__prompt"}}"#)),
            _ => (
                "completion/complete",
                format!(
                    r#"{{"ref":{{"type":"ref/prompt","name":"{server}__prompt"}},"argument":{{"name":"a","value":"x"}}}}"#
                ),
            ),
        };
        let body = self.client.body(method, &params);
        self.exchange(method, &body);
    }

    fn cancel(&mut self) {
        let (server, token) = (self.server(), self.token());
        let body = self.body(server, "slow", &token, "");
        let request = self.client.message(&body);
        let wait = self.dice.time(5, 80);
        let opened = std::thread::scope(|scope| {
            let answering = scope.spawn(|| request.clone().header("Connection", "close").try_open());
            std::thread::sleep(wait);
            if self.client.era == Era::Legacy {
                let id = json::get(&body, &["id"]).unwrap_or_default();
                let note = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                    "params": {"requestId": id.parse::<u64>().unwrap_or_default(), "reason": "of no use"}});
                drop(self.connection.exchange(&self.client.post(note.to_string())));
            }
            answering.join().expect("a client does not panic")
        });
        let Ok(mut open) = opened else { return self.world.ledger.ended("cancelled", "connection closed") };
        if self.client.era == Era::Modern {
            open.reset();
            return self.world.ledger.ended("cancelled", "went away");
        }
        let mut messages = Vec::new();
        if open.head.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            loop {
                match open.try_event() {
                    Ok(Some(event)) => messages.push(event.data),
                    Ok(None) => break,
                    Err(error) => return self.world.ledger.breach("cancelled call hangs", error.to_string()),
                }
            }
        } else if open.status == 200 {
            messages.push(open.whole().text());
        }
        match Answer::among(&body, &messages) {
            Answer::Lost(_) => self.world.ledger.ended("cancelled", "no answer"),
            answer => self.book("cancelled", &answer),
        }
    }

    fn listen(&mut self) {
        let request = match self.client.era {
            Era::Legacy => self.client.bodyless("GET").header("Accept", "text/event-stream"),
            Era::Modern => {
                let server = self.server();
                let filter =
                    json!({"toolsListChanged": true, "resourceSubscriptions": [format!("{server}://a")]});
                self.client.request("subscriptions/listen", &format!(r#"{{"notifications":{filter}}}"#))
            }
        };
        match request.try_open() {
            Ok(open) if open.status == 200 => {
                self.world.ledger.ended("listen", "opened");
                self.hear(&open);
                self.leave(Ghost::Answer(Box::new(open)));
            }
            Ok(open) => {
                let status = open.status;
                self.world.ledger.ended("listen", format!("status {status}"));
                if status == 404 {
                    self.client = connect(self.world, self.client.era);
                }
            }
            Err(error) => self.world.ledger.breach("answer lost", format!("listen: {error}")),
        }
    }

    /// Stays for a while; what comes is not read.
    fn hear(&mut self, _open: &Open) {
        std::thread::sleep(self.dice.time(50, 400));
    }

    fn subscribe(&mut self) {
        if self.client.era == Era::Modern {
            return self.listen();
        }
        let uri = quoted(&format!("{}://{}", self.server(), self.dice.one_of(&["a", "b"])));
        let params = format!(r#"{{"uri":{uri}}}"#);
        let body = self.client.body("resources/subscribe", &params);
        let answer = self.exchange("subscribe", &body);
        if matches!(answer, Answer::Right(_)) && self.dice.once_in(2) {
            let body = self.client.body("resources/unsubscribe", &params);
            self.exchange("unsubscribe", &body);
        }
    }

    fn renew(&mut self) {
        if self.client.era == Era::Legacy {
            if self.dice.once_in(2) {
                let ended = self.connection.exchange(&self.client.bodyless("DELETE"));
                let status = ended.map_or("lost".to_owned(), |response| response.status.to_string());
                self.world.ledger.ended("session", format!("ended, {status}"));
            } else {
                self.world.ledger.fault("client: leaves its session");
            }
            self.client = connect(self.world, Era::Legacy);
            self.world.ledger.ended("session", "opened");
        }
        self.connection = Connection::new(self.world.gateway.mcp, patience() * 2);
    }

    fn be_refused(&mut self) {
        let bodies: [&str; 4] = [
            "{",
            "[]",
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"no/such","params":{}}"#,
        ];
        let request: Request = self.client.post(*self.dice.one_of(&bodies));
        match self.connection.exchange(&request) {
            Ok(response) => self.world.ledger.ended("nonsense", format!("status {}", response.status)),
            Err(error) => self.world.ledger.breach("answer lost", format!("nonsense: {error}")),
        }
    }
}

fn connect(world: &World, era: Era) -> Client {
    let client = Client::bare(&world.gateway, era).able(ABLE);
    std::thread::sleep(Duration::from_millis(1));
    match era {
        Era::Legacy => client.connected("2025-11-25"),
        Era::Modern => client,
    }
}
