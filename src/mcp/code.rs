//! Error codes of JSON-RPC and MCP, and those of our own.

/// Every code that Waypost emits by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The body is not JSON.
    ParseError,
    /// The body is JSON, but no JSON-RPC message.
    InvalidRequest,
    /// The method is unknown, or belongs to a capability that nobody here has.
    MethodNotFound,
    /// The parameters are wrong: unknown name, bad cursor, missing `_meta`.
    InvalidParams,
    /// No such resource. Legacy revisions only; modern ones have `InvalidParams` for it.
    ResourceNotFound,
    /// A fault of the gateway.
    Internal,
    /// Headers and body disagree. Modern revisions only.
    HeaderMismatch,
    /// The client did not declare what the request needs. Modern revisions only.
    MissingCapability,
    /// The revision asked for is unknown. Modern revisions only.
    UnsupportedVersion,
    /// A limit is reached. Ours; reads like HTTP's.
    RateLimited,
    /// The upstream broke the protocol. Ours; reads like HTTP's.
    BadUpstream,
    /// The upstream cannot be used now. Ours; reads like HTTP's.
    Unavailable,
    /// The upstream did not answer in time. Ours; reads like HTTP's.
    Timeout,
    /// The transport refuses the request (Host, Origin, session, method). Ours: the HTTP status itself.
    Http(u16),
}

/// The number of a code.
#[must_use]
pub fn code_of(code: Code) -> i64 {
    match code {
        Code::ParseError => -32700,
        Code::InvalidRequest => -32600,
        Code::MethodNotFound => -32601,
        Code::InvalidParams => -32602,
        Code::ResourceNotFound => -32002,
        Code::Internal => -32603,
        Code::HeaderMismatch => -32020,
        Code::MissingCapability => -32021,
        Code::UnsupportedVersion => -32022,
        Code::RateLimited => 429,
        Code::BadUpstream => 502,
        Code::Unavailable => 503,
        Code::Timeout => 504,
        Code::Http(status) => i64::from(status),
    }
}
