//! Accepts connections and serves them, within bounds, until told to stop.
//!
//! Must not know: what is served.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Connections at the same time; later ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 128;

/// Time for the head of a request to arrive, on a connection that is kept open, too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that requests under way get at the end.
const DRAIN: Duration = Duration::from_secs(2);

/// A pause after a failed accept: out of descriptors, trying at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`; then ends what is under way, for at most [`DRAIN`].
pub(super) async fn serve<S>(listener: TcpListener, service: S, shutdown: CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = std::convert::Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let socket = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((socket, _peer)) => socket,
                Err(_) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let connection = builder.serve_connection(TokioIo::new(socket), service.clone()).into_owned();
        let watched = graceful.watch(connection);
        connections.spawn(async move {
            // A broken connection is its client's affair.
            drop(watched.await);
        });
    }
    drop(listener);
    drop(tokio::time::timeout(DRAIN, graceful.shutdown()).await);
}
