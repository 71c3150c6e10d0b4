//! How everything that can happen to a request looks on the wire: outcome or error, by era.
//!
//! Must not know: how the answer is carried (one document, or the end of a stream).

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use serde_json::{Map, Value, json};

use crate::exchange::{Answer, Outcome, ResultForm};
use crate::gateway::{Executed, GatewayError, GatewayErrorKind};
use crate::mcp::{Body, Code, Draft, Era, Id, Method, ObjectView, code_of, key};

/// The member of `_meta` that holds the wait, in milliseconds.
pub(super) const RETRY_AFTER_MS: &str = "waypost.dev/retryAfterMs";

/// An answer before it is an HTTP response.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// The status.
    pub(super) status: StatusCode,
    /// Headers besides the content type.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// One JSON document, or nothing.
    pub(super) body: Bytes,
    /// Why the request was refused before it was a call, for the log.
    pub(super) refusal: Option<Cow<'static, str>>,
}

/// What is needed of a request to answer it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) era: Era,
    pub(super) method: Method,
    pub(super) id: Id,
}

/// A JSON-RPC error.
#[derive(Clone, Debug)]
pub(super) struct ErrorBody {
    pub(super) code: Code,
    pub(super) message: Cow<'static, str>,
    pub(super) data: Option<Value>,
}

impl ErrorBody {
    pub(super) fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(super) fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    /// The whole message. Without an id where the request could not be read so far.
    pub(super) fn message(&self, id: Option<&Id>) -> Bytes {
        let mut error = json!({"code": code_of(self.code), "message": self.message});
        if let (Some(data), Some(members)) = (&self.data, error.as_object_mut()) {
            members.insert("data".to_owned(), data.clone());
        }
        object(&[
            ("jsonrpc", Some(Bytes::from_static(b"\"2.0\""))),
            ("id", id.map(|id| id.bytes().clone())),
            ("error", Some(Bytes::from(error.to_string()))),
        ])
    }
}

impl Reply {
    /// Taken, without anything to say.
    pub(super) fn accepted() -> Self {
        Self { status: StatusCode::ACCEPTED, headers: vec![], body: Bytes::new(), refusal: None }
    }

    /// Done, without anything to say.
    pub(super) fn no_content() -> Self {
        Self { status: StatusCode::NO_CONTENT, ..Self::accepted() }
    }

    /// A document.
    pub(super) fn json(status: StatusCode, body: Bytes) -> Self {
        Self { status, headers: vec![], body, refusal: None }
    }

    /// A result.
    pub(super) fn result(id: &Id, result: Bytes) -> Self {
        let body = object(&[
            ("jsonrpc", Some(Bytes::from_static(b"\"2.0\""))),
            ("id", Some(id.bytes().clone())),
            ("result", Some(result)),
        ]);
        Self::json(StatusCode::OK, body)
    }

    /// An error in answer to a request that was understood.
    pub(super) fn error(era: Era, id: &Id, error: &ErrorBody) -> Self {
        Self::json(status_of(era, code_of(error.code)), error.message(Some(id)))
    }

    /// A refusal of the transport, or before a request was a call.
    pub(super) fn refuse(status: StatusCode, id: Option<&Id>, error: &ErrorBody) -> Self {
        Self { refusal: Some(error.message.clone()), ..Self::json(status, error.message(id)) }
    }

    /// A refusal whose JSON-RPC code is the HTTP status itself.
    pub(super) fn transport(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::refuse(status, None, &ErrorBody::new(Code::Http(status.as_u16()), message))
    }

    /// The same with another header.
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    fn retry_after(self, wait: Option<Duration>) -> Self {
        match wait {
            Some(wait) => self.header(RETRY_AFTER, HeaderValue::from(seconds(wait))),
            None => self,
        }
    }
}

/// An object of these members, in this order; those without a value are left out.
pub(super) fn object(members: &[(&str, Option<Bytes>)]) -> Bytes {
    let mut draft = Draft::new(Bytes::from_static(b"{}"));
    draft.edit_object(&ObjectView::of(b"{}"), members);
    draft.finish()
}

/// The HTTP status of a response with an error of this code. The modern revision ties some codes to a
/// status; in legacy revisions an error is an answer like any other.
///
/// −32602 is not among them: only a request without its required `_meta` is malformed as HTTP, and that is
/// refused before it is a call.
pub(super) fn status_of(era: Era, code: i64) -> StatusCode {
    match (era, code) {
        (Era::Modern, -32601) => StatusCode::NOT_FOUND,
        (Era::Modern, -32022..=-32020) => StatusCode::BAD_REQUEST,
        (Era::Modern | Era::Legacy, _) => StatusCode::OK,
    }
}

