//! The status page, as JSON.
//!
//! Must not know: HTTP. Writes only what may stand on a public page: an upstream's reason is the public one.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::{AdminState, Reload};
use crate::config::{Config, Transport};
use crate::gateway::{Health, Offer};

/// So many failures in a row are a crash loop.
const CRASH_LOOP: u32 = 5;

/// The page.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: &'static str,
    phase: &'static str,
    config_hash: String,
    uptime_seconds: f64,
    /// What came of reading the configuration last; absent if it was read at the start only.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_reload: Option<Reload>,
    upstreams: Vec<Upstream>,
}

#[derive(Debug, Serialize)]
struct Upstream {
    name: String,
    transport: Option<&'static str>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// How long it has been in this state, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    state_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_in_seconds: Option<f64>,
    /// How many attempts in a row failed, or did not last.
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<u32>,
    /// `open` while it is not called because its last calls had no answer.
    breaker: &'static str,
    protocol_version: Option<&'static str>,
    tools: usize,
    connects: u64,
    /// Connections that belong to one client or one session each.
    own_connections: u64,
}

/// Writes the page from what is known now.
pub(super) fn report(state: &AdminState) -> Report {
    let (config, upstreams) = (state.sights.config(), state.sights.offers());
    let now = Instant::now();
    Report {
        version: env!("CARGO_PKG_VERSION"),
        phase: state.readiness.phase().as_str(),
        config_hash: config.hash.clone(),
        last_reload: state.sights.last_reload(),
        uptime_seconds: rounded(now.saturating_duration_since(state.started).as_secs_f64()),
        upstreams: upstreams.iter().map(|named| upstream((state, &config), named, now)).collect(),
    }
}

fn upstream(
    (state, config): (&AdminState, &Config),
    (name, offer): &(Arc<str>, Arc<Offer>),
    now: Instant,
) -> Upstream {
    let transport = config.upstreams_in_order().find(|known| known.name == *name);
    let transport = transport.map(|known| match known.transport {
        Transport::Stdio(_) => "stdio",
        Transport::Http(_) => "http",
    });
    let breaker = if state.metrics.is_breaker_open(name) { "open" } else { "closed" };
    let shown = Upstream {
        name: name.to_string(),
        transport,
        state: "connecting",
        reason: None,
        state_seconds: None,
        retry_in_seconds: None,
        failures: None,
        breaker,
        protocol_version: offer.protocol_version,
        tools: offer.lists.tools.entries.len(),
        connects: offer.connects,
        own_connections: state.metrics.own_connections(name),
    };
    match &offer.health {
        Health::Connecting => shown,
        Health::Ready => Upstream { state: "ready", ..shown },
        Health::Idle => Upstream { state: "idle", ..shown },
        Health::Down { reason, since, retry_at, failures } => Upstream {
            state: if *failures < CRASH_LOOP { "down" } else { "crash_looping" },
            reason: Some(reason.to_string()),
            state_seconds: Some(rounded(now.saturating_duration_since(*since).as_secs_f64())),
            retry_in_seconds: Some(rounded(retry_at.saturating_duration_since(now).as_secs_f64())),
            failures: Some(*failures),
            ..shown
        },
    }
}

/// To milliseconds.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}
