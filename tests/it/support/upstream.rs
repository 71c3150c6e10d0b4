//! A scripted server at the far end of the gateway, over stdio or HTTP; its behaviour runs in the test.
//!
//! Over stdio the child that the gateway starts is a relay (`child.py`) between its standard streams and a
//! port of the test, so both transports are scripted in one place and in one language.

use std::collections::{HashMap, HashSet};
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

use super::http::{Body, Framing, Head};
use super::matrix::{Era, Transport};
use super::script::Script;
use super::turn::{HttpOut, Out, Received, Turn};
use super::{eventually, json as text, process};

/// A running scripted server.
pub struct Upstream {
    shared: Arc<Shared>,
    transport: Transport,
    address: SocketAddr,
    flags: Vec<String>,
}

/// What its threads share.
pub struct Shared {
    script: Script,
    log: Mutex<Vec<Received>>,
    faults: Mutex<Vec<String>>,
    tools: Mutex<Vec<String>>,
    sessions: Mutex<HashSet<String>>,
    processes: Mutex<Vec<Arc<Process>>>,
    /// The open connections, by a number.
    streams: Mutex<HashMap<usize, TcpStream>>,
    peers: AtomicUsize,
    /// What was said to have changed, one after the other.
    changes: Mutex<Vec<News>>,
    /// What the gateway has subscribed to by `resources/subscribe`.
    subscribed: Mutex<HashSet<String>>,
    /// The requests that were taken back, by the peer and their ids.
    cancelled: Mutex<HashSet<(usize, String)>>,
    /// The resources in the filters of its open subscriptions.
    filters: Mutex<Vec<(String, Vec<String>)>>,
    /// The open streams of the connections over HTTP+SSE.
    connections: Mutex<HashMap<usize, Arc<Mutex<HttpOut>>>>,
    /// Entries of the other lists, by method.
    lists: Mutex<HashMap<&'static str, Vec<String>>>,
    /// Streams on which it tells that, now.
    listened: AtomicUsize,
    is_down: AtomicBool,
    is_over: AtomicBool,
}

/// Something that has changed.
#[derive(Clone, Debug)]
enum News {
    List(&'static str),
    Resource(String),
}

/// A child of the gateway.
pub struct Process {
    /// What it said about itself: `pid`, `ppid`, `env`, `cwd`.
    pub hello: Value,
    control: Mutex<TcpStream>,
    has_eof: AtomicBool,
    is_initialized: AtomicBool,
    open_ids: Mutex<HashSet<String>>,
}

/// What a server says whose tools have changed.
pub const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

impl News {
    /// The notification; `meta` is a member of its `params`, if there is one.
    fn write(&self, meta: Option<&str>) -> String {
        match (self, meta) {
            (Self::List(list), None) => {
                format!(r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed"}}"#)
            }
            (Self::List(list), Some(meta)) => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed","params":{{{meta}}}}}"#
            ),
            (Self::Resource(uri), meta) => {
                updated(uri, &meta.map(|meta| format!(",{meta}")).unwrap_or_default())
            }
        }
    }

    /// Whether a subscription with this filter is told of it.
    fn is_in(&self, filter: &str) -> bool {
        match self {
            Self::List(list) => text::get(filter, &[&format!("{list}ListChanged")]) == Some("true"),
            Self::Resource(uri) => resources(filter).iter().any(|named| uri.starts_with(named)),
        }
    }
}

/// What a server says of a resource that was updated.
pub fn updated(uri: &str, more: &str) -> String {
    let uri = text::quoted(uri);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":{uri}{more}}}}}"#
    )
}

