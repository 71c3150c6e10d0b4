//! Peers under the test's control, down to the byte: the gateway's process, clients, servers.

pub mod client;
pub mod fault;
pub mod gateway;
pub mod http;
pub mod issuer;
pub mod json;
pub mod matrix;
pub mod metrics;
pub mod pipe;
pub mod process;
pub mod script;
pub mod turn;
pub mod upstream;

use std::time::{Duration, Instant};

/// A time that the machine's slowness stretches: `WAYPOST_TEST_TIME_FACTOR` (default 1) times `ms`.
pub fn scaled(ms: u64) -> Duration {
    let factor = std::env::var("WAYPOST_TEST_TIME_FACTOR").ok().and_then(|text| text.parse::<f64>().ok());
    Duration::from_millis(ms).mul_f64(factor.unwrap_or(1.0))
}

/// How long anything may take that should happen "soon". Generous: it only decides when a test gives up.
pub fn patience() -> Duration {
    scaled(20_000)
}

/// Waits until `probe` gives something; panics with `what` when patience ends.
pub fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + patience();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "gave up waiting: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs `jobs` at the same time and gives their results in order.
pub fn at_once<T: Send>(jobs: Vec<impl FnOnce() -> T + Send>) -> Vec<T> {
    std::thread::scope(|scope| {
        let running: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job)).collect();
        running.into_iter().map(|job| job.join().expect("a job panicked")).collect()
    })
}
