//! A server behind a Streamable HTTP endpoint: every message is a POST, every answer JSON or a stream.
//!
//! Must not know: eras, sessions. Which headers a request carries comes with it.

mod answer;
mod fault;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use reqwest::redirect::Policy;
use secrecy::ExposeSecret;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use url::{Host, Url};

use super::{Farewell, Outgoing, Reply, cancelled};
use crate::config;
use crate::mcp::ListKind;
use crate::upstream::failure::{Failure, Scope};
use crate::upstream::unsolicited::Unsolicited;
use crate::wire::headers::SESSION_ID;

pub(in crate::upstream) use answer::EventStream;

/// How long a message that nobody waits for may take: a cancellation, an answer to a question, a farewell.
const ASIDE: Duration = Duration::from_secs(5);
/// How many answers to questions of the server may be on their way.
const ASIDES: usize = 16;
/// The header that asks for a stream to go on behind an event.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long an idle TCP connection goes without a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// The window of a whole HTTP/2 connection: one stream that is read slowly must not stop the others.
const CONNECTION_WINDOW: u32 = 64 << 20;
/// The window of one HTTP/2 stream.
const STREAM_WINDOW: u32 = 1 << 20;

/// A Streamable HTTP endpoint.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Endpoint(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: reqwest::Client,
    url: Url,
    /// Headers of every request.
    headers: HeaderMap,
    /// Headers of every request with a body.
    post_headers: HeaderMap,
    message_limit: usize,
    stream_idle: Option<Duration>,
    unsolicited: Arc<Unsolicited>,
    asides: Arc<Semaphore>,
    broken: watch::Sender<Option<Failure>>,
    tasks: TaskTracker,
    runtime: Handle,
}

/// What an endpoint needs besides its address.
#[derive(Debug)]
pub(in crate::upstream) struct Surroundings<'a> {
    pub(in crate::upstream) unsolicited: Arc<Unsolicited>,
    pub(in crate::upstream) tasks: &'a TaskTracker,
    /// Bytes of one message, decoded.
    pub(in crate::upstream) message_limit: usize,
    /// How long an answer may pause in the middle of a message.
    pub(in crate::upstream) stream_idle: Option<Duration>,
    /// Time to open a TCP connection and to agree on TLS.
    pub(in crate::upstream) connect_timeout: Duration,
}

impl Endpoint {
    /// Makes the client; opens no connection yet. Must be called within a runtime.
    ///
    /// # Errors
    /// If TLS cannot be set up, or a configured header cannot be sent.
    pub(in crate::upstream) fn new(
        config: &config::Http,
        surroundings: Surroundings<'_>,
    ) -> Result<Self, Failure> {
        let mut headers = configured(config)?;
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let mut post_headers = headers.clone();
        post_headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        post_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self(Arc::new(Inner {
            client: client(&config.url, surroundings.connect_timeout)?,
            url: config.url.clone(),
            headers,
            post_headers,
            message_limit: surroundings.message_limit,
            stream_idle: surroundings.stream_idle,
            unsolicited: surroundings.unsolicited,
            asides: Arc::new(Semaphore::new(ASIDES)),
            broken: watch::Sender::new(None),
            tasks: surroundings.tasks.clone(),
            runtime: Handle::current(),
        })))
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn request(&self, outgoing: Outgoing) -> Result<Reply, Failure> {
        let mut departure = Departure {
            endpoint: self,
            id: outgoing.id,
            headers: Arc::clone(&outgoing.headers),
            farewell: outgoing.farewell.clone(),
        };
        let reply = self.exchange(outgoing).await;
        departure.farewell = Farewell::Silent;
        if let Err(failure) = &reply {
            self.note(failure);
        }
        reply
    }

