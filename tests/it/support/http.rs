//! HTTP/1.1 at byte level, for both sides: what is written is what the test says, what is read is kept.

use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;

/// A start line with headers.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The first line.
    pub start: String,
    /// Names as written, values trimmed.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// Reads one; `None` at the end of the stream.
    pub fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let mut head = Self::default();
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
            line.clear();
            match (head.start.is_empty(), text.split_once(':')) {
                (true, _) if text.is_empty() => {}
                (true, _) => head.start = text,
                (false, _) if text.is_empty() => return Ok(Some(head)),
                (false, Some((name, value))) => {
                    head.headers.push((name.to_owned(), value.trim().to_owned()));
                }
                (false, None) => return Err(io::Error::other(format!("no header: {text}"))),
            }
        }
        Ok(None)
    }

    /// The value of a header, whatever the case of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// The second word of the start line: a request's path, a response's status.
    pub fn second(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    /// How the body ends.
    pub fn framing(&self) -> Framing {
        let is_chunked = self.header("transfer-encoding").is_some_and(|value| value.contains("chunked"));
        match (is_chunked, self.header("content-length").and_then(|value| value.parse().ok())) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::Unsaid,
        }
    }
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes.
    Length(usize),
    /// After the last chunk.
    Chunked,
    /// The head does not say: no body in a request, the end of the stream in a response.
    Unsaid,
}

/// The body of a message, read piece by piece.
#[derive(Debug)]
pub struct Body {
    framing: Framing,
    left: usize,
    is_done: bool,
}

impl Body {
    pub fn new(framing: Framing) -> Self {
        let left = if let Framing::Length(length) = framing { length } else { 0 };
        Self { framing, left, is_done: framing == Framing::Length(0) }
    }

    /// The next piece; empty at the end.
    pub fn piece(&mut self, reader: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
        if self.is_done {
            return Ok(Vec::new());
        }
        if self.framing == Framing::Chunked && self.left == 0 {
            self.left = chunk_size(reader)?;
            if self.left == 0 {
                self.is_done = true;
                skip_line(reader)?;
                return Ok(Vec::new());
            }
        }
        let bound = if self.framing == Framing::Unsaid { 1 << 16 } else { self.left.min(1 << 16) };
        let mut piece = vec![0; bound];
        let count = reader.read(&mut piece)?;
        piece.truncate(count);
        if self.framing == Framing::Unsaid {
            self.is_done = count == 0;
            return Ok(piece);
        }
        if count == 0 {
            return Err(io::Error::other("the body was cut short"));
        }
        self.left -= count;
        if self.left == 0 {
            match self.framing {
                Framing::Chunked => skip_line(reader)?,
                Framing::Length(_) | Framing::Unsaid => self.is_done = true,
            }
        }
        Ok(piece)
    }

    /// All of it.
    pub fn whole(&mut self, reader: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
        let mut whole = Vec::new();
        loop {
            let piece = self.piece(reader)?;
            if piece.is_empty() {
                return Ok(whole);
            }
            whole.extend(piece);
        }
    }
}

fn chunk_size(reader: &mut BufReader<TcpStream>) -> io::Result<usize> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::Error::other("the stream ended before the last chunk"));
    }
    let digits = line.trim().split(';').next().unwrap_or_default();
    usize::from_str_radix(digits, 16).map_err(io::Error::other)
}

fn skip_line(reader: &mut BufReader<TcpStream>) -> io::Result<()> {
    reader.read_line(&mut String::new()).map(|_| ())
}

/// One server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    pub event: Option<String>,
    pub id: Option<String>,
    pub data: String,
}

/// Cuts complete events off the front of `buffer`; comments count into `comments`.
pub fn take_events(buffer: &mut Vec<u8>, comments: &mut usize) -> Vec<SseEvent> {
    let mut events = Vec::new();
    while let Some(end) = buffer.windows(2).position(|pair| pair == b"\n\n") {
        let block: Vec<u8> = buffer.drain(..end + 2).collect();
        let mut event = SseEvent::default();
        let mut is_event = false;
        for line in String::from_utf8_lossy(&block).lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if line.starts_with(':') => *comments += 1,
                "data" => {
                    if is_event {
                        event.data.push('\n');
                    }
                    is_event = true;
                    event.data.push_str(value);
                }
                "event" => event.event = Some(value.to_owned()),
                "id" => event.id = Some(value.to_owned()),
                _ => {}
            }
        }
        if is_event {
            events.push(event);
        }
    }
    events
}
