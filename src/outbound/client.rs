//! Requests to one origin over connections that are kept for the next ones.
//!
//! An HTTP/1 connection is driven by whoever uses it, within the task of its call: nothing is handed from task
//! to task, and what nobody reads is not read. One that rests belongs to the runtime whose socket it has, and is
//! only used from there.
//!
//! Must not know: MCP.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Request, Response, Uri, uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::rt::Executor as _;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::runtime::{self, Handle};
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

use super::Unusable;
use super::dial::{DialError, Dialer, KEEP_ALIVE, Opened, Protocol, Stream, source_of};
use super::received::Received;

/// How many connections rest at the most; one more is closed after its use.
const RESTING: usize = 1024;
/// How long a connection rests that nobody has said more of. Servers of MCP themselves close after five seconds
/// (uvicorn, Node.js) and say nothing: a request that meets that close may have been executed, so is not
/// repeated.
const REST: Duration = Duration::from_secs(4);
/// The same with TLS, which ends at proxies that wait longer (most often a minute), and costs more to set up.
const REST_TLS: Duration = Duration::from_secs(50);
/// How long a connection rests at the most, whatever its server says.
const LONGEST_REST: Duration = Duration::from_secs(90);
/// How much sooner than its server a connection is closed.
const AHEAD: Duration = Duration::from_secs(1);
/// How often it is looked whether a resting connection was closed by its server, or has rested for long enough.
const ROUND: Duration = Duration::from_secs(5);
/// How often a request is sent that its server certainly has not executed.
const TRIES: u32 = 5;
/// The window of a whole HTTP/2 connection: one stream that is read slowly must not stop the others.
const CONNECTION_WINDOW: u32 = 64 << 20;
/// The window of one HTTP/2 stream.
const STREAM_WINDOW: u32 = 1 << 20;

type Outbound = Request<Full<Bytes>>;
type Driver = http1::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// There is no connection, so nothing was sent.
    #[error("no connection")]
    Unconnected(#[source] DialError),
    /// The connection broke, or what came was no HTTP.
    #[error("no answer")]
    Broken(#[source] hyper::Error),
}

/// What speaks with one origin. Its connections end with its last clone, but for those in use.
#[derive(Clone)]
pub(crate) struct Client {
    pool: Arc<Pool>,
    _rounds: Arc<DropGuard>,
}

pub(super) struct Pool {
    dialer: Dialer,
    /// Where a request goes that a proxy reads: it needs the whole URL.
    scheme: Option<uri::Scheme>,
    authority: Option<uri::Authority>,
    host: Option<HeaderValue>,
    /// How long a connection rests whose server does not say.
    rest: Duration,
    /// Connections without a request, the one that has rested longest first.
    resting: Mutex<Vec<Link>>,
    /// A connection that takes many requests.
    shared: Mutex<Option<http2::SendRequest<Full<Bytes>>>>,
}

/// An HTTP/1 connection.
pub(super) struct Link {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Pin<Box<Driver>>,
    home: runtime::Id,
    /// Until when it may rest.
    until: Instant,
    /// How long its server says that it waits for the next request.
    rest: Option<Duration>,
}

/// A request that was not answered.
struct Unsent {
    error: hyper::Error,
    /// The request, where nothing of it was sent, or the server says that it has not looked at it.
    request: Option<Outbound>,
}

impl Client {
    /// Makes a client for the origin of `url`; opens no connection yet. Must be called within a runtime.
    ///
    /// # Errors
    /// If TLS, or the proxy of the environment, cannot be set up.
    pub(crate) fn new(url: &Url, connect_timeout: Duration) -> Result<Self, Unusable> {
        Self::through(&Matcher::from_env(), url, connect_timeout)
    }

    /// The same with other proxies than those of the environment.
    fn through(proxies: &Matcher, url: &Url, connect_timeout: Duration) -> Result<Self, Unusable> {
        let dialer = Dialer::new(proxies, url, connect_timeout)?;
        let parts = url.as_str().parse::<Uri>().map(Uri::into_parts).unwrap_or_default();
        let host = parts.authority.as_ref().and_then(|name| HeaderValue::from_str(name.as_str()).ok());
        let rest = if url.scheme() == "https" { REST_TLS } else { REST };
        let pool = Arc::new(Pool {
            rest,
            dialer,
            scheme: parts.scheme,
            authority: parts.authority,
            host,
            resting: Mutex::default(),
            shared: Mutex::default(),
        });
        let ended = CancellationToken::new();
        let rounds = Pool::keep(Arc::downgrade(&pool));
        let watched = ended.clone();
        TokioExecutor::new().execute(async move { watched.run_until_cancelled(rounds).await });
        Ok(Self { pool, _rounds: Arc::new(ended.drop_guard()) })
    }

    /// Sends a request, whose URI is a path, and waits for the head of its answer. What was sent is never
    /// repeated unless its server has said that it did not look at it.
    ///
    /// Cancel safe: dropping the future closes the connection, or the stream within it.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) async fn send(&self, request: Outbound) -> Result<Received, SendError> {
        let mut tries = 0;
        let mut request = request;
        loop {
            tries += 1;
            let unsent = match self.pool.send(request).await? {
                Ok(received) => return Ok(received),
                Err(unsent) => unsent,
            };
            request = match unsent.request {
                Some(request) if tries < TRIES => request,
                Some(_) | None => return Err(SendError::Broken(unsent.error)),
            };
        }
    }
}

