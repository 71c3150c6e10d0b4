//! What an upstream is given up for.

use std::time::Duration;

use crate::config::Resilience;
use crate::config::reference as keys;
use crate::config::section::Section;

/// Reads how much an upstream is put up with.
pub(crate) fn resilience(section: &mut Section<'_>) -> Resilience {
    Resilience { stream_idle: time(section, &keys::STREAM_IDLE) }
}

/// A time of which zero is none.
fn time(section: &mut Section<'_>, key: &'static keys::Key<keys::Bounded<Duration>>) -> Option<Duration> {
    section.bounded(key).filter(|time| !time.is_zero())
}
