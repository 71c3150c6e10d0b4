//! What the gateway says about itself: one struct per event, which is both the log line and the count.
//!
//! Must not know: anything but the model (`exchange`, `mcp`) and the checked configuration.

mod asks;
mod audit;
mod children;
mod events;
mod family;
mod identity;
mod lifecycle;
mod line;
mod list;
mod log;
mod metrics;
mod own;
mod process;
mod reload;
mod resumption;
mod subscriptions;
mod throttle;
mod trouble;
mod writer;

pub use asks::{ParkedCalls, QuestionsAsked};
pub use audit::{Audit, Audited};
pub use children::{ProcessOverBounds, UpstreamIdle};
pub use events::{
    CallFinished, CallOutcome, ClientRefused, EntrySkipped, EventMissed, LimitReached, SessionClosed,
    SessionOpened, UpstreamConnected, UpstreamFailed, UpstreamListed, UpstreamLost, UpstreamNoise,
    UpstreamStderr, UpstreamUnlisted,
};
pub use identity::{CertificatesFailed, CertificatesRead, CredentialsRefused, KeysFailed, KeysRead};
pub use lifecycle::{Launched, ListenFailed, Listening, RuleUnmatched, ServiceUntold, Stopped, Stopping};
pub use list::metrics_reference;
pub use log::{LogError, OpenLog, check_level, init};
pub use metrics::{
    Entered, InFlight, LimitScope, METRICS_CONTENT_TYPE, Metrics, OpenStream, OwnConnection, StreamKind,
    Table,
};
pub use own::{OwnConnectionEnded, OwnConnectionFailed, OwnConnectionOpened};
pub use reload::{ConfigApplied, ConfigRefused, ConfigUnchanged, ConfigWarning};
pub use resumption::{Detached, EventsDropped, EventsKept, Resumption, StreamResumed};
pub use subscriptions::{Subscribed, SubscriptionLost};
pub use trouble::{
    AcceptFailed, AcceptRecovered, BreakerClosed, BreakerOpened, CallRepeated, HealthCheckMissed,
    ToolBreakerClosed, ToolBreakerOpened,
};
