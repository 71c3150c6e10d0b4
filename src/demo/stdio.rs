//! A demo server on a pair of byte streams: one message a line.
//!
//! Must not know: what the messages say, beyond what their transport must.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};

use super::protocol::{Failure, Server, Step};
use crate::mcp::{Code, Era, Id, Message, Notification, Request};
use crate::wire::json::{JsonError, parse};

/// Bytes of one line.
const MAX_LINE: usize = 64 << 20;

/// Messages that wait for a slow reader before the calls have to.
const QUEUE: usize = 64;

/// Slow calls at the same time.
const MAX_CALLS: usize = 256;

/// What calls under way get once the input has ended.
const DRAIN: Duration = Duration::from_secs(2);

/// Serves until the input ends.
pub(super) async fn run<R, W>(server: &'static Server, stdin: R, stdout: W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (sink, messages) = mpsc::channel(QUEUE);
    let connection = Connection {
        server,
        sink,
        handshake: Handshake::Due,
        calls: JoinSet::new(),
        in_flight: HashMap::new(),
    };
    tokio::try_join!(connection.read(BufReader::new(stdin)), write(stdout, messages)).map(|((), ())| ())
}

/// Writes messages until there can be none any more.
async fn write<W: AsyncWrite + Unpin>(mut stdout: W, mut messages: mpsc::Receiver<Bytes>) -> io::Result<()> {
    while let Some(message) = messages.recv().await {
        stdout.write_all(&message).await?;
        stdout.write_all(b"\n").await?;
        if messages.is_empty() {
            stdout.flush().await?;
        }
    }
    stdout.flush().await
}

/// Whether a client of the legacy era has opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    Due,
    Done,
}

struct Connection {
    server: &'static Server,
    sink: mpsc::Sender<Bytes>,
    handshake: Handshake,
    /// Slow calls; each returns its id.
    calls: JoinSet<Id>,
    in_flight: HashMap<Id, AbortHandle>,
}

impl Connection {
    async fn read<R: AsyncBufRead + Unpin>(mut self, mut reader: R) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            let ended = tokio::select! {
                is_more = read_line(&mut reader, &mut line) => match is_more? {
                    true => None,
                    false => break,
                },
                Some(ended) = self.calls.join_next() => Some(ended),
            };
            match ended {
                Some(ended) => self.forget(ended),
                None => self.take(Bytes::from(std::mem::take(&mut line))).await,
            }
        }
        let rest = async { while self.calls.join_next().await.is_some() {} };
        drop(tokio::time::timeout(DRAIN, rest).await);
        Ok(())
    }

    /// A cancelled call was forgotten when it was cancelled.
    fn forget(&mut self, ended: Result<Id, JoinError>) {
        if let Ok(id) = ended {
            self.in_flight.remove(&id);
        }
    }

    /// Takes one line.
    async fn take(&mut self, line: Bytes) {
        if line.trim_ascii().is_empty() {
            return;
        }
        match parse(line) {
            Ok(Message::Request(request)) => self.answer(&request).await,
            Ok(Message::Notification(notification)) => self.note(&notification),
            // Nothing was asked, so nothing is answered.
            Ok(Message::Response(_)) => {}
            Err(error) => {
                let code = match error {
                    JsonError::Syntax(_) => Code::ParseError,
                    JsonError::Shape(_) | JsonError::Batch => Code::InvalidRequest,
                };
                self.send(Failure::new(code, error.to_string()).message(None)).await;
            }
        }
    }

    async fn answer(&mut self, request: &Request) {
        match self.begin(request) {
            Ok(Step::Answer { message, status: _ }) => self.send(message).await,
            Ok(Step::Slow(call)) => {
                let (id, sink) = (call.id().clone(), self.sink.clone());
                let handle = self.calls.spawn(async move {
                    let id = call.id().clone();
                    let message = call.finish(sink.clone()).await;
                    // The writer is gone: so is the client.
                    drop(sink.send(message).await);
                    id
                });
                self.in_flight.insert(id, handle);
            }
            Err(failure) => self.send(failure.message(Some(&request.id))).await,
        }
    }

    fn begin(&mut self, request: &Request) -> Result<Step, Failure> {
        let era = self.server.era(request)?;
        let is_call = matches!(&*request.method, "tools/list" | "tools/call");
        if era == Era::Legacy && self.handshake == Handshake::Due && is_call {
            return Err(Failure::new(Code::InvalidRequest, "The connection is not open: send `initialize`"));
        }
        if self.in_flight.contains_key(&request.id) {
            return Err(Failure::new(Code::InvalidRequest, "This id belongs to a call that is under way"));
        }
        if self.calls.len() >= MAX_CALLS {
            return Err(Failure::new(Code::Internal, "Too many calls are under way"));
        }
        if &*request.method == "initialize" {
            self.handshake = Handshake::Done;
        }
        Ok(self.server.begin(request, era))
    }

    fn note(&mut self, notification: &Notification) {
        if &*notification.method != "notifications/cancelled" {
            return;
        }
        let id = notification.param("requestId").and_then(|raw| Id::from_text(raw.bytes().clone()));
        if let Some(call) = id.and_then(|id| self.in_flight.remove(&id)) {
            call.abort();
        }
    }

    /// Fails only if the writer is gone, which ends the whole.
    async fn send(&self, message: Bytes) {
        drop(self.sink.send(message).await);
    }
}

