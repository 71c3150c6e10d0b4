//! Growing waits with jitter.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// Waits that double from one failure to the next, up to a bound.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// How many waits there were since the last reset.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// The next wait: between three quarters and the whole of a doubling step, so that many gateways do not
    /// come back in the same instant.
    pub(super) fn next(&mut self) -> Duration {
        let step = self.first.saturating_mul(1_u32 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        // A fresh hasher is random; that is random enough here.
        let part = RandomState::new().hash_one(()) % 1024;
        let jitter = step.as_micros().saturating_mul(u128::from(part)) / 4096;
        step.saturating_sub(Duration::from_micros(u64::try_from(jitter).unwrap_or_default()))
    }

    /// The next wait is the first one again.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_wait_is_within_its_bounds_whatever_was_before(steps in prop::collection::vec(any::<bool>(), 0..200)) {
            let (first, longest) = (Duration::from_millis(500), Duration::from_secs(60));
            let mut backoff = Backoff::new(first, longest);
            let mut failures = 0;
            for is_failure in steps {
                if is_failure {
                    let step = first.saturating_mul(1 << failures.min(10)).min(longest);
                    let wait = backoff.next();
                    failures += 1;
                    prop_assert!(wait <= step && wait >= step * 3 / 4, "{wait:?} after {failures}");
                } else {
                    backoff.reset();
                    failures = 0;
                }
                prop_assert_eq!(backoff.failures(), failures);
            }
        }
    }

    #[test]
    fn waits_double_up_to_the_bound_and_begin_again() {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));
        for step in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            let wait = backoff.next().as_secs_f64();
            assert!(wait <= step && wait >= step * 0.74, "{wait} for {step}");
        }
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(500));
    }
}
