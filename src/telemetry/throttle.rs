//! Keeps a flood of one kind of log line from drowning the rest.
//!
//! Must not know: what is logged.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many keys are told apart; later ones share one place.
const MAX_KEYS: usize = 1_024;

/// Lets so many lines per key and period through, and counts the rest.
#[derive(Debug)]
pub(super) struct Throttle {
    lines: u32,
    period: Duration,
    windows: Mutex<HashMap<Box<str>, Window>>,
}

#[derive(Debug)]
struct Window {
    start: Instant,
    lines: u32,
    suppressed: u64,
}

impl Throttle {
    /// `lines` per key in any `period` that begins with a line.
    pub(super) fn new(lines: u32, period: Duration) -> Self {
        Self { lines, period, windows: Mutex::default() }
    }

    /// Whether a line may be written now; if so, how many were kept back since the last one.
    pub(super) fn admit(&self, key: &str, now: Instant) -> Option<u64> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let key = if windows.len() < MAX_KEYS || windows.contains_key(key) { key } else { "" };
        if !windows.contains_key(key) {
            windows.insert(Box::from(key), Window { start: now, lines: 0, suppressed: 0 });
        }
        let window = windows.get_mut(key)?;
        if now.saturating_duration_since(window.start) >= self.period {
            window.start = now;
            window.lines = 0;
        }
        if window.lines >= self.lines {
            window.suppressed += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_period_and_key_and_the_rest_is_counted() {
        let throttle = Throttle::new(1, Duration::from_secs(60));
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(throttle.admit("a", at(0)), Some(0));
        assert_eq!(throttle.admit("a", at(1)), None);
        assert_eq!(throttle.admit("a", at(59)), None);
        assert_eq!(throttle.admit("b", at(59)), Some(0));
        assert_eq!(throttle.admit("a", at(60)), Some(2));
        assert_eq!(throttle.admit("a", at(61)), None);
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let throttle = Throttle::new(1, Duration::from_secs(60));
        let now = Instant::now();
        for index in 0..MAX_KEYS * 2 {
            let _admitted = throttle.admit(&index.to_string(), now);
        }
        assert!(throttle.windows.lock().unwrap().len() <= MAX_KEYS + 1);
    }
}
