//! The keys of an upstream that are about its bad days.

use std::time::Duration;

use super::{Bounded, Key};

pub(crate) static STREAM_IDLE: Key<Bounded<Duration>> = Key {
    name: "stream_idle",
    about: "How long it may pause in the middle of a message: a half-read body, event or line. The calls that wait \
            for it fail then; a pipe is closed. Pauses between messages are the business of `timeout`. `0s` is no \
            such limit.",
    form: Bounded {
        default: Some(Duration::from_secs(10)),
        min: Duration::ZERO,
        max: Duration::from_secs(3_600),
    },
};