/// The resources that a filter names.
fn resources(filter: &str) -> Vec<String> {
    let named = text::get(filter, &["resourceSubscriptions"]).unwrap_or("[]");
    serde_json::from_str(named).expect("an array of strings")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    fn frame(&self, kind: u8, payload: &[u8]) {
        let mut control = locked(&self.control);
        let length = u32::try_from(payload.len()).expect("a payload of less than 4 GiB").to_be_bytes();
        // A child that is gone is a fact that the test looks at.
        drop(control.write_all(&[kind]).and_then(|()| control.write_all(&length)));
        drop(control.write_all(payload));
    }

    /// Writes one line to its stdout.
    pub fn write_line(&self, line: &str) {
        if let Some(id) = text::get(line, &["id"]) {
            locked(&self.open_ids).remove(id);
        }
        self.frame(b'O', format!("{line}\n").as_bytes());
    }

    /// Writes to its stdout.
    pub fn write(&self, bytes: &[u8]) {
        self.frame(b'O', bytes);
    }

    /// Writes to its stderr.
    pub fn complain(&self, bytes: &[u8]) {
        self.frame(b'R', bytes);
    }

    /// Ends it.
    pub fn exit(&self, code: u8) {
        self.frame(b'X', code.to_string().as_bytes());
    }

    /// Kills it, once it has written what it was told to.
    pub fn kill(&self) {
        self.frame(b'K', b"");
    }

    /// Closes its stdout; it lives on.
    pub fn close_stdout(&self) {
        self.frame(b'C', b"");
    }

    /// Makes it start a child of its own that sleeps.
    pub fn fork(&self, seconds: u32) {
        self.frame(b'S', seconds.to_string().as_bytes());
    }

    /// Makes it start a child of its own that fills so many MiB.
    pub fn eat(&self, mebibytes: u32) {
        self.frame(b'M', mebibytes.to_string().as_bytes());
    }

    /// Makes it start a child of its own that computes for ever.
    pub fn spin(&self) {
        self.frame(b'B', b"");
    }

    pub fn pid(&self) -> u32 {
        self.hello["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid")
    }

    /// Whether its stdin was closed.
    pub fn has_eof(&self) -> bool {
        self.has_eof.load(Ordering::Relaxed)
    }
}

