//! What goes wrong over HTTP, in words that anybody may read: a status, never an address.

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;

use crate::upstream::failure::Failure;

/// The longest wait that is believed.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// A request could not be sent, or its answer did not begin.
pub(super) fn of_sending(error: reqwest::Error) -> Failure {
    let is_connect = error.is_connect();
    let error = error.without_url();
    let text = match () {
        () if !is_connect && error.is_timeout() => "it did not answer in time",
        () if !is_connect => "the connection broke before it answered",
        () if error.is_timeout() => "connecting to it took too long",
        () if error.is_dns() => "its host name could not be resolved",
        () => connect_text(&error),
    };
    let failure = Failure::unavailable(text).because(chain(&error));
    // What was not connected has sent nothing.
    if is_connect { failure.of_connection() } else { failure.maybe_executed() }
}

/// What kept us from connecting, as the first system error among the causes has it.
fn connect_text(error: &reqwest::Error) -> &'static str {
    let texts = [
        (ErrorKind::ConnectionRefused, "connection refused"),
        (ErrorKind::HostUnreachable, "no route to it"),
        (ErrorKind::NetworkUnreachable, "no route to it"),
        (ErrorKind::InvalidData, "the TLS handshake with it failed"),
    ];
    let mut source = error.source();
    while let Some(cause) = source {
        let kind = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if let Some((_, text)) = texts.iter().find(|(known, _)| Some(*known) == kind) {
            return text;
        }
        source = cause.source();
    }
    "it could not be connected to"
}

/// An answer broke off.
pub(super) fn of_reading(error: reqwest::Error) -> Failure {
    Failure::unavailable("its answer broke off").because(chain(&error.without_url())).maybe_executed()
}

/// An answer stopped in the middle.
pub(super) fn stalled() -> Failure {
    Failure::unavailable("it stopped in the middle of its answer").maybe_executed()
}

/// An answer is larger than a message may be.
pub(super) fn too_large(limit: usize) -> Failure {
    Failure::broken(format!("its answer is larger than {limit} bytes")).maybe_executed()
}

/// The server sends us somewhere else, where our credentials must not go.
pub(super) fn redirected(status: StatusCode) -> Failure {
    let text = format!("it answered {}, a redirect that is not followed", status.as_u16());
    Failure::broken(text).with_status(status.as_u16())
}

/// A status that says no, without an error of the protocol.
pub(super) fn of_status(response: &reqwest::Response) -> Failure {
    let status = response.status();
    let number = status.as_u16();
    let text = format!("it answered {number}");
    let failure = match number {
        401 | 403 => Failure::auth(text),
        429 => Failure::unavailable(text).retry_after(retry_after(response)),
        500.. => Failure::unavailable(text).retry_after(retry_after(response)).maybe_executed(),
        300..=499 => Failure::broken(text),
        _ => Failure::broken(format!("{text} without an answer")).maybe_executed(),
    };
    failure.with_status(number)
}

fn retry_after(response: &reqwest::Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    let seconds = value.trim().parse().ok().map(Duration::from_secs)?;
    Some(seconds.min(LONGEST_WAIT))
}

/// An error and its sources on one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
