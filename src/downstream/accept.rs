//! Accepts connections and serves them, within bounds, until told to stop.
//!
//! Must not know: what is served.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::patience::Patient;
use super::threads::Threads;

/// A pause after a failed accept: out of descriptors, trying at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections beyond the limit that are told so at the same time; later ones are closed without a word.
const MAX_TURNED_AWAY: usize = 64;

/// How long a connection beyond the limit may take to be told so.
const TURN_AWAY_WITHIN: Duration = Duration::from_secs(2);

/// Requests that one HTTP/2 connection may have under way.
const MAX_STREAMS: u32 = 256;

/// Probes without an answer after which a silent connection is dead.
const PROBES: u32 = 3;

/// How often a silent HTTP/2 connection is asked whether it lives, and how long it may take to say so.
const HTTP2_PING: Duration = Duration::from_secs(20);

/// The beginning of every HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long between two looks at a connection that has sent too little to be told apart.
const PREFACE_POLL: Duration = Duration::from_millis(20);

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Connections at the same time.
    pub(super) connections: usize,
    /// Time for the head of a request to arrive, on a connection that is kept open, too.
    pub(super) header_timeout: Duration,
    /// Time in which a client has to read something of what is written to it.
    pub(super) stall_timeout: Duration,
    /// How long a client may give no sign of life on the level of TCP.
    pub(super) peer_timeout: Duration,
    /// How often `tick` is called.
    pub(super) tick: Duration,
}

/// What the loop tells of itself.
#[derive(Debug)]
pub(super) enum Notice {
    /// Some time has passed.
    Tick,
    /// So many connections are open now.
    Connections(usize),
    /// One could not be accepted; so many in a row.
    Failed(io::Error, u64),
    /// One is accepted again, after so many that could not be.
    Recovered(u64),
}

/// Serves with `serve` until `shutdown`; then lets what is under way end, however long that takes. Each
/// connection is served by one of `threads`, for as long as it lasts. `tell` is called from the same task, and
/// every now and then with a tick.
///
/// Cancel safe: dropping the future ends all connections at once.
pub(super) async fn run<S, F>(
    listener: TcpListener,
    (bounds, threads): (Bounds, &Threads),
    serve: S,
    tell: impl Fn(Notice),
    shutdown: CancellationToken,
) where
    S: Fn(Request<Body>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let builder = http_builder(bounds.header_timeout);
    let graceful = GracefulShutdown::new();
    let (mut connections, mut turned_away) = (JoinSet::new(), JoinSet::new());
    let mut failures = 0;
    let mut ticks = tokio::time::interval(bounds.tick);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let (socket, peer) = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => {
                tell(Notice::Connections(connections.len()));
                continue;
            }
            Some(_ended) = turned_away.join_next(), if !turned_away.is_empty() => continue,
            _ = ticks.tick() => { tell(Notice::Tick); continue }
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    failures += 1;
                    tell(Notice::Failed(error, failures));
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        if failures > 0 {
            tell(Notice::Recovered(std::mem::take(&mut failures)));
        }
        // Small messages are the rule; waiting to fill a segment only adds latency.
        let _best_effort = socket.set_nodelay(true);
        notice_death(&socket, bounds.peer_timeout);
        if connections.len() >= bounds.connections {
            if turned_away.len() < MAX_TURNED_AWAY {
                turned_away.spawn(timeout(TURN_AWAY_WITHIN, turn_away(socket)));
            }
            continue;
        }
        // Out of descriptors or threads, there is nothing to tell anybody with.
        let (Ok(socket), Some(seat)) = (socket.into_std(), threads.seat()) else { continue };
        let (builder, watcher) = (builder.clone(), graceful.watcher());
        let service = with_peer(serve.clone(), peer);
        let runtime = seat.runtime().clone();
        let connection = async move {
            let _seat = seat;
            let Ok(socket) = TcpStream::from_std(socket) else { return };
            if timeout(bounds.header_timeout, beginning(&socket)).await.is_err() {
                return;
            }
            let socket = Patient::new(socket, bounds.stall_timeout);
            let connection = builder.serve_connection(TokioIo::new(socket), service).into_owned();
            // A broken connection is its client's affair.
            drop(watcher.watch(connection).await);
        };
        connections.spawn_on(connection, &runtime);
        tell(Notice::Connections(connections.len()));
    }
    drop((listener, turned_away));
    graceful.shutdown().await;
}

/// Has the system close a connection whose peer is gone without a word: one that acknowledges nothing of what
/// is sent to it, or no probe while nothing is. As far as the system can.
fn notice_death(socket: &TcpStream, within: Duration) {
    use rustix::net::sockopt;
    let set = || {
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, within / 2)?;
        sockopt::set_tcp_keepintvl(socket, (within / 6).max(Duration::from_secs(1)))?;
        sockopt::set_tcp_keepcnt(socket, PROBES)?;
        #[cfg(target_os = "linux")]
        sockopt::set_tcp_user_timeout(socket, u32::try_from(within.as_millis()).unwrap_or(u32::MAX))?;
        Ok::<_, rustix::io::Errno>(())
    };
    if let Err(error) = set() {
        tracing::debug!(%error, "a connection will not notice that its peer is gone");
    }
}

fn http_builder(header_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(header_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(HTTP2_PING)
        .keep_alive_timeout(HTTP2_PING);
    builder
}

/// Waits until the connection has sent enough to be told apart as HTTP/1 or HTTP/2. hyper waits for that
/// without a limit.
async fn beginning(socket: &TcpStream) {
    let mut start = [0_u8; HTTP2_PREFACE.len()];
    loop {
        match socket.peek(&mut start).await {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                let seen = start.get(..count).unwrap_or_default();
                if count == HTTP2_PREFACE.len() || !HTTP2_PREFACE.starts_with(seen) {
                    return;
                }
                sleep(PREFACE_POLL).await;
            }
        }
    }
}

fn with_peer<S, F>(
    serve: S,
    peer: SocketAddr,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = Response,
    Error = Infallible,
    Future = impl Future<Output = Result<Response, Infallible>> + Send + 'static,
> + Send
+ 'static
where
    S: Fn(Request<Body>) -> F + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let peer = Peer(peer.ip().to_canonical());
    service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let response = serve(request.map(Body::new));
        async move { Ok(response.await) }
    })
}

/// Tells one client that there are too many.
async fn turn_away(socket: TcpStream) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().keep_alive(false);
    let service = service_fn(|_request: Request<Incoming>| async {
        Ok::<_, Infallible>(super::stream::respond(super::http::too_many_connections()))
    });
    drop(builder.serve_connection(TokioIo::new(socket), service).await);
}

#[cfg(test)]
mod tests;
