//! Our own "no": everything that the gateway refuses, or cannot do.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// What went wrong. Closed: `downstream/reply.rs` maps every kind to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GatewayErrorKind {
    /// No such tool (or whatever was named) is offered.
    Unknown,
    /// It is there, but not for this caller. Sounds like `Unknown` unless the policy reveals it.
    Denied,
    /// The method is none that Waypost, or any upstream, has.
    MethodNotFound,
    /// An upstream may have the method, but not for this caller. Sounds like `MethodNotFound` unless the policy
    /// reveals it.
    MethodDenied,
    /// The parameters are wrong.
    InvalidParams,
    /// The arguments of a tool are not what they have to be; a model may put them right.
    InvalidArguments,
    /// A limit on calls is reached.
    RateLimited,
    /// The limit that guards the gateway itself is reached.
    EdgeLimited,
    /// The upstream is down, connecting, broken, or said no to the transport.
    Unavailable,
    /// The upstream refused our credentials.
    UpstreamAuth,
    /// The upstream broke the protocol: no JSON, wrong shape, too large.
    BadUpstream,
    /// The upstream did not answer in time.
    Timeout,
    /// The upstream asked for input, and got none.
    Unanswered,
    /// The caller ended the call.
    Cancelled,
    /// A fault of the gateway.
    Internal,
}

/// Whether the call may have had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// It never reached the upstream, or was refused before it ran.
    No,
    /// It was sent; what became of it is unknown.
    Unknown,
}

/// An error of the gateway. Its `text` is public: no internal address, path, header or token is in it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct GatewayError {
    /// What went wrong.
    pub kind: GatewayErrorKind,
    /// The upstream that it is about, by its name in the configuration.
    pub upstream: Option<Arc<str>>,
    /// The URI that it is about, where it is about a resource.
    pub uri: Option<Arc<str>>,
    /// What the caller may read.
    pub text: Cow<'static, str>,
    /// Whether the call may have had an effect.
    pub executed: Executed,
    /// When it makes sense to try again.
    pub retry_after: Option<Duration>,
    /// What only our own log may read.
    pub cause: Option<Arc<str>>,
}

impl GatewayError {
    /// An error that concerns no upstream, and executed nothing.
    #[must_use]
    pub fn new(kind: GatewayErrorKind, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            upstream: None,
            uri: None,
            text: text.into(),
            executed: Executed::No,
            retry_after: None,
            cause: None,
        }
    }

    /// An error of an upstream. `text` says what happened, without the upstream's name.
    #[must_use]
    pub fn upstream(kind: GatewayErrorKind, upstream: &Arc<str>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { upstream: Some(Arc::clone(upstream)), ..Self::new(kind, text) }
    }

    /// The same, about a resource.
    #[must_use]
    pub fn about(self, uri: &str) -> Self {
        Self { uri: Some(uri.into()), ..self }
    }

    /// The same, of a call that may have been executed.
    #[must_use]
    pub fn maybe_executed(self) -> Self {
        Self { executed: Executed::Unknown, ..self }
    }

    /// The same, with the time after which it makes sense to try again.
    #[must_use]
    pub fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// The same, with a cause for our own log.
    #[must_use]
    pub fn because(self, cause: impl std::fmt::Display) -> Self {
        Self { cause: Some(cause.to_string().into()), ..self }
    }
}
