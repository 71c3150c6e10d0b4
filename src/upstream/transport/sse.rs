//! A server behind HTTP+SSE of 2024-11-05: one stream brings everything, and a POST to the address that it
//! begins with takes everything. The stream is the connection; whose a message on it is, shows as on a pipe.
//!
//! Must not know: eras, and what a message means beyond whose it is.
//!
//! Spec: 2024-11-05, basic/transports, "HTTP with SSE".

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use url::Url;

use super::http::{Endpoint, EventStream};
use super::inbox::{Inbox, lost};
use super::{Farewell, Outgoing, Reply};
use crate::gateway::{Executed, GatewayErrorKind};
use crate::upstream::failure::{Failure, Scope};
use crate::upstream::inflight::Flight;
use crate::upstream::question::WayBack;
use crate::upstream::tenancy::Attribution;
use crate::upstream::unsolicited::Unsolicited;
use crate::wire::sse;

/// The event that a stream begins with.
const ENDPOINT: &str = "endpoint";

/// A connection over one stream. Dropping it closes the stream.
#[derive(Debug)]
pub(in crate::upstream) struct Stream {
    shared: Arc<Shared>,
    /// Ends the reader.
    ended: CancellationToken,
    _reader: DropGuard,
}

/// What the reader and the callers share.
#[derive(Debug)]
struct Shared {
    inbox: Inbox,
    /// Where messages are POSTed to.
    post: Endpoint,
}

impl Stream {
    /// Opens the stream and waits for the address that messages go to. Bounded by whoever calls. Cancel safe:
    /// the stream is closed again.
    ///
    /// # Errors
    /// If there is no such stream, or its address is not one that our credentials may go to. A failure with a
    /// status says that the server has no stream of this kind.
    pub(in crate::upstream) async fn open(
        site: &Endpoint,
        (unsolicited, attribution): (Arc<Unsolicited>, Attribution),
        tasks: &TaskTracker,
    ) -> Result<Self, Failure> {
        let mut stream = site.listen(&HeaderMap::new(), None).await?;
        let first = stream.next_of_any_kind().await?;
        let address = address(first.as_ref(), site.url())?;
        let post = site.at(address)?;
        let shared = Arc::new(Shared { inbox: Inbox::new(unsolicited, attribution), post });
        let ended = CancellationToken::new();
        let (until, reading) = (ended.clone(), read(stream, Arc::clone(&shared)));
        tasks.spawn(async move { until.run_until_cancelled(reading).await });
        Ok(Self { shared, ended: ended.clone(), _reader: ended.drop_guard() })
    }

    /// Sends a request and waits for its answer, which may be there before the POST is answered.
    pub(super) async fn request(&self, outgoing: Outgoing) -> Result<Reply, Failure> {
        let Outgoing { id, text, headers, listener, farewell, .. } = outgoing;
        let Shared { inbox, post } = &*self.shared;
        let (flight, mut answer) = inbox.in_flight().enter(id, listener)?;
        flight.stage().depart();
        let mut departure = Departure { post, flight, headers: Arc::clone(&headers), farewell };
        let delivery = post.clone();
        let mut posting = Box::pin(async move { delivery.deliver(text, &headers).await });
        let landing = tokio::select! {
            biased;
            landing = &mut answer => {
                post.finish_aside(posting);
                landing
            }
            posted = &mut posting => match posted {
                Ok(()) => answer.await,
                Err(failure) => {
                    if failure.executed == Executed::No {
                        departure.farewell = Farewell::Silent;
                    }
                    return Err(self.note(failure));
                }
            },
        };
        drop(departure);
        let response = landing.unwrap_or_else(|_| Err(inbox.failure_or(lost())))?;
        Ok(Reply { response, status: None, session: None })
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, text: Bytes, headers: Arc<HeaderMap>) -> Result<(), Failure> {
        self.shared.post.notify(text, headers).await.map_err(|failure| self.note(failure))
    }

    /// Whether a question of the server shows to which call it belongs.
    pub(super) fn attributes_questions(&self) -> bool {
        self.shared.inbox.attributes_questions()
    }

    /// Waits until the connection is broken. Cancel safe.
    pub(super) async fn closed(&self) -> Failure {
        self.shared.inbox.closed().await
    }

    /// Closes the stream.
    pub(super) fn stop(&self) {
        let failure = Failure::unavailable("Waypost ended the connection, as it is stopping");
        self.shared.inbox.in_flight().close(&failure);
        self.ended.cancel();
    }

    /// Closes the stream, and ends every call on it.
    pub(super) fn give_up(&self, failure: Failure) {
        self.shared.inbox.close(failure);
        self.ended.cancel();
    }

