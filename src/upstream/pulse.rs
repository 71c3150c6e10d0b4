//! Whether a server that says nothing still lives: asks it, and tells one that is busy from one that is stuck.
//!
//! Must not know: eras beyond the question that each has.

use std::future::pending;

use tokio::time::{Instant, sleep_until, timeout_at};

use crate::config::UpstreamConfig;
use crate::telemetry::{HealthCheckMissed, Metrics};
use crate::upstream::connection::Connection;
use crate::upstream::failure::Failure;

/// How often in a row an idle server is asked in vain before it counts as stuck.
const TRIES: u32 = 2;

/// What is watched.
pub(super) trait Heart {
    /// When anything came from it last.
    fn heard_at(&self) -> Instant;

    /// Whether calls are with it.
    fn is_busy(&self) -> bool;

    /// Asks it for a sign of life; says whether one came. Takes as long as it takes.
    fn beats(&self) -> impl Future<Output = bool> + Send;
}

impl Heart for Connection {
    fn heard_at(&self) -> Instant {
        self.wire().unsolicited.heard_at()
    }

    fn is_busy(&self) -> bool {
        Connection::is_busy(self)
    }

    async fn beats(&self) -> bool {
        Box::pin(self.ask(self.sign_of_life(), &[])).await.is_ok()
    }
}

/// Waits until the server is stuck, and says so; forever where it is not to be asked. Anything that comes from
/// it counts as a sign of life, an error too.
///
/// One without calls is stuck once it was asked in vain twice. One with calls may well be working on them and do
/// nothing else meanwhile: it is stuck only once it has been silent for longer than any call may take, so that
/// all of them have failed.
pub(super) async fn watch(heart: &impl Heart, config: &UpstreamConfig, metrics: &Metrics) -> Failure {
    let health = config.resilience.health;
    let Some(interval) = health.interval else { return pending().await };
    let mut missed = 0;
    let mut asked_at = Instant::now();
    loop {
        let heard = heart.heard_at();
        if heard >= asked_at {
            missed = 0;
        }
        sleep_until(heard.max(asked_at) + interval).await;
        let heard = heart.heard_at();
        if heard.elapsed() < interval {
            continue;
        }
        asked_at = Instant::now();
        let beats = timeout_at(asked_at + health.timeout, heart.beats()).await;
        if beats == Ok(true) || heart.heard_at() >= asked_at {
            continue;
        }
        missed += 1;
        let silent = heard.elapsed();
        let is_busy = heart.is_busy();
        let is_stuck = match is_busy {
            true => silent > config.longest_silence() + health.timeout,
            false => missed >= TRIES,
        };
        let verdict = match (is_stuck, is_busy) {
            (true, _) => "stuck",
            (false, true) => "busy",
            (false, false) => "asked again",
        };
        HealthCheckMissed { upstream: &config.name, silent, verdict }.emit(metrics);
        if is_stuck {
            return Failure::unavailable("it did not answer when it was asked whether it lives")
                .of_connection();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::config::for_test;

    const INTERVAL: Duration = Duration::from_secs(30);
    const PATIENCE: Duration = Duration::from_secs(10);

    /// Answers so many questions, then none.
    struct Scripted {
        heard: Mutex<Instant>,
        answers: Mutex<u32>,
        is_busy: bool,
    }

    impl Heart for Scripted {
        fn heard_at(&self) -> Instant {
            *self.heard.lock().unwrap()
        }

        fn is_busy(&self) -> bool {
            self.is_busy
        }

        async fn beats(&self) -> bool {
            {
                let mut answers = self.answers.lock().unwrap();
                if *answers > 0 {
                    *answers -= 1;
                    *self.heard.lock().unwrap() = Instant::now();
                    return true;
                }
            }
            pending().await
        }
    }

    /// How long it takes until a server with so many calls, that answers so many questions, counts as stuck; at the most a
    /// day.
    async fn stuck_after(answers: u32, calls: u32, interval: Option<Duration>) -> Option<Duration> {
        let mut config = (*for_test::config(&["slow"], &[]).upstreams[0]).clone();
        (config.resilience.health.interval, config.resilience.health.timeout) = (interval, PATIENCE);
        let began = Instant::now();
        let heart = Scripted { heard: Mutex::new(began), answers: Mutex::new(answers), is_busy: calls > 0 };
        let metrics = Metrics::default();
        let day = Duration::from_secs(86_400);
        timeout(day, watch(&heart, &config, &metrics)).await.ok().map(|_| began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_server_is_stuck_once_it_was_asked_in_vain_twice() {
        let twice = INTERVAL * 2 + PATIENCE;
        assert_eq!(stuck_after(0, 0, Some(INTERVAL)).await, Some(twice));
        assert_eq!(stuck_after(5, 0, Some(INTERVAL)).await, Some(INTERVAL * 5 + twice));
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_server_is_stuck_once_all_its_calls_have_failed() {
        // The longest call may be silent for a minute.
        let after = stuck_after(0, 1, Some(INTERVAL)).await.unwrap();
        assert!(after > Duration::from_secs(60) + PATIENCE, "{after:?}");
        assert!(after <= Duration::from_secs(60) + PATIENCE + INTERVAL, "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_not_to_be_asked_is_never_stuck() {
        assert_eq!(stuck_after(0, 0, None).await, None);
    }
}
