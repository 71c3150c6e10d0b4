//! A foreign implementation at either end: rmcp as a client in all its lifecycle modes, and as a server of
//! either era over both transports. What it and the gateway agree on is what the protocol says.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, DiscoverResult, ErrorCode,
    ErrorData, JsonObject, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer, RunningService, ServiceError};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient, ServerHandler, ServiceExt};
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::{Era, Transport};
use crate::support::script::Script;
use crate::support::upstream::relay;
use crate::support::{at_once, patience};

type Peer = RunningService<RoleClient, ()>;

fn modes() -> [ClientLifecycleMode; 3] {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    [
        ClientLifecycleMode::Initialize,
        ClientLifecycleMode::Discover { preferred_versions: preferred_versions.clone() },
        ClientLifecycleMode::Auto { preferred_versions, legacy_version: None },
    ]
}

async fn connect(gateway: &Gateway, mode: ClientLifecycleMode) -> Peer {
    // Loopback speaks no TLS, but the HTTP client wants to know how it would.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let transport = StreamableHttpClientTransport::from_uri(format!("http://{}/mcp", gateway.mcp));
    ().serve_with_lifecycle(transport, mode).await.expect("a connection")
}

fn calling(name: &str, text: &str) -> CallToolRequestParams {
    let Value::Object(arguments) = json!({"text": text}) else { unreachable!("an object") };
    CallToolRequestParams::new(name.to_owned()).with_arguments(arguments)
}

fn text_of(result: &CallToolResult) -> String {
    match result.content.first() {
        Some(ContentBlock::Text(text)) => text.text.clone(),
        other => panic!("no text: {other:?}"),
    }
}

/// Lists, calls, calls in parallel, and meets both kinds of error.
async fn exercise(peer: &Peer, names: &[&str]) {
    let listed: Vec<String> =
        peer.list_all_tools().await.expect("a list").into_iter().map(|tool| tool.name.into_owned()).collect();
    for name in names {
        assert!(listed.iter().any(|found| found == name), "{name} is not in {listed:?}");
        let result = peer.call_tool(calling(name, "hello")).await.expect("a result");
        assert_eq!(text_of(&result), "hello");
        assert_ne!(result.is_error, Some(true));
    }
    let calls = (0..30).map(|index| {
        let name = names[index % names.len()];
        async move { (index, peer.call_tool(calling(name, &format!("call {index}"))).await) }
    });
    for (index, result) in futures_util::future::join_all(calls).await {
        assert_eq!(text_of(&result.expect("a result")), format!("call {index}"));
    }
    match peer.call_tool(calling("no__such", "")).await {
        Err(ServiceError::McpError(error)) => assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{error:?}"),
        other => panic!("an unknown tool gave {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_rmcp_client_of_every_lifecycle_reaches_servers_of_both_eras() {
    let failing = |era| {
        Script::echo(era)
            .tool("sad", |turn| turn.ok(r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#))
    };
    let (old, new) = (failing(Era::Legacy).stdio(), failing(Era::Modern).http());
    let gateway = Config::new().upstream("old", &old).upstream("new", &new).ready();
    for mode in modes() {
        let peer = connect(&gateway, mode.clone()).await;
        exercise(&peer, &["old__echo", "new__echo"]).await;
        for name in ["old__sad", "new__sad"] {
            let result = peer.call_tool(calling(name, "")).await.expect("a result");
            assert_eq!((result.is_error, &*text_of(&result)), (Some(true), "no"), "{mode:?}");
        }
        peer.cancel().await.expect("a clean end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_rmcp_client_of_every_lifecycle_launches_the_gateway() {
    let (old, new) = (Script::echo(Era::Legacy).stdio(), Script::echo(Era::Modern).http());
    let config = Config::new().without("admin").upstream("old", &old).upstream("new", &new);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("gateway.yaml"), config.text()).expect("a file");
    for mode in modes() {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_waypost"));
        command.args(["stdio", "--config", "gateway.yaml"]).current_dir(folder.path());
        let transport = TokioChildProcess::new(command).expect("the binary starts");
        let peer = ().serve_with_lifecycle(transport, mode).await.expect("a connection");
        exercise(&peer, &["old__echo", "new__echo"]).await;
        peer.cancel().await.expect("a clean end");
    }
}

/// Auto falls back by sending `initialize` with 2026-07-28: the answer is the newest legacy revision.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_rmcp_client_agrees_on_the_revision() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let wanted =
        [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28, ProtocolVersion::V_2026_07_28];
    for (mode, version) in modes().into_iter().zip(wanted) {
        let peer = connect(&gateway, mode.clone()).await;
        let info = peer.peer_info().expect("what the server says about itself");
        let said = serde_json::to_value(&*info).expect("JSON").to_string();
        assert!(said.contains("tools"), "{mode:?}: {said}");
        if matches!(mode, ClientLifecycleMode::Initialize) {
            assert!(said.contains(version.as_str()), "{mode:?}: {said}");
        }
        peer.cancel().await.expect("a clean end");
    }
}

/// A server on rmcp.
#[derive(Clone, Copy)]
enum Speaks {
    Legacy,
    Modern,
    Both,
}

#[derive(Clone)]
struct Server(Speaks);

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.0 {
            Speaks::Legacy => Cow::Borrowed(&[ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25]),
            Speaks::Modern => Cow::Borrowed(&[ProtocolVersion::V_2026_07_28]),
            Speaks::Both => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
        }
    }

    async fn discover(&self, _context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        match self.0 {
            Speaks::Legacy => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "Method not found", None)),
            Speaks::Modern | Speaks::Both => Ok(DiscoverResult::new(
                self.supported_protocol_versions().into_owned(),
                self.get_info().capabilities,
            )),
        }
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |name: &'static str| Tool::new(name, "A tool.", Arc::new(JsonObject::new()));
        Ok(ListToolsResult::with_all_items(vec![tool("echo"), tool("fail"), tool("sad")]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let text = arguments.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
        let content = vec![ContentBlock::text(text)];
        match &*request.name {
            "echo" => Ok(CallToolResult::success(content).into()),
            "sad" => Ok(CallToolResult::error(content).into()),
            _ => Err(ErrorData::new(ErrorCode(-32050), "own words", Some(json!({"n": 1})))),
        }
    }
}

/// Serves over HTTP until the test ends.
async fn serve_http(speaks: Speaks, config: StreamableHttpServerConfig) -> Value {
    let service: StreamableHttpService<Server, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(Server(speaks)), Default::default(), config);
    let router = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { drop(axum::serve(listener, router).await) });
    json!({"url": format!("http://{address}/mcp")})
}

