//! Configurations for unit tests: the defaults, with upstreams and clients by name.

use std::sync::Arc;
use std::time::Duration;

use super::{
    CallLimits, Charset, ClientConfig, Config, EndpointConfig, Http, Isolation, Limits, Log, LogFormat,
    Naming, Rules, ServerInfo, Sessions, Sharing, Transport, UpstreamConfig,
};

/// A configuration with these upstreams (HTTP, to an address that nobody listens on) and clients.
pub(crate) fn config(upstreams: &[&str], clients: &[&str]) -> Config {
    let upstreams = upstreams.iter().enumerate().map(|(index, name)| Arc::new(upstream(index, name)));
    Config {
        listen: ([127, 0, 0, 1], 0).into(),
        listen_tls: None,
        admin: None,
        admin_tls: None,
        is_admin_named: false,
        demo: None,
        order: (0..upstreams.len()).collect(),
        upstreams: upstreams.collect(),
        endpoints: vec![Arc::new(EndpointConfig::whole())],
        roles: vec![],
        clients: clients.iter().map(|name| client(name)).collect(),
        jwt: vec![],
        public_url: None,
        limits: limits(),
        naming: Naming { separator: "__".into(), max_length: 64, charset: Charset::Strict },
        sessions: Sessions {
            idle_timeout: Duration::from_secs(1800),
            keep_alive: Duration::from_secs(15),
            resume_window: Duration::from_secs(300),
            key: None,
        },
        page_size: None,
        allowed_hosts: vec![],
        allowed_origins: vec![],
        reveal_denied: false,
        instructions: None,
        server_info: ServerInfo::default(),
        drain_timeout: Duration::from_secs(30),
        log: Log { format: LogFormat::Human, level: "info".into() },
        audit: None,
        reload_interval: Duration::ZERO,
        files: Vec::new(),
        file: "gateway.yaml".into(),
        hash: "0".repeat(16),
    }
}

fn upstream(index: usize, name: &str) -> UpstreamConfig {
    UpstreamConfig {
        name: name.into(),
        index,
        transport: Transport::Http(Http {
            url: url::Url::parse("http://127.0.0.1:9/mcp").unwrap(),
            headers: vec![],
            kind: None,
            oauth: None,
            way: super::Way::default(),
        }),
        era: None,
        prefix: format!("{name}__"),
        rules: Rules::default(),
        timeout: Duration::from_secs(60),
        connect_timeout: Duration::from_secs(30),
        list_timeout: Duration::from_secs(30),
        grace: Duration::from_secs(30),
        refresh: Duration::from_secs(300),
        sharing: Sharing {
            isolation: Isolation::Shared,
            connections: 1_000,
            concurrency: 4_096,
            waiting: 1_000,
        },
        resilience: super::Resilience::default(),
        limits: CallLimits::default(),
    }
}

fn client(name: &str) -> ClientConfig {
    ClientConfig {
        name: name.into(),
        tokens: vec![],
        certificates: vec![],
        is_anonymous: false,
        is_group: false,
        roles: vec![],
        rules: Rules::default(),
        limits: CallLimits::default(),
    }
}

fn limits() -> Limits {
    Limits {
        body: 16 << 20,
        message: 64 << 20,
        memory: 512 << 20,
        peer_timeout: Duration::from_secs(60),
        connections: 4096,
        edge: None,
        sessions: 10_000,
        streams: 1_000,
        pipe_calls: 1_000,
        detached_calls: 1_000,
        kept_events: 100_000,
        kept_events_per_session: 1_000,
        kept_bytes: 64 << 20,
        kept_bytes_per_session: 8 << 20,
        depth: 128,
        header_timeout: Duration::from_secs(10),
        body_timeout: Duration::from_secs(30),
        list_items: 10_000,
        list_pages: 1_000,
        answer_timeout: Duration::from_secs(300),
        parked_calls: 1_000,
        parked_calls_per_client: 100,
        subscriptions: 10_000,
        subscriptions_per_session: 100,
        listed_tasks: 1_000,
    }
}
