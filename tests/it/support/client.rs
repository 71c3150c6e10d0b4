//! A client of the gateway with every header, status and body under control.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::gateway::Gateway;
use super::http::{Body, Head, SseEvent, take_events};
use super::matrix::Era;
use super::{json, patience};

/// The newest revision with a handshake, and the one without.
pub const LEGACY: &str = "2025-11-25";
pub const MODERN: &str = "2026-07-28";
/// What a client says that takes either form of an answer.
pub const BOTH: &str = "application/json, text/event-stream";

/// A request, byte for byte.
#[derive(Clone, Debug)]
pub struct Request {
    address: SocketAddr,
    start: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// A response with its whole body.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub head: Head,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let headers = vec![("Host".to_owned(), address.to_string())];
        Self { address, start: format!("{method} {path} HTTP/1.1"), headers, body: Vec::new() }
    }

    pub fn get(address: SocketAddr, path: &str) -> Self {
        Self::new(address, "GET", path)
    }

    /// A POST as every MCP client sends it.
    pub fn post(address: SocketAddr, path: &str, body: impl Into<Vec<u8>>) -> Self {
        let request = Self::new(address, "POST", path);
        Self { body: body.into(), ..request }
            .header("Content-Type", "application/json")
            .header("Accept", BOTH)
    }

    /// Sets a header, in place of one with this name.
    pub fn header(self, name: &str, value: &str) -> Self {
        self.without(name).also(name, value)
    }

    /// Adds a header beside others with this name.
    pub fn also(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes a header away.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(key, _)| !key.eq_ignore_ascii_case(name));
        self
    }

    /// What is written.
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{}\r\n", self.start);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let has_body = !self.body.is_empty() || self.start.starts_with("POST");
        if has_body && !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        [text.as_bytes(), &self.body].concat()
    }

    /// Sends it on a connection of its own and reads the whole answer.
    pub fn send(&self) -> Response {
        self.clone().header("Connection", "close").open().whole()
    }

    /// Sends it on a connection of its own; the answer is read as it comes.
    pub fn open(&self) -> Open {
        self.try_open().expect("an answer")
    }

    /// The same, of a gateway that may break the connection off.
    pub fn try_open(&self) -> io::Result<Open> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience()))?;
        let mut writer = stream.try_clone()?;
        let bytes = self.bytes();
        // A large body is written beside the reading: the answer may come before it is all sent.
        let writing = std::thread::spawn(move || drop(writer.write_all(&bytes)));
        let mut reader = BufReader::new(stream);
        let head = Head::read(&mut reader);
        drop(writing.join());
        let head = head?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.second().parse().map_err(io::Error::other)?;
        let body = Body::new(head.framing());
        let (buffer, ready) = (Vec::new(), Vec::new());
        Ok(Open { status, head, reader, body, buffer, comments: 0, ready, last_id: None })
    }
}

/// A response whose body is still coming.
#[derive(Debug)]
pub struct Open {
    pub status: u16,
    pub head: Head,
    reader: BufReader<TcpStream>,
    body: Body,
    buffer: Vec<u8>,
    ready: Vec<SseEvent>,
    /// Comment lines, and events without a message, seen so far.
    pub comments: usize,
    /// The id of the last event, with a message or without, that was given out or passed over.
    pub last_id: Option<String>,
}

impl Open {
    /// Reads to the end.
    pub fn whole(mut self) -> Response {
        let has_body = !matches!(self.status, 204 | 304);
        let rest = if has_body { self.body.whole(&mut self.reader) } else { Ok(Vec::new()) };
        let rest = rest.unwrap_or_else(|error| panic!("{error} after {:?}", self.head));
        let body = [self.buffer, rest].concat();
        Response { status: self.status, head: self.head, body }
    }

    /// The next server-sent event with a message; `None` at the end of the stream.
    pub fn event(&mut self) -> Option<SseEvent> {
        self.try_event().expect("a stream that ends as it should")
    }

    /// The same, of a stream that may break off.
    pub fn try_event(&mut self) -> io::Result<Option<SseEvent>> {
        loop {
            if !self.ready.is_empty() {
                let event = self.ready.remove(0);
                self.last_id = event.id.clone().or(self.last_id.take());
                return Ok(Some(event));
            }
            let piece = self.body.piece(&mut self.reader)?;
            if piece.is_empty() {
                return Ok(None);
            }
            self.take(&piece);
        }
    }