impl Pool {
    async fn send(self: &Arc<Self>, mut request: Outbound) -> Result<Result<Received, Unsent>, SendError> {
        while let Some(link) = self.take() {
            match self.send_on(link, request).await {
                // Its server has closed it meanwhile, which is no try.
                Err(Unsent { request: Some(unsent), .. }) => request = unsent,
                sent => return Ok(sent),
            }
        }
        if let Some(sender) = self.shared() {
            return Ok(self.share(sender, request).await);
        }
        let opened = self.dialer.dial().await.map_err(SendError::Unconnected)?;
        match opened.protocol {
            Protocol::Http1 => {
                let link = Link::new(opened).await.map_err(SendError::Broken)?;
                Ok(self.send_on(link, request).await)
            }
            Protocol::Http2 => {
                let sender = multiplex(opened).await.map_err(SendError::Broken)?;
                *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender.clone());
                Ok(self.share(sender, request).await)
            }
        }
    }

    async fn send_on(self: &Arc<Self>, mut link: Link, mut request: Outbound) -> Result<Received, Unsent> {
        if let Some(host) = &self.host {
            request.headers_mut().insert(HOST, host.clone());
        }
        if let Some(credentials) = self.dialer.reader() {
            self.make_absolute(&mut request);
            if let Some(credentials) = credentials {
                request.headers_mut().insert(PROXY_AUTHORIZATION, credentials.clone());
            }
        }
        let response = link.send(request).await?;
        link.rest = announced_rest(response.headers()).or(link.rest);
        Ok(Received::new(response, Some((link, Arc::clone(self)))))
    }

    async fn share(
        &self,
        mut sender: http2::SendRequest<Full<Bytes>>,
        mut request: Outbound,
    ) -> Result<Received, Unsent> {
        request.headers_mut().remove(HOST);
        self.make_absolute(&mut request);
        let copy = request.clone();
        match sender.try_send_request(request).await {
            Ok(response) => Ok(Received::new(response, None)),
            Err(error) => {
                let mut unsent = Unsent::from(error);
                if is_unread(&unsent.error) {
                    unsent.request.get_or_insert(copy);
                }
                if unsent.request.is_some() {
                    // The next try needs another connection.
                    *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
                Err(unsent)
            }
        }
    }

    fn make_absolute(&self, request: &mut Outbound) {
        let mut parts = request.uri().clone().into_parts();
        parts.scheme.clone_from(&self.scheme);
        parts.authority.clone_from(&self.authority);
        // Each part is a valid one, and none is missing.
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    }

    fn shared(&self) -> Option<http2::SendRequest<Full<Bytes>>> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.as_ref().is_some_and(http2::SendRequest::is_closed) {
            *shared = None;
        }
        shared.clone()
    }

    /// A connection of this runtime that rests and is open, the one that was used last.
    fn take(&self) -> Option<Link> {
        let home = Handle::current().id();
        loop {
            let mut link = {
                let mut resting = self.lock();
                let place = resting.iter().rposition(|link| link.home == home)?;
                resting.remove(place)
            };
            if link.until > Instant::now() && link.is_open() {
                return Some(link);
            }
        }
    }

    /// Keeps a connection for the next request, if it can take one.
    pub(super) fn put(&self, mut link: Link) {
        if !link.sender.is_ready() && !link.is_open() {
            return;
        }
        link.until = Instant::now() + link.rest.unwrap_or(self.rest);
        let mut resting = self.lock();
        if resting.len() < RESTING {
            resting.push(link);
        }
    }

    /// Closes connections that have rested long, and those that their servers have closed, for as long as the
    /// pool is there.
    async fn keep(pool: Weak<Self>) {
        loop {
            sleep(ROUND).await;
            let Some(pool) = pool.upgrade() else { return };
            let gone: Vec<Link> = {
                let mut resting = pool.lock();
                resting.extract_if(.., |link| link.until <= Instant::now() || !link.is_open()).collect()
            };
            drop(gone);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Link>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    async fn new(opened: Opened) -> Result<Self, hyper::Error> {
        let (sender, driver) = http1::handshake(TokioIo::new(opened.stream)).await?;
        let (driver, home) = (Box::pin(driver), Handle::current().id());
        Ok(Self { sender, driver, home, until: Instant::now(), rest: None })
    }

    async fn send(&mut self, request: Outbound) -> Result<Response<Incoming>, Unsent> {
        let mut answer = std::pin::pin!(self.sender.try_send_request(request));
        let mut is_over = false;
        std::future::poll_fn(|cx| {
            if !is_over {
                is_over = self.driver.as_mut().poll(cx).is_ready();
            }
            answer.as_mut().poll(cx)
        })
        .await
        .map_err(Unsent::from)
    }

    /// Reads and writes what there is; ready once the connection is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.driver.as_mut().poll(cx).map(drop)
    }

    /// Whether another request can be sent.
    fn is_open(&mut self) -> bool {
        // Nobody waits for it: whoever takes it next looks again.
        let is_over = self.poll(&mut Context::from_waker(Waker::noop())).is_ready();
        !is_over && self.sender.is_ready()
    }
}

