//! The level of log messages that a legacy server is asked for: one for all that use the connection, so the most
//! verbose that somebody wants. What is more than a client wants is kept from it elsewhere.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{Legacy, Session};
use crate::exchange::Call;
use crate::mcp::{Id, Raw};
use crate::translate::hello::write_request;
use crate::upstream::transport::Farewell;

const METHOD: &str = "logging/setLevel";
/// How long a change of the level may delay a call.
const GRACE: Duration = Duration::from_secs(2);
/// The levels, most verbose first.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
/// What the server is asked for at least, once it is asked for anything: clients that set no level share the
/// connection, and must not be silenced by one that wants little.
const USUAL: usize = 1;

/// What a server was asked for: a place in [`LEVELS`], or their number where it was not asked.
#[derive(Debug)]
pub(super) struct AskedLevel {
    asked: AtomicUsize,
    turn: Mutex<()>,
}

impl Default for AskedLevel {
    fn default() -> Self {
        Self { asked: AtomicUsize::new(LEVELS.len()), turn: Mutex::default() }
    }
}

impl Legacy {
    /// Asks the server for more log messages if this call wants more than any before, and waits until it has
    /// heard of that, whoever asked. Where they could not be told apart by call, nobody asks for
    /// them.
    pub(super) async fn raise_level(&self, call: &Call) {
        let Some(name) = call.hop.log_level.as_ref().and_then(Raw::string) else { return };
        let Some(wanted) = LEVELS.iter().position(|level| *level == name) else { return };
        let is_news = || self.level.asked.load(Ordering::Acquire) > wanted;
        if !is_news() || !self.wire.transport.attributes_questions() || !self.hello.has("logging") {
            return;
        }
        let _turn = self.level.turn.lock().await;
        let level = wanted.min(USUAL);
        if let Some(name) = LEVELS.get(level).filter(|_| is_news()) {
            let params = [("level", Raw::from_text(name))];
            // One that refuses, or does not answer, is not asked with every call.
            drop(timeout(GRACE, Box::pin(self.ask(METHOD, &params))).await);
            self.level.asked.fetch_min(level, Ordering::AcqRel);
        }
    }

    /// Asks once more for what was asked for: this session is a new one.
    pub(super) async fn renew_level(&self, session: &Session) {
        let Some(name) = LEVELS.get(self.level.asked.load(Ordering::Acquire)) else { return };
        let params = [("level", Raw::from_text(name))];
        let write = |id: &Id| write_request(id, METHOD, &params, &[]);
        drop(timeout(GRACE, Box::pin(self.send(session, &write, None, Farewell::Silent))).await);
    }
}
