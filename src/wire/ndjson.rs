//! Newline-delimited JSON: bytes in any chunking to lines, and a message to one line.
//!
//! Bounded: of a line that grows past the limit, only its two ends are kept, and one that does not end is an
//! error. A line of any size costs time in proportion to its length.

use bytes::{Bytes, BytesMut};

/// How much room a read is given at the least.
const ROOM: usize = 16 * 1024;

/// How much of either end of a line that is too long is kept.
const KEPT: usize = 4 * 1024;
/// A line is taken for endless once it is this many times as long as the limit.
const ENDLESS: usize = 4;

/// A line that does not end: longer than four times the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {limit} bytes and does not end")]
pub struct Endless {
    /// The limit in bytes.
    pub limit: usize,
}

/// One line, without its line feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The whole line.
    Whole(Bytes),
    /// A line longer than the limit: its beginning, and its end.
    TooLong {
        /// The first bytes.
        head: Bytes,
        /// The last bytes.
        tail: Bytes,
        /// Why its middle was let go.
        why: Cut,
    },
}

/// Why the middle of a line was let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The line is longer than the limit.
    Limit,
    /// There was no room for it: [`Lines::shed`].
    Room,
}

/// Cuts a stream of bytes into lines.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    buffer: BytesMut,
    searched: usize,
    skipping: Option<Skipping>,
}

/// A line that is too long, as far as it was read.
#[derive(Debug)]
struct Skipping {
    head: Bytes,
    skipped: usize,
    why: Cut,
}

impl Lines {
    /// For lines of at most `limit` bytes, line end not counted.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, buffer: BytesMut::new(), searched: 0, skipping: None }
    }

    /// The buffer to append to what comes next; there is room in it. Nothing may be taken from it.
    pub fn room(&mut self) -> &mut BytesMut {
        if self.buffer.capacity() - self.buffer.len() < ROOM {
            self.buffer.reserve(self.buffer.len().clamp(ROOM, 1 << 20));
        }
        &mut self.buffer
    }

    /// The next whole line, without its line feed (a carriage return before it stays: it is white space).
    ///
    /// # Errors
    /// [`Endless`] if a line does not end; the stream is of no use then.
    pub fn next_line(&mut self) -> Result<Option<Line>, Endless> {
        let fresh = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(at) = memchr::memchr(b'\n', fresh) else {
            self.searched = self.buffer.len();
            return self.skip().map(|()| None);
        };
        let end = self.searched + at;
        self.searched = 0;
        let mut line = self.buffer.split_to(end + 1).freeze();
        line.truncate(end);
        Ok(Some(match self.skipping.take() {
            None if end <= self.limit => Line::Whole(line),
            skipping => {
                let why = skipping.as_ref().map_or(Cut::Limit, |skipping| skipping.why);
                let head = skipping.map(|skipping| skipping.head);
                let head = head.unwrap_or_else(|| Bytes::copy_from_slice(first(&line)));
                Line::TooLong { head, tail: Bytes::copy_from_slice(last(&line)), why }
            }
        }))
    }

    /// Lets the middle of a line go that is too long already.
    fn skip(&mut self) -> Result<(), Endless> {
        let is_long = self.skipping.is_some() || self.buffer.len() > self.limit;
        if !is_long || self.buffer.len() <= 2 * KEPT {
            return Ok(());
        }
        let skipping = self.skipping.take();
        let skipped = self.cut(skipping, Cut::Limit);
        let is_endless = skipped > self.limit.saturating_mul(ENDLESS);
        if is_endless { Err(Endless { limit: self.limit }) } else { Ok(()) }
    }

    /// Lets the middle of the line go that has begun, for want of room. Its end comes as
    /// [`Line::TooLong`].
    pub fn shed(&mut self) {
        if self.searched == self.buffer.len() && self.buffer.len() > 2 * KEPT {
            let skipping = self.skipping.take();
            self.cut(skipping, Cut::Room);
        }
    }

    /// Keeps the two ends of what is there; gives back how much was let go of the line so far.
    fn cut(&mut self, skipping: Option<Skipping>, why: Cut) -> usize {
        let head = || Skipping { head: Bytes::copy_from_slice(first(&self.buffer)), skipped: 0, why };
        let mut skipping = skipping.unwrap_or_else(head);
        let tail = BytesMut::from(last(&self.buffer));
        skipping.skipped += self.buffer.len() - tail.len();
        let skipped = skipping.skipped;
        self.skipping = Some(skipping);
        self.searched = tail.len();
        self.buffer = tail;
        skipped
    }

    /// Whether a message has begun and not ended.
    #[must_use]
    pub fn is_mid_message(&self) -> bool {
        self.skipping.is_some() || matches!(self.buffer.trim_ascii_start().first(), Some(b'{' | b'['))
    }

    /// What is left behind the last line end.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.buffer
    }
}