    /// Ends the connection with a failure to deliver that concerns it as a whole: a server that has lost it
    /// answers 404.
    fn note(&self, failure: Failure) -> Failure {
        let failure = match failure.status {
            Some(404 | 410) => failure.of_connection(),
            Some(_) | None => failure,
        };
        if failure.scope == Scope::Connection {
            self.shared.inbox.close(failure.clone());
            self.ended.cancel();
        }
        failure
    }
}

/// A request that is out. Dropped before its answer came, it says so to the server.
struct Departure<'a> {
    post: &'a Endpoint,
    flight: Flight<'a>,
    headers: Arc<HeaderMap>,
    farewell: Farewell,
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        let was_unanswered = self.flight.leave();
        if let (true, Farewell::Cancelled(cancel)) = (was_unanswered, &self.farewell) {
            self.flight.abandon();
            self.post.say_cancelled(self.flight.id(), cancel.reason(), Arc::clone(&self.headers));
        }
    }
}

/// The address that a stream begins with, if our credentials may go there: only to the origin that they are
/// configured for.
fn address(first: Option<&sse::Event>, site: &Url) -> Result<Url, Failure> {
    let Some(event) = first.filter(|event| event.event.as_deref() == Some(ENDPOINT)) else {
        return Err(Failure::broken("its stream does not begin with an `endpoint` event").with_status(200));
    };
    let text = std::str::from_utf8(&event.data).map(str::trim).unwrap_or_default();
    let url = (!text.is_empty()).then(|| site.join(text).ok()).flatten();
    let Some(url) = url.filter(|url| url.username().is_empty() && url.password().is_none()) else {
        return Err(Failure::broken("its `endpoint` event holds no address"));
    };
    if url.origin() != site.origin() {
        let text = "its `endpoint` event leads to another origin, where our credentials must not go";
        return Err(Failure::broken(text).because(url.origin().ascii_serialization()));
    }
    Ok(url)
}

/// Reads messages until the stream ends, and tells everybody.
async fn read(mut stream: EventStream, shared: Arc<Shared>) {
    let way_back = || WayBack::Http(shared.post.clone(), Arc::default());
    let failure = loop {
        match stream.next().await {
            Ok(Some(event)) => shared.inbox.take(&event.data, &way_back).await,
            Ok(None) => break Failure::unavailable("its stream ended, and with it the connection"),
            Err(failure) if failure.kind == GatewayErrorKind::Unavailable => {
                break Failure::unavailable("its stream broke off, and with it the connection")
                    .because(failure.reason());
            }
            Err(failure) => break failure,
        }
    };
    shared.inbox.close(failure.of_connection());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun_with(event: &str, data: &str) -> Result<String, String> {
        let site = Url::parse("https://example.com:8443/base/sse?key=1").unwrap();
        let event = sse::Event {
            event: Some(event.into()),
            data: Bytes::from(data.to_owned()),
            ..sse::Event::default()
        };
        address(Some(&event), &site).map(Into::into).map_err(|failure| failure.text.into_owned())
    }

    #[test]
    fn an_address_may_be_relative_or_absolute_but_stays_on_its_origin() {
        for (data, expected) in [
            ("/messages?s=1", "https://example.com:8443/messages?s=1"),
            ("messages/?s=1", "https://example.com:8443/base/messages/?s=1"),
            ("?s=1", "https://example.com:8443/base/sse?s=1"),
            (" /m\n", "https://example.com:8443/m"),
            ("https://EXAMPLE.com:8443/m", "https://example.com:8443/m"),
            ("//example.com:8443/m", "https://example.com:8443/m"),
        ] {
            assert_eq!(begun_with(ENDPOINT, data).as_deref(), Ok(expected), "{data}");
        }
        for data in [
            "http://example.com:8443/m",
            "https://example.com/m",
            "https://example.com.evil.test:8443/m",
            "//evil.test/m",
            "\\\\evil.test\\m",
            "data:text/plain,x",
        ] {
            let refused = begun_with(ENDPOINT, data).unwrap_err();
            assert!(refused.contains("another origin"), "{data}: {refused}");
        }
        for data in ["", " ", "https://", "https://user@example.com:8443/m", "https://:p@example.com:8443/m"]
        {
            let refused = begun_with(ENDPOINT, data).unwrap_err();
            assert!(refused.contains("holds no address"), "{data}: {refused}");
        }
    }

    #[test]
    fn a_stream_that_begins_otherwise_is_none_of_ours() {
        for event in ["message", "Endpoint", ""] {
            assert!(begun_with(event, "/m").unwrap_err().contains("does not begin"), "{event}");
        }
        let site = Url::parse("https://example.com/sse").unwrap();
        assert!(address(None, &site).unwrap_err().text.contains("does not begin"));
    }
}
