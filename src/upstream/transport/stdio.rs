//! A server on the other end of a pipe: one message a line. Reading and writing are two tasks that never
//! wait for each other, so a full pipe in one direction cannot stop the other.
//!
//! Must not know: eras, and what a message means beyond whose it is.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::child::{self, Child, Family};
use super::inbox::{Inbox, lost};
use super::{Farewell, Outgoing, Reply, cancelled, no_room};
use crate::config::{self, ProcessBounds};
use crate::exchange::Budget;
use crate::telemetry::{Metrics, ProcessOverBounds};
use crate::upstream::failure::Failure;
use crate::upstream::inflight::{Flight, Stage};
use crate::upstream::question::WayBack;
use crate::upstream::tenancy::Attribution;
use crate::upstream::unsolicited::Unsolicited;
use crate::wire::ndjson::{self, Lines, one_line};

/// Messages that may wait to be written.
const QUEUE: usize = 1024;
/// Bytes that may wait to be written, in KiB. A single larger message may wait alone.
const QUEUE_KIB: usize = 64 * 1024;
/// What is shorter is copied together with its neighbours and written at once.
const SMALL: usize = 16 * 1024;
/// How long what is still queued may take to be written when the connection is ended.
const FLUSH_GRACE: Duration = Duration::from_millis(500);
/// How long a child may take to exit after its stdin was closed.
const EXIT_GRACE: Duration = Duration::from_secs(2);
/// How long stdout is read after the child has exited: others may hold it open.
const DRAIN_GRACE: Duration = Duration::from_millis(250);
/// How long a notification of a cancellation may wait for room in the queue.
const FAREWELL_GRACE: Duration = Duration::from_secs(5);

/// A connection over a child's pipes. Dropping it ends the child, in the background.
#[derive(Debug)]
pub(in crate::upstream) struct Pipe {
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

/// What a child is given up for.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Bounds {
    /// Bytes of one message.
    pub(in crate::upstream) message: usize,
    /// How long it may pause in the middle of a message.
    pub(in crate::upstream) stream_idle: Option<Duration>,
    /// What its messages may take of the memory.
    pub(in crate::upstream) budget: Budget,
    /// How long it may read nothing of what is written to it.
    pub(in crate::upstream) write_stall: Duration,
}

/// What a pipe needs besides its child.
#[derive(Debug)]
pub(in crate::upstream) struct Surroundings {
    pub(in crate::upstream) unsolicited: Arc<Unsolicited>,
    /// Whose a question, or a log message, is.
    pub(in crate::upstream) attribution: Attribution,
    pub(in crate::upstream) bounds: Bounds,
}

/// What the two tasks and the callers share.
#[derive(Debug)]
pub(in crate::upstream) struct Shared {
    child: Child,
    queue: mpsc::Sender<Line>,
    room: Arc<Semaphore>,
    inbox: Inbox,
    closing: CancellationToken,
}

/// One message that waits to be written.
#[derive(Debug)]
struct Line {
    text: Bytes,
    stage: Option<Arc<Stage>>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Pipe {
    /// Starts the child and the two tasks.
    ///
    /// # Errors
    /// If the child cannot be started.
    pub(in crate::upstream) fn open(
        config: &config::Stdio,
        family: &Family<'_>,
        surroundings: Surroundings,
    ) -> Result<Self, Failure> {
        let Surroundings { unsolicited, attribution, bounds } = surroundings;
        let (child, pipes) = child::spawn(config, family)?;
        let (queue, waiting) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            child,
            queue,
            room: Arc::new(Semaphore::new(QUEUE_KIB)),
            inbox: Inbox::new(unsolicited, attribution),
            closing: CancellationToken::new(),
        });
        family.tasks.spawn(write(pipes.stdin, waiting, Arc::clone(&shared), bounds.write_stall));
        family.tasks.spawn(read(pipes.stdout, Arc::clone(&shared), bounds));
        if config.process.bounds.is_any() {
            let about = (Arc::clone(family.upstream), Arc::clone(family.metrics));
            family.tasks.spawn(bound(Arc::clone(&shared), config.process.bounds, about));
        }
        Ok(Self { shared, tasks: family.tasks.clone() })
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn request(&self, outgoing: Outgoing) -> Result<Reply, Failure> {
        let Outgoing { id, text, listener, farewell, .. } = outgoing;
        let (flight, answer) = self.shared.inbox.in_flight().enter(id, listener)?;
        let stage = Arc::clone(flight.stage());
        let departure = Departure { pipe: self, flight, farewell };
        self.shared.enqueue(text, Some(stage)).await.map_err(|lost| self.failure_or(lost))?;
        let response = answer.await.unwrap_or_else(|_| Err(self.failure_or(lost())));
        drop(departure);
        response.map(|response| Reply { response, status: None, session: None })
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, text: Bytes) -> Result<(), Failure> {
        self.shared.enqueue(text, None).await.map_err(|lost| self.failure_or(lost))
    }

