//! Lines on their way to where the log goes: handed to a thread that writes them, so that no call waits for
//! whoever reads the log, or for the disk.
//!
//! Bounded: what finds no room is counted, and told once there is room again.
//!
//! Must not know: what the lines say.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

use super::audit::AuditUnwritten;
use super::lifecycle::LogLinesDropped;

/// Bytes of lines that may wait. A single larger line may wait alone.
pub(super) const ROOM: usize = 4 << 20;
/// What is waiting is written at once when it is this much.
const BATCH: usize = 64 << 10;
/// How long lines are gathered behind one that was written at once.
const GATHER: Duration = Duration::from_millis(10);
/// How long the end of the program waits for the last lines.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Lines of the log that found no room since the program began.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many lines of the log were dropped since the program began, as nobody took them in time.
pub(super) fn dropped_lines() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Lines of the audit log that found no room, or could not be written, since the program began.
static AUDIT_DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many lines of the audit log are missing.
pub(super) fn dropped_audit_lines() -> u64 {
    AUDIT_DROPPED.load(Ordering::Relaxed)
}

/// Whose lines they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lines {
    #[default]
    Log,
    Audit,
}

impl Lines {
    fn dropped(self) -> &'static AtomicU64 {
        match self {
            Self::Log => &DROPPED,
            Self::Audit => &AUDIT_DROPPED,
        }
    }

    const fn thread(self) -> &'static str {
        match self {
            Self::Log => "waypost-log",
            Self::Audit => "waypost-audit",
        }
    }
}

/// The way to the log. Every clone leads to the same thread, which runs as long as the program.
#[derive(Clone, Debug)]
pub(super) struct LineQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lines: Lines,
    waiting: Mutex<Waiting>,
    /// There is something to write, enough of it to write it at once, or somebody who waits for that.
    filled: Condvar,
    /// All is written.
    empty: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Lines that found no room since that was last told.
    dropped: u64,
    is_writing: bool,
    is_urgent: bool,
}

impl LineQueue {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub(super) fn start(lines: Lines, out: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared { lines, ..Shared::default() });
        let queue = Self(Arc::clone(&shared));
        thread::Builder::new().name(lines.thread().to_owned()).spawn(move || shared.write_to(out))?;
        Ok(queue)
    }

    /// Hands over one line. Never waits.
    pub(super) fn put(&self, line: &[u8]) {
        self.0.put(line);
    }

    /// Waits until all is written that was handed over, or for a second where nobody takes it.
    pub(super) fn flush(&self) {
        let mut waiting = self.0.lock();
        waiting.is_urgent = true;
        self.0.filled.notify_one();
        let is_left = |waiting: &mut Waiting| waiting.is_writing || !waiting.lines.is_empty();
        let waited = self.0.empty.wait_timeout_while(waiting, LAST_WORDS, is_left);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_urgent = false;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over one line, or several. Never waits for the one who writes.
    fn put(&self, line: &[u8]) {
        let mut waiting = self.lock();
        let before = waiting.lines.len();
        if before > 0 && before + line.len() > ROOM {
            waiting.dropped += 1;
            self.lines.dropped().fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.lines.extend_from_slice(line);
        let is_enough = before < BATCH && waiting.lines.len() >= BATCH;
        drop(waiting);
        if before == 0 || is_enough {
            self.filled.notify_one();
        }
    }

    /// Writes what there is, for ever: the first line after a pause at once, those behind it together.
    fn write_to(&self, mut out: impl Write) {
        let mut batch = Vec::new();
        loop {
            let dropped = self.next(&mut batch);
            let written = out.write_all(&batch).and_then(|()| out.flush());
            // There is nobody else to tell that nobody reads the log.
            if let (Lines::Audit, Err(error)) = (self.lines, written) {
                let lines = batch.iter().filter(|byte| **byte == b'\n').count() as u64;
                AUDIT_DROPPED.fetch_add(lines, Ordering::Relaxed);
                AuditUnwritten { reason: &error.to_string(), lines }.emit();
            }
            let written = Instant::now();
            batch.clear();
            batch.shrink_to(BATCH);
            let mut waiting = self.lock();
            waiting.is_writing = false;
            self.empty.notify_all();
            drop(waiting);
            match self.lines {
                _ if dropped == 0 => {}
                Lines::Log => LogLinesDropped { lines: dropped }.emit(),
                Lines::Audit => AuditUnwritten { reason: "too many lines waited", lines: dropped }.emit(),
            }
            self.gather(written + GATHER);
        }
    }

    /// Waits for the next lines and takes them; gives back how many were dropped beside them.
    fn next(&self, batch: &mut Vec<u8>) -> u64 {
        let waiting = self.filled.wait_while(self.lock(), |waiting| waiting.lines.is_empty());
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.lines, batch);
        waiting.is_writing = true;
        std::mem::take(&mut waiting.dropped)
    }

    fn gather(&self, until: Instant) {
        let pause = until.saturating_duration_since(Instant::now());
        let is_early = |waiting: &mut Waiting| waiting.lines.len() < BATCH && !waiting.is_urgent;
        drop(self.filled.wait_timeout_while(self.lock(), pause, is_early));
    }
}

impl<'a> MakeWriter<'a> for LineQueue {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

/// Takes the text of one event.
pub(super) struct Line<'a>(&'a Shared);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// A reader of the log that takes a write only when it is told to.
    struct Slow {
        may_take: Receiver<()>,
        taken: SyncSender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.may_take.recv().map_err(io::Error::other)?;
            self.taken.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (LineQueue, SyncSender<()>, Receiver<Vec<u8>>) {
        let ((go, may_take), (taken, seen)) = (sync_channel(64), sync_channel(64));
        (LineQueue::start(Lines::Log, Slow { may_take, taken }).unwrap(), go, seen)
    }

    fn put(queue: &LineQueue, line: &str) {
        queue.make_writer().write_all(line.as_bytes()).unwrap();
    }

    #[test]
    fn nobody_waits_for_who_reads_and_what_finds_no_room_is_counted() {
        let (queue, go, seen) = slow();
        put(&queue, "first\n");
        while !queue.0.lock().is_writing {
            thread::yield_now();
        }
        let line = "x".repeat(1 << 10);
        for _ in 0..ROOM >> 10 {
            put(&queue, &line);
        }
        let before = dropped_lines();
        put(&queue, "no room\n");
        put(&queue, "nor here\n");
        assert!(dropped_lines() >= before + 2);
        assert_eq!(queue.0.lock().dropped, 2);
        for _ in 0..3 {
            go.send(()).unwrap();
        }
        assert_eq!(seen.recv().unwrap(), b"first\n");
        assert_eq!(seen.recv().unwrap().len(), ROOM);
        put(&queue, "after\n");
        assert_eq!(seen.recv().unwrap(), b"after\n");
        assert_eq!(queue.0.lock().dropped, 0);
    }

    #[test]
    fn a_line_larger_than_the_room_is_written() {
        let (queue, go, seen) = slow();
        go.send(()).unwrap();
        put(&queue, &"x".repeat(ROOM + 1));
        assert_eq!(seen.recv().unwrap().len(), ROOM + 1);
    }

    #[test]
    fn lines_keep_their_order_and_the_end_waits_for_the_last() {
        let (queue, go, seen) = slow();
        for at in 0..50 {
            put(&queue, &format!("{at}\n"));
            go.send(()).unwrap();
        }
        queue.flush();
        let text: Vec<u8> = seen.try_iter().flatten().collect();
        assert_eq!(String::from_utf8(text).unwrap(), (0..50).map(|at| format!("{at}\n")).collect::<String>());
    }
}
