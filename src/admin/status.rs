//! The status page, as JSON.
//!
//! Must not know: HTTP. Writes only what may stand on a public page: an upstream's reason is the public one.

use std::time::Instant;

use serde::Serialize;

use super::AdminState;
use crate::gateway::{Health, Offer};

/// The page.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: &'static str,
    phase: &'static str,
    config_hash: String,
    uptime_seconds: f64,
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
    protocol_version: Option<&'static str>,
    tools: usize,
    connects: u64,
    /// Connections that belong to one client or one session each.
    own_connections: u64,
}

/// What is known of an upstream besides its offer: its transport, and how many connections of one client or
/// session each it has.
type Known = (Option<&'static str>, u64);

/// Writes the page from what is known now.
pub(super) fn report(state: &AdminState) -> Report {
    let transport = |name: &str| {
        let found = state.transports.iter().find(|(known, _)| &**known == name);
        found.map(|(_, transport)| *transport)
    };
    let upstreams = (state.offers)();
    let now = Instant::now();
    Report {
        version: env!("CARGO_PKG_VERSION"),
        phase: state.readiness.phase().as_str(),
        config_hash: state.config_hash.clone(),
        uptime_seconds: rounded(now.saturating_duration_since(state.started).as_secs_f64()),
        upstreams: upstreams
            .iter()
            .map(|(name, offer)| {
                let known = (transport(name), state.metrics.own_connections(name));
                upstream(name, offer, known, now)
            })
            .collect(),
    }
}

fn upstream(name: &str, offer: &Offer, (transport, own_connections): Known, now: Instant) -> Upstream {
    let (state, reason, state_seconds, retry_in_seconds) = match &offer.health {
        Health::Connecting => ("connecting", None, None, None),
        Health::Ready => ("ready", None, None, None),
        Health::Down { reason, since, retry_at } => (
            "down",
            Some(reason.to_string()),
            Some(rounded(now.saturating_duration_since(*since).as_secs_f64())),
            Some(rounded(retry_at.saturating_duration_since(now).as_secs_f64())),
        ),
    };
    Upstream {
        name: name.to_owned(),
        transport,
        state,
        reason,
        state_seconds,
        retry_in_seconds,
        protocol_version: offer.protocol_version,
        tools: offer.lists.tools.entries.len(),
        connects: offer.connects,
        own_connections,
    }
}

/// To milliseconds.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}
