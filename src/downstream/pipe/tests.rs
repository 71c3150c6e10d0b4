//! Conversations on a pipe, without a process.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::task::JoinHandle;

use super::*;
use crate::config::Config;
use crate::downstream::for_test::Bench;

/// The client of a pipe.
struct Talk {
    bench: Bench,
    output: DuplexStream,
    input: BufReader<DuplexStream>,
    served: JoinHandle<io::Result<()>>,
    stop: CancellationToken,
}

impl Talk {
    fn on(bench: Bench) -> Self {
        let (output, theirs) = tokio::io::duplex(64 * 1024);
        let (input, replies) = tokio::io::duplex(64 * 1024);
        let pipe = (theirs, replies);
        let principal = Principal::new(0, "alice");
        let stop = CancellationToken::new();
        let served = TaskTracker::new().spawn(converse(
            Arc::clone(&bench.gateway),
            principal,
            pipe,
            Duration::ZERO,
            stop.clone(),
        ));
        Self { bench, output, input: BufReader::new(input), served, stop }
    }

    async fn new(change: impl FnOnce(&mut Config)) -> Self {
        Self::on(Bench::living_with(change).await)
    }

    async fn write(&mut self, text: &str) {
        self.output.write_all(text.as_bytes()).await.unwrap();
        self.output.write_all(b"\n").await.unwrap();
    }

    async fn ask(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params});
        self.write(&message.to_string()).await;
    }

    async fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await;
    }

    async fn shake_hands(&mut self, version: &str) {
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        self.ask("hello", "initialize", params).await;
        assert_eq!(self.next().await["result"]["protocolVersion"], version);
        self.notify("notifications/initialized", json!({})).await;
    }

    async fn next(&mut self) -> Value {
        let mut line = String::new();
        self.input.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line:?}"))
    }

    /// Ends the input and reads the rest.
    async fn end(mut self) -> Vec<Value> {
        self.output.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let mut lines = self.input.lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        self.served.await.unwrap().unwrap();
        assert!(self.stop.is_cancelled(), "whoever waits for the pipe hears of its end");
        rest
    }
}

fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": "tok",
    });
    params
}

#[tokio::test]
async fn both_eras_are_served_on_one_pipe() {
    let mut talk = Talk::new(|_| {}).await;
    talk.ask(1, "server/discover", modern(json!({}))).await;
    assert_eq!(talk.next().await["result"]["supportedVersions"][0], "2026-07-28");
    talk.shake_hands("2025-11-25").await;
    let call = json!({"name": "up__talk", "_meta": {"progressToken": 5}});
    talk.ask(2, "tools/call", call).await;
    let heard: Vec<_> = [talk.next().await, talk.next().await, talk.next().await, talk.next().await].into();
    assert_eq!(heard[0]["params"]["progressToken"], 5);
    assert_eq!(
        (&heard[1]["params"]["level"], &heard[2]["params"]["level"]),
        (&json!("debug"), &json!("error"))
    );
    assert_eq!((&heard[3]["id"], &heard[3]["result"].get("resultType")), (&json!(2), &None));
    talk.ask("m", "tools/call", modern(json!({"name": "up__talk"}))).await;
    assert_eq!(talk.next().await["params"]["progressToken"], "tok");
    let end = talk.next().await;
    assert_eq!(
        (&end["id"], &end["result"]["resultType"]),
        (&json!("m"), &json!("complete")),
        "no log was asked for"
    );
    talk.ask(3, "logging/setLevel", json!({"level": "error"})).await;
    assert_eq!(talk.next().await["id"], 3);
    talk.ask(4, "tools/call", json!({"name": "up__talk"})).await;
    assert_eq!(talk.next().await["method"], "notifications/progress");
    assert_eq!(
        talk.next().await["params"]["level"],
        "error",
        "what is below the level of the session is not"
    );
    assert_eq!(talk.next().await["id"], 4);
    assert!(talk.bench.upstream.calls.lock().unwrap()[0].has_session);
    assert!(talk.end().await.is_empty());
}