    /// Whether a question of the server shows to which call it belongs.
    pub(super) fn attributes_questions(&self) -> bool {
        self.shared.inbox.attributes_questions()
    }

    /// Waits until the connection is broken.
    pub(super) async fn closed(&self) -> Failure {
        self.shared.inbox.closed().await
    }

    /// Ends the child: closes its stdin, waits, and only then uses force.
    pub(super) async fn stop(&self) {
        self.shared
            .inbox
            .in_flight()
            .close(&Failure::unavailable("Waypost ended the connection, as it is stopping"));
        self.shared.closing.cancel();
        drop(timeout(EXIT_GRACE, self.shared.child.exited()).await);
        self.shared.child.terminate();
        self.shared.child.gone().await;
    }

    /// Ends the child, and every call that it has.
    pub(super) fn give_up(&self, failure: Failure) {
        self.shared.close(failure);
    }

    fn failure_or(&self, other: Failure) -> Failure {
        self.shared.inbox.failure_or(other)
    }

    /// Says that a request is dropped, now or as soon as there is room.
    fn say_cancelled(&self, id: u64, reason: Option<&str>) {
        let line = Line { text: cancelled(id, reason), stage: None, _room: None };
        if let Err(mpsc::error::TrySendError::Full(line)) = self.shared.queue.try_send(line) {
            let queue = self.shared.queue.clone();
            self.tasks.spawn(async move { queue.send_timeout(line, FAREWELL_GRACE).await.is_ok() });
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.shared.closing.cancel();
        self.shared.child.terminate();
    }
}

/// A request that is out. Dropped before its answer came, it says so to the server, if that has seen it.
struct Departure<'a> {
    pipe: &'a Pipe,
    flight: Flight<'a>,
    farewell: Farewell,
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        let was_unanswered = self.flight.leave();
        if !was_unanswered || self.flight.stage().withdraw() {
            return;
        }
        if let Farewell::Cancelled(cancel) = &self.farewell {
            self.flight.abandon();
            self.pipe.say_cancelled(self.flight.id(), cancel.reason());
        }
    }
}

impl Shared {
    /// Answers a request of the server, waiting for room.
    ///
    /// # Errors
    /// If the connection is closed.
    pub(in crate::upstream) async fn answer(&self, text: Bytes) -> Result<(), Failure> {
        self.enqueue(text, None).await
    }

    /// Answers a request of the server, if there is room: one that asks faster than it reads gets no answer.
    pub(in crate::upstream) fn answer_aside(&self, text: Bytes) {
        let line = Line { text: one_line(text), stage: None, _room: None };
        if self.queue.try_send(line).is_err() {
            tracing::debug!("no room to answer a request of an upstream");
        }
    }

    /// Puts a message into the queue, waiting for room. Cancel safe: nothing is queued then.
    async fn enqueue(&self, text: Bytes, stage: Option<Arc<Stage>>) -> Result<(), Failure> {
        let size = (text.len() / 1024 + 1).min(QUEUE_KIB);
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(size).await.map_err(|_| lost())?;
        let line = Line { text: one_line(text), stage, _room: Some(room) };
        self.queue.send(line).await.map_err(|_| lost())
    }

    /// Ends everything: calls in flight fail, callers that wait for room, too.
    fn close(&self, failure: Failure) {
        self.inbox.close(failure);
        self.room.close();
        self.closing.cancel();
        self.child.terminate();
    }

    async fn take_line(self: &Arc<Self>, line: Bytes) {
        if line.trim_ascii().is_empty() {
            return;
        }
        self.inbox.take(&line, &|| WayBack::Pipe(Arc::clone(self))).await;
    }
}

/// The stdin of a child that has to read.
struct Input {
    stdin: ChildStdin,
    /// How long a write may make no progress.
    stall: Duration,
}

