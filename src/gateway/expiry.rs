//! When a call has been waited for long enough: without a word of its progress, and altogether.
//!
//! Must not know: where the call went.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::config::Patience;
use crate::exchange::EventSink;

/// The end of one call's time. Each word of progress puts it off, but not past the most that it may take.
#[derive(Debug)]
pub(super) struct Expiry {
    pub(super) began: Instant,
    pub(super) patience: Patience,
    /// Where its progress passes by.
    pub(super) events: EventSink,
}

impl Expiry {
    /// Waits for it, and says in words what was waited for in vain. Cancel safe.
    pub(super) async fn wait(self) -> String {
        let Patience { silence, most } = self.patience;
        loop {
            let heard = self.events.progressed_at().map_or(self.began, |at| at.max(self.began));
            let end = (heard + silence).min(self.began + most);
            if Instant::now() >= end {
                return match (heard > self.began, heard + silence <= self.began + most) {
                    (false, _) => format!("it did not answer within {}", in_words(silence)),
                    (true, true) => {
                        format!("it did not answer within {} of its last progress", in_words(silence))
                    }
                    (true, false) => {
                        format!("it did not answer within {}, the most that a call may take", in_words(most))
                    }
                };
            }
            sleep_until(end).await;
        }
    }
}

fn in_words(time: Duration) -> String {
    match (time.as_secs(), time.subsec_millis()) {
        (0, millis) => format!("{millis} ms"),
        (seconds, 0) => format!("{seconds} s"),
        (seconds, millis) => format!("{seconds}.{} s", millis / 100),
    }
}
