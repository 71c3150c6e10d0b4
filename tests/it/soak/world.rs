//! The gateway of a soak, and the servers behind it: one of each era and transport, which break, and one that
//! never does.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::connection::token_of;
use super::ledger::Ledger;
use crate::support::client::Request;
use crate::support::fault::Fault;
use crate::support::gateway::{Config, Gateway};
use crate::support::json::quoted;
use crate::support::matrix::{Era, Transport};
use crate::support::script::Script;
use crate::support::turn::Turn;
use crate::support::upstream::Upstream;

/// How long a server waits for an answer to its question.
const ANSWER: Duration = Duration::from_secs(10);
/// The name of the server that nothing is done to.
pub const NEIGHBOUR: &str = "neighbour";

/// A server that things are done to.
pub struct Server {
    pub name: &'static str,
    pub transport: Transport,
    pub up: Upstream,
}

/// All processes but the clients.
pub struct World {
    pub ledger: Arc<Ledger>,
    pub gateway: Gateway,
    pub servers: Vec<Server>,
    /// What the gateway was started with.
    config: Config,
    /// What the servers have in common.
    keys: Value,
    /// Those of the gateways that clients launch.
    pub launched: [Upstream; 2],
    _neighbour: Upstream,
}

impl World {
    /// Starts everything.
    pub fn start() -> Self {
        let ledger = Arc::new(Ledger::default());
        let kinds = [
            ("legacy_pipe", Era::Legacy, Transport::Stdio),
            ("modern_pipe", Era::Modern, Transport::Stdio),
            ("legacy_http", Era::Legacy, Transport::Http),
            ("modern_http", Era::Modern, Transport::Http),
            ("legacy_sse", Era::Legacy, Transport::Sse),
        ];
        let servers = kinds.map(|(name, era, transport)| {
            let up = server(era, name, &ledger).over(transport);
            Server { name, transport, up }
        });
        let neighbour = server(Era::Legacy, NEIGHBOUR, &ledger).stdio();
        let keys = json!({
            "timeout": "1500ms", "connect_timeout": "2s", "list_timeout": "2s", "stream_idle": "300ms",
            "refresh": "1s", "grace": "10m",
            "health": {"interval": "500ms", "timeout": "500ms"}, "breaker": {"failures": 10, "open": "300ms"},
        });
        let mut config = Config::new()
            .set("log", json!({"level": "info"}))
            .set("reload_interval", json!("0s"))
            .set("limits", json!({"message": "1MiB", "answer_timeout": "2s", "body_timeout": "1s", "header_timeout": "5s"}))
            .set("sessions", json!({"idle_timeout": "2s", "keep_alive": "500ms", "resume_window": "2s"}))
            .upstream(NEIGHBOUR, &neighbour);
        for server in &servers {
            config = config.upstream_with(server.name, &server.up, keys.clone());
        }
        let launched =
            [server(Era::Legacy, "legacy", &ledger).stdio(), server(Era::Modern, "modern", &ledger).http()];
        let gateway = config.ready();
        Self { launched, ledger, gateway, servers: servers.into(), config, keys, _neighbour: neighbour }
    }

    /// The configuration with something else about one server, that makes another one of it.
    pub fn with_another(&self, server: &Server, number: u64) -> String {
        let grace = format!("{}s", 600 + number % 1_000);
        let mut keys = self.keys.clone();
        keys["grace"] = json!(grace);
        self.config.clone().upstream_with(server.name, &server.up, keys).text()
    }

    /// The configuration with something else about the gateway, that makes another one of no server.
    pub fn with_other_words(&self, number: u64) -> String {
        self.config.clone().set("instructions", json!(format!("The {number}th."))).text()
    }

    /// Has the gateway take up a configuration; the status that it answers with.
    pub fn reload(&self, text: &str) -> u16 {
        std::fs::write(self.gateway.folder().join("gateway.yaml"), text).expect("a file");
        Request::post(self.gateway.admin, "/api/reload", "").send().status
    }
}