#[tokio::test]
async fn a_message_that_is_none_gets_an_error_and_the_pipe_goes_on() {
    let mut talk = Talk::new(|config| config.limits.body = 2_000).await;
    let code = |message: Value| message["error"]["code"].as_i64().unwrap();
    talk.write("{nonsense").await;
    assert_eq!(code(talk.next().await), -32700);
    talk.write("7").await;
    assert_eq!(code(talk.next().await), -32600);
    talk.write("").await;
    talk.write(" \r").await;
    let long =
        format!(r#"{{"jsonrpc":"2.0","id":77,"method":"ping","params":{{"x":"{}"}}}}"#, "x".repeat(60_000));
    talk.write(&long).await;
    let refused = talk.next().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(77), &json!(413)), "{refused}");
    talk.write("[]").await;
    assert_eq!(code(talk.next().await), -32600);
    talk.ask(8, "tools/list", modern(json!({"_meta": 1}))).await;
    assert_eq!(talk.next().await["id"], 8);
    talk.ask(9, "tools/list", json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}}))
        .await;
    assert_eq!(code(talk.next().await), -32602, "as over HTTP, what is missing comes first");
    // The last line needs no end.
    talk.output.write_all(br#"{"jsonrpc":"2.0","id":10,"method":"ping"}"#).await.unwrap();
    assert_eq!(talk.end().await[0]["id"], 10);
}

#[tokio::test(start_paused = true)]
async fn of_a_call_that_its_client_withdrew_nothing_is_heard() {
    let mut talk = Talk::new(|_| {}).await;
    talk.ask(1, "tools/call", modern(json!({"name": "up__slow"}))).await;
    talk.shake_hands("2025-06-18").await;
    talk.ask(2, "tools/call", json!({"name": "up__slow"})).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    talk.notify("notifications/cancelled", json!({"requestId": 1, "reason": "one"})).await;
    talk.notify("notifications/cancelled", json!({"requestId": 2, "reason": "two"})).await;
    talk.ask(3, "ping", json!({})).await;
    assert_eq!(talk.next().await["id"], 3);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let dropped = talk.bench.upstream.dropped.lock().unwrap().clone();
    assert_eq!(dropped, [Some("one".to_owned()), Some("two".to_owned())]);
    assert!(talk.end().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_to_sessions_and_to_subscriptions() {
    let mut talk = Talk::new(|_| {}).await;
    talk.shake_hands("2025-11-25").await;
    let filter = |kind: &str| modern(json!({"notifications": {kind: true}}));
    talk.ask("s", "subscriptions/listen", filter("toolsListChanged")).await;
    let tag = |message: &Value| message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
    let acknowledged = talk.next().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(tag(&acknowledged), "s");
    talk.bench.offer(&["echo"]);
    let mut told = [talk.next().await, talk.next().await];
    told.sort_by_key(|message| tag(message).is_null());
    assert!(told.iter().all(|message| message["method"] == "notifications/tools/list_changed"), "{told:?}");
    assert_eq!((tag(&told[0]), tag(&told[1])), (json!("s"), Value::Null));
    talk.notify("notifications/cancelled", json!({"requestId": "s"})).await;
    talk.ask(1, "ping", json!({})).await;
    assert_eq!(talk.next().await["id"], 1);
    talk.bench.offer(&["echo", "talk"]);
    assert_eq!(tag(&talk.next().await), Value::Null, "the session's alone");
    talk.ask(2, "subscriptions/listen", filter("toolsListChanged")).await;
    assert_eq!(tag(&talk.next().await), 2);
    let rest = talk.end().await;
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert_eq!((&rest[0]["id"], &rest[0]["result"]["resultType"]), (&json!(2), &json!("complete")));
}

#[tokio::test]
async fn batches_are_of_one_revision_and_a_new_handshake_ends_the_session_before() {
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"up__echo"}}]"#;
    let mut talk = Talk::new(|_| {}).await;
    talk.write(batch).await;
    assert_eq!(talk.next().await["error"]["code"], -32600);
    talk.shake_hands("2025-03-26").await;
    talk.write(batch).await;
    let answers = talk.next().await;
    assert_eq!((&answers[0]["id"], &answers[1]["id"]), (&json!(1), &json!(2)), "{answers}");
    talk.shake_hands("2025-06-18").await;
    talk.write(batch).await;
    assert_eq!(talk.next().await["error"]["code"], -32600);
    let sessions = talk.bench.gateway.metrics().render();
    assert!(sessions.lines().any(|line| line == "waypost_sessions 1"), "{sessions}");
    talk.end().await;
}

