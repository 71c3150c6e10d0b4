//! How many own connections of an upstream are opened at the same time, and how soon another is tried after one
//! could not be opened: a server that does not start is not started once for everybody who wants it.
//!
//! Must not know: for whom a connection is, and how it is opened.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::upstream::backoff::Backoff;
use crate::upstream::failure::Failure;

/// Most that are opened at the same time. Processes take the machine's time to start; the next ones wait.
const AT_ONCE: usize = 8;
/// The first wait after a failure.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// When one may ask again while another finds out whether it works again.
const RETRY: Duration = Duration::from_secs(1);

/// What every opening passes.
#[derive(Debug)]
pub(super) struct Gate {
    slots: Semaphore,
    trouble: Mutex<Trouble>,
}

/// The openings that failed in a row.
#[derive(Debug)]
struct Trouble {
    backoff: Backoff,
    /// Why the last one failed, and when the next may be tried.
    last: Option<(Failure, Instant)>,
    /// Somebody finds out whether it works again.
    is_tried: bool,
}

/// The right to open one connection, as long as this lives.
#[derive(Debug)]
pub(super) struct Opening<'a> {
    gate: &'a Gate,
    is_trial: bool,
    _slot: Option<SemaphorePermit<'a>>,
}

impl Gate {
    pub(super) fn new() -> Self {
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let trouble = Mutex::new(Trouble { backoff, last: None, is_tried: false });
        Self { slots: Semaphore::new(AT_ONCE), trouble }
    }

    /// Waits for its turn. After a failure one at a time may try, and not before a growing wait is over. Cancel safe.
    ///
    /// # Errors
    /// Why the last opening failed, and when to ask again.
    pub(super) async fn pass(&self) -> Result<Opening<'_>, (Failure, Instant)> {
        let slot = self.slots.acquire().await.ok();
        let mut trouble = self.lock();
        let now = Instant::now();
        let is_trial = match &trouble.last {
            None => false,
            Some((failure, retry_at)) if *retry_at > now => return Err((failure.clone(), *retry_at)),
            Some((failure, _)) if trouble.is_tried => return Err((failure.clone(), now + RETRY)),
            Some(_) => true,
        };
        trouble.is_tried |= is_trial;
        Ok(Opening { gate: self, is_trial, _slot: slot })
    }

    fn lock(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opening<'_> {
    /// It is open: whoever wants one may try again.
    pub(super) fn succeeded(self) {
        let mut trouble = self.gate.lock();
        trouble.backoff.reset();
        trouble.last = None;
    }

    /// It could not be opened. Says when the next may be tried.
    pub(super) fn failed(self, failure: &Failure) -> Instant {
        let mut trouble = self.gate.lock();
        let now = Instant::now();
        // Those that were under way together count as one.
        let is_news = self.is_trial || trouble.last.is_none();
        let retry_at = match &trouble.last {
            Some((_, retry_at)) if !is_news => *retry_at,
            Some(_) | None => now + trouble.backoff.next(),
        };
        trouble.last = Some((failure.clone(), retry_at));
        retry_at
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if self.is_trial {
            self.gate.lock().is_tried = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    fn broken() -> Failure {
        Failure::unavailable("broken")
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_one_tries_at_a_time_and_ever_less_often() {
        let gate = Gate::new();
        let mut last_wait = Duration::ZERO;
        gate.pass().await.unwrap().failed(&broken());
        for _ in 0..5 {
            let (failure, retry_at) = gate.pass().await.unwrap_err();
            assert_eq!(failure.text, "broken");
            let wait = retry_at - Instant::now();
            assert!(wait > last_wait, "{wait:?} after {last_wait:?}");
            last_wait = wait;
            advance(wait).await;
            let trial = gate.pass().await.unwrap();
            assert!(gate.pass().await.is_err(), "one is enough to see");
            trial.failed(&broken());
        }
        advance(LONGEST_WAIT).await;
        drop(gate.pass().await.unwrap());
        gate.pass().await.unwrap().succeeded();
        let (first, second) = (gate.pass().await.unwrap(), gate.pass().await.unwrap());
        let retry_at = first.failed(&broken());
        assert_eq!(second.failed(&broken()), retry_at, "they were under way together");
        assert!(retry_at - Instant::now() <= FIRST_WAIT, "what was before is forgiven");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_opened_at_once_and_no_more() {
        let gate = Gate::new();
        let mut openings = Vec::new();
        for _ in 0..AT_ONCE {
            openings.push(gate.pass().await.unwrap());
        }
        let mut next = Box::pin(gate.pass());
        assert!((&mut next).now_or_never().is_none());
        openings.pop();
        assert!(next.await.is_ok());
    }
}
