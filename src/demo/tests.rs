//! The demo servers before a foreign client, in each of its lifecycle modes.

use rmcp::model::{CallToolRequestParams, CallToolResult, ProtocolVersion};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::{Value, json};

use super::*;

type Peer = RunningService<RoleClient, ()>;

const HELLO: ClientLifecycleMode = ClientLifecycleMode::Initialize;

fn discover() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

fn auto() -> ClientLifecycleMode {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    ClientLifecycleMode::Auto { preferred_versions, legacy_version: None }
}

async fn call(peer: &Peer, name: &'static str, arguments: Value) -> CallToolResult {
    let Value::Object(arguments) = arguments else { panic!("no object") };
    peer.call_tool(CallToolRequestParams::new(name).with_arguments(arguments)).await.unwrap()
}

/// Serves one client on pipes; `act` is given the client.
async fn with_client<F>(demo: Demo, mode: ClientLifecycleMode, act: impl FnOnce(Peer) -> F)
where
    F: Future<Output = ()>,
{
    let (theirs, ours) = tokio::io::duplex(1 << 16);
    let (stdin, stdout) = tokio::io::split(ours);
    let acting = async {
        act(().serve_with_lifecycle(tokio::io::split(theirs), mode).await.unwrap()).await;
    };
    let (served, ()) = tokio::join!(run_stdio(demo, stdin, stdout), acting);
    served.unwrap();
}

#[tokio::test]
async fn a_foreign_client_uses_the_legacy_server() {
    for mode in [HELLO, auto()] {
        with_client(Demo::Legacy, mode, async |peer| {
            assert_eq!(peer.list_all_tools().await.unwrap().len(), 3);
            let counted = call(&peer, "count_words", json!({"text": "a b c"})).await;
            assert_eq!(counted.structured_content.unwrap()["words"], 3);
            assert_eq!(call(&peer, "slow_count", json!({"to": 1, "delay_ms": 0})).await.is_error, None);
            peer.cancel().await.unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn a_foreign_client_uses_the_modern_server() {
    for mode in [discover(), auto()] {
        with_client(Demo::Modern, mode, async |peer| {
            assert_eq!(peer.list_all_tools().await.unwrap().len(), 4);
            let rolled = call(&peer, "roll_dice", json!({"count": 2, "seed": 1})).await;
            assert!(rolled.structured_content.unwrap()["total"].as_u64().unwrap() >= 2);
            assert_eq!(call(&peer, "roll_dice", json!({"sides": 1})).await.is_error, Some(true));
            peer.cancel().await.unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn a_foreign_client_uses_the_http_server_in_either_era() {
    // Loopback speaks no TLS, but the client wants to know how it would.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let acting = async {
        for mode in [HELLO, discover(), auto()] {
            let transport = StreamableHttpClientTransport::from_uri(format!("http://{address}/mcp"));
            let peer = ().serve_with_lifecycle(transport, mode).await.unwrap();
            assert_eq!(peer.list_all_tools().await.unwrap().len(), 4);
            let found = call(&peer, "search_docs", json!({"query": "progress"})).await;
            assert_eq!(found.structured_content.unwrap()["matches"][0]["id"], "progress");
            // This client asks for progress with each call, so the answer is a stream.
            assert_eq!(call(&peer, "summarize", json!({"id": "eras"})).await.is_error, None);
            peer.cancel().await.unwrap();
        }
        shutdown.cancel();
    };
    let (served, ()) = tokio::join!(http(listener, shutdown.clone()), acting);
    served.unwrap();
}
