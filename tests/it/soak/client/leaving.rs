//! A client that goes away: in the middle of a request, of a call, of an answer, of a question.

use std::io::Write;
use std::net::TcpStream;

use super::{Actor, GHOSTS, Ghost};
use crate::support::matrix::Era;

impl Actor<'_> {
    pub fn leave_stream(&mut self) {
        let (server, token) = (self.server(), self.token());
        let body = self.body(server, "slow", &token, "");
        match self.client.message(&body).try_open() {
            Ok(mut open) => {
                if self.dice.once_in(2) && open.head.header("content-length").is_none() {
                    drop(open.try_event());
                }
                self.leave(Ghost::Answer(Box::new(open)));
                self.world.ledger.ended("left", "in the middle of an answer");
            }
            Err(error) => self.world.ledger.breach("answer lost", error.to_string()),
        }
    }

    pub fn leave_call(&mut self) {
        let (server, token) = (self.server(), self.token());
        let tool = *self.dice.one_of(&["slow", "echo", "large", "ask"]);
        let request = self.client.message(&self.body(server, tool, &token, r#","size":"800000""#));
        let bytes = request.bytes();
        self.send_and_leave(&bytes, "before the answer");
    }

    pub fn leave_request(&mut self) {
        let (server, token) = (self.server(), self.token());
        let bytes = self.client.message(&self.body(server, "echo", &token, "")).bytes();
        let part = self.dice.below(bytes.len());
        self.send_and_leave(&bytes[..part], "in the middle of a request");
    }

    fn send_and_leave(&mut self, bytes: &[u8], when: &str) {
        let Ok(mut stream) = TcpStream::connect(self.world.gateway.mcp) else {
            return self.world.ledger.breach("connection refused", when.to_owned());
        };
        drop(stream.write_all(bytes));
        self.leave(Ghost::Bytes(stream));
        self.world.ledger.ended("left", when);
    }

    /// Goes away: in good order, with a reset, or without a word.
    pub(super) fn leave(&mut self, ghost: Ghost) {
        let way = *self.dice.one_of(&["client: closes", "client: resets", "client: goes without a word"]);
        self.world.ledger.fault(way);
        match (way, ghost) {
            ("client: closes", _) => {}
            ("client: resets", Ghost::Answer(open)) => open.reset(),
            ("client: resets", Ghost::Bytes(stream)) => drop(rustix::net::connect_unspec(&stream)),
            (_, ghost) => {
                self.ghosts.push_back(ghost);
                if self.ghosts.len() > GHOSTS {
                    self.ghosts.pop_front();
                }
            }
        }
    }

    pub fn leave_question(&mut self) {
        let (server, token) = (self.server(), self.token());
        let body = self.body(server, "ask", &token, "");
        if self.client.era == Era::Modern {
            self.exchange("ask, and leave", &body);
            return;
        }
        if let Ok(mut open) = self.client.message(&body).try_open() {
            if open.head.header("content-length").is_none() {
                drop(open.try_event());
            }
            self.leave(Ghost::Answer(Box::new(open)));
            self.world.ledger.ended("left", "with a question");
        }
    }
}
