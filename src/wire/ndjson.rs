//! Newline-delimited JSON: bytes in any chunking to lines, and a message to one line.
//!
//! Bounded: a line that grows past the limit is an error before it is whole. A line of any size costs time
//! in proportion to its length.

use bytes::{Bytes, BytesMut};

/// How much room a read is given at the least.
const ROOM: usize = 16 * 1024;

/// A line is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {limit} bytes")]
pub struct TooLong {
    /// The limit in bytes.
    pub limit: usize,
}

/// Cuts a stream of bytes into lines.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    buffer: BytesMut,
    searched: usize,
}

impl Lines {
    /// For lines of at most `limit` bytes, line end not counted.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, buffer: BytesMut::new(), searched: 0 }
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
    /// [`TooLong`] once a line passes the limit; the stream is of no use then.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, TooLong> {
        let fresh = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(at) = memchr::memchr(b'\n', fresh) else {
            self.searched = self.buffer.len();
            return if self.searched > self.limit { Err(TooLong { limit: self.limit }) } else { Ok(None) };
        };
        let end = self.searched + at;
        self.searched = 0;
        let mut line = self.buffer.split_to(end + 1).freeze();
        line.truncate(end);
        if end > self.limit { Err(TooLong { limit: self.limit }) } else { Ok(Some(line)) }
    }

    /// What is left behind the last line end.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.buffer
    }
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

    #[test]
    fn a_line_past_the_limit_is_an_error_whole_or_not() {
        let mut lines = Lines::new(3);
        lines.room().extend_from_slice(b"abc\nabcd");
        assert_eq!(lines.next_line().unwrap().unwrap(), "abc");
        assert_eq!(lines.next_line(), Err(TooLong { limit: 3 }));
        let mut lines = Lines::new(3);
        lines.room().extend_from_slice(b"abcd\n");
        assert_eq!(lines.next_line(), Err(TooLong { limit: 3 }));
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
                    found.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            found.push(String::from_utf8(lines.rest().to_vec()).unwrap());
            prop_assert_eq!(found, text.split('\n').map(str::to_owned).collect::<Vec<_>>());
        }
    }
}