impl Shared {
    pub fn sessions(&self) -> MutexGuard<'_, HashSet<String>> {
        locked(&self.sessions)
    }

    pub fn tools(&self) -> Vec<String> {
        locked(&self.tools).clone()
    }

    pub fn open_session(&self) -> String {
        let session = format!("upstream-session-{}", self.peers.fetch_add(1, Ordering::Relaxed));
        self.sessions().insert(session.clone());
        session
    }

    /// Answers a GET: a stream that tells of changes until the gateway closes it.
    pub fn open_stream(&self, turn: &Turn) {
        turn.raw(b": open\n\n");
        self.tell(turn, |news| Some(news.write(None)));
    }

    /// Answers `subscriptions/listen`, and tells of changes until the gateway ends it.
    pub fn subscribe(&self, turn: &Turn) {
        let id = turn.id().unwrap_or("null");
        let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
        let filter = text::get(&turn.text, &["params", "notifications"]).unwrap_or("{}").to_owned();
        let is_told = |uri: &String| !self.script.untold.contains(uri);
        let uris: Vec<_> = resources(&filter).into_iter().filter(is_told).collect();
        let mut honoured: Value = serde_json::from_str(&filter).expect("a filter");
        if honoured.get("resourceSubscriptions").is_some() {
            honoured["resourceSubscriptions"] = json!(uris);
        }
        let open = format!("{}/{id}", turn.received.peer);
        locked(&self.filters).push((open.clone(), uris));
        turn.send(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{{meta},"notifications":{honoured}}}}}"#
        ));
        let honoured = honoured.to_string();
        self.tell(turn, |news| news.is_in(&honoured).then(|| news.write(Some(&meta))));
        locked(&self.filters).retain(|(known, _)| *known != open);
    }

    /// Takes `resources/subscribe` and `resources/unsubscribe`.
    pub fn note_subscription(&self, turn: &Turn) {
        let uri = turn.uri();
        if self.script.untold.contains(&uri) {
            return turn.error(-32042, "this one is not told of");
        }
        match &*turn.method() {
            "resources/subscribe" => locked(&self.subscribed).insert(uri),
            _ => locked(&self.subscribed).remove(&uri),
        };
        turn.result("{}");
    }

    /// A new peer has subscribed to nothing.
    pub fn forget_subscriptions(&self) {
        locked(&self.subscribed).clear();
    }

    /// The entries of one of the other lists.
    pub fn list(&self, method: &str) -> Vec<String> {
        locked(&self.lists).get(method).cloned().unwrap_or_default()
    }

    fn tell(&self, turn: &Turn, write: impl Fn(&News) -> Option<String>) {
        let mut told = locked(&self.changes).len();
        self.listened.fetch_add(1, Ordering::Relaxed);
        let own = (turn.received.peer, turn.id().unwrap_or_default().to_owned());
        let is_cancelled = || locked(&self.cancelled).contains(&own);
        while !self.is_over.load(Ordering::Relaxed) && !turn.is_abandoned() && !is_cancelled() {
            let news = locked(&self.changes)[told..].to_vec();
            news.iter().filter_map(&write).for_each(|message| turn.send(&message));
            told += news.len();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self.listened.fetch_sub(1, Ordering::Relaxed);
    }

    fn fault(&self, fault: String) {
        if self.script.is_forgetful {
            return;
        }
        locked(&self.faults).push(fault);
    }

    fn receive(&self, received: &Received) {
        if !self.script.is_forgetful {
            locked(&self.log).push(received.clone());
        }
        if received.text.is_empty() {
            return;
        }
        if serde_json::from_str::<serde::de::IgnoredAny>(&received.text).is_err() {
            return self.fault(format!("no JSON: {:?}", clip(&received.text)));
        }
        if received.method() == "notifications/cancelled" {
            let id = text::get(&received.text, &["params", "requestId"]).unwrap_or_default();
            let mut cancelled = locked(&self.cancelled);
            if self.script.is_forgetful && cancelled.len() > 10_000 {
                cancelled.clear();
            }
            cancelled.insert((received.peer, id.to_owned()));
        }
        match (self.script.era, &*received.method()) {
            (_, "server/discover" | "initialize" | "") => {}
            (Era::Legacy, _) => self.check_legacy(received),
            (Era::Modern, _) => self.check_modern(received),
        }
    }

    /// A legacy server never sees the metadata of a request that stands alone.
    fn check_legacy(&self, received: &Received) {
        let meta = text::get(&received.text, &["params", "_meta"]).unwrap_or("{}");
        let is_of_hop = |(name, _): &(&str, &str)| name.starts_with("\"io.modelcontextprotocol/");
        if text::members(meta).iter().any(is_of_hop) {
            self.fault(format!("modern metadata in {}", clip(&received.text)));
        }
        if received.header("mcp-method").is_some() {
            self.fault(format!("modern headers with {}", clip(&received.text)));
        }
    }

    /// A modern request says everything about itself, in its body and in its headers.
    fn check_modern(&self, received: &Received) {
        let method = received.method();
        if method.starts_with("notifications/") {
            return;
        }
        for key in ["io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"] {
            if text::get(&received.text, &["params", "_meta", key]).is_none() {
                self.fault(format!("no {key} in {}", clip(&received.text)));
            }
        }
        if received.head.is_none() {
            return;
        }
        let member = super::client::mirrored_member(&method);
        let name = member.and_then(|member| text::string(&received.text, &["params", member]));
        let name = name.as_deref().map(super::client::header_value);
        let wanted = [
            ("mcp-protocol-version", Some("2026-07-28")),
            ("mcp-method", Some(&*method)),
            ("mcp-name", name.as_deref()),
            ("mcp-session-id", None),
        ];
        for (header, value) in wanted {
            if received.header(header) != value {
                self.fault(format!("{header} is {:?}, not {value:?}", received.header(header)));
            }
        }
    }

    /// What a stdio child may ask of the other end of its pipe.
    fn check_line(&self, received: &Received, process: &Process) {
        let method = received.method();
        if self.script.era == Era::Legacy {
            match &*method {
                "notifications/initialized" => process.is_initialized.store(true, Ordering::Relaxed),
                "initialize" | "server/discover" | "ping" | "" => {}
                _ if process.is_initialized.load(Ordering::Relaxed) => {}
                _ => self.fault(format!("before `initialized`: {}", clip(&received.text))),
            }
        }
        let id = received.id().filter(|_| !method.is_empty());
        if let Some(id) = id.filter(|id| !locked(&process.open_ids).insert((*id).to_owned())) {
            self.fault(format!("the id {id} is in use: {}", clip(&received.text)));
        }
    }
}

