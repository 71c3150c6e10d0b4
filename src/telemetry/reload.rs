//! What becomes of the configuration while the gateway runs.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::IntCounter;
use tracing::{debug, error, info, warn};

use super::events::ms;
use super::metrics::{LimitScope, Metrics};
use crate::config::Config;

/// The configuration was read again and is in force.
#[derive(Debug)]
pub struct ConfigApplied<'a> {
    /// What it was read for: `SIGHUP`, `file`, `admin`.
    pub cause: &'static str,
    /// Which it is.
    pub hash: &'a str,
    /// Upstreams that are new.
    pub started: &'a [Arc<str>],
    /// Upstreams that were connected to anew.
    pub replaced: &'a [Arc<str>],
    /// Upstreams that are no more.
    pub ended: &'a [Arc<str>],
    /// Keys that say something else than what is in force, and that only a restart can change.
    pub kept: &'a [&'static str],
    /// How long it took.
    pub took: Duration,
}

/// The configuration was read again and says what it said before.
#[derive(Debug)]
pub struct ConfigUnchanged {
    /// What it was read for.
    pub cause: &'static str,
}

/// The configuration was read again and cannot be used; the one before stays in force.
#[derive(Debug)]
pub struct ConfigRefused<'a> {
    /// What it was read for.
    pub cause: &'static str,
    /// Everything that is wrong.
    pub reason: &'a str,
}

/// Something in the configuration most likely does not do what was meant.
#[derive(Debug)]
pub struct ConfigWarning<'a> {
    /// What, and where.
    pub reason: &'a str,
}

impl ConfigApplied<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.reloads.with(&["applied"], IntCounter::inc);
        metrics.reload_ok.with(&[], |cell| cell.set(1));
        metrics.config_kept.with(&[], |cell| cell.set(i64::from(!self.kept.is_empty())));
        metrics.config_taken_up();
        let names = |names: &[Arc<str>]| (!names.is_empty()).then(|| names.join(", "));
        info!(
            target: "waypost::config",
            event = "config_applied",
            cause = self.cause,
            hash = self.hash,
            upstreams_started = names(self.started),
            upstreams_replaced = names(self.replaced),
            upstreams_ended = names(self.ended),
            took_ms = ms(self.took),
        );
        if !self.kept.is_empty() {
            warn!(
                target: "waypost::config",
                event = "restart_needed",
                keys = self.kept.join(", "),
                reason = "only a restart changes these keys; everything else of the file is in force",
            );
        }
    }
}

impl ConfigUnchanged {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.reloads.with(&["unchanged"], IntCounter::inc);
        metrics.reload_ok.with(&[], |cell| cell.set(1));
        debug!(target: "waypost::config", event = "config_unchanged", cause = self.cause);
    }
}

impl ConfigRefused<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.reloads.with(&["refused"], IntCounter::inc);
        metrics.reload_ok.with(&[], |cell| cell.set(0));
        error!(
            target: "waypost::config",
            event = "config_refused",
            cause = self.cause,
            reason = self.reason,
        );
    }
}

impl ConfigWarning<'_> {
    /// Logs.
    pub fn emit(&self) {
        warn!(target: "waypost::config", event = "config_warning", reason = self.reason);
    }
}

impl Metrics {
    /// Counts for `config` from now on, which comes in the place of `before`: what is new in it is there at zero.
    pub fn renew(&self, before: &Config, config: &Config) {
        self.config.forget(&[("hash", &before.hash)]);
        self.config.with(&[&config.hash], |cell| cell.set(1));
        config.upstreams_in_order().for_each(|upstream| self.register_upstream(&upstream.name));
        config.clients_there().for_each(|(_, client)| self.register_client(&client.name));
    }

    /// An upstream is no more: neither are its series.
    pub fn forget_upstream(&self, upstream: &str) {
        self.forget(&[("upstream", upstream)]);
    }

    pub(super) fn register_client(&self, client: &str) {
        for scope in LimitScope::ALL {
            self.rate_limited.cell(&[client, scope.as_str()]);
        }
    }

    pub(super) fn start_reloads_at_zero(&self) {
        for outcome in ["applied", "unchanged", "refused"] {
            self.reloads.cell(&[outcome]);
        }
        self.reload_ok.with(&[], |cell| cell.set(1));
        self.config_kept.cell(&[]);
        self.config_taken_up();
    }

    fn config_taken_up(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.config_changed.with(&[], |cell| cell.set(now.as_secs_f64()));
    }
}