/// Serves every child that relays to the port.
async fn serve_stdio(speaks: Speaks) -> Value {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address: SocketAddr = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(running) = Server(speaks).serve(stream).await {
                    drop(running.waiting().await);
                }
            });
        }
    });
    relay(address, &["plain".to_owned()])
}

/// What clients of both eras get of an rmcp server.
async fn expect_served(entry: Value) {
    let gateway = Config::new().raw_upstream("up", entry).ready();
    let gateway = &gateway;
    tokio::task::block_in_place(|| {
        for client in [Client::legacy(gateway), Client::modern(gateway)] {
            client.wait_tools(&["up__echo", "up__fail", "up__sad"]);
            let jobs: Vec<_> = (0..20)
                .map(|index| {
                    let client = &client;
                    move || {
                        assert_eq!(client.echo("up__echo", &format!("call {index}")), format!("call {index}"))
                    }
                })
                .collect();
            at_once(jobs);
            let own = client.call("up__fail", json!({}));
            assert_eq!(
                own["error"],
                json!({"code": -32050, "message": "own words", "data": {"n": 1}}),
                "{own}"
            );
            let sad = client.call("up__sad", json!({"text": "no"}));
            assert_eq!(sad["result"]["isError"], true, "{sad}");
            assert_eq!(sad["result"]["content"][0]["text"], "no", "{sad}");
            assert_eq!(client.call("up__nope", json!({}))["error"]["code"], -32602);
        }
    });
    for mode in modes() {
        let peer = connect(gateway, mode).await;
        exercise(&peer, &["up__echo"]).await;
        peer.cancel().await.expect("a clean end");
    }
}

macro_rules! servers {
    ($($name:ident $speaks:ident $transport:ident ($($config:tt)*);)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn $name() {
            let entry = match Transport::$transport {
                Transport::Http => {
                    let config = StreamableHttpServerConfig::default()$($config)*;
                    serve_http(Speaks::$speaks, config).await
                }
                Transport::Stdio => serve_stdio(Speaks::$speaks).await,
                Transport::Sse => unreachable!("this SDK has no such server"),
            };
            let in_time = tokio::time::timeout(patience() * 2, expect_served(entry)).await;
            in_time.expect("all answered");
        }
    )*};
}

servers! {
    a_legacy_rmcp_server_with_sessions_over_http Legacy Http (.with_legacy_session_mode(true));
    a_legacy_rmcp_server_without_sessions_over_http Legacy Http (.with_legacy_session_mode(false));
    a_legacy_rmcp_server_of_plain_json_over_http Legacy Http (.with_legacy_session_mode(false).with_json_response(true));
    a_modern_rmcp_server_over_http Modern Http ();
    a_modern_rmcp_server_of_plain_json_over_http Modern Http (.with_json_response(true));
    a_dual_era_rmcp_server_over_http Both Http ();
    a_legacy_rmcp_server_over_stdio Legacy Stdio ();
    a_modern_rmcp_server_over_stdio Modern Stdio ();
    a_dual_era_rmcp_server_over_stdio Both Stdio ();
}
