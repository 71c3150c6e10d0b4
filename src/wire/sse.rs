//! Server-sent events: bytes in any chunking to events, and frames to write.
//!
//! Spec: WHATWG HTML, "Interpreting an event stream". Bounded: an event that grows past the limit is an
//! error, however it is cut.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

/// A comment that says nothing but that the stream lives.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The value of `event`, if there was one; a message otherwise.
    pub event: Option<Box<str>>,
    /// The values of all `data` lines, joined by line feeds.
    pub data: Bytes,
    /// The last id that the stream had named when this event ended.
    pub id: Option<Box<str>>,
    /// How long to wait before the next attempt, where this event says so.
    pub retry: Option<Duration>,
}

/// An event is larger than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {limit} bytes")]
pub struct TooLarge {
    /// The limit in bytes.
    pub limit: usize,
}

/// Reads a stream of events from bytes that come in any chunking.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    line: BytesMut,
    data: BytesMut,
    has_data: bool,
    event: Option<Box<str>>,
    id: Option<Box<str>>,
    retry: Option<Duration>,
    last_retry: Option<Duration>,
    is_first_line: bool,
    after_cr: bool,
    ready: VecDeque<Event>,
}

impl Decoder {
    /// A decoder for events of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: BytesMut::new(),
            data: BytesMut::new(),
            has_data: false,
            event: None,
            id: None,
            retry: None,
            last_retry: None,
            is_first_line: true,
            after_cr: false,
            ready: VecDeque::new(),
        }
    }

    /// Takes the next bytes. Events that they complete are there for [`Self::next_event`].
    ///
    /// # Errors
    /// [`TooLarge`] once an event, or a line of it, passes the limit; the stream is of no use then.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), TooLarge> {
        let mut rest = chunk;
        if self.after_cr && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_cr = false;
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
            let (line, tail) = rest.split_at(at);
            let (ending, tail) = tail.split_at(1);
            rest = tail;
            if ending == b"\r" {
                self.after_cr = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            self.check(line.len())?;
            if self.line.is_empty() {
                self.end_line(line);
            } else {
                self.line.extend_from_slice(line);
                let whole = self.line.split();
                self.end_line(&whole);
            }
        }
        self.check(rest.len())?;
        self.line.extend_from_slice(rest);
        Ok(())
    }

    /// The next complete event, oldest first.
    pub fn next_event(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// How many bytes of events are held here, complete ones included.
    #[must_use]
    pub fn pending(&self) -> usize {
        let ready: usize = self.ready.iter().map(|event| event.data.len()).sum();
        self.line.len() + self.data.len() + ready
    }

    /// Whether an event has begun and not ended.
    #[must_use]
    pub fn is_mid_event(&self) -> bool {
        !self.line.is_empty() || self.has_data
    }

    /// The last id that the stream named, also where no event has followed it.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The wait before the next attempt that the stream named last, also where no event has followed it.
    #[must_use]
    pub fn last_retry(&self) -> Option<Duration> {
        self.last_retry
    }

    fn check(&self, more: usize) -> Result<(), TooLarge> {
        let size = self.data.len().saturating_add(self.line.len()).saturating_add(more);
        if size > self.limit { Err(TooLarge { limit: self.limit }) } else { Ok(()) }
    }

    fn end_line(&mut self, line: &[u8]) {
        let line = match std::mem::take(&mut self.is_first_line) {
            true => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line),
            false => line,
        };
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(at) => {
                let (field, value) = line.split_at(at);
                let value = value.strip_prefix(b":").unwrap_or(value);
                (field, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.put_u8(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => self.event = Some(text_of(value)).filter(|event| !event.is_empty()),
            b"id" if !value.contains(&0) => self.id = Some(text_of(value)).filter(|id| !id.is_empty()),
            b"retry" => {
                self.retry = milliseconds(value).or(self.retry);
                self.last_retry = self.retry.or(self.last_retry);
            }
            _ => {}
        }
    }

    fn end_event(&mut self) {
        let event = self.event.take();
        let retry = self.retry.take();
        if std::mem::take(&mut self.has_data) {
            let data = self.data.split().freeze();
            self.ready.push_back(Event { event, data, id: self.id.clone(), retry });
        }
    }
}

fn text_of(value: &[u8]) -> Box<str> {
    String::from_utf8_lossy(value).into()
}

fn milliseconds(value: &[u8]) -> Option<Duration> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_number)?;
    text.parse().ok().map(Duration::from_millis)
}

/// Writes one event. `event` and `id` are left out where absent, or where a line break or NUL in them would
/// break the frame. Line breaks in `data` become several `data` lines, which read as line feeds: between
/// the tokens of JSON, that changes nothing.
#[must_use]
pub fn write_event(event: Option<&str>, id: Option<&str>, data: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(data.len() + 64);
    for (field, value) in [("event: ", event), ("id: ", id)] {
        if let Some(value) = value.filter(|value| !value.contains(['\r', '\n', '\0'])) {
            frame.extend_from_slice(field.as_bytes());
            frame.extend_from_slice(value.as_bytes());
            frame.put_u8(b'\n');
        }
    }
    let mut rest = data;
    loop {
        frame.extend_from_slice(b"data: ");
        let Some(at) = memchr::memchr2(b'\n', b'\r', rest) else {
            frame.extend_from_slice(rest);
            break;
        };
        let (line, tail) = rest.split_at(at);
        frame.extend_from_slice(line);
        frame.put_u8(b'\n');
        rest = tail.strip_prefix(b"\r\n").or_else(|| tail.get(1..)).unwrap_or_default();
    }
    frame.extend_from_slice(b"\n\n");
    frame.freeze()
}