fn clip(text: &str) -> String {
    text.chars().take(300).collect()
}

/// The entry of a child that relays to `address`.
pub fn relay(address: SocketAddr, flags: &[String]) -> Value {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/child.py");
    let port = address.port().to_string();
    let mut args = vec!["-I".to_owned(), "-S".to_owned(), program.to_owned(), port];
    args.extend_from_slice(flags);
    json!({"command": process::python(), "args": args})
}

impl Upstream {
    /// Starts it. The port is the system's choice.
    pub fn start(script: Script, transport: Transport) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let flags = script.flags.clone();
        let shared = Arc::new(Shared {
            tools: Mutex::new(script.tools.clone()),
            lists: Mutex::new(script.lists.clone()),
            script,
            log: Mutex::default(),
            faults: Mutex::default(),
            sessions: Mutex::default(),
            processes: Mutex::default(),
            streams: Mutex::default(),
            peers: AtomicUsize::new(0),
            changes: Mutex::default(),
            subscribed: Mutex::default(),
            cancelled: Mutex::default(),
            filters: Mutex::default(),
            connections: Mutex::default(),
            listened: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (own, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                if accepting.is_over.load(Ordering::Relaxed) {
                    return;
                }
                if accepting.is_down.load(Ordering::Relaxed) {
                    continue;
                }
                drop(stream.set_nodelay(true));
                locked(&accepting.streams).insert(own, stream.try_clone().expect("a handle"));
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || {
                    match transport {
                        Transport::Stdio => drop(serve_child(&shared, stream)),
                        Transport::Http => drop(serve_connection(&shared, stream)),
                        Transport::Sse => drop(serve_old_connection(&shared, stream)),
                    }
                    locked(&shared.streams).remove(&own);
                });
            }
        });
        Self { shared, transport, address, flags }
    }

    /// Its entry in the configuration.
    pub fn entry(&self) -> Value {
        match self.transport {
            Transport::Http | Transport::Sse => json!({"url": self.url()}),
            Transport::Stdio => relay(self.address, &self.flags),
        }
    }

    /// Where it listens: for HTTP, or for its children.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address over HTTP.
    pub fn url(&self) -> String {
        let path = if self.transport == Transport::Sse { "sse" } else { "mcp" };
        format!("http://{}/{path}", self.address)
    }

    /// Everything that it received, in order.
    pub fn received(&self) -> Vec<Received> {
        locked(&self.shared.log).clone()
    }

    /// What it received with this method.
    pub fn of_method(&self, method: &str) -> Vec<Received> {
        self.received().into_iter().filter(|received| received.method() == method).collect()
    }

    /// The calls that it received.
    pub fn calls(&self) -> Vec<Received> {
        self.of_method("tools/call")
    }

    /// Waits for the first message that `wanted` takes.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Received) -> bool) -> Received {
        eventually(what, || self.received().into_iter().find(|received| wanted(received)))
    }

    /// Waits for a message with this method.
    pub fn wait_method(&self, method: &str) -> Received {
        self.wait_for(method, |received| received.method() == method)
    }

    /// The children that were started so far, the oldest first.
    pub fn processes(&self) -> Vec<Arc<Process>> {
        locked(&self.shared.processes).clone()
    }

    /// The youngest child.
    pub fn process(&self) -> Arc<Process> {
        eventually("a child", || self.processes().pop())
    }

    /// Replaces its tools; says nothing to anybody.
    pub fn set_tools(&self, entries: Vec<String>) {
        *locked(&self.shared.tools) = entries;
    }

    /// Replaces its tools and tells the gateway, the way its era and transport do.
    pub fn change_tools(&self, entries: Vec<String>) {
        self.set_tools(entries);
        self.announce("tools");
    }

    /// Replaces another list, named by its method, and tells the gateway.
    pub fn change_list(&self, method: &'static str, entries: Vec<String>) {
        locked(&self.shared.lists).insert(method, entries);
        self.announce(method.split('/').next().expect("a capability"));
    }

    fn announce(&self, list: &'static str) {
        self.tell(News::List(list));
    }

    fn tell(&self, news: News) {
        locked(&self.shared.changes).push(news.clone());
        if self.transport == Transport::Stdio && self.shared.script.era == Era::Legacy {
            let process =
                if self.shared.script.is_forgetful { self.processes().pop() } else { Some(self.process()) };
            process.into_iter().for_each(|process| process.write_line(&news.write(None)));
        }
        for connection in locked(&self.shared.connections).values() {
            locked(connection).event(&news.write(None));
        }
    }

    /// Says that a resource was updated to whoever has subscribed to it, or to what it is below of.
    pub fn update(&self, uri: &str) {
        let is_wanted = self.subscribed().iter().any(|named| uri.starts_with(named));
        if self.shared.script.era == Era::Modern || is_wanted {
            self.tell(News::Resource(uri.to_owned()));
        }
    }

    /// What the gateway has subscribed to now, in order.
    pub fn subscribed(&self) -> Vec<String> {
        let filters = locked(&self.shared.filters);
        let mut all: Vec<String> = locked(&self.shared.subscribed).iter().cloned().collect();
        all.extend(filters.iter().flat_map(|(_, uris)| uris.clone()));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Waits until the gateway has subscribed to exactly these.
    pub fn wait_subscribed(&self, uris: &[&str]) {
        eventually(&format!("subscribed to {uris:?}"), || (self.subscribed() == uris).then_some(()));
    }

    /// Waits until the gateway can hear it: until it listens where there is a stream for that.
    pub fn wait_heard(&self) {
        let is_line = self.transport != Transport::Http && self.shared.script.era == Era::Legacy;
        eventually("the gateway listens", || (is_line || self.listened() > 0).then_some(()));
    }

    /// On how many streams the gateway listens now.
    pub fn listened(&self) -> usize {
        self.shared.listened.load(Ordering::Relaxed)
    }

    /// How many GETs it received.
    pub fn gets(&self) -> usize {
        let is_get =
            |received: &&Received| received.head.as_ref().is_some_and(|head| head.start.starts_with("GET "));
        self.received().iter().filter(is_get).count()
    }

    /// Forgets its sessions, as a restart would.
    pub fn forget_sessions(&self) {
        self.shared.sessions().clear();
    }

    /// Drops all connections, and every new one at once.
    pub fn go_down(&self) {
        self.shared.is_down.store(true, Ordering::Relaxed);
        self.drop_connections();
    }

    /// Serves again.
    pub fn come_back(&self) {
        self.shared.is_down.store(false, Ordering::Relaxed);
    }

    /// Breaks off all connections.
    pub fn drop_connections(&self) {
        for (_, stream) in locked(&self.shared.streams).drain() {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Breaches of the protocol by the gateway.
    pub fn faults(&self) -> Vec<String> {
        locked(&self.shared.faults).clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.drop_connections();
        drop(TcpStream::connect(self.address));
        if std::thread::panicking() {
            for received in self.received().iter().rev().take(10).rev() {
                eprintln!("--- the server got: {}", clip(&received.text));
            }
            for fault in self.faults() {
                eprintln!("--- the gateway's breach: {fault}");
            }
        } else if self.shared.script.is_strict {
            assert_eq!(self.faults(), Vec::<String>::new(), "breaches of the protocol by the gateway");
        }
    }
}

/// The far end of one child: frames in, lines to the script.
fn serve_child(shared: &Arc<Shared>, stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let peer = shared.peers.fetch_add(1, Ordering::Relaxed);
    let (kind, hello) = read_frame(&mut reader)?;
    assert_eq!(kind, b'H', "a child says hello first");
    let process = Arc::new(Process {
        hello: serde_json::from_slice(&hello)?,
        control: Mutex::new(stream),
        has_eof: AtomicBool::new(false),
        is_initialized: AtomicBool::new(false),
        open_ids: Mutex::default(),
    });
    locked(&shared.processes).push(Arc::clone(&process));
    let end = take_frames(shared, &process, reader, peer);
    if shared.script.is_forgetful {
        locked(&shared.processes).retain(|known| !Arc::ptr_eq(known, &process));
    }
    end
}

fn take_frames(
    shared: &Arc<Shared>,
    process: &Arc<Process>,
    mut reader: BufReader<TcpStream>,
    peer: usize,
) -> std::io::Result<()> {
    let mut pending = Vec::new();
    loop {
        let (kind, payload) = read_frame(&mut reader)?;
        match kind {
            b'I' => {
                let is_whole = payload.contains(&b'\n');
                pending.extend(payload);
                if !is_whole {
                    continue;
                }
            }
            b'E' => process.has_eof.store(true, Ordering::Relaxed),
            other => panic!("an unknown frame: {other}"),
        }
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            take_line(shared, process, Received { text, head: None, peer, at: Instant::now() });
        }
    }
}

fn take_line(shared: &Arc<Shared>, process: &Arc<Process>, received: Received) {
    shared.receive(&received);
    shared.check_line(&received, process);
    let is_request = received.id().is_some();
    let is_serial = shared.script.flags.iter().any(|flag| flag == "serial");
    let turn = Turn { received, era: shared.script.era, out: Out::Stdio(Arc::clone(process)) };
    let job = {
        let (shared, process) = (Arc::clone(shared), Arc::clone(process));
        move || {
            shared.script.serve(&turn, &shared);
            if is_serial {
                process.frame(b'P', b"");
            }
        }
    };
    if is_request && !is_serial { drop(std::thread::spawn(job)) } else { job() }
}

fn read_frame(reader: &mut BufReader<TcpStream>) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    reader.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    let mut payload = vec![0; usize::try_from(length).map_err(std::io::Error::other)?];
    reader.read_exact(&mut payload)?;
    Ok((head[0], payload))
}