/// A server with everything, which does what a request asks it to do.
fn server(era: Era, own: &str, ledger: &Arc<Ledger>) -> Script {
    let books = Arc::clone(ledger);
    let counted = move |turn: &Turn| {
        let token = token_of(turn);
        books.run(&token);
        token
    };
    let (echo, slow, large) = (counted.clone(), counted.clone(), counted);
    let read_only = r#"{"name":"peek","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#;
    let script = Script::of(era)
        .telling_of_resources([])
        .tool("echo", move |turn| turn.text(&echo(turn)))
        .listed(read_only)
        .handled("peek", |turn| turn.text(&token_of(turn)))
        .tool("slow", move |turn| {
            for step in 1..=3 {
                turn.progress(step);
                std::thread::sleep(Duration::from_millis(30));
            }
            turn.text(&slow(turn));
        })
        .tool("large", move |turn| {
            let size = turn.argument("size").and_then(|size| size.parse().ok()).unwrap_or_default();
            turn.text(&format!("{}{}", large(turn), "x".repeat(size)));
        })
        .prompt("prompt")
        .resources(own, [&*format!("{own}://a"), &format!("{own}://b")])
        .template(&format!("{own}://{{+more}}"))
        .declaring("completions")
        .on("completion/complete", |turn| turn.ok(r#"{"completion":{"values":["right"]}}"#));
    let heard = Arc::new(Heard::default());
    let script = match era {
        Era::Legacy => asking_itself(script, &heard),
        Era::Modern => script.tool("ask", |turn| {
            let message: Value = serde_json::from_str(&turn.text).unwrap_or_default();
            match message["params"].get("inputResponses") {
                Some(_) => turn.text(&token_of(turn)),
                None => turn.result(&format!(
                    r#"{{"resultType":"input_required","inputRequests":{{"q":{}}},"requestState":"s"}}"#,
                    question(&token_of(turn))
                )),
            }
        }),
    };
    script.forgetful().first(move |turn| {
        if let (Era::Legacy, true) = (era, turn.method().is_empty()) {
            heard.note(turn);
        }
        let fault = turn.argument("fault").and_then(|name| Fault::named_in(&name));
        if let Some(fault) = fault {
            fault.inject(
                turn,
                &format!(r#""content":[{{"type":"text","text":{}}}]"#, quoted(&token_of(turn))),
            );
        }
        fault.is_some()
    })
}

fn question(token: &str) -> String {
    let token = quoted(token);
    format!(
        r#"{{"method":"elicitation/create","params":{{"message":{token},"requestedSchema":{{"type":"object","properties":{{"name":{{"type":"string"}}}}}}}}}}"#
    )
}

/// Answers of clients to the questions of a legacy server.
#[derive(Default)]
struct Heard {
    ids: Mutex<Vec<String>>,
    came: Condvar,
}

impl Heard {
    fn note(&self, turn: &Turn) {
        if let Some(id) = turn.id() {
            let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
            let surplus = ids.len().saturating_sub(1_000);
            ids.drain(..surplus);
            ids.push(id.to_owned());
            self.came.notify_all();
        }
    }

    /// Whether the answer comes in time.
    fn wait(&self, id: &str) -> bool {
        let id = quoted(id);
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.came.wait_timeout_while(ids, ANSWER, |ids| !ids.contains(&id));
        let (mut ids, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let found = ids.iter().position(|known| *known == id);
        found.map(|at| ids.remove(at)).is_some()
    }
}

/// Adds the tool `ask` of a server that sends its questions by itself.
fn asking_itself(script: Script, heard: &Arc<Heard>) -> Script {
    let heard = Arc::clone(heard);
    script.tool("ask", move |turn| {
        let token = token_of(turn);
        let id = format!("q-{token}");
        let asked = question(&token);
        turn.send(&format!(r#"{{"jsonrpc":"2.0","id":{},{}"#, quoted(&id), asked.trim_start_matches('{')));
        if heard.wait(&id) {
            turn.text(&token);
        } else {
            turn.error(-32000, "nobody answered");
        }
    })
}
