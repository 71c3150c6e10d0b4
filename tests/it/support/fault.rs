//! Faults of a server: at which stage of an answer, and of which kind. A scripted server injects the fault
//! that a request names in its text (`fault:STAGE-KIND`), whatever the method.

use std::time::{Duration, Instant};

use super::matrix::{Era, Transport};
use super::turn::{Out, Turn};

/// How far an answer gets before the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing of it is written.
    Headers,
    /// Over HTTP its head is there, and nothing of its body.
    FirstByte,
    /// Half of the message is there.
    MidEvent,
    /// All of it is there.
    AfterAnswer,
}

/// What goes wrong then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The server says no: a status; a child exits.
    Refuse,
    /// The connection is reset; the child is killed.
    Reset,
    /// Nothing more comes.
    Stall,
    /// Bytes that mean nothing, and then nothing more.
    Garbage,
    /// The connection ends in good order; the child closes its output.
    Half,
    /// Bytes without end.
    Flood,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub stage: Stage,
    pub kind: Kind,
}

const STAGES: [(&str, Stage); 4] = [
    ("headers", Stage::Headers),
    ("first", Stage::FirstByte),
    ("mid", Stage::MidEvent),
    ("after", Stage::AfterAnswer),
];
const KINDS: [(&str, Kind); 6] = [
    ("refuse", Kind::Refuse),
    ("reset", Kind::Reset),
    ("stall", Kind::Stall),
    ("garbage", Kind::Garbage),
    ("half", Kind::Half),
    ("flood", Kind::Flood),
];

/// How much a flood brings at the most: many times what a message may be.
const FLOOD: usize = 32 << 20;

impl Fault {
    /// Every fault that makes sense.
    pub fn all() -> Vec<Self> {
        let pairs = STAGES.iter().flat_map(|(_, stage)| KINDS.iter().map(|(_, kind)| (*stage, *kind)));
        let faults = pairs.map(|(stage, kind)| Self { stage, kind });
        faults.filter(|fault| fault.kind != Kind::Refuse || fault.stage == Stage::Headers).collect()
    }

    /// How a request asks for it.
    pub fn name(self) -> String {
        let stage = STAGES.iter().find(|(_, stage)| *stage == self.stage).map_or("", |(name, _)| name);
        let kind = KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name);
        format!("fault:{stage}-{kind}")
    }

    /// The fault that a message asks for.
    pub fn named_in(text: &str) -> Option<Self> {
        let wanted = |fault: &Self| text.contains(&fault.name());
        Self::all().into_iter().find(wanted)
    }

    /// Whether it looks like a server that is only slow: nothing tells of it before the time of the call is up.
    pub fn is_silent(self, transport: Transport) -> bool {
        let is_http = transport == Transport::Http;
        match (self.stage, self.kind) {
            (Stage::Headers | Stage::FirstByte, Kind::Stall) => true,
            // Lines that are no messages are skipped on a pipe, and what comes after them is read.
            (Stage::Headers | Stage::FirstByte, Kind::Garbage | Kind::Flood) => !is_http,
            _ => false,
        }
    }

    /// Whether the right answer is there all the same.
    pub fn is_answered(self) -> bool {
        self.stage == Stage::AfterAnswer
    }

    /// Does it to a request whose right result is `result`.
    pub fn inject(self, turn: &Turn, result: &str) {
        let era = if turn.era == Era::Modern { r#""resultType":"complete","# } else { "" };
        let id = turn.id().unwrap_or("null");
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{{era}{result}}}}}"#);
        let (half, _) = answer.split_at(answer.len() / 2);
        match &turn.out {
            Out::Stdio(_) => self.on_a_pipe(turn, &answer, half),
            Out::Http(_) => self.over_http(turn, &answer, half),
            Out::Sse(_) => panic!("these faults are of pipes and of Streamable HTTP"),
        }
    }

    fn on_a_pipe(self, turn: &Turn, answer: &str, half: &str) {
        match self.stage {
            Stage::Headers | Stage::FirstByte => {}
            Stage::MidEvent => turn.raw(half.as_bytes()),
            Stage::AfterAnswer => turn.raw(format!("{answer}\n").as_bytes()),
        }
        let Out::Stdio(process) = &turn.out else { return };
        match self.kind {
            Kind::Refuse => process.exit(3),
            Kind::Reset => process.kill(),
            Kind::Stall => {}
            Kind::Garbage => turn.raw(b"\xff\x00 garbage }{\n"),
            Kind::Half => process.close_stdout(),
            Kind::Flood => {
                // Half a line that does not end; else lines, as many as a child may well write.
                let line = if self.stage == Stage::MidEvent { [b'x'; 1 << 16] } else { noise() };
                for _ in 0..(8 << 20) / line.len() {
                    turn.raw(&line);
                }
            }
        }
    }

    fn over_http(self, turn: &Turn, answer: &str, half: &str) {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        match (self.stage, self.kind) {
            (Stage::Headers, Kind::Half | Kind::Stall | Kind::Reset | Kind::Refuse) => {}
            (Stage::Headers, Kind::Garbage | Kind::Flood) => {}
            (Stage::FirstByte, _) => turn.bytes(head.as_bytes()),
            (Stage::MidEvent, _) => turn.bytes(format!("{head}data: {half}").as_bytes()),
            (Stage::AfterAnswer, _) => turn.bytes(format!("{head}data: {answer}\n\n").as_bytes()),
        }
        match self.kind {
            Kind::Refuse => turn.respond("503 Service Unavailable", "text/plain", "out of order"),
            Kind::Reset => turn.reset(),
            Kind::Stall => turn.wait_abandoned(),
            Kind::Garbage => {
                turn.bytes(b"\xff\x00 garbage }{\r\n\r\n\r\n");
                turn.break_off();
            }
            Kind::Half => {
                if self.stage == Stage::Headers {
                    turn.bytes(b"HTTP/1.1 200 O");
                }
                turn.break_off();
            }
            Kind::Flood => flood(turn, self.stage),
        }
        turn.break_off();
    }
}

/// Bytes without end, as far as the other side takes them.
fn flood(turn: &Turn, stage: Stage) {
    let piece = match stage {
        Stage::Headers => b"x-flood: xxxxxxxxxxxxxxxxxxxxx\r\n".repeat(2048),
        Stage::FirstByte | Stage::AfterAnswer => b"data: xxxxxxxxxxxxxxxxxxxxxxxx\r\n".repeat(2048),
        Stage::MidEvent => vec![b'x'; 1 << 16],
    };
    if stage == Stage::Headers {
        turn.bytes(b"HTTP/1.1 200 OK\r\n");
    }
    let end = Instant::now() + Duration::from_secs(5);
    let mut written = 0;
    while written < FLOOD && Instant::now() < end && turn.bytes_taken(&piece) {
        written += piece.len();
    }
}

/// A piece of lines that are no messages.
fn noise() -> [u8; 1 << 16] {
    let mut piece = [b'x'; 1 << 16];
    for byte in piece.iter_mut().skip(127).step_by(128) {
        *byte = b'\n';
    }
    piece
}
