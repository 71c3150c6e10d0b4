//! One message that a scripted server received, and the means to answer it, well or badly.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::http::Head;
use super::json;
use super::matrix::Era;
use super::upstream::Process;

/// What was received.
#[derive(Clone, Debug)]
pub struct Received {
    /// The message as it came; empty for a request without body.
    pub text: String,
    /// Its head, over HTTP.
    pub head: Option<Head>,
    /// Which child process or TCP connection it came on.
    pub peer: usize,
    /// When.
    pub at: Instant,
}

impl Received {
    pub fn method(&self) -> String {
        json::string(&self.text, &["method"]).unwrap_or_default()
    }

    /// The id as it is written.
    pub fn id(&self) -> Option<&str> {
        json::get(&self.text, &["id"])
    }

    /// `params.name`, decoded.
    pub fn name(&self) -> String {
        json::string(&self.text, &["params", "name"]).unwrap_or_default()
    }

    /// `params.uri`, decoded.
    pub fn uri(&self) -> String {
        json::string(&self.text, &["params", "uri"]).unwrap_or_default()
    }

    /// `params.arguments` as they are written.
    pub fn arguments(&self) -> &str {
        json::get(&self.text, &["params", "arguments"]).unwrap_or_default()
    }

    /// One string argument.
    pub fn argument(&self, name: &str) -> Option<String> {
        json::string(&self.text, &["params", "arguments", name])
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.as_ref()?.header(name)
    }
}

/// How a scripted HTTP server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One JSON document, unless something goes before the answer.
    Json,
    /// Server-sent events with this line end.
    Sse(&'static str),
}

/// A received message on its way to its answer.
pub struct Turn {
    pub received: Received,
    pub era: Era,
    pub out: Out,
}

impl std::ops::Deref for Turn {
    type Target = Received;

    fn deref(&self) -> &Received {
        &self.received
    }
}

/// Where answers go.
pub enum Out {
    Stdio(Arc<Process>),
    Http(Mutex<HttpOut>),
    /// The stream that all answers of a connection go to.
    Sse(Arc<Mutex<HttpOut>>),
}

/// The answering half of one HTTP exchange.
pub struct HttpOut {
    stream: TcpStream,
    form: Form,
    phase: Phase,
    /// Headers of the answer, whatever its form.
    headers: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Fresh,
    Streaming,
    Done,
}

impl HttpOut {
    pub fn new(stream: TcpStream, form: Form) -> Self {
        Self { stream, form, phase: Phase::Fresh, headers: Vec::new() }
    }

    fn write(&mut self, bytes: &[u8]) {
        // A gateway that hung up is a fact that the test looks at, not an error here.
        drop(self.stream.write_all(bytes));
    }

