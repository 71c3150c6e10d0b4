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

/// Waits until the server is stuck, and says so; forever where it is not to be asked. Anything that comes from
/// it counts as a sign of life, an error too.
///
/// One without calls is stuck once it was asked in vain twice. One with calls may well be working on them and do
/// nothing else meanwhile: it is stuck only once it has been silent for longer than any call may take, so that
/// all of them have failed.
pub(super) async fn watch(connection: &Connection, config: &UpstreamConfig, metrics: &Metrics) -> Failure {
    let health = config.resilience.health;
    let Some(interval) = health.interval else { return pending().await };
    let mut missed = 0;
    let mut asked_at = Instant::now();
    loop {
        let heard = connection.wire().unsolicited.heard_at();
        if heard >= asked_at {
            missed = 0;
        }
        sleep_until(heard.max(asked_at) + interval).await;
        let heard = connection.wire().unsolicited.heard_at();
        if heard.elapsed() < interval {
            continue;
        }
        asked_at = Instant::now();
        let asking = connection.ask(connection.sign_of_life(), &[]);
        let answer = timeout_at(asked_at + health.timeout, Box::pin(asking)).await;
        if matches!(answer, Ok(Ok(_))) || connection.wire().unsolicited.heard_at() >= asked_at {
            continue;
        }
        missed += 1;
        let silent = heard.elapsed();
        let is_busy = connection.is_busy();
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
