//! The gateway as a process: the real binary, its own folder, its own process group, gone with the test.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Map, Value, json};

use super::client::Request;
use super::metrics::Metrics;
use super::upstream::Upstream;
use super::{eventually, patience, process};

/// A running gateway.
pub struct Gateway {
    child: Child,
    /// Where MCP is served.
    pub mcp: SocketAddr,
    /// Where health and metrics are served.
    pub admin: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    folder: tempfile::TempDir,
}

/// A configuration in the making.
#[derive(Clone, Debug)]
pub struct Config {
    top: Map<String, Value>,
    env: Vec<(String, String)>,
}

impl Config {
    /// Loopback, ports chosen by the system, everybody let in, a log that a program reads.
    pub fn new() -> Self {
        let top = json!({
            "listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "auth": {"anonymous": true},
            "log": {"format": "json", "level": "debug"}, "upstreams": {},
        });
        let Value::Object(top) = top else { unreachable!("an object") };
        Self { top, env: Vec::new() }
    }

    /// Adds a scripted upstream under `name`.
    pub fn upstream(self, name: &str, upstream: &Upstream) -> Self {
        self.upstream_with(name, upstream, json!({}))
    }

    /// Adds a scripted upstream with more keys.
    pub fn upstream_with(self, name: &str, upstream: &Upstream, more: Value) -> Self {
        let mut entry = upstream.entry();
        merge(&mut entry, more);
        self.raw_upstream(name, entry)
    }

    /// Adds an upstream as the file would say it.
    pub fn raw_upstream(mut self, name: &str, entry: Value) -> Self {
        self.top["upstreams"][name] = entry;
        self
    }

    /// Sets a key at the top. Objects are merged with what is there.
    pub fn set(mut self, key: &str, value: Value) -> Self {
        match self.top.get_mut(key) {
            Some(there) => merge(there, value),
            None => drop(self.top.insert(key.to_owned(), value)),
        }
        self
    }

    /// Takes a key away.
    pub fn without(mut self, key: &str) -> Self {
        self.top.remove(key);
        self
    }

    /// Clients with one token each, and nobody else.
    pub fn clients(self, clients: Value) -> Self {
        self.set("clients", clients).set("auth", json!({"anonymous": false}))
    }

    /// A variable of the gateway's environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The variables of the gateway's environment.
    pub fn variables(&self) -> &[(String, String)] {
        &self.env
    }

    /// The file: JSON is YAML. Key order is that of the additions.
    pub fn text(&self) -> String {
        let lines = self.top.iter().map(|(key, value)| match (&**key, value) {
            ("upstreams", Value::Object(upstreams)) => format!("upstreams: {}", in_order(upstreams)),
            _ => format!("{key}: {value}"),
        });
        lines.collect::<Vec<_>>().join("\n") + "\n"
    }

    /// Starts the gateway and waits until it listens.
    pub fn start(&self) -> Gateway {
        Gateway::start_text(&self.text(), &self.env)
    }

    /// Starts the gateway and waits until every upstream is ready.
    pub fn ready(&self) -> Gateway {
        let gateway = self.start();
        gateway.wait_ready();
        gateway
    }
}

/// Upstreams are written in the order of their names' first appearance; `serde_json` sorts keys, so a name
/// may carry its place in front: `2|name`.
fn in_order(upstreams: &Map<String, Value>) -> String {
    let name = |key: &str| key.split_once('|').map_or(key, |(_, name)| name).to_owned();
    let entries = upstreams.iter().map(|(key, value)| format!("{}: {value}", Value::from(name(key))));
    format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                match into.get_mut(&key) {
                    Some(there) => merge(there, value),
                    None => drop(into.insert(key, value)),
                }
            }
        }
        (into, from) => *into = from,
    }
}