impl From<TrySendError<Outbound>> for Unsent {
    fn from(mut error: TrySendError<Outbound>) -> Self {
        let request = error.take_message();
        Self { request, error: error.into_error() }
    }
}

/// How long a connection may rest by what its server says: `Keep-Alive: timeout=SECONDS`.
fn announced_rest(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("keep-alive")?.to_str().ok()?;
    let timeout = text.split(',').find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.trim().trim_matches('"'))
    })?;
    Some(Duration::from_secs(timeout.parse().ok()?).saturating_sub(AHEAD).min(LONGEST_REST))
}

/// Speaks HTTP/2 on a connection, in the background, until nobody sends any more.
async fn multiplex(opened: Opened) -> Result<http2::SendRequest<Full<Bytes>>, hyper::Error> {
    let (sender, driver) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .keep_alive_interval(KEEP_ALIVE)
        .handshake(TokioIo::new(opened.stream))
        .await?;
    TokioExecutor::new().execute(async move { drop(driver.await) });
    Ok(sender)
}

/// Whether an HTTP/2 server says that it has not looked at a request. RFC 9113, 8.7.
fn is_unread(error: &(dyn Error + 'static)) -> bool {
    source_of::<h2::Error>(error).is_some_and(|error| {
        let is_farewell = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
        let is_refusal = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (is_farewell || is_refusal)
    })
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("authority", &self.pool.authority).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