impl Input {
    async fn write_all(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            let Ok(written) = timeout(self.stall, self.stdin.write(bytes)).await else {
                return Err(ErrorKind::TimedOut.into());
            };
            bytes = bytes.get(written?..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Writes what is queued until the connection is ended; then closes stdin.
async fn write(stdin: ChildStdin, mut queue: mpsc::Receiver<Line>, shared: Arc<Shared>, stall: Duration) {
    let mut stdin = Input { stdin, stall };
    let result = tokio::select! {
        result = pump(&mut stdin, &mut queue, &shared.closing) => result,
        () = async { shared.closing.cancelled().await; sleep(FLUSH_GRACE).await } => Ok(()),
    };
    queue.close();
    if let Err(error) = result {
        shared.child.settled().await;
        let failure = match shared.child.has_exited() {
            true => shared.child.failure(),
            false if error.kind() == ErrorKind::TimedOut => {
                Failure::unavailable("the process does not read its input").of_connection()
            }
            false => Failure::unavailable("the process closed its input").of_connection().because(error),
        };
        shared.close(failure);
    }
}

async fn pump(
    stdin: &mut Input,
    queue: &mut mpsc::Receiver<Line>,
    closing: &CancellationToken,
) -> std::io::Result<()> {
    let mut batch = BytesMut::with_capacity(SMALL);
    loop {
        let line = tokio::select! {
            biased;
            line = queue.recv() => line,
            () = closing.cancelled() => None,
        };
        let Some(line) = line else { return Ok(()) };
        let mut next = Some(line);
        while let Some(line) = next {
            put(stdin, &mut batch, &line).await?;
            next = if batch.len() < SMALL { queue.try_recv().ok() } else { None };
        }
        stdin.write_all(&batch).await?;
        batch.clear();
    }
}

/// Adds a line to the batch, or writes both if it is a large one.
async fn put(stdin: &mut Input, batch: &mut BytesMut, line: &Line) -> std::io::Result<()> {
    if line.stage.as_ref().is_some_and(|stage| !stage.depart()) {
        return Ok(());
    }
    if line.text.len() > SMALL {
        stdin.write_all(batch).await?;
        batch.clear();
        stdin.write_all(&line.text).await?;
    } else {
        batch.extend_from_slice(&line.text);
    }
    batch.extend_from_slice(b"\n");
    Ok(())
}

/// Sees to it that the child takes no more than it may.
async fn bound(shared: Arc<Shared>, bounds: ProcessBounds, (upstream, metrics): (Arc<str>, Arc<Metrics>)) {
    let excess = tokio::select! {
        excess = shared.child.exceed(bounds) => excess,
        () = shared.child.gone() => return,
    };
    ProcessOverBounds { upstream: &upstream, bound: excess.bound, taken: &excess.taken, most: &excess.most }
        .emit(&metrics);
    // First of all why: its end must not be taken for the reason.
    shared.inbox.close(excess.failure());
    shared.child.kill();
    shared.close(excess.failure());
}

/// Reads messages until the connection breaks, and tells everybody.
async fn read(stdout: ChildStdout, shared: Arc<Shared>, bounds: Bounds) {
    let end = tokio::select! {
        end = read_lines(stdout, &shared, bounds) => end,
        () = async { shared.child.exited().await; sleep(DRAIN_GRACE).await } => None,
    };
    let failure = match end {
        Some(failure) => failure,
        None => {
            shared.child.settled().await;
            shared.child.failure()
        }
    };
    shared.close(failure);
}

/// Reads to the end; what ended it, if it was not the child.
async fn read_lines(mut stdout: ChildStdout, shared: &Arc<Shared>, bounds: Bounds) -> Option<Failure> {
    let limit = bounds.message;
    let mut lines = Lines::new(limit);
    let mut share = bounds.budget.share();
    loop {
        let idle = bounds.stream_idle.filter(|_| lines.is_mid_message());
        let reading = stdout.read_buf(lines.room());
        let read = match idle {
            None => reading.await,
            Some(idle) => match timeout(idle, reading).await {
                Ok(read) => read,
                Err(_) => return Some(stalled()),
            },
        };
        match read {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        loop {
            match lines.next_line() {
                Ok(Some(ndjson::Line::Whole(line))) => {
                    // What was counted as one is one or more lines, and what is left.
                    match share.resize(line.len()) {
                        Ok(()) => shared.take_line(share.keep(line)).await,
                        Err(_) => shared.inbox.take_ends(&line, &line, no_room()),
                    }
                }
                Ok(Some(ndjson::Line::TooLong { head, tail, why })) => {
                    let failure = match why {
                        ndjson::Cut::Limit => too_large(limit),
                        ndjson::Cut::Room => no_room(),
                    };
                    shared.inbox.take_ends(&head, &tail, failure);
                }
                Ok(None) => break,
                Err(error) => return Some(endless(error)),
            }
        }
        if share.resize(lines.rest().len()).is_err() {
            lines.shed();
        }
    }
    // A last message may lack its line end.
    shared.take_line(Bytes::copy_from_slice(lines.rest())).await;
    None
}

fn stalled() -> Failure {
    Failure::unavailable("it stopped in the middle of a message").of_connection()
}

fn too_large(limit: usize) -> Failure {
    Failure::broken(format!("its answer is larger than {limit} bytes"))
}

fn endless(error: ndjson::Endless) -> Failure {
    Failure::broken(format!("it sent a message larger than {} bytes", error.limit)).of_connection()
}
