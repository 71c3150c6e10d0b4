//! What an upstream is given up for.

use std::time::Duration;

use crate::config::reference as keys;
use crate::config::section::Section;
use crate::config::{Breaker, Health, Resilience, Retry};

/// When a child process is asked whether it lives that says nothing of it.
const CHILD_INTERVAL: Duration = Duration::from_secs(30);

/// Reads how much an upstream is put up with.
pub(crate) fn resilience(section: &mut Section<'_>) -> Resilience {
    let is_child = section.has_own(keys::COMMAND.name);
    Resilience {
        stream_idle: section.bounded(&keys::STREAM_IDLE).filter(|time| !time.is_zero()),
        health: section.within(&keys::HEALTH_KEY, |health| {
            let interval = health.bounded(&keys::HEALTH_INTERVAL).or(is_child.then_some(CHILD_INTERVAL));
            Health {
                interval: interval.filter(|time| !time.is_zero()),
                timeout: health.bounded(&keys::HEALTH_TIMEOUT).unwrap_or_default(),
            }
        }),
        breaker: section.within(&keys::BREAKER_KEY, |breaker| Breaker {
            failures: breaker.small_count(&keys::BREAKER_FAILURES).unwrap_or_default(),
            open: breaker.bounded(&keys::BREAKER_OPEN).unwrap_or_default(),
        }),
        retry: match section.choice(&keys::RETRY) {
            "never" => Retry::Never,
            "always" => Retry::Always,
            _ => Retry::Hinted,
        },
    }
}