/// Adds to `line` up to the next line break, which is left out. False at the end of the input.
///
/// Cancel safe: what was read stays in `line`, and the next call goes on.
async fn read_line<R: AsyncBufRead + Unpin>(reader: &mut R, line: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = memchr::memchr(b'\n', chunk);
        let taken = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
        if line.len() + taken.len() > MAX_LINE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 64 MiB"));
        }
        line.extend_from_slice(taken);
        let consumed = taken.len() + usize::from(end.is_some());
        reader.consume(consumed);
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::io::{DuplexStream, Lines};

    use super::*;
    use crate::demo::{Demo, run_stdio};

    /// A client at the other end of the pipes.
    struct Client {
        to: DuplexStream,
        from: Lines<BufReader<DuplexStream>>,
        served: tokio::task::JoinHandle<io::Result<()>>,
    }

    #[allow(clippy::disallowed_methods, reason = "the test waits for the task")]
    fn client(demo: Demo) -> Client {
        let (to, stdin) = tokio::io::duplex(1 << 16);
        let (stdout, from) = tokio::io::duplex(1 << 16);
        let served = tokio::spawn(run_stdio(demo, stdin, stdout));
        Client { to, from: BufReader::new(from).lines(), served }
    }

    impl Client {
        async fn send(&mut self, text: &str) {
            self.to.write_all(format!("{text}\n").as_bytes()).await.unwrap();
        }

        async fn receive(&mut self) -> Value {
            serde_json::from_str(&self.from.next_line().await.unwrap().unwrap()).unwrap()
        }

        async fn ask(&mut self, method: &str, params: Value) -> Value {
            self.send(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string())
                .await;
            self.receive().await
        }

        async fn open(&mut self) -> Value {
            let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
            let answer = self.ask("initialize", hello).await;
            self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
            answer
        }

        async fn close(mut self) {
            drop(self.to);
            assert_eq!(self.from.next_line().await.unwrap(), None, "nothing comes after the end");
            self.served.await.unwrap().unwrap();
        }
    }

    fn modern(mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        params
    }

    #[tokio::test]
    async fn a_legacy_server_opens_lists_calls_and_ends() {
        let mut client = client(Demo::Legacy);
        let early = client.ask("tools/list", json!({})).await;
        assert_eq!(early["error"]["code"], -32600);
        let opened = client.open().await;
        assert_eq!(opened["result"]["protocolVersion"], "2025-11-25");
        assert_eq!(opened["result"]["serverInfo"]["name"], "waypost-demo-words");
        assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
        let list = client.ask("tools/list", json!({})).await;
        let names: Vec<_> =
            list["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
        assert_eq!(names, ["count_words", "slow_count", "echo"]);
        assert!(list["result"].get("resultType").is_none());
        let params = json!({"name": "count_words", "arguments": {"text": "one two\nthree"}});
        let counted = client.ask("tools/call", params).await;
        let expected = json!({"words": 3, "characters": 13, "lines": 2});
        assert_eq!(counted["result"]["structuredContent"], expected);
        let text = counted["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected);
        client.close().await;
    }

    #[tokio::test]
    async fn wrong_requests_are_refused_with_the_codes_of_the_spec() {
        let mut client = client(Demo::Legacy);
        client.open().await;
        for (method, params, code) in [
            ("server/discover", modern(json!({})), -32601),
            ("resources/list", json!({}), -32601),
            ("tools/call", json!({"name": "nothing"}), -32602),
            ("tools/call", json!({"arguments": {}}), -32602),
            ("tools/call", json!({"name": "echo", "arguments": [1]}), -32602),
            ("tools/list", json!({"cursor": "x"}), -32602),
        ] {
            assert_eq!(client.ask(method, params.clone()).await["error"]["code"], code, "{method} {params}");
        }
        client.send("{nonsense").await;
        let answer = client.receive().await;
        assert_eq!(answer["error"]["code"], -32700);
        assert!(answer.get("id").is_none());
        let wrong = client.ask("tools/call", json!({"name": "count_words", "arguments": {"text": 7}})).await;
        assert_eq!(wrong["result"]["isError"], true, "a model can do something about it");
        client.close().await;
    }

    #[tokio::test]
    async fn a_modern_server_needs_no_opening_and_refuses_one() {
        let mut client = client(Demo::Modern);
        let hello = client.ask("initialize", json!({"protocolVersion": "2025-11-25"})).await;
        assert_eq!(hello["error"]["code"], -32022);
        assert_eq!(hello["error"]["data"], json!({"supported": ["2026-07-28"], "requested": "2025-11-25"}));
        assert_eq!(client.ask("tools/list", json!({})).await["error"]["code"], -32602);
        let other = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2030-01-01"}});
        assert_eq!(client.ask("tools/list", other).await["error"]["code"], -32022);
        let bare = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
        assert_eq!(client.ask("tools/list", bare).await["error"]["code"], -32602);
        let found = client.ask("server/discover", modern(json!({}))).await;
        assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
        assert_eq!(found["result"]["resultType"], "complete");
        let list = client.ask("tools/list", modern(json!({}))).await;
        assert_eq!(list["result"]["cacheScope"], "public");
        assert!(list["result"]["ttlMs"].as_u64().is_some());
        let params = modern(json!({"name": "roll_dice", "arguments": {"count": 3, "seed": 1}}));
        let rolled = client.ask("tools/call", params).await;
        assert_eq!(rolled["result"]["structuredContent"]["rolls"].as_array().unwrap().len(), 3);
        let info = &rolled["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(info["name"], "waypost-demo-dice");
        assert_eq!(client.ask("ping", modern(json!({}))).await["error"]["code"], -32601);
        client.close().await;
    }

    #[tokio::test(start_paused = true)]
    async fn progress_comes_in_order_before_the_answer_and_others_pass_meanwhile() {
        let mut client = client(Demo::Legacy);
        client.open().await;
        let call = r#"{"jsonrpc":"2.0","id":"slow","method":"tools/call","params":{"name":"slow_count","arguments":{"to":3},"_meta":{"progressToken":"p"}}}"#;
        client.send(call).await;
        assert_eq!(client.ask("ping", json!({})).await["id"], 1, "a slow call blocks nobody");
        for step in 1..=3 {
            let note = client.receive().await;
            assert_eq!(note["method"], "notifications/progress");
            assert_eq!(note["params"]["progressToken"], "p");
            assert_eq!(note["params"]["progress"], step);
            assert_eq!(note["params"]["total"], 3);
        }
        let answer = client.receive().await;
        assert_eq!(answer["id"], "slow");
        assert_eq!(answer["result"]["content"][0]["text"], "Counted to 3.");
        client.close().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_call_is_never_answered() {
        let mut client = client(Demo::Legacy);
        client.open().await;
        client.send(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow_count"}}"#).await;
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#).await;
        assert_eq!(client.ask("ping", json!({})).await["id"], 1);
        client.close().await;
    }

    #[tokio::test]
    async fn an_echo_keeps_its_escapes_and_large_ones_pass() {
        let mut client = client(Demo::Legacy);
        client.open().await;
        let odd = r#""\u0041\ud83d\/\uD83D\uDE00 \ud800""#;
        let call = |text: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"echo","arguments":{{"text":{text}}}}}}}"#
            )
        };
        client.send(&call(odd)).await;
        let line = client.from.next_line().await.unwrap().unwrap();
        assert!(line.contains(odd), "{line}");
        let large = format!("\"{}\"", "x".repeat(1 << 20));
        let request = call(&large);
        let Client { to, from, .. } = &mut client;
        let ((), line) =
            tokio::join!(async { to.write_all(format!("{request}\n").as_bytes()).await.unwrap() }, async {
                from.next_line().await.unwrap().unwrap()
            },);
        assert!(line.contains(&large));
        client.close().await;
    }

    #[test]
    fn every_tool_is_described_as_the_spec_wants() {
        for demo in Demo::ALL {
            for tool in demo.server().tools {
                let entry: Value = serde_json::from_str(tool.definition).unwrap();
                assert_eq!(entry["name"], tool.name);
                assert_eq!(entry["inputSchema"]["type"], "object", "{}", tool.name);
                assert!(entry["description"].as_str().unwrap().ends_with('.'), "{}", tool.name);
                assert_eq!(entry["annotations"]["readOnlyHint"], true, "{}", tool.name);
                assert!(!tool.definition.contains('\n'), "{}: one line on stdio", tool.name);
            }
        }
    }
}