/// The binary under test, in a clean folder, with an environment that holds what a shell would give.
pub fn waypost(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waypost"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

/// Runs `waypost COMMAND -c FILE` to its end with the file's text.
pub fn run_with(subcommand: &[&str], config: &str, env: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("gateway.yaml"), config).expect("a file");
    let arguments = [subcommand, &["-c", "gateway.yaml"]].concat();
    let mut child = waypost(&arguments, folder.path())
        .envs(env.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("the binary starts");
    let end = Instant::now() + patience();
    while Instant::now() < end && child.try_wait().expect("a state").is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    if child.try_wait().expect("a state").is_none() {
        process::signal(child.id(), Signal::KILL);
        let output = child.wait_with_output().expect("an output");
        panic!("{arguments:?} did not end with\n{config}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    child.wait_with_output().expect("an output")
}

impl Gateway {
    /// Starts `waypost serve -c FILE` with the file's text and waits for its ports.
    pub fn start_text(config: &str, env: &[(String, String)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::start_in(folder, config, env)
    }

    /// Starts in a folder that may hold files already.
    pub fn start_in(folder: tempfile::TempDir, config: &str, env: &[(String, String)]) -> Self {
        let file = folder.path().join("gateway.yaml");
        std::fs::write(&file, config).expect("a file");
        let mut command = waypost(&["serve", "-c", "gateway.yaml"], folder.path());
        command.envs(env.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("the binary starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let stderr = child.stderr.take().expect("a pipe");
        let lines = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let unbound = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut gateway = Self { child, mcp: unbound, admin: unbound, log, folder };
        let (mcp, admin) = gateway.wait_listening();
        gateway.mcp = mcp;
        gateway.admin = admin.unwrap_or(unbound);
        gateway
    }

    fn wait_listening(&mut self) -> (SocketAddr, Option<SocketAddr>) {
        eventually("the gateway listens", || {
            if let Some(status) = self.child.try_wait().expect("a state") {
                std::thread::sleep(Duration::from_millis(50));
                panic!("the gateway ended with {status}");
            }
            let line = self.events("listening").into_iter().next()?;
            let mcp = address(field(&line, "mcp")?.as_str()?);
            Some((mcp, field(&line, "admin").and_then(Value::as_str).map(address)))
        })
    }

    /// Waits until every upstream is ready.
    pub fn wait_ready(&self) {
        eventually("all upstreams are ready", || {
            (self.admin("/readyz?upstreams=all").0 == 200).then_some(())
        });
    }

    /// GETs a path of the admin listener.
    pub fn admin(&self, path: &str) -> (u16, String) {
        let response = Request::get(self.admin, path).send();
        (response.status, response.text())
    }

    /// Scrapes the metrics.
    pub fn metrics(&self) -> Metrics {
        Metrics::parse(&self.admin("/metrics").1)
    }

    /// Waits until the sum of the matching samples is `value`.
    pub fn wait_metric(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        let what = format!("{name}{labels:?} is {value}");
        eventually(&what, || ((self.metrics().sum(name, labels) - value).abs() < 0.5).then_some(()));
    }

    /// Log lines so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Does something while nobody reads the log, which is a pipe.
    pub fn unread<T>(&self, work: impl FnOnce() -> T) -> T {
        let _reader_waits = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// Log lines so far, of one event.
    pub fn events(&self, event: &str) -> Vec<Value> {
        let parsed = self.log().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        parsed.filter(|line| field(line, "event").and_then(Value::as_str) == Some(event)).collect()
    }

    /// Warnings so far, as they were written.
    pub fn warnings(&self) -> Vec<String> {
        let is_warning = |line: &String| {
            let parsed = serde_json::from_str::<Value>(line).unwrap_or_default();
            field(&parsed, "level")
                .and_then(Value::as_str)
                .is_some_and(|level| level.eq_ignore_ascii_case("warn"))
        };
        self.log().into_iter().filter(is_warning).collect()
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its files are.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        process::signal(self.child.id(), signal);
    }

    /// Waits for the end; the exit code, `None` if a signal ended it.
    pub fn wait_exit(&mut self) -> Option<i32> {
        eventually("the gateway ends", || self.child.try_wait().expect("a state")).code()
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a state").is_none()
    }

    /// Whether somebody accepts connections on the MCP port.
    pub fn accepts(&self) -> bool {
        TcpStream::connect_timeout(&self.mcp, Duration::from_secs(1)).is_ok()
    }
}

/// A field of a log line, wherever the format puts it.
pub fn field<'a>(line: &'a Value, name: &str) -> Option<&'a Value> {
    line.get(name).or_else(|| line.get("fields")?.get(name))
}

fn address(url: &str) -> SocketAddr {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    rest.split('/').next().unwrap_or_default().parse().unwrap_or_else(|_| panic!("no address: {url}"))
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let offspring = process::descendants(self.child.id());
        process::signal(self.child.id(), Signal::KILL);
        drop(self.child.wait());
        for pid in offspring {
            process::signal(pid, Signal::KILL);
        }
        if std::thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(60);
            let clipped = log[from..].iter().map(|line| line.chars().take(600).collect::<String>());
            eprintln!("--- the gateway's last lines ---\n{}", clipped.collect::<Vec<_>>().join("\n"));
        }
    }
}