/// The answer to a request, however it ended.
pub(super) fn reply(asked: &Asked, ended: Result<Outcome, GatewayError>) -> Reply {
    match ended {
        Ok(Outcome::Complete(answer) | Outcome::Error(answer)) => pass(asked, &answer),
        Ok(Outcome::InputRequired(answer)) => match asked.era {
            Era::Modern => pass(asked, &answer),
            Era::Legacy => unasked(asked),
        },
        Err(error) => refused(asked, &error),
    }
}

/// The upstream's own response, with the id and what its era adds or strips.
fn pass(asked: &Asked, answer: &Answer) -> Reply {
    let response = &answer.response;
    let complete = Bytes::from_static(b"\"complete\"");
    // A result that may be cached must say so; of one that says nothing, nothing is known.
    let never = asked.method == Method::ResourcesRead;
    let hint = |text: &'static str| never.then(|| Bytes::from_static(text.as_bytes()));
    let draft = match (&response.body, asked.era, answer.form) {
        (Body::Result(_), Era::Legacy, ResultForm::Tagged) => response.draft(
            &asked.id,
            &[("resultType", None), ("ttlMs", None), ("cacheScope", None)],
            &[(key::SERVER_INFO, None)],
        ),
        (Body::Result(_), Era::Modern, ResultForm::Bare) => {
            let members =
                [("resultType", Some(complete)), ("ttlMs", hint("0")), ("cacheScope", hint("\"private\""))];
            let given = members.into_iter().filter(|(_, value)| value.is_some());
            response.draft(&asked.id, &given.collect::<Vec<_>>(), &[])
        }
        (Body::Error(_), era, form) => {
            let code = missing_resource(asked.method, (era, form), response.error_code());
            let code = code.map(|code| ("code", Some(Bytes::from(code_of(code).to_string()))));
            response.draft(&asked.id, code.as_slice(), &[])
        }
        (Body::Result(_), Era::Legacy | Era::Modern, ResultForm::Bare | ResultForm::Tagged) => {
            response.draft(&asked.id, &[], &[])
        }
    };
    let status = response.error_code().map_or(StatusCode::OK, |code| status_of(asked.era, code));
    Reply::json(status, draft.finish())
}

/// The code by which the caller's era says that a resource does not exist, where the upstream's says it by
/// another one.
fn missing_resource(method: Method, (era, form): (Era, ResultForm), code: Option<i64>) -> Option<Code> {
    match (method, era, form, code) {
        (Method::ResourcesRead, Era::Modern, ResultForm::Bare, Some(-32002)) => Some(Code::InvalidParams),
        (Method::ResourcesRead, Era::Legacy, ResultForm::Tagged, Some(-32602)) => {
            Some(Code::ResourceNotFound)
        }
        _ => None,
    }
}

/// The end of a call whose upstream asks what cannot be carried to this client.
fn unasked(asked: &Asked) -> Reply {
    if asked.method != Method::ToolsCall {
        let text = "the server asks for input from the user (elicitation, sampling or roots), and this client's \
                    protocol revision has no way to receive the question through Waypost";
        return Reply::error(asked.era, &asked.id, &ErrorBody::new(Code::Http(501), text));
    }
    tool_error(
        asked,
        "The tool asks for input (elicitation, sampling or roots), and there is no way to this client for its \
         question: it needs a session, and must accept text/event-stream. The call was not completed.",
        None,
    )
}

/// What becomes of an error of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// A result that says `isError`, where the method is one that a model reads; else an error with this code.
    Readable(Code),
    /// An error with this code.
    Error(Code),
    /// The same, and HTTP 429 whatever the era.
    TooMany,
}

