//! A server behind a Streamable HTTP endpoint: every message is a POST, every answer JSON or a stream.
//!
//! Must not know: eras, sessions. Which headers a request carries comes with it.

mod answer;
mod fault;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use secrecy::ExposeSecret;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use url::Url;

use super::{Farewell, Outgoing, Reply, cancelled};
use crate::config;
use crate::exchange::Budget;
use crate::outbound::{Client, Received, Unusable, path};
use crate::upstream::failure::{Failure, Scope};
use crate::upstream::unsolicited::Unsolicited;
use crate::wire::headers::{LAST_EVENT_ID, SESSION_ID};

pub(in crate::upstream) use answer::EventStream;

/// How long a message that nobody waits for may take: a cancellation, an answer to a question, a farewell.
const ASIDE: Duration = Duration::from_secs(5);
/// How many answers to questions of the server may be on their way.
const ASIDES: usize = 16;
/// The header that asks for a stream to go on behind an event.
/// What every request says of its sender.
const OURSELVES: HeaderValue = HeaderValue::from_static(concat!("waypost/", env!("CARGO_PKG_VERSION")));

/// A Streamable HTTP endpoint.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Endpoint(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    url: Url,
    /// The path and the query of the URL.
    path: Uri,
    /// Headers of every request.
    headers: HeaderMap,
    /// Headers of every request with a body.
    post_headers: HeaderMap,
    message_limit: usize,
    stream_idle: Option<Duration>,
    budget: Budget,
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
    /// What answers may take of the memory.
    pub(in crate::upstream) budget: Budget,
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
        headers.entry(USER_AGENT).or_insert(OURSELVES);
        headers.entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static("gzip"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let mut post_headers = headers.clone();
        post_headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        post_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self(Arc::new(Inner {
            client: Client::new(&config.url, surroundings.connect_timeout).map_err(unusable)?,
            path: path(&config.url).map_err(unusable)?,
            url: config.url.clone(),
            headers,
            post_headers,
            message_limit: surroundings.message_limit,
            stream_idle: surroundings.stream_idle,
            budget: surroundings.budget,
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

    fn bounds(&self) -> answer::Bounds {
        answer::Bounds {
            message: self.0.message_limit,
            idle: self.0.stream_idle,
            share: self.0.budget.share(),
        }
    }

    fn stream(&self, response: Received) -> EventStream {
        EventStream::new(response, self.bounds())
    }

    /// Its address.
    pub(super) fn url(&self) -> &Url {
        &self.0.url
    }

    /// The same server at another address. Credentials go there, too: the origin must be the same.
    ///
    /// # Errors
    /// If the address cannot be written in a request.
    pub(super) fn at(&self, url: Url) -> Result<Self, Failure> {
        let Inner { client, headers, post_headers, unsolicited, asides, tasks, runtime, .. } = &*self.0;
        Ok(Self(Arc::new(Inner {
            client: client.clone(),
            path: path(&url).map_err(unusable)?,
            url,
            headers: headers.clone(),
            post_headers: post_headers.clone(),
            message_limit: self.0.message_limit,
            stream_idle: self.0.stream_idle,
            budget: self.0.budget.clone(),
            unsolicited: Arc::clone(unsolicited),
            asides: Arc::clone(asides),
            broken: watch::Sender::new(None),
            tasks: tasks.clone(),
            runtime: runtime.clone(),
        })))
    }

    /// Has everything looked at again.
    pub(in crate::upstream) fn doubt_all(&self) {
        self.0.unsolicited.doubt_all();
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

    /// Sends a message whose answer, if there is one, comes another way.
    ///
    /// # Errors
    /// If it cannot be delivered, or is refused; the failure has the status then.
    pub(super) async fn deliver(&self, text: Bytes, headers: &HeaderMap) -> Result<(), Failure> {
        let response = self.send(Method::POST, Some(text), headers).await?;
        if !response.status().is_success() {
            let refusal = fault::of_status(&response);
            self.finish_reading(response);
            return Err(refusal);
        }
        self.finish_reading(response);
        Ok(())
    }

    /// Lets a delivery end that nobody waits for any more, unless too many of them are on their way.
    pub(super) fn finish_aside(&self, delivery: impl Future<Output = Result<(), Failure>> + Send + 'static) {
        let Ok(permit) = Arc::clone(&self.0.asides).try_acquire_owned() else { return };
        self.spawn(async move {
            drop(timeout(ASIDE, delivery).await);
            drop(permit);
        });
    }

    /// Says that a request is dropped, in the background.
    pub(super) fn say_cancelled(&self, id: u64, reason: Option<&str>, headers: Arc<HeaderMap>) {
        let text = cancelled(id, reason);
        let endpoint = self.clone();
        self.spawn(async move { drop(timeout(ASIDE, endpoint.notify(text, headers)).await) });
    }

    /// Sends a message that nobody waits for, in the background, unless too many are on their way.
    pub(super) fn send_aside(&self, text: Bytes, headers: Arc<HeaderMap>) {
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
    fn finish_reading(&self, response: Received) {
        self.spawn(answer::drain(response));
    }

    /// Sends one HTTP request. A redirect within the same origin that keeps the method is followed once.
    async fn send(
        &self,
        method: Method,
        body: Option<Bytes>,
        headers: &HeaderMap,
    ) -> Result<Received, Failure> {
        let first = self.send_to(&self.0.path, &method, body.clone(), headers).await?;
        self.0.unsolicited.hear();
        match redirect(&first, &self.0.url)? {
            None => Ok(first),
            Some(url) => {
                let second = self.send_to(&path(&url).map_err(unusable)?, &method, body, headers).await?;
                match second.status().is_redirection() {
                    true => Err(fault::redirected(second.status())),
                    false => Ok(second),
                }
            }
        }
    }

    async fn send_to(
        &self,
        path: &Uri,
        method: &Method,
        body: Option<Bytes>,
        headers: &HeaderMap,
    ) -> Result<Received, Failure> {
        let common = if body.is_some() { &self.0.post_headers } else { &self.0.headers };
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = path.clone();
        let all = request.headers_mut();
        all.clone_from(common);
        for (name, value) in headers {
            all.insert(name, value.clone());
        }
        self.0.client.send(request).await.map_err(|error| fault::of_sending(&error))
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
        if let Farewell::Cancelled(cancel) = &self.farewell {
            self.endpoint.say_cancelled(self.id, cancel.reason(), Arc::clone(&self.headers));
        }
    }
}

/// Where to go instead, if the answer sends us somewhere else within the same origin.
fn redirect(response: &Received, from: &Url) -> Result<Option<Url>, Failure> {
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

fn unusable(error: Unusable) -> Failure {
    let failure = Failure::unavailable(error.text);
    if error.cause.is_empty() { failure } else { failure.because(error.cause) }
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