    fn take(&mut self, piece: &[u8]) {
        self.buffer.extend(piece);
        if !piece.contains(&b'\n') {
            return;
        }
        for event in take_events(&mut self.buffer, &mut self.comments) {
            match event.data.is_empty() {
                true => {
                    self.comments += 1;
                    self.last_id = event.id.or(self.last_id.take());
                }
                false => self.ready.push(event),
            }
        }
    }

    /// The next message; `None` at the end of the stream.
    pub fn message(&mut self) -> Option<Value> {
        let event = self.event()?;
        Some(serde_json::from_str(&event.data).unwrap_or_else(|error| panic!("{error}: {}", event.data)))
    }

    /// Waits for the next comment, or event without a message.
    pub fn wait_comment(&mut self) {
        let seen = self.comments;
        while self.comments == seen {
            let piece = self.body.piece(&mut self.reader).expect("a stream that lives");
            assert!(!piece.is_empty(), "the stream ended");
            self.take(&piece);
        }
    }

    /// Gives up waiting for messages after this time.
    pub fn patience(&self, time: Duration) {
        self.reader.get_ref().set_read_timeout(Some(time)).expect("an option");
    }

    /// Whether nothing but comments comes within this time.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while self.ready.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.patience(left.max(Duration::from_millis(1)));
            match self.body.piece(&mut self.reader) {
                Ok(piece) if piece.is_empty() => panic!("the stream ended"),
                Ok(piece) => self.take(&piece),
                Err(_) => break,
            }
        }
        self.patience(patience());
        self.ready.is_empty()
    }

    /// Closes the connection at once.
    pub fn hang_up(self) {
        drop(self.reader.get_ref().shutdown(std::net::Shutdown::Both));
    }

    /// Resets the connection.
    pub fn reset(self) {
        let _gone = rustix::net::connect_unspec(self.reader.get_ref());
    }
}

impl Response {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub fn content_type(&self) -> &str {
        self.header("content-type").unwrap_or_default()
    }

    /// All messages of the body, as text, whichever type it is in.
    pub fn messages(&self) -> Vec<String> {
        if !self.content_type().starts_with("text/event-stream") {
            return vec![self.text()];
        }
        let mut buffer = self.body.clone();
        let events = take_events(&mut buffer, &mut 0);
        assert!(buffer.is_empty(), "half an event at the end: {:?}", String::from_utf8_lossy(&buffer));
        events.into_iter().map(|event| event.data).filter(|data| !data.is_empty()).collect()
    }

    /// The last message, as text.
    pub fn message(&self) -> String {
        self.messages().pop().unwrap_or_else(|| panic!("no message in {self:?}"))
    }

    /// The last message, parsed.
    pub fn json(&self) -> Value {
        let text = self.message();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {} {text:?}", self.status))
    }

    /// The code of the error, 0 if it is none.
    pub fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_default()
    }
}

/// An MCP client of one era.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    pub era: Era,
    /// Sent with every request; a modern client's own come on top.
    pub headers: Vec<(String, String)>,
    /// What `initialize` was answered with.
    pub hello: Option<Value>,
    /// Path of the endpoint.
    pub path: String,
    /// Its `ClientCapabilities`, as text.
    pub capabilities: String,
    next: AtomicU64,
}

/// The ids of clients start where no server's own would.
const FIRST_ID: u64 = 7001;

impl Client {
    /// A client without any handshake.
    pub fn bare(gateway: &Gateway, era: Era) -> Self {
        Self::at(gateway.mcp, era)
    }

    /// A client of whoever serves there.
    pub fn at(address: SocketAddr, era: Era) -> Self {
        let next = AtomicU64::new(FIRST_ID);
        Self {
            address,
            era,
            headers: Vec::new(),
            hello: None,
            path: "/mcp".to_owned(),
            capabilities: "{}".to_owned(),
            next,
        }
    }

    /// A client of the era, with a session if the era has them.
    pub fn of(gateway: &Gateway, era: Era) -> Self {
        match era {
            Era::Legacy => Self::legacy(gateway),
            Era::Modern => Self::modern(gateway),
        }
    }

    pub fn modern(gateway: &Gateway) -> Self {
        Self::bare(gateway, Era::Modern)
    }

    pub fn modern_with(gateway: &Gateway, token: &str) -> Self {
        Self::modern(gateway).bearer(token)
    }

    pub fn legacy(gateway: &Gateway) -> Self {
        Self::legacy_at(gateway, LEGACY)
    }

    pub fn legacy_at(gateway: &Gateway, version: &str) -> Self {
        Self::bare(gateway, Era::Legacy).connected(version)
    }

    pub fn legacy_with(gateway: &Gateway, token: &str) -> Self {
        Self::bare(gateway, Era::Legacy).bearer(token).connected(LEGACY)
    }