#[tokio::test(start_paused = true)]
async fn calls_under_way_are_bounded_and_answered_after_the_end_of_the_input() {
    let mut talk = Talk::new(|config| config.limits.pipe_calls = 2).await;
    for id in 1..=3 {
        talk.ask(id, "tools/call", json!({"name": "up__late"})).await;
    }
    let refused = talk.next().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(3), &json!(429)), "{refused}");
    talk.ask(4, "ping", json!({})).await;
    assert_eq!(talk.next().await["id"], 4);
    let answers = talk.end().await;
    assert_eq!(
        answers.iter().map(|answer| answer["id"].as_i64()).sum::<Option<i64>>(),
        Some(3),
        "{answers:?}"
    );
}

#[tokio::test]
async fn the_edge_limit_is_said_and_what_expects_no_answer_is_taken_all_the_same() {
    let rate = crate::config::Rate { count: 2, period: Duration::from_secs(3600) };
    let limits = crate::config::CallLimits { rate: Some(rate), ..Default::default() };
    let mut talk = Talk::new(|config| config.limits.edge = Some(limits)).await;
    talk.ask(1, "tools/call", modern(json!({"name": "up__slow"}))).await;
    talk.ask(2, "ping", json!({})).await;
    assert_eq!(talk.next().await["id"], 2);
    talk.ask(3, "ping", json!({})).await;
    let refused = talk.next().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(3), &json!(429)), "{refused}");
    talk.notify("notifications/cancelled", json!({"requestId": 1})).await;
    assert!(talk.end().await.is_empty(), "the call is withdrawn");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_read_no_further() {
    let mut talk = Talk::new(|_| {}).await;
    let ping = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "i".repeat(1_000));
    let mut sent = 0;
    while timeout(Duration::from_secs(5), talk.write(&ping)).await.is_ok() {
        sent += 1;
        assert!(sent < 1_000, "everything was taken, and kept");
    }
    let mut answered = 0;
    while answered < sent {
        assert!(talk.next().await["result"].is_object());
        answered += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn once_nobody_reads_calls_are_cancelled_and_all_ends() {
    let mut talk = Talk::new(|_| {}).await;
    talk.shake_hands("2025-11-25").await;
    talk.ask(1, "tools/call", json!({"name": "up__slow"})).await;
    talk.ask(2, "ping", json!({})).await;
    assert_eq!(talk.next().await["id"], 2);
    let Talk { bench, mut output, input, served, stop } = talk;
    drop(input);
    output.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}\n").await.unwrap();
    served.await.unwrap().unwrap();
    assert!(stop.is_cancelled());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*bench.upstream.dropped.lock().unwrap(), [Some("client disconnected".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_request_to_stop_lets_calls_end() {
    let mut talk = Talk::new(|_| {}).await;
    talk.ask(1, "tools/call", json!({"name": "up__late"})).await;
    talk.ask(2, "ping", json!({})).await;
    assert_eq!(talk.next().await["id"], 2);
    talk.stop.cancel();
    assert_eq!(talk.next().await["id"], 1);
    talk.served.await.unwrap().unwrap();
}