    pub fn respond(&mut self, status: &str, content_type: &str, body: &[u8]) {
        let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
        if !content_type.is_empty() {
            head.push_str(&format!("Content-Type: {content_type}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.phase = Phase::Done;
        self.write(&[head.as_bytes(), body].concat());
    }

    fn begin_stream(&mut self) {
        if self.phase == Phase::Fresh {
            self.phase = Phase::Streaming;
            let extra: String =
                self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n";
            self.write(format!("{head}{extra}\r\n").as_bytes());
        }
    }

    pub fn chunk(&mut self, bytes: &[u8]) {
        self.begin_stream();
        self.write(&[format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat());
    }

    pub fn event(&mut self, message: &str) {
        let end = if let Form::Sse(end) = self.form { end } else { "\n" };
        self.chunk(format!("event: message{end}data: {message}{end}{end}").as_bytes());
    }

    fn end_stream(&mut self) {
        if self.phase == Phase::Streaming {
            self.phase = Phase::Done;
            self.write(b"0\r\n\r\n");
        }
    }
}

impl Turn {
    fn http<T>(&self, act: impl FnOnce(&mut HttpOut) -> T) -> Option<T> {
        match &self.out {
            Out::Http(out) => Some(act(&mut out.lock().unwrap_or_else(PoisonError::into_inner))),
            Out::Stdio(_) | Out::Sse(_) => None,
        }
    }

    /// Writes to the stream that many calls share, where there is one.
    fn shared_stream(&self, act: impl FnOnce(&mut HttpOut)) {
        if let Out::Sse(out) = &self.out {
            act(&mut out.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Sends a message that is not the answer: over HTTP it makes the answer a stream.
    pub fn send(&self, message: &str) {
        match &self.out {
            Out::Stdio(process) => process.write_line(message),
            Out::Http(_) => drop(self.http(|out| out.event(message))),
            Out::Sse(_) => self.shared_stream(|out| out.event(message)),
        }
    }

    /// Sends the answer.
    pub fn answer(&self, message: &str) {
        match &self.out {
            Out::Stdio(process) => process.write_line(message),
            Out::Http(_) => drop(self.http(|out| {
                if out.phase == Phase::Fresh && out.form == Form::Json {
                    return out.respond("200 OK", "application/json", message.as_bytes());
                }
                out.event(message);
                out.end_stream();
            })),
            Out::Sse(_) => self.shared_stream(|out| out.event(message)),
        }
    }

    /// Answers with exactly this result.
    pub fn result(&self, result: &str) {
        let id = self.received.id().unwrap_or("null");
        self.answer(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    }

    /// Answers with this result, with `resultType` where the era has it.
    pub fn ok(&self, result: &str) {
        match (self.era, result.strip_prefix('{')) {
            (Era::Modern, Some(rest)) => {
                let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
                self.result(&format!(r#"{{"resultType":"complete"{comma}{rest}"#));
            }
            _ => self.result(result),
        }
    }

    /// Answers with one text.
    pub fn text(&self, text: &str) {
        self.ok(&format!(r#"{{"content":[{{"type":"text","text":{}}}]}}"#, json::quoted(text)));
    }

    /// Answers with exactly this error object, under a status of its own over HTTP.
    pub fn error_with(&self, status: &str, error: &str) {
        let id = self.received.id().unwrap_or("null");
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
        match &self.out {
            Out::Stdio(process) => process.write_line(&message),
            Out::Http(_) => drop(self.http(|out| match out.phase {
                Phase::Fresh => out.respond(status, "application/json", message.as_bytes()),
                Phase::Streaming | Phase::Done => {
                    out.event(&message);
                    out.end_stream();
                }
            })),
            Out::Sse(_) => self.shared_stream(|out| out.event(&message)),
        }
    }

    /// Answers with an error.
    pub fn error(&self, code: i64, message: &str) {
        self.error_with("200 OK", &format!(r#"{{"code":{code},"message":{}}}"#, json::quoted(message)));
    }

    /// Over HTTP: answers with this status and body. `content_type` may be empty.
    pub fn respond(&self, status: &str, content_type: &str, body: &str) {
        self.http(|out| out.respond(status, content_type, body.as_bytes())).expect("an HTTP upstream");
    }

    /// Over HTTP: adds a header to the answer.
    pub fn with_header(&self, name: &str, value: &str) {
        self.http(|out| out.headers.push((name.to_owned(), value.to_owned())));
    }

    /// Writes bytes as they are: to stdout, or as a chunk of the stream.
    pub fn raw(&self, bytes: &[u8]) {
        match &self.out {
            Out::Stdio(process) => process.write(bytes),
            Out::Http(_) => drop(self.http(|out| out.chunk(bytes))),
            Out::Sse(_) => self.shared_stream(|out| out.chunk(bytes)),
        }
    }

    /// Writes to the child's stderr; nothing over HTTP.
    pub fn stderr(&self, bytes: &[u8]) {
        if let Out::Stdio(process) = &self.out {
            process.complain(bytes);
        }
    }

    /// Over HTTP: closes the connection without an end, or the stream that is one. Over stdio: the child exits
    /// with code 3.
    pub fn break_off(&self) {
        match &self.out {
            Out::Stdio(process) => process.exit(3),
            Out::Http(_) => drop(self.http(|out| {
                out.phase = Phase::Done;
                drop(out.stream.shutdown(Shutdown::Both));
            })),
            Out::Sse(_) => self.shared_stream(|out| drop(out.stream.shutdown(Shutdown::Both))),
        }
    }

    /// The child that it came to; nothing over HTTP.
    pub fn process(&self) -> Option<&Process> {
        match &self.out {
            Out::Stdio(process) => Some(process),
            Out::Http(_) | Out::Sse(_) => None,
        }
    }

    /// Over HTTP: writes bytes as they are, without any framing.
    pub fn bytes(&self, bytes: &[u8]) {
        let _not_taken = self.bytes_taken(bytes);
    }

    /// The same, and whether the other side took them within a few seconds.
    pub fn bytes_taken(&self, bytes: &[u8]) -> bool {
        let write = |out: &mut HttpOut| {
            drop(out.stream.set_write_timeout(Some(super::scaled(3_000))));
            out.stream.write_all(bytes).is_ok()
        };
        self.http(write).unwrap_or_default()
    }

    /// Over HTTP: resets the connection.
    pub fn reset(&self) {
        self.http(|out| {
            out.phase = Phase::Done;
            let _gone = rustix::net::connect_unspec(&out.stream);
        });
    }

    /// Over HTTP: says nothing until the gateway has closed its side, or patience ends.
    pub fn wait_abandoned(&self) {
        let end = Instant::now() + super::patience();
        while Instant::now() < end && !self.is_abandoned() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Over HTTP: whether the gateway closed its side of the connection.
    pub fn is_abandoned(&self) -> bool {
        let is_gone = |out: &mut HttpOut| {
            drop(out.stream.set_nonblocking(true));
            let is_gone = matches!(out.stream.peek(&mut [0]), Ok(0));
            drop(out.stream.set_nonblocking(false));
            is_gone
        };
        self.http(is_gone).unwrap_or_default()
    }

    /// Whether anything was answered.
    pub fn is_done(&self) -> bool {
        self.http(|out| out.phase == Phase::Done).unwrap_or(true)
    }

    /// Progress on this call, if it asked for it.
    pub fn progress(&self, progress: u32) {
        if let Some(token) = json::get(&self.received.text, &["params", "_meta", "progressToken"]) {
            self.send(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress},"total":10,"x-more":1.0}}}}"#
            ));
        }
    }
}

/// Holds the calls of one tool back until the test lets them go.
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// A closed gate, and the tool behind it, which answers with `text` once it may.
    pub fn new(text: &'static str) -> (Self, impl Fn(&Turn) + Send + Sync + 'static) {
        let state = Arc::new((Mutex::new(false), Condvar::new()));
        let gate = Self(Arc::clone(&state));
        let tool = move |turn: &Turn| {
            let (is_open, opened) = &*state;
            let closed = is_open.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = opened.wait_timeout_while(closed, super::patience() * 2, |is_open| !*is_open);
            drop(waited);
            turn.text(text);
        };
        (gate, tool)
    }

    /// Lets all calls go, those to come included.
    pub fn open(&self) {
        let (is_open, opened) = &*self.0;
        *is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        opened.notify_all();
    }
}
