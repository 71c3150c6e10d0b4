//! `waypost stdio` as a process, and its client on the pipe.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::with_meta;
use super::gateway::{Config, field, waypost};
use super::matrix::Era;
use super::{eventually, patience, process};

/// The process, launched by its client.
pub struct Pipe {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    log: Arc<Mutex<Vec<String>>>,
    folder: tempfile::TempDir,
}

impl Pipe {
    /// Launches it with a configuration and more arguments.
    pub fn launch(config: &Config, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("gateway.yaml"), config.text()).expect("a file");
        let mut command = waypost(&[&["stdio"], arguments].concat(), folder.path());
        command.envs(config.variables().iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("the binary starts");
        let (sender, lines) = channel();
        let output = child.stdout.take().expect("a pipe");
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                drop(sender.send(line));
            }
        });
        let log = Arc::new(Mutex::new(Vec::new()));
        let (written, errors) = (Arc::clone(&log), child.stderr.take().expect("a pipe"));
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                written.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Self { input: child.stdin.take(), child, lines, log, folder }
    }

    /// Writes a line.
    pub fn write(&mut self, line: &str) {
        let input = self.input.as_mut().expect("an open input");
        input.write_all(format!("{line}\n").as_bytes()).expect("the process reads");
    }

    /// Sends a request of an era.
    pub fn ask(&mut self, era: Era, id: u64, method: &str, params: &str) {
        let params = match era {
            Era::Legacy => params.to_owned(),
            Era::Modern => with_meta(params),
        };
        self.write(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: &Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Shakes hands, where the era has that.
    pub fn open(&mut self, era: Era, capabilities: &str) {
        if era == Era::Legacy {
            let params = format!(
                r#"{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"clientInfo":{{"name":"c","version":"1"}}}}"#
            );
            self.ask(era, 0, "initialize", &params);
            assert_eq!(self.message()["result"]["protocolVersion"], "2025-11-25");
            self.notify("notifications/initialized", &json!({}));
        }
    }

    /// The next line, whatever it is.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(patience()).expect("another line")
    }

    /// The next message.
    pub fn message(&self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line:?}"))
    }

    /// Whether nothing comes for a time.
    pub fn is_silent(&self, time: Duration) -> bool {
        matches!(self.lines.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }

    /// Closes the input.
    pub fn hang_up(&mut self) {
        self.input = None;
    }

    /// What is left once the process has closed its output.
    pub fn rest(&self) -> Vec<String> {
        self.lines.iter().collect()
    }

    /// Waits for the end; the exit code, `None` if a signal ended it.
    pub fn wait_exit(&mut self) -> Option<i32> {
        eventually("the process ends", || self.child.try_wait().expect("a state")).code()
    }

    /// Log lines of one event so far.
    pub fn events(&self, event: &str) -> Vec<Value> {
        let log = self.log();
        let parsed = log.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        parsed.filter(|line| field(line, "event").and_then(Value::as_str) == Some(event)).collect()
    }

    /// Waits for that many lines of one event, no more of which are there.
    pub fn wait_events(&self, event: &str, count: usize) -> Vec<Value> {
        eventually(&format!("{count} lines of {event}"), || {
            Some(self.events(event)).filter(|lines| lines.len() == count)
        })
    }

    /// Everything on standard error so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where its files are.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let offspring = process::descendants(self.child.id());
        process::signal(self.child.id(), Signal::KILL);
        drop(self.child.wait());
        offspring.into_iter().for_each(|pid| process::signal(pid, Signal::KILL));
        if std::thread::panicking() {
            eprintln!("--- {} ---\n{}", self.folder.path().display(), self.log().join("\n"));
        }
    }
}