fn manner(kind: GatewayErrorKind) -> Manner {
    match kind {
        GatewayErrorKind::Unknown | GatewayErrorKind::Denied | GatewayErrorKind::InvalidParams => {
            Manner::Error(Code::InvalidParams)
        }
        GatewayErrorKind::MethodNotFound | GatewayErrorKind::MethodDenied => {
            Manner::Error(Code::MethodNotFound)
        }
        GatewayErrorKind::InvalidArguments => Manner::Readable(Code::InvalidParams),
        GatewayErrorKind::RateLimited => Manner::Readable(Code::RateLimited),
        GatewayErrorKind::EdgeLimited => Manner::TooMany,
        GatewayErrorKind::Unavailable | GatewayErrorKind::UpstreamAuth => Manner::Readable(Code::Unavailable),
        GatewayErrorKind::BadUpstream => Manner::Readable(Code::BadUpstream),
        GatewayErrorKind::Timeout => Manner::Readable(Code::Timeout),
        GatewayErrorKind::Unanswered => Manner::Readable(Code::Http(424)),
        GatewayErrorKind::Cancelled => Manner::Error(Code::Http(499)),
        GatewayErrorKind::Internal => Manner::Error(Code::Internal),
    }
}

fn refused(asked: &Asked, error: &GatewayError) -> Reply {
    let wait = error.retry_after;
    match (manner(error.kind), asked.method) {
        (Manner::Readable(_), Method::ToolsCall) => tool_error(asked, &advice(error), wait).retry_after(wait),
        (Manner::Readable(code), _) => {
            let body = ErrorBody::new(code, advice(error)).with_data(facts(error));
            Reply::error(asked.era, &asked.id, &body).retry_after(wait)
        }
        (Manner::Error(Code::InvalidParams), Method::ResourcesRead | Method::ResourcesSubscribe)
            if error.uri.is_some() =>
        {
            let code = if asked.era == Era::Legacy { Code::ResourceNotFound } else { Code::InvalidParams };
            let data = json!({"uri": error.uri.as_deref()});
            Reply::error(asked.era, &asked.id, &ErrorBody::new(code, error.text.clone()).with_data(data))
        }
        (Manner::Error(code), _) => {
            Reply::error(asked.era, &asked.id, &ErrorBody::new(code, error.text.clone())).retry_after(wait)
        }
        (Manner::TooMany, _) => too_many(Some(&asked.id), error),
    }
}

/// The answer to a caller over the limit that guards the gateway itself.
pub(super) fn too_many(id: Option<&Id>, error: &GatewayError) -> Reply {
    let body = ErrorBody::new(Code::RateLimited, error.text.clone()).with_data(facts(error));
    let wait = error.retry_after.unwrap_or(Duration::from_secs(1));
    Reply::refuse(StatusCode::TOO_MANY_REQUESTS, id, &body).retry_after(Some(wait))
}

/// The facts of an error for programs.
fn facts(error: &GatewayError) -> Value {
    let mut facts = Map::new();
    if let Some(upstream) = &error.upstream {
        facts.insert("upstream".to_owned(), Value::from(&**upstream));
    }
    let executed = match error.executed {
        Executed::No => "no",
        Executed::Unknown => "unknown",
    };
    facts.insert("executed".to_owned(), Value::from(executed));
    if let Some(wait) = error.retry_after {
        facts.insert("retryAfterMs".to_owned(), Value::from(millis(wait)));
    }
    Value::Object(facts)
}

/// The same facts in words that a model can act on.
fn advice(error: &GatewayError) -> String {
    let what = match &error.upstream {
        Some(upstream) => format!("Upstream {upstream:?}: {}.", error.text.trim_end_matches('.')),
        None => format!("{}.", error.text.trim_end_matches('.')),
    };
    let executed = match error.executed {
        Executed::No => "The call was not executed.",
        Executed::Unknown => {
            "The call may have been executed; its outcome is unknown. Check before repeating it."
        }
    };
    // The limits say the wait themselves.
    match error.retry_after.filter(|_| error.kind != GatewayErrorKind::RateLimited) {
        Some(wait) => format!("{what} {executed} Try again in {} s.", seconds(wait)),
        None => format!("{what} {executed}"),
    }
}

fn tool_error(asked: &Asked, text: &str, wait: Option<Duration>) -> Reply {
    let mut result = json!({"content": [{"type": "text", "text": text}], "isError": true});
    if let Some(members) = result.as_object_mut() {
        if asked.era == Era::Modern {
            members.insert("resultType".to_owned(), Value::from("complete"));
        }
        if let Some(wait) = wait {
            members.insert("_meta".to_owned(), json!({RETRY_AFTER_MS: millis(wait)}));
        }
    }
    Reply::result(&asked.id, Bytes::from(result.to_string()))
}

/// Whole milliseconds, rounded up.
fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// Whole seconds, rounded up, at least one.
fn seconds(wait: Duration) -> u64 {
    millis(wait).div_ceil(1000).max(1)
}

#[cfg(test)]
mod tests;
