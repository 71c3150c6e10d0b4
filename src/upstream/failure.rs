//! Why an upstream cannot be used, or a call to it failed: what anybody may read apart from what only our
//! log may.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::gateway::{Executed, GatewayError, GatewayErrorKind};

/// A failure of an upstream.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// What kind of error the caller gets.
    pub(super) kind: GatewayErrorKind,
    /// What anybody may read: no path, address, argument, header.
    pub(super) text: Cow<'static, str>,
    /// What only our log may read besides.
    pub(super) cause: Option<Arc<str>>,
    /// Whether the request may have had an effect.
    pub(super) executed: Executed,
    /// When the upstream asks to be left alone until.
    pub(super) retry_after: Option<Duration>,
    /// The HTTP status that it is, where it is one.
    pub(super) status: Option<u16>,
    /// What it says about the connection.
    pub(super) scope: Scope,
}

impl From<GatewayError> for Failure {
    fn from(error: GatewayError) -> Self {
        let failure = Self::new(error.kind, error.text);
        Self { cause: error.cause, executed: error.executed, retry_after: error.retry_after, ..failure }
    }
}

/// How far a failure reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// This request only.
    Request,
    /// The connection as a whole: nothing else will work on it.
    Connection,
}

impl Failure {
    fn new(kind: GatewayErrorKind, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            text: text.into(),
            cause: None,
            executed: Executed::No,
            retry_after: None,
            status: None,
            scope: Scope::Request,
        }
    }

    /// The upstream cannot be used now.
    pub(super) fn unavailable(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(GatewayErrorKind::Unavailable, text)
    }

    /// The upstream broke the protocol.
    pub(super) fn broken(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(GatewayErrorKind::BadUpstream, text)
    }

    /// The upstream refused our credentials.
    pub(super) fn auth(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(GatewayErrorKind::UpstreamAuth, text)
    }

    /// The upstream asked, and got no answer that it can use.
    pub(super) fn unanswered(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(GatewayErrorKind::Unanswered, text).maybe_executed()
    }

    /// The request itself is wrong.
    pub(super) fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(GatewayErrorKind::InvalidParams, text)
    }

    /// The same, with what only our log may read.
    pub(super) fn because(self, cause: impl std::fmt::Display) -> Self {
        Self { cause: Some(cause.to_string().into()), ..self }
    }

    /// The same, of a request that may have been executed.
    pub(super) fn maybe_executed(self) -> Self {
        Self { executed: Executed::Unknown, ..self }
    }

    /// The same, with the time that the upstream asks for.
    pub(super) fn retry_after(self, wait: Option<Duration>) -> Self {
        Self { retry_after: wait, ..self }
    }

    /// The same, with the HTTP status that says it.
    pub(super) fn with_status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }

    /// The same, of the whole connection.
    pub(super) fn of_connection(self) -> Self {
        Self { scope: Scope::Connection, ..self }
    }

    /// What a call gets that was not sent because of it, with the time to wait before the next.
    pub(super) fn of_unsent(&self, wait: Duration) -> Self {
        let is_auth = self.kind == GatewayErrorKind::UpstreamAuth;
        let kind = if is_auth { GatewayErrorKind::UpstreamAuth } else { GatewayErrorKind::Unavailable };
        let failure = Self { kind, ..Self::unavailable(self.text.clone()) };
        Self { cause: self.cause.clone(), ..failure }.retry_after(Some(wait.max(Duration::from_millis(1))))
    }

    /// What our log says.
    pub(super) fn reason(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {cause}", self.text),
            None => self.text.to_string(),
        }
    }

    /// What the caller of a call gets.
    pub(super) fn into_error(self, upstream: &Arc<str>) -> GatewayError {
        let mut error = GatewayError::upstream(self.kind, upstream, self.text);
        error.executed = self.executed;
        error.retry_after = self.retry_after;
        error.cause = self.cause;
        error
    }
}
