//! The shelf of events: what was sent on the streams of calls, kept for a while for clients that lose their
//! connection.
//!
//! Bounded for each session and in total, by number and by bytes, and by age; what does not fit pushes the oldest
//! out. A stream is on it while its call runs, and then for as long as any of its events is.
//!
//! Must not know: calls, what events say, HTTP.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::telemetry::{EventsDropped, EventsKept, Metrics};

/// Frames on their way to one connection. Where it does not read, its call waits.
const FRAMES: usize = 1;

/// The streams of calls, and what is kept of them.
#[derive(Debug)]
pub(super) struct Shelf {
    stock: Mutex<Stock>,
    bounds: Bounds,
    metrics: Arc<Metrics>,
}

/// What a shelf may hold.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    total: Amount,
    session: Amount,
    age: Duration,
}

/// A number of events, and the bytes that they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    events: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Stock {
    /// All events, oldest first.
    events: BTreeMap<u64, Kept>,
    last: u64,
    bytes: usize,
    sessions: HashMap<Arc<str>, Held>,
    streams: HashMap<u64, Stream>,
}

#[derive(Debug)]
struct Kept {
    stream: u64,
    number: u64,
    frame: Bytes,
    at: Instant,
}

/// The events of one session, oldest first.
#[derive(Debug, Default)]
struct Held {
    events: VecDeque<u64>,
    bytes: usize,
}

#[derive(Debug)]
struct Stream {
    session: Arc<str>,
    /// Its events, oldest first.
    events: VecDeque<u64>,
    /// The number of the last event that was sent.
    last: u64,
    /// Where its events go now; nobody sends on it any more once its call has ended.
    way: Option<watch::Sender<Way>>,
}

/// The way to the connection that reads a stream now.
#[derive(Clone, Debug)]
pub(super) struct Way {
    frames: mpsc::Sender<Bytes>,
    replaced: CancellationToken,
}

/// The end of a connection that reads a stream: first what is sent again, then what comes.
#[derive(Debug)]
pub(super) struct Intake {
    again: VecDeque<Bytes>,
    frames: mpsc::Receiver<Bytes>,
    replaced: CancellationToken,
}

/// One stream, for the one who writes it. Dropped, the stream has ended.
#[derive(Debug)]
pub(super) struct Writer {
    shelf: Arc<Shelf>,
    stream: u64,
    way: watch::Receiver<Way>,
}

/// A stream that a client comes back to.
#[derive(Debug)]
pub(super) struct Resumed {
    /// What it has missed, and what comes.
    pub(super) intake: Intake,
    /// How many events it has missed that are not kept any more.
    pub(super) missed: u64,
    /// Whether it has missed nothing, and nothing comes.
    pub(super) is_over: bool,
}

/// A way to a connection, and its end.
fn lay(again: VecDeque<Bytes>) -> (Way, Intake) {
    let (sender, frames) = mpsc::channel(FRAMES);
    let replaced = CancellationToken::new();
    (Way { frames: sender, replaced: replaced.clone() }, Intake { again, frames, replaced })
}

impl Way {
    /// Sends a frame, once there is room for it. Says whether the connection is there. Cancel safe: a cancelled
    /// send has sent nothing.
    pub(super) async fn send(&self, frame: Bytes) -> bool {
        self.frames.send(frame).await.is_ok()
    }

    /// Sends what need not arrive.
    pub(super) fn offer(&self, frame: Bytes) {
        let _full_or_gone = self.frames.try_send(frame);
    }

    /// Whether the connection is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.frames.is_closed()
    }

    /// Waits until the connection is gone. Cancel safe.
    pub(super) async fn gone(&self) {
        self.frames.closed().await;
    }
}

impl Intake {
    /// The next frame; `None` once the stream has ended, or another connection reads it. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        if self.replaced.is_cancelled() {
            return None;
        }
        if let Some(frame) = self.again.pop_front() {
            return Some(frame);
        }
        tokio::select! {
            biased;
            () = self.replaced.cancelled() => None,
            frame = self.frames.recv() => frame,
        }
    }
}

