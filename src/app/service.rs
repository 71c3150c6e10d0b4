//! Tells the service manager that started us where we are, if one did: systemd with `Type=notify`.
//!
//! Must not know: what we are.

use sd_notify::NotifyState;

use crate::telemetry::ServiceUntold;

/// The endpoint listens.
pub(super) fn is_ready() {
    tell(&[NotifyState::Ready]);
}

/// What is under way ends, and nothing new begins.
pub(super) fn is_stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Does nothing where there is nobody to tell (`NOTIFY_SOCKET` is absent).
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        ServiceUntold { reason: &error.to_string() }.emit();
    }
}
