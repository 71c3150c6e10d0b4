//! Connections: the cap, slow starts, the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use super::*;

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    /// Lets requests for `/slow` end.
    release: Arc<Notify>,
    ticks: Arc<AtomicUsize>,
    /// Requests that came.
    arrived: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Running {
    async fn start(connections: usize, header_timeout: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, release) = (CancellationToken::new(), Arc::new(Notify::new()));
        let ticks = Arc::new(AtomicUsize::new(0));
        let stall_timeout = Duration::from_secs(30);
        let peer_timeout = Duration::from_secs(60);
        let bounds = Bounds {
            connections,
            header_timeout,
            stall_timeout,
            peer_timeout,
            tick: Duration::from_millis(20),
        };
        let (waits, arrived) = (Arc::clone(&release), Arc::new(AtomicUsize::new(0)));
        let arrivals = Arc::clone(&arrived);
        let serve = move |request: Request<Body>| {
            let waits = Arc::clone(&waits);
            arrivals.fetch_add(1, Ordering::SeqCst);
            async move {
                if request.uri().path() == "/slow" {
                    waits.notified().await;
                }
                let peer = request.extensions().get::<Peer>().unwrap().0;
                Response::new(Body::from(format!("for {peer}")))
            }
        };
        let counted = Arc::clone(&ticks);
        let tick = move |notice| {
            if matches!(notice, Notice::Tick) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        };
        let mut tasks = JoinSet::new();
        let shutdown = stop.clone();
        tasks.spawn(async move {
            let threads = Threads::here();
            run(listener, (bounds, &threads), serve, tick, shutdown).await;
        });
        Self { address, stop, release, ticks, arrived, tasks }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Waits until so many requests have come.
    async fn has_seen(&self, count: usize) {
        let seen = async {
            while self.arrived.load(Ordering::SeqCst) < count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, seen).await.unwrap();
    }

    async fn ended(&mut self) {
        timeout(PATIENCE, self.tasks.join_next()).await.unwrap().unwrap().unwrap();
    }
}

async fn ask(socket: &mut TcpStream, path: &str) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
}

/// What comes until the connection closes, or the answer is whole.
async fn read(socket: &mut TcpStream) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(b"127.0.0.1") {
        let mut chunk = [0; 1024];
        match timeout(PATIENCE, socket.read(&mut chunk)).await.unwrap() {
            Ok(0) | Err(_) => break,
            Ok(count) => seen.extend_from_slice(&chunk[..count]),
        }
    }
    String::from_utf8(seen).unwrap()
}

#[tokio::test]
async fn one_connection_too_many_is_told_to_come_back() {
    let running = Running::start(1, PATIENCE).await;
    let mut first = running.connect().await;
    ask(&mut first, "/").await;
    assert!(read(&mut first).await.ends_with("for 127.0.0.1"));
    let mut second = running.connect().await;
    ask(&mut second, "/").await;
    let told = read(&mut second).await;
    assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    assert!(told.to_ascii_lowercase().contains("retry-after: 1"), "{told}");
    ask(&mut first, "/").await;
    assert!(read(&mut first).await.starts_with("HTTP/1.1 200 "), "the first is served as before");
    drop(first);
    let served = async {
        loop {
            let mut third = running.connect().await;
            ask(&mut third, "/").await;
            if read(&mut third).await.starts_with("HTTP/1.1 200 ") {
                return;
            }
        }
    };
    timeout(PATIENCE, served).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_sends_no_request_is_closed() {
    let running = Running::start(8, Duration::from_millis(200)).await;
    for start in ["", "P", "PRI * HT", "POST /mcp HTT", "POST /mcp HTTP/1.1\r\nHost: x\r\nX-Slow"] {
        let mut socket = running.connect().await;
        socket.write_all(start.as_bytes()).await.unwrap();
        let answer = read(&mut socket).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{start:?}: {answer}");
    }
}

#[tokio::test]
async fn dep_01_requests_under_way_end_and_new_ones_are_refused() {
    let mut running = Running::start(8, PATIENCE).await;
    let (mut slow, mut idle) = (running.connect().await, running.connect().await);
    ask(&mut idle, "/").await;
    assert!(read(&mut idle).await.starts_with("HTTP/1.1 200 "));
    ask(&mut slow, "/slow").await;
    running.has_seen(2).await;
    running.stop.cancel();
    assert_eq!(read(&mut idle).await, "", "an idle connection is closed");
    let refused = timeout(PATIENCE, async {
        while TcpStream::connect(running.address).await.is_ok() {
            sleep(Duration::from_millis(10)).await;
        }
    });
    refused.await.unwrap();
    running.release.notify_waiters();
    assert!(read(&mut slow).await.ends_with("for 127.0.0.1"));
    running.ended().await;
}

#[tokio::test]
async fn the_tick_comes_while_nothing_else_does() {
    let running = Running::start(8, PATIENCE).await;
    let ticked = async {
        while running.ticks.load(Ordering::SeqCst) < 3 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, ticked).await.unwrap();
}

#[tokio::test]
async fn dropping_the_server_closes_everything() {
    let mut running = Running::start(8, PATIENCE).await;
    let mut slow = running.connect().await;
    ask(&mut slow, "/slow").await;
    running.has_seen(1).await;
    running.tasks.abort_all();
    assert_eq!(read(&mut slow).await, "");
}