/// One TCP connection of HTTP+SSE: a GET opens a stream that lasts, a POST is answered there.
fn serve_old_connection(shared: &Arc<Shared>, stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(head) = Head::read(&mut reader)? {
        let mut out = HttpOut::new(stream.try_clone()?, shared.script.form);
        if head.start.starts_with("GET /sse ") {
            let peer = shared.peers.fetch_add(1, Ordering::Relaxed);
            let out = Arc::new(Mutex::new(out));
            // Whoever has the address may use it at once.
            locked(&shared.connections).insert(peer, Arc::clone(&out));
            locked(&out)
                .chunk(format!("event: endpoint\r\ndata: /messages?session={peer}\r\n\r\n").as_bytes());
            let end = reader.read(&mut [0]);
            locked(&shared.connections).remove(&peer);
            return end.map(drop);
        }
        let text = String::from_utf8_lossy(&Body::new(head.framing()).whole(&mut reader)?).into_owned();
        let session =
            head.start.strip_prefix("POST /messages?session=").and_then(|rest| rest.split(' ').next());
        let Some(peer) = session.and_then(|session| session.parse::<usize>().ok()) else {
            out.respond("405 Method Not Allowed", "", b"");
            continue;
        };
        let Some(connection) = locked(&shared.connections).get(&peer).map(Arc::clone) else {
            out.respond("404 Not Found", "text/plain", b"Could not find session");
            continue;
        };
        let received = Received { text, head: None, peer, at: Instant::now() };
        shared.receive(&received);
        out.respond("202 Accepted", "text/plain", b"Accepted");
        let turn = Turn { received, era: shared.script.era, out: Out::Sse(connection) };
        let shared = Arc::clone(shared);
        std::thread::spawn(move || shared.script.serve(&turn, &shared));
    }
    Ok(())
}

/// One HTTP connection: requests one after the other.
fn serve_connection(shared: &Arc<Shared>, stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let peer = shared.peers.fetch_add(1, Ordering::Relaxed);
    while let Some(head) = Head::read(&mut reader)? {
        let framing = head.framing();
        let is_bodyless = framing == Framing::Unsaid;
        let body = if is_bodyless { Vec::new() } else { Body::new(framing).whole(&mut reader)? };
        let text = String::from_utf8_lossy(&body).into_owned();
        let received = Received { text, head: Some(head), peer, at: Instant::now() };
        shared.receive(&received);
        let out = Out::Http(Mutex::new(HttpOut::new(stream.try_clone()?, shared.script.form)));
        let turn = Turn { received, era: shared.script.era, out };
        shared.script.serve(&turn, shared);
        if !turn.is_done() {
            drop(stream.shutdown(Shutdown::Both));
            return Ok(());
        }
    }
    Ok(())
}
