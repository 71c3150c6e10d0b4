//! Tells the service manager that started us where we are, if one did: systemd with `Type=notify`.
//!
//! Must not know: what we are.

use sd_notify::NotifyState;

use crate::telemetry::ServiceUntold;

/// The endpoint listens.
pub(super) fn is_ready() {
    tell(&[NotifyState::Ready]);
}

/// The configuration is being read again; [`is_ready`] says that it was.
pub(super) fn is_reloading() {
    let now = NotifyState::monotonic_usec_now().ok();
    tell(&[Some(NotifyState::Reloading), now].into_iter().flatten().collect::<Vec<_>>());
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