    /// Sends a bearer token from now on.
    pub fn bearer(mut self, token: &str) -> Self {
        self.headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
        self
    }

    /// Declares capabilities from now on.
    pub fn able(self, capabilities: &str) -> Self {
        Self { capabilities: capabilities.to_owned(), ..self }
    }

    /// Opens a session.
    pub fn connected(mut self, version: &str) -> Self {
        let hello = initialize(version)
            .replace(r#""capabilities":{}"#, &format!(r#""capabilities":{}"#, self.capabilities));
        let response = self.post(hello).send();
        assert_eq!(response.status, 200, "{}", response.text());
        let hello = response.json();
        let agreed = hello["result"]["protocolVersion"].as_str().expect("a version").to_owned();
        let session = response.header("mcp-session-id").expect("a session id").to_owned();
        self.headers.push(("Mcp-Session-Id".to_owned(), session));
        if agreed.as_str() >= "2025-06-18" {
            self.headers.push(("MCP-Protocol-Version".to_owned(), agreed));
        }
        self.hello = Some(hello);
        let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(self.post(note).send().status, 202);
        self
    }

    /// The id of the session.
    pub fn session(&self) -> &str {
        let is_session = |(name, _): &&(String, String)| name == "Mcp-Session-Id";
        self.headers.iter().find(is_session).map(|(_, value)| &**value).expect("a session")
    }

    /// A request with this client's headers and exactly this body.
    pub fn post(&self, body: impl Into<Vec<u8>>) -> Request {
        let request = Request::post(self.address, &self.path, body);
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// A bodyless request with this client's headers.
    pub fn bodyless(&self, method: &str) -> Request {
        let request = Request::new(self.address, method, &self.path).header("Accept", BOTH);
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// The text of a request with fresh id. `params` is an object as text, without reserved `_meta`.
    pub fn body(&self, method: &str, params: &str) -> String {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let declared = |text: String| {
            let key = r#""io.modelcontextprotocol/clientCapabilities":"#;
            text.replacen(&format!("{key}{{}}"), &format!("{key}{}", self.capabilities), 1)
        };
        let params = if self.era == Era::Modern { declared(with_meta(params)) } else { params.to_owned() };
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    }

    /// A request with exactly this body; what headers the era wants are taken from it.
    pub fn message(&self, body: &str) -> Request {
        let request = self.post(body);
        if self.era == Era::Legacy {
            return request;
        }
        let method = json::string(body, &["method"]).expect("a method");
        let request = request.header("MCP-Protocol-Version", MODERN).header("Mcp-Method", &method);
        let named = mirrored_member(&method).and_then(|member| json::string(body, &["params", member]));
        match named {
            Some(name) => request.header("Mcp-Name", &header_value(&name)),
            None => request,
        }
    }

    /// Prepares a request.
    pub fn request(&self, method: &str, params: &str) -> Request {
        self.message(&self.body(method, params))
    }

    /// Opens a stream on which it hears of changes, the way of its era, and reads up to where that is sure.
    pub fn listening(&self) -> Open {
        let filter =
            json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
        let request = match self.era {
            Era::Legacy => self.bodyless("GET").header("Accept", "text/event-stream"),
            Era::Modern => self.request("subscriptions/listen", &format!(r#"{{"notifications":{filter}}}"#)),
        };
        let mut open = request.open();
        assert_eq!(open.status, 200, "{:?}", open.head);
        assert_eq!(open.head.header("content-type"), Some("text/event-stream"));
        match self.era {
            Era::Legacy => open.wait_comment(),
            Era::Modern => {
                let ack = open.message().expect("an acknowledgement");
                assert_eq!(ack["method"], "notifications/subscriptions/acknowledged");
                assert_eq!(ack["params"]["notifications"], filter);
            }
        }
        open
    }

    /// Prepares a call.
    pub fn calling(&self, tool: &str, arguments: &str) -> Request {
        self.request("tools/call", &format!(r#"{{"name":{},"arguments":{arguments}}}"#, json::quoted(tool)))
    }

    /// Calls and gives the whole answer as text.
    pub fn call_raw(&self, tool: &str, arguments: &str) -> String {
        self.calling(tool, arguments).send().message()
    }

    /// Calls and gives the whole answer.
    pub fn call(&self, tool: &str, arguments: Value) -> Value {
        self.calling(tool, &arguments.to_string()).send().json()
    }

    /// Calls a tool that echoes, and gives the text that came back.
    pub fn echo(&self, tool: &str, text: &str) -> String {
        let answer = self.call(tool, json!({"text": text}));
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text: {answer}")).to_owned()
    }

    /// The entries of all pages of `tools/list`, as text.
    pub fn tools_raw(&self) -> Vec<String> {
        self.entries("tools/list", "tools")
    }

    /// The entries of all pages of a list, as text; they are the member `key` of each result.
    pub fn entries(&self, method: &str, key: &str) -> Vec<String> {
        let (mut found, mut params) = (Vec::new(), "{}".to_owned());
        loop {
            let message = self.request(method, &params).send().message();
            let entries = json::get(&message, &["result", key]);
            let entries = entries.unwrap_or_else(|| panic!("no list: {message}"));
            found.extend(json::elements(entries).into_iter().map(str::to_owned));
            assert!(found.len() < 100_000, "the list does not end");
            match json::get(&message, &["result", "nextCursor"]) {
                Some(cursor) => params = format!(r#"{{"cursor":{cursor}}}"#),
                None => return found,
            }
        }
    }

    /// The names of all prompts.
    pub fn prompt_names(&self) -> Vec<String> {
        let entries = self.entries("prompts/list", "prompts");
        entries.iter().map(|entry| json::string(entry, &["name"]).expect("a name")).collect()
    }

    /// The URIs of all resources.
    pub fn resource_uris(&self) -> Vec<String> {
        let entries = self.entries("resources/list", "resources");
        entries.iter().map(|entry| json::string(entry, &["uri"]).expect("a URI")).collect()
    }

    /// All templates.
    pub fn template_uris(&self) -> Vec<String> {
        let entries = self.entries("resources/templates/list", "resourceTemplates");
        entries.iter().map(|entry| json::string(entry, &["uriTemplate"]).expect("a template")).collect()
    }

    /// Reads a resource and gives the whole answer.
    pub fn read(&self, uri: &str) -> Value {
        self.request("resources/read", &format!(r#"{{"uri":{}}}"#, json::quoted(uri))).send().json()
    }

    /// Gets a prompt and gives the whole answer.
    pub fn prompt(&self, name: &str) -> Value {
        self.request("prompts/get", &format!(r#"{{"name":{}}}"#, json::quoted(name))).send().json()
    }

    /// Asks for completions and gives the whole answer. `reference` is `params.ref` as text.
    pub fn complete(&self, reference: &str) -> Value {
        let params = format!(r#"{{"ref":{reference},"argument":{{"name":"a","value":"x"}}}}"#);
        self.request("completion/complete", &params).send().json()
    }

    /// The names of all tools.
    pub fn tool_names(&self) -> Vec<String> {
        let entries = self.tools_raw();
        entries.iter().map(|entry| json::string(entry, &["name"]).expect("a name")).collect()
    }

    /// Waits until the list holds exactly these names, in whatever order.
    pub fn wait_tools(&self, names: &[&str]) {
        let mut wanted: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        wanted.sort();
        let mut last = Vec::new();
        let end = Instant::now() + patience();
        while Instant::now() < end {
            last = self.tool_names();
            last.sort();
            if last == wanted {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("wanted {wanted:?}, got {last:?}");
    }
}

/// The text of `initialize`.
pub fn initialize(version: &str) -> String {
    let info = r#"{"name":"scripted","version":"1"}"#;
    format!(
        r#"{{"jsonrpc":"2.0","id":7000,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{info}}}}}"#
    )
}

/// The reserved members of a modern request's `_meta`.
pub const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"scripted","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}"#;

/// `params` with the reserved members of `_meta` put in front of those that are there.
pub fn with_meta(params: &str) -> String {
    match json::get(params, &["_meta"]) {
        Some(meta) if json::members(meta).is_empty() => {
            json::replaced(params, &["_meta"], &format!("{{{META}}}"))
        }
        Some(meta) => {
            let inner = meta.trim_start().strip_prefix('{').expect("an object");
            json::replaced(params, &["_meta"], &format!("{{{META},{inner}"))
        }
        None => {
            let body = params.trim_end().strip_suffix('}').expect("an object").trim_end();
            let comma = if body.ends_with('{') { "" } else { "," };
            format!(r#"{body}{comma}"_meta":{{{META}}}}}"#)
        }
    }
}

/// The member of `params` that the header `Mcp-Name` mirrors.
pub fn mirrored_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// A text as a header value of the modern era.
pub fn header_value(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && text.trim() == text;
    if is_plain && !text.starts_with("=?base64?") {
        return text.to_owned();
    }
    use base64::Engine;
    format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(text))
}
