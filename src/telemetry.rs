//! What the gateway says about itself: one struct per event, which is both the log line and the count.
//!
//! Must not know: anything but the model (`exchange`, `mcp`).

mod events;
mod metrics;

pub use events::{
    CallFinished, CallOutcome, ClientRefused, EntrySkipped, RuleUnmatched, SessionClosed, SessionOpened,
    UpstreamConnected, UpstreamFailed, UpstreamLost, UpstreamNoise, UpstreamStderr,
};
pub use metrics::Metrics;