fn first(line: &[u8]) -> &[u8] {
    line.get(..KEPT).unwrap_or(line)
}

fn last(line: &[u8]) -> &[u8] {
    line.get(line.len().saturating_sub(KEPT)..).unwrap_or(line)
}

/// A JSON text on one line: line breaks between its tokens become spaces. Within strings JSON has none, so
/// the value stays the same; without any, so does the allocation.
#[must_use]
pub fn one_line(text: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &text).is_none() {
        return text;
    }
    text.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(text: &'static str) -> Line {
        Line::Whole(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn of_a_line_past_the_limit_the_ends_are_kept_and_the_next_is_whole() {
        for chunk in [1000, 7001, 1 << 20] {
            let mut lines = Lines::new(20_000);
            let text = format!("abc\nhead{}tail\nnext\n", "x".repeat(60_000));
            let mut found = Vec::new();
            for part in text.as_bytes().chunks(chunk) {
                lines.room().extend_from_slice(part);
                while let Some(line) = lines.next_line().unwrap() {
                    found.push(line);
                }
                assert!(lines.buffer.len() <= 20_000 + (1 << 20));
            }
            assert_eq!((&found[0], &found[2]), (&whole("abc"), &whole("next")));
            let Line::TooLong { head, tail, why: Cut::Limit } = &found[1] else { panic!("{found:?}") };
            assert!(head.starts_with(b"headx") && tail.ends_with(b"xtail"));
            assert!(head.len() <= KEPT && tail.len() <= KEPT);
        }
    }

    #[test]
    fn a_line_that_does_not_end_is_an_error_and_takes_little_room() {
        let mut lines = Lines::new(100_000);
        let mut chunks = 0;
        let error = loop {
            lines.room().extend_from_slice(&[b'x'; 10_000]);
            chunks += 1;
            if let Err(error) = lines.next_line() {
                break error;
            }
            assert!(lines.buffer.len() <= 110_000);
        };
        assert_eq!(error, Endless { limit: 100_000 });
        assert!((40..60).contains(&chunks), "{chunks}");
    }

    #[test]
    fn a_line_that_is_shed_comes_as_its_ends_and_the_next_is_whole() {
        let mut lines = Lines::new(1 << 20);
        lines.room().extend_from_slice(&[b'x'; 50_000]);
        assert_eq!(lines.next_line(), Ok(None));
        lines.shed();
        assert!(lines.rest().len() <= KEPT);
        lines.room().extend_from_slice(b"tail\nnext\n");
        let Ok(Some(Line::TooLong { tail, why: Cut::Room, .. })) = lines.next_line() else { panic!() };
        assert!(tail.ends_with(b"xtail"));
        assert_eq!(lines.next_line(), Ok(Some(whole("next"))));
    }

    #[test]
    fn a_message_is_written_on_one_line() {
        let text = Bytes::from_static(b"{\r\n \"a\": \"\\n\"\n}");
        assert_eq!(one_line(text), "{   \"a\": \"\\n\" }");
        let text = Bytes::from_static(b"{}");
        assert_eq!(one_line(text.clone()).as_ptr(), text.as_ptr());
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_lines(text in "[ab\r\n]{0,200}", cuts in prop::collection::vec(1_usize..9, 0..60)) {
            let mut lines = Lines::new(1000);
            let mut found = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts.into_iter().chain([text.len()]) {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                lines.room().extend_from_slice(head);
                rest = tail;
                while let Some(line) = lines.next_line().unwrap() {
                    let Line::Whole(line) = line else { panic!("{line:?}") };
                    found.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            found.push(String::from_utf8(lines.rest().to_vec()).unwrap());
            prop_assert_eq!(found, text.split('\n').map(str::to_owned).collect::<Vec<_>>());
        }
    }
}