    async fn exchange(&self, outgoing: Outgoing) -> Result<Reply, Failure> {
        let response = self.send(Method::POST, Some(outgoing.text), &outgoing.headers).await?;
        let session = response.headers().get(SESSION_ID).cloned();
        let status = response.status();
        let reading = answer::Reading {
            endpoint: self,
            id: outgoing.id,
            headers: outgoing.headers,
            listener: outgoing.listener,
            resumption: outgoing.resumption,
        };
        if status.is_success() {
            let response = reading.read(response).await?;
            return Ok(Reply { response, status: None, session });
        }
        let response = reading.read_refusal(response).await?;
        Ok(Reply { response, status: Some(status.as_u16()), session })
    }

    /// Sends a notification. Whatever status the server gives to it is accepted: some answer with a body,
    /// some with an error, and no one waits for it.
    ///
    /// # Errors
    /// If it cannot be delivered.
    pub(super) async fn notify(&self, text: Bytes, headers: Arc<HeaderMap>) -> Result<(), Failure> {
        let response =
            self.send(Method::POST, Some(text), &headers).await.inspect_err(|failure| self.note(failure))?;
        if !response.status().is_success() {
            tracing::debug!(status = response.status().as_u16(), "an upstream refused a notification");
        }
        self.finish_reading(response);
        Ok(())
    }

    /// Opens a stream of the server: of what it says by itself, or the one that held the event `last_id`.
    ///
    /// # Errors
    /// If there is none: the failure has the status.
    pub(in crate::upstream) async fn listen(
        &self,
        headers: &HeaderMap,
        last_id: Option<&str>,
    ) -> Result<EventStream, Failure> {
        let mut headers = headers.clone();
        if let Some(Ok(id)) = last_id.map(HeaderValue::from_str) {
            headers.insert(LAST_EVENT_ID, id);
        }
        let sent = self.send(Method::GET, None, &headers).await;
        let response = sent.inspect_err(|failure| self.note(failure))?;
        if response.status() != StatusCode::OK || !answer::is_event_stream(response.headers()) {
            return Err(fault::of_status(&response));
        }
        Ok(self.stream(response))
    }

    fn stream(&self, response: reqwest::Response) -> EventStream {
        EventStream::new(response, self.0.message_limit, self.0.stream_idle)
    }

    /// Has all lists read again.
    pub(in crate::upstream) fn doubt_lists(&self) {
        self.0.unsolicited.doubt(&ListKind::ALL);
    }

    /// Takes a message that came on a stream of the server's own.
    pub(in crate::upstream) fn hear(&self, data: Bytes, headers: &Arc<HeaderMap>) {
        for message in answer::messages(&data, &self.0.unsolicited) {
            drop(answer::absorb_unsolicited(self, headers, message));
        }
    }

    /// Ends a session of ours.
    pub(in crate::upstream) async fn delete(&self, headers: &HeaderMap) {
        drop(timeout(ASIDE, self.send(Method::DELETE, None, headers)).await);
    }

    /// Waits until the connection is of no use any more. Cancel safe.
    pub(super) async fn closed(&self) -> Failure {
        let mut broken = self.0.broken.subscribe();
        match broken.wait_for(Option::is_some).await {
            Ok(failure) => {
                failure.clone().unwrap_or_else(|| Failure::unavailable("the connection was closed"))
            }
            Err(_) => Failure::unavailable("the connection was closed"),
        }
    }

    /// Remembers a failure that concerns the connection as a whole.
    pub(in crate::upstream) fn note(&self, failure: &Failure) {
        if failure.scope == Scope::Connection {
            self.0.broken.send_if_modified(|broken| {
                let is_first = broken.is_none();
                broken.get_or_insert_with(|| failure.clone());
                is_first
            });
        }
    }

    /// Answers a request of the server.
    ///
    /// # Errors
    /// If the answer cannot be delivered in time, or is refused.
    pub(in crate::upstream) async fn answer(
        &self,
        text: Bytes,
        headers: Arc<HeaderMap>,
    ) -> Result<(), Failure> {
        let late = |_| Failure::unavailable("it did not take the answer to its question");
        let response =
            timeout(ASIDE, self.send(Method::POST, Some(text), &headers)).await.map_err(late)??;
        let status = response.status();
        self.finish_reading(response);
        match status.is_success() {
            true => Ok(()),
            false => Err(Failure::unavailable(format!(
                "it refused the answer to its question with HTTP status {}",
                status.as_u16()
            ))),
        }
    }