impl Shelf {
    /// An empty shelf.
    pub(super) fn new(config: &Config, metrics: Arc<Metrics>) -> Self {
        let limits = &config.limits;
        let session = Amount { events: limits.kept_events_per_session, bytes: limits.kept_bytes_per_session };
        let total = Amount { events: limits.kept_events, bytes: limits.kept_bytes };
        let bounds = Bounds { total, session, age: config.sessions.resume_window };
        Self { stock: Mutex::default(), bounds, metrics }
    }

    /// Whether one event of this size could be kept at all.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        bytes <= self.bounds.session.bytes.min(self.bounds.total.bytes)
    }

    /// Opens a stream of `session` under a number that nobody can guess. `None` if there is no randomness.
    pub(super) fn open(self: &Arc<Self>, session: &Arc<str>) -> Option<(Writer, Intake)> {
        let mut random = [0; 8];
        aws_lc_rs::rand::fill(&mut random).ok()?;
        let stream = u64::from_ne_bytes(random);
        let (way, intake) = lay(VecDeque::new());
        let (ways, way) = watch::channel(way);
        match self.lock().streams.entry(stream) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(place) => {
                let session = Arc::clone(session);
                place.insert(Stream { session, events: VecDeque::new(), last: 0, way: Some(ways) });
            }
        }
        Some((Writer { shelf: Arc::clone(self), stream, way }, intake))
    }

    /// What `session` has missed of a stream after the event with this number, and what comes. Whoever reads the
    /// stream does so no longer. `None` where there is no such stream any more.
    pub(super) fn resume(&self, session: &str, stream: u64, after: u64) -> Option<Resumed> {
        let mut stock = self.lock();
        let Stock { events, streams, .. } = &mut *stock;
        let found = streams.get_mut(&stream).filter(|stream| *stream.session == *session)?;
        let kept = found.events.iter().filter_map(|serial| events.get(serial));
        let again: VecDeque<Bytes> =
            kept.filter(|kept| kept.number > after).map(|kept| kept.frame.clone()).collect();
        let missed = found.last.saturating_sub(after).saturating_sub(again.len() as u64);
        let is_over = again.is_empty() && missed == 0 && found.way.is_none();
        let (way, intake) = lay(again);
        if let Some(there) = &found.way {
            there.send_replace(way).replaced.cancel();
        }
        Some(Resumed { intake, missed, is_over })
    }

    /// Forgets what is older than it need be. To be called every now and then.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let mut stock = self.lock();
        while let Some((serial, kept)) = stock.events.first_key_value()
            && now.duration_since(kept.at) > self.bounds.age
        {
            let serial = *serial;
            stock.drop_event(serial);
        }
        self.tell(&stock);
    }

    /// Forgets all events of a session.
    pub(super) fn forget(&self, session: &str) {
        let mut stock = self.lock();
        while let Some(serial) = stock.oldest_of(session) {
            stock.drop_event(serial);
        }
        self.tell(&stock);
    }

    fn put(&self, stock: &mut Stock, (stream, number): (u64, u64), frame: Option<Bytes>) {
        let Some(found) = stock.streams.get_mut(&stream) else { return };
        found.last = number;
        let session = Arc::clone(&found.session);
        if let Some(frame) = frame.filter(|frame| self.takes(frame.len())) {
            self.make_room(stock, &session, frame.len());
            stock.put(&session, Kept { stream, number, frame, at: Instant::now() });
            self.tell(stock);
        } else {
            EventsDropped { limit: "session", count: 1 }.emit(&self.metrics);
        }
    }

    /// Pushes out, oldest first, what one more event of `bytes` has no room beside.
    fn make_room(&self, stock: &mut Stock, session: &str, bytes: usize) {
        let is_over =
            |held: Amount, most: Amount| held.events >= most.events || held.bytes + bytes > most.bytes;
        let (mut of_session, mut of_all) = (0, 0);
        while is_over(stock.held_by(session), self.bounds.session)
            && let Some(serial) = stock.oldest_of(session)
        {
            stock.drop_event(serial);
            of_session += 1;
        }
        while is_over(Amount { events: stock.events.len(), bytes: stock.bytes }, self.bounds.total)
            && let Some((serial, _)) = stock.events.first_key_value()
        {
            let serial = *serial;
            stock.drop_event(serial);
            of_all += 1;
        }
        for (limit, count) in [("session", of_session), ("total", of_all)] {
            if count > 0 {
                EventsDropped { limit, count }.emit(&self.metrics);
            }
        }
    }

    fn close(&self, stream: u64) {
        let mut stock = self.lock();
        if let Entry::Occupied(mut found) = stock.streams.entry(stream) {
            found.get_mut().way = None;
            if found.get().events.is_empty() {
                found.remove();
            }
        }
    }

    fn tell(&self, stock: &Stock) {
        EventsKept { count: stock.events.len(), bytes: stock.bytes }.emit(&self.metrics);
    }

    fn lock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stock {
    fn put(&mut self, session: &Arc<str>, kept: Kept) {
        self.last += 1;
        let bytes = kept.frame.len();
        let held = self.sessions.entry(Arc::clone(session)).or_default();
        held.events.push_back(self.last);
        held.bytes += bytes;
        self.bytes += bytes;
        if let Some(stream) = self.streams.get_mut(&kept.stream) {
            stream.events.push_back(self.last);
        }
        self.events.insert(self.last, kept);
    }

    fn oldest_of(&self, session: &str) -> Option<u64> {
        self.sessions.get(session)?.events.front().copied()
    }

    fn held_by(&self, session: &str) -> Amount {
        let held = self.sessions.get(session);
        held.map_or(Amount::default(), |held| Amount { events: held.events.len(), bytes: held.bytes })
    }

    /// Drops an event that is the oldest of its session, which makes it the oldest of its stream.
    fn drop_event(&mut self, serial: u64) {
        let Some(kept) = self.events.remove(&serial) else { return };
        let bytes = kept.frame.len();
        self.bytes = self.bytes.saturating_sub(bytes);
        let Entry::Occupied(mut stream) = self.streams.entry(kept.stream) else { return };
        stream.get_mut().events.pop_front();
        if let Entry::Occupied(mut held) = self.sessions.entry(Arc::clone(&stream.get().session)) {
            held.get_mut().events.pop_front();
            held.get_mut().bytes = held.get().bytes.saturating_sub(bytes);
            if held.get().events.is_empty() {
                held.remove();
            }
        }
        if stream.get().events.is_empty() && stream.get().way.is_none() {
            stream.remove();
        }
    }
}

impl Writer {
    /// The number of the stream.
    pub(super) fn stream(&self) -> u64 {
        self.stream
    }

    /// Whether one event of this size could be kept at all.
    pub(super) fn keeps(&self, bytes: usize) -> bool {
        self.shelf.takes(bytes)
    }

    /// Keeps the event with this number, one more than that of the one before, as far as there is room. Gives the
    /// connection to which it is to be sent: one that comes later finds it here.
    pub(super) fn append(&mut self, number: u64, frame: Option<Bytes>) -> Way {
        // Both under one lock: whoever comes between would get the event twice, or not at all.
        let mut stock = self.shelf.lock();
        self.shelf.put(&mut stock, (self.stream, number), frame);
        self.way.borrow_and_update().clone()
    }

    /// The connection that reads the stream now.
    pub(super) fn way(&mut self) -> Way {
        self.way.borrow_and_update().clone()
    }

    /// Waits until another connection reads the stream than [`Self::way`] gave last. Cancel safe.
    pub(super) async fn replaced(&mut self) {
        if self.way.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shelf.close(self.stream);
    }
}

#[cfg(test)]
mod tests;
