//! The reserved keys of `_meta`. Spec: 2026-07-28, basic, `_meta`.

/// The keys by name.
pub mod key {
    /// Opts in to progress notifications.
    pub const PROGRESS_TOKEN: &str = "progressToken";
    /// The revision of one request.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Who asks.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// What the asking client can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// From which level on log messages are wanted.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Which subscription a notification belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Who answers.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
}

/// The keys that belong to one hop of a request: a legacy upstream never sees them.
pub const HOP_KEYS: [&str; 4] =
    [key::PROTOCOL_VERSION, key::CLIENT_INFO, key::CLIENT_CAPABILITIES, key::LOG_LEVEL];