/// An event without a message, from which a client can come back, and how long it is to wait before it does.
///
/// Spec: 2025-11-25, basic/transports, "Sending Messages to the Server".
pub fn write_priming(id: &str, retry: Duration) -> Bytes {
    let event = write_event(None, Some(id), b"");
    [format!("retry: {}\n", retry.as_millis()).as_bytes(), &event].concat().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<Event> {
        let mut decoder = Decoder::new(1 << 20);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk).unwrap();
            events.extend(std::iter::from_fn(|| decoder.next_event()));
        }
        events
    }

    fn data(text: &str) -> Vec<String> {
        let events = decode(&[text.as_bytes()]);
        events.iter().map(|event| String::from_utf8(event.data.to_vec()).unwrap()).collect()
    }

    #[test]
    fn every_line_end_ends_a_line() {
        for end in ["\n", "\r\n", "\r"] {
            let text = ["data: a", "data: b", "", "data:c", "", ""].join(end);
            assert_eq!(data(&text), ["a\nb", "c"], "{end:?}");
        }
        assert_eq!(data("data: a\r\ndata: b\n\rdata: c\r\r\n"), ["a\nb", "c"]);
    }

    #[test]
    fn the_table_of_the_specification() {
        for (text, expected) in [
            ("", &[][..]),
            ("\n\n\n", &[]),
            ("data: unfinished\n", &[]),
            ("data: unfinished", &[]),
            (": comment\n\n", &[]),
            ("event: x\n\n", &[]),
            ("data\n\ndata\ndata\n\ndata:", &["", "\n"]),
            ("data:test\n\ndata: test\n\n", &["test", "test"]),
            ("data:  two spaces\n\n", &[" two spaces"]),
            ("\u{feff}data: bom\n\n", &["bom"]),
            ("\u{feff}\u{feff}data: twice\n\n", &[]),
            ("unknown: x\ndata: y\nDATA: z\n\n", &["y"]),
            ("data: a:b\n:\ndata: c\n\n", &["a:b\nc"]),
            ("data: {\"a\": \"\u{85}\u{2028}\"}\n\n", &["{\"a\": \"\u{85}\u{2028}\"}"]),
        ] {
            assert_eq!(data(text), expected, "{text:?}");
        }
    }

    #[test]
    fn ids_stay_and_event_names_do_not() {
        let text = "id: 7\nevent: e\nretry: 1500\ndata: a\n\ndata: b\n\nid: x\0y\ndata: c\n\nid\ndata: d\n\n";
        let events = decode(&[text.as_bytes()]);
        let ids: Vec<_> = events.iter().map(|event| event.id.as_deref()).collect();
        assert_eq!(ids, [Some("7"), Some("7"), Some("7"), None]);
        assert_eq!(events[0].event.as_deref(), Some("e"));
        assert_eq!(events[0].retry, Some(Duration::from_millis(1500)));
        assert_eq!((&events[1].event, events[1].retry), (&None, None));
    }

    #[test]
    fn an_id_without_data_is_remembered() {
        let mut decoder = Decoder::new(100);
        decoder.push(b"id: 9\nretry: 7\nretry: x\n\n").unwrap();
        assert_eq!((decoder.next_event(), decoder.last_id()), (None, Some("9")));
        assert_eq!(decoder.last_retry(), Some(Duration::from_millis(7)));
    }

    #[test]
    fn an_endless_event_is_an_error_however_it_is_cut() {
        for chunk in ["x".repeat(10), "data: x\n".to_owned(), "data:\n".to_owned()] {
            let mut decoder = Decoder::new(1000);
            let ended = (0..2000).any(|_| decoder.push(chunk.as_bytes()).is_err());
            assert!(ended, "{chunk:?}");
        }
        assert!(Decoder::new(3).push(b"data: x\n\n").is_err());
    }

    #[test]
    fn frames_cannot_be_broken_from_inside() {
        assert_eq!(write_event(None, None, b"{}"), "data: {}\n\n");
        assert_eq!(
            write_event(Some("message"), Some("1-2"), b"{\r\n \"a\":\r1}"),
            "event: message\nid: 1-2\ndata: {\ndata:  \"a\":\ndata: 1}\n\n"
        );
        assert_eq!(write_event(Some("a\nb"), Some("c\0"), b""), "data: \n\n");
    }

    #[test]
    fn priming_is_an_event_with_an_id_and_nothing_else() {
        let frame = write_priming("1-0", Duration::from_secs(2));
        assert_eq!(frame, "retry: 2000\nid: 1-0\ndata: \n\n");
        let retry = Some(Duration::from_secs(2));
        assert_eq!(decode(&[&frame]), [Event { id: Some("1-0".into()), retry, ..Event::default() }]);
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "data: a", "data", "data:", ":", "id: 1", "event: e", "retry: 5", "\n", "\r", "\r\n", "\u{feff}", "é", "x",
                ]),
                0..60,
            ),
            cuts in prop::collection::vec(1_usize..7, 0..80),
        ) {
            let text = pieces.concat();
            let whole = decode(&[text.as_bytes()]);
            let mut chunks = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            chunks.push(rest);
            prop_assert_eq!(decode(&chunks), whole);
        }

        #[test]
        fn a_written_event_reads_as_itself(data in "[^\r]{0,80}") {
            let frame = write_event(None, None, data.as_bytes());
            let events = decode(&[&frame]);
            prop_assert_eq!(events.len(), 1);
            prop_assert_eq!(&events[0].data, data.as_bytes());
        }
    }
}
