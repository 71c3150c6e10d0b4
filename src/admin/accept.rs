//! Accepts connections and serves them, within bounds, until told to stop.
//!
//! Must not know: what is served.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::tls::Acceptor;

/// Connections at the same time; later ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 128;

/// Time for the head of a request to arrive, on a connection that is kept open, too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that requests under way get at the end.
const DRAIN: Duration = Duration::from_secs(2);

/// A pause after a failed accept: out of descriptors, trying at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`; then ends what is under way, for at most [`DRAIN`].
pub(super) async fn serve<S>(
    (listener, tls): (TcpListener, Option<Arc<Acceptor>>),
    service: S,
    shutdown: CancellationToken,
) where
    S: Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = std::convert::Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    // HTTP/1.1 alone: telling versions apart waits for the first bytes without a limit of time.
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    // Ends with this function.
    let mut keeping = JoinSet::new();
    if let Some(tls) = &tls {
        keeping.spawn(Arc::clone(tls).keep("admin"));
    }
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
        if let Some(tls) = &tls {
            let (tls, builder, service) = (Arc::clone(tls), builder.clone(), service.clone());
            let watcher = graceful.watcher();
            connections.spawn(async move {
                let shaking = timeout(HEADER_TIMEOUT, Box::pin(tls.accept(socket)));
                let Ok(Ok(stream)) = shaking.await else { return };
                let connection = builder.serve_connection(TokioIo::new(stream), service);
                drop(watcher.watch(connection).await);
            });
            continue;
        }
        let connection = builder.serve_connection(TokioIo::new(socket), service.clone());
        let watched = graceful.watch(connection);
        connections.spawn(async move {
            // A broken connection is its client's affair.
            drop(watched.await);
        });
    }
    drop(listener);
    drop(timeout(DRAIN, graceful.shutdown()).await);
}

#[cfg(test)]
mod tests {
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// Opens a connection, sends `text` and waits for its end.
    async fn answer_to(text: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let hello = service_fn(async |_| Ok(Response::new(Full::new(Bytes::from_static(b"hello")))));
        let client = async {
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(text.as_bytes()).await.unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await.unwrap();
            shutdown.cancel();
            answer
        };
        tokio::join!(serve((listener, None), hello, shutdown.clone()), client).1
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_say_nothing_or_half_of_it_are_ended() {
        for text in ["", "GET / HT", "GET / HTTP/1.1\r\nhost: x\r\n"] {
            assert!(!answer_to(text).await.contains("hello"), "{text:?}");
        }
        let kept_open = answer_to("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(kept_open.ends_with("hello"), "{kept_open}");
    }
}