    /// Sends a message that nobody waits for, in the background, unless too many are on their way.
    fn send_aside(&self, text: Bytes, headers: Arc<HeaderMap>) {
        let Ok(permit) = Arc::clone(&self.0.asides).try_acquire_owned() else {
            tracing::debug!("no room to answer a request of an upstream");
            return;
        };
        let endpoint = self.clone();
        self.spawn(async move {
            drop(timeout(ASIDE, endpoint.notify(text, headers)).await);
            drop(permit);
        });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn_on(task, &self.0.runtime);
    }

    /// Reads what is left of an answer, a little, so that its connection can be used again.
    fn finish_reading(&self, response: reqwest::Response) {
        self.spawn(answer::drain(response));
    }

    /// Sends one HTTP request. A redirect within the same origin that keeps the method is followed once.
    async fn send(
        &self,
        method: Method,
        body: Option<Bytes>,
        headers: &HeaderMap,
    ) -> Result<reqwest::Response, Failure> {
        let first = self.send_to(self.0.url.clone(), &method, body.clone(), headers).await?;
        match redirect(&first, &self.0.url)? {
            None => Ok(first),
            Some(url) => {
                let second = self.send_to(url, &method, body, headers).await?;
                match second.status().is_redirection() {
                    true => Err(fault::redirected(second.status())),
                    false => Ok(second),
                }
            }
        }
    }

    async fn send_to(
        &self,
        url: Url,
        method: &Method,
        body: Option<Bytes>,
        headers: &HeaderMap,
    ) -> Result<reqwest::Response, Failure> {
        let mut request = reqwest::Request::new(method.clone(), url);
        let all = request.headers_mut();
        all.clone_from(if body.is_some() { &self.0.post_headers } else { &self.0.headers });
        for (name, value) in headers {
            all.insert(name, value.clone());
        }
        *request.body_mut() = body.map(reqwest::Body::from);
        self.0.client.execute(request).await.map_err(fault::of_sending)
    }
}

/// A request that is out. Dropped before its answer came, it says so to the server.
struct Departure<'a> {
    endpoint: &'a Endpoint,
    id: u64,
    headers: Arc<HeaderMap>,
    farewell: Farewell,
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        let Farewell::Cancelled(cancel) = &self.farewell else { return };
        let text = cancelled(self.id, cancel.reason());
        let endpoint = self.endpoint.clone();
        let headers = Arc::clone(&self.headers);
        self.endpoint.spawn(async move { drop(timeout(ASIDE, endpoint.notify(text, headers)).await) });
    }
}

/// Where to go instead, if the answer sends us somewhere else within the same origin.
fn redirect(response: &reqwest::Response, from: &Url) -> Result<Option<Url>, Failure> {
    let status = response.status();
    if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
        return Ok(None);
    }
    let keeps_method = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let target = location.and_then(|location| from.join(location).ok());
    match target.filter(|url| keeps_method && url.origin() == from.origin()) {
        Some(url) => Ok(Some(url)),
        None => Err(fault::redirected(status)),
    }
}

fn client(url: &Url, connect_timeout: Duration) -> Result<reqwest::Client, Failure> {
    let mut builder = reqwest::Client::builder()
        .redirect(Policy::none())
        .connect_timeout(connect_timeout)
        .tcp_keepalive(KEEP_ALIVE)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .user_agent(concat!("waypost/", env!("CARGO_PKG_VERSION")));
    if url.scheme() == "http" {
        // No certificates are needed, and some containers have none.
        builder = builder.tls_certs_only([]);
    }
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if is_local {
        // A proxy of the environment leads out of this machine.
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| {
        Failure::unavailable("its TLS client could not be set up").because(fault::chain(&error))
    })
}

fn configured(config: &config::Http) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::with_capacity(config.headers.len());
    for (name, value) in &config.headers {
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| {
            Failure::unavailable("a header in its configuration cannot be sent").because(name)
        })?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}
