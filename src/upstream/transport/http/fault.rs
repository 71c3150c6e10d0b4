//! What goes wrong over HTTP, in words that anybody may read: a status, never an address.

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;

use crate::outbound::{DialError, ReadError, Received, SendError, chain, source_of};
use crate::upstream::failure::Failure;

/// The longest wait that is believed.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// A request could not be sent, or its answer did not begin.
pub(super) fn of_sending(error: &SendError) -> Failure {
    let (text, is_connect) = match error {
        SendError::Unconnected(DialError::Late) => ("connecting to it took too long", true),
        SendError::Unconnected(DialError::Name(_)) => ("its host name could not be resolved", true),
        SendError::Unconnected(DialError::Proxy(_)) => {
            ("the proxy on the way to it does not let us through", true)
        }
        SendError::Unconnected(DialError::Tls(_)) => ("the TLS handshake with it failed", true),
        SendError::Unconnected(DialError::Tcp(error)) => (connect_text(&**error), true),
        SendError::Broken(_) => ("the connection broke before it answered", false),
    };
    let failure = Failure::unavailable(text).because(chain(error));
    // What was not connected has sent nothing.
    if is_connect { failure.of_connection() } else { failure.maybe_executed() }
}

/// What kept us from connecting.
fn connect_text(error: &(dyn Error + 'static)) -> &'static str {
    match source_of::<std::io::Error>(error).map(std::io::Error::kind) {
        Some(ErrorKind::ConnectionRefused) => "connection refused",
        Some(ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => "no route to it",
        Some(ErrorKind::TimedOut) => "connecting to it took too long",
        Some(_) | None => "it could not be connected to",
    }
}

/// An answer broke off.
pub(super) fn of_reading(error: ReadError) -> Failure {
    Failure::unavailable("its answer broke off").because(chain(&error)).maybe_executed()
}

/// An answer stopped in the middle.
pub(super) fn stalled() -> Failure {
    Failure::unavailable("it stopped in the middle of its answer").maybe_executed()
}

/// There is no room for an answer beside the others that are under way.
pub(super) fn no_room() -> Failure {
    super::super::no_room().maybe_executed()
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
pub(super) fn of_status(response: &Received) -> Failure {
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

fn retry_after(response: &Received) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    let seconds = value.trim().parse().ok().map(Duration::from_secs)?;
    Some(seconds.min(LONGEST_WAIT))
}
