//! The way out of a pipe: whole messages in the order in which they were given, one a line where it has lines.
//!
//! Must not know: MCP.

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::wire::ndjson::one_line;

/// Messages that wait for a slow reader before those who send have to wait.
const QUEUE: usize = 16;

/// Bytes that are gathered into one write.
const GATHER: usize = 64 * 1024;

/// Takes messages for a pipe.
#[derive(Clone, Debug)]
pub(super) struct Outlet(mpsc::Sender<Bytes>);

impl Outlet {
    /// Sends one message, waiting for room. Nothing happens if it is empty, or nobody reads any more.
    ///
    /// Cancel safe: a cancelled send has sent nothing.
    pub(super) async fn send(&self, message: Bytes) {
        if !message.is_empty() {
            drop(self.0.send(message).await);
        }
    }
}

/// A way out whose messages somebody else carries on.
pub(super) fn queue() -> (Outlet, mpsc::Receiver<Bytes>) {
    let (sender, queue) = mpsc::channel(QUEUE);
    (Outlet(sender), queue)
}

/// Opens a way to `output`. The future writes; it ends once all outlets are dropped and everything is written, or
/// a write fails, and cancels `gone` then.
pub(super) fn open<W>(output: W, gone: CancellationToken) -> (Outlet, impl Future<Output = ()>)
where
    W: AsyncWrite + Unpin,
{
    let (outlet, queue) = queue();
    (outlet, write(output, queue, gone))
}

async fn write<W: AsyncWrite + Unpin>(
    mut output: W,
    mut queue: mpsc::Receiver<Bytes>,
    gone: CancellationToken,
) {
    let _gone = gone.drop_guard();
    let mut lines = BytesMut::new();
    while let Some(message) = queue.recv().await {
        put(&mut lines, message);
        while lines.len() < GATHER
            && let Ok(message) = queue.try_recv()
        {
            put(&mut lines, message);
        }
        if output.write_all(&lines).await.is_err() || output.flush().await.is_err() {
            return;
        }
        lines.clear();
    }
}

fn put(lines: &mut BytesMut, message: Bytes) {
    lines.extend_from_slice(&one_line(message));
    lines.put_u8(b'\n');
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, duplex};
    use tokio_util::task::TaskTracker;

    use super::*;

    #[tokio::test]
    async fn a_message_is_a_line_and_the_end_comes_after_all_of_them() {
        let (ours, mut theirs) = duplex(64);
        let gone = CancellationToken::new();
        let (outlet, written) = open(ours, gone.clone());
        outlet.send("{\n\"a\":\r\n1}".into()).await;
        outlet.send(Bytes::new()).await;
        outlet.send("[2]".into()).await;
        drop(outlet);
        written.await;
        let mut text = String::new();
        theirs.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "{ \"a\":  1}\n[2]\n");
        assert!(gone.is_cancelled());
    }

    #[tokio::test]
    async fn whoever_sends_waits_for_a_reader_and_not_for_one_that_is_gone() {
        let (ours, theirs) = duplex(8);
        let gone = CancellationToken::new();
        let (outlet, writing) = open(ours, gone.clone());
        let tasks = TaskTracker::new();
        tasks.spawn(writing);
        let sending = tasks.spawn(async move {
            for _ in 0..200 {
                outlet.send(Bytes::from_static(b"0123456789")).await;
            }
        });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!sending.is_finished(), "the queue is bounded");
        drop(theirs);
        sending.await.unwrap();
        gone.cancelled().await;
    }
}
