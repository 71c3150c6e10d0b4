//! How the era of a server on a pipe is found out.

use futures_util::{StreamExt, stream};
use serde_json::json;

use super::bench::Bench;

async fn version_of(plan: serde_json::Value) -> String {
    let bench = Bench::with(crate::config::Transport::Stdio(super::bench::scripted(&plan)), |upstream, _| {
        upstream.connect_timeout = std::time::Duration::from_secs(15);
    });
    let offer = bench.offer(|offer| !matches!(offer.health, crate::gateway::Health::Connecting)).await;
    bench.stop().await;
    match &offer.health {
        crate::gateway::Health::Down { reason, .. } => reason.to_string(),
        crate::gateway::Health::Ready | crate::gateway::Health::Idle | crate::gateway::Health::Connecting => {
            offer.protocol_version.unwrap().to_owned()
        }
    }
}

#[tokio::test]
async fn every_answer_to_the_probe_finds_the_era() {
    let supported = |versions: &[&str]| json!({"supported": versions});
    let cases = [
        ("a discovery", json!({"discover": "modern"}), "2026-07-28"),
        (
            "a modern error with versions",
            json!({"discover": -32022, "data": supported(&["2026-07-28"])}),
            "2026-07-28",
        ),
        ("a header mismatch", json!({"discover": -32020}), "2026-07-28"),
        ("a missing capability", json!({"discover": -32021}), "2026-07-28"),
        ("method not found", json!({"discover": -32601}), "2025-11-25"),
        ("invalid params", json!({"discover": -32602}), "2025-11-25"),
        ("an invalid request", json!({"discover": -32600}), "2025-11-25"),
        ("a server error", json!({"discover": -32000}), "2025-11-25"),
        ("an empty result", json!({"discover": "result"}), "2025-11-25"),
        ("silence", json!({"discover": "silent", "initialize": "2025-06-18"}), "2025-06-18"),
        ("an exit", json!({"discover": "exit", "initialize": "2024-11-05"}), "2024-11-05"),
        (
            "an exit after a slow start",
            json!({"discover": "exit", "slow": 6, "initialize": "2024-11-05"}),
            "2024-11-05",
        ),
        ("legacy versions only", json!({"discover": "modern", "versions": ["2025-11-25"]}), "2025-11-25"),
        ("an old revision", json!({"initialize": "2025-03-26"}), "2025-03-26"),
        ("a slow start", json!({"discover": "modern", "slow": 6, "initialize": -32022}), "2026-07-28"),
        (
            "no common version",
            json!({"discover": "modern", "versions": ["2031-01-01"]}),
            "it speaks no protocol version that we know",
        ),
        (
            "an unknown revision",
            json!({"initialize": "2031-01-01"}),
            "it answered the handshake with an unknown protocol version",
        ),
        ("a refusal", json!({"initialize": -32603}), "it refused the handshake with error -32603"),
        (
            "silence for ever",
            json!({"discover": "silent", "initialize": "silent"}),
            "it did not answer the handshake in time",
        ),
    ];
    // A few at a time: a machine that is slow for many of them looks like servers that are silent.
    let runs = stream::iter(cases).map(|(case, plan, expected)| async move {
        assert_eq!(version_of(plan).await, expected, "{case}");
    });
    runs.buffer_unordered(5).collect::<()>().await;
}
