//! Connections that are used again, those that are not, bodies that are compressed, proxies on the way.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use super::*;

const LONG: Duration = Duration::from_secs(20);
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A server that reads the head of a request, and writes what it is told to. An empty text closes.
struct Server {
    url: Url,
    connections: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    /// Answers the requests of each connection with these, then closes it.
    async fn start(answers: &[&[u8]]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/mcp?a=b", listener.local_addr().unwrap())).unwrap();
        let (connections, heads) = (Arc::new(AtomicUsize::new(0)), Arc::<Mutex<Vec<String>>>::default());
        let answers: Vec<Vec<u8>> = answers.iter().map(|answer| answer.to_vec()).collect();
        let (count, seen) = (Arc::clone(&connections), Arc::clone(&heads));
        let serving = async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                for answer in &answers {
                    let Some(head) = head(&mut socket).await else { break };
                    seen.lock().unwrap().push(head);
                    if answer.is_empty() {
                        break;
                    }
                    socket.write_all(answer).await.unwrap();
                }
            }
        };
        let task = TokioTasks::spawn(serving);
        Self { url, connections, heads, _task: task }
    }

    fn client(&self) -> Client {
        Client::through(&Matcher::builder().build(), &self.url, LONG).unwrap()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn requests(&self) -> usize {
        self.heads.lock().unwrap().len()
    }
}

/// Tasks of a test, which end with it.
struct TokioTasks;

impl TokioTasks {
    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio_util::task::TaskTracker::new().spawn(task))
    }
}

/// The head of a request; `None` at the end of the connection.
async fn head(socket: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(socket.read_u8().await.ok()?);
    }
    String::from_utf8(text).ok()
}

fn request(path: &str) -> Outbound {
    Request::get(path).body(Full::default()).unwrap()
}

async fn text(client: &Client) -> Result<String, SendError> {
    let mut received = client.send(request("/mcp?a=b")).await?;
    let mut text = Vec::new();
    while let Some(chunk) = received.chunk().await.unwrap() {
        text.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8(text).unwrap())
}

fn compressed(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn one_connection_carries_one_request_after_the_other() {
    let server = Server::start(&[OK.as_bytes(); 4]).await;
    let client = server.client();
    for _ in 0..4 {
        assert_eq!(text(&client).await.unwrap(), "ok");
    }
    assert_eq!((server.connections(), server.requests()), (1, 4));
    let head = server.heads.lock().unwrap()[3].clone();
    assert!(head.starts_with("GET /mcp?a=b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: {}\r\n", server.url.authority())), "{head}");
}

#[tokio::test]
async fn a_connection_that_its_server_has_closed_is_not_used() {
    let server = Server::start(&[OK.as_bytes()]).await;
    let client = server.client();
    for _ in 0..3 {
        assert_eq!(text(&client).await.unwrap(), "ok");
        // It was closed right behind the answer, which our side learns without being asked.
        while client.pool.lock().iter_mut().any(Link::is_open) {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!((server.connections(), server.requests()), (3, 3));
}

#[tokio::test]
async fn what_was_sent_is_not_repeated() {
    let server = Server::start(&[OK.as_bytes(), b""]).await;
    let client = server.client();
    assert_eq!(text(&client).await.unwrap(), "ok");
    assert!(matches!(text(&client).await, Err(SendError::Broken(_))));
    assert_eq!((server.connections(), server.requests()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_connection_rests_for_less_long_than_its_server_waits() {
    let cases = [
        ("", REST),
        ("keep-alive: timeout=5\r\n", Duration::from_secs(4)),
        ("Keep-Alive: max=100, Timeout = \"20\"\r\n", Duration::from_secs(19)),
        ("keep-alive: timeout=1\r\n", Duration::ZERO),
        ("keep-alive: timeout=99999999\r\n", LONGEST_REST),
        ("keep-alive: timeout=-1\r\n", REST),
        ("keep-alive: soon\r\n", REST),
    ];
    for (header, rest) in cases {
        let answer = format!("HTTP/1.1 200 OK\r\n{header}content-length: 2\r\n\r\nok");
        let server = Server::start(&[answer.as_bytes(); 2]).await;
        let client = server.client();
        let moment = Duration::from_millis(100);
        for (pause, is_kept) in [(rest.saturating_sub(moment), rest > moment), (rest + moment, false)] {
            assert_eq!(text(&client).await.unwrap(), "ok");
            sleep(pause).await;
            let kept = client.pool.take();
            assert_eq!(kept.is_some(), is_kept, "{header:?} after {pause:?}");
            if let Some(link) = kept {
                client.pool.put(link);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_have_rested_are_closed() {
    let server = Server::start(&[OK.as_bytes(); 4]).await;
    let client = server.client();
    assert_eq!(text(&client).await.unwrap(), "ok");
    sleep(REST / 2).await;
    assert_eq!(client.pool.lock().len(), 1);
    sleep(REST + ROUND).await;
    assert_eq!(client.pool.lock().len(), 0);
}

#[tokio::test]
async fn an_answer_that_is_dropped_takes_its_connection_along() {
    let server = Server::start(&[b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok"]).await;
    let client = server.client();
    let mut received = client.send(request("/")).await.unwrap();
    assert_eq!(received.chunk().await.unwrap().unwrap(), "ok");
    assert!(received.chunk().await.is_err(), "the rest does not come");
    drop(received);
    assert_eq!(client.pool.lock().len(), 0);
}

#[tokio::test]
async fn compressed_bodies_are_decoded_and_broken_ones_told() {
    let plain = "an event\n\n".repeat(100_000);
    let body = compressed(plain.as_bytes());
    let answer = |body: &[u8], length: usize| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: GZIP\r\ncontent-length: {length}\r\n\r\n");
        [head.as_bytes(), body].concat()
    };
    let torn = body.len() / 2;
    let answers = [answer(&body, body.len()), answer(&body[..torn], torn)];
    let server = Server::start(&[&answers[0], &answers[1]]).await;
    let client = server.client();
    assert_eq!(text(&client).await.unwrap(), plain);
    let mut received = client.send(request("/")).await.unwrap();
    let broken = loop {
        match received.chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("half of it is no whole"),
            Err(error) => break error,
        }
    };
    assert!(broken.to_string().contains("compressed"), "{broken}");
}

#[tokio::test]
async fn an_event_of_a_compressed_stream_does_not_wait_for_the_next_one() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(b"data: 1\n\n").unwrap();
    encoder.flush().unwrap();
    let first = encoder.get_ref().clone();
    let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = [format!("{head}{:x}\r\n", first.len()).as_bytes(), &first, b"\r\n"].concat();
    let server = Server::start(&[&chunk]).await;
    let mut received = server.client().send(request("/")).await.unwrap();
    assert_eq!(received.chunk().await.unwrap().unwrap(), "data: 1\n\n");
}

#[tokio::test]
async fn a_proxy_reads_what_is_plain_and_tunnels_what_is_not() {
    let proxy = Server::start(&[OK.as_bytes()]).await;
    let address = format!("http://me:secret@{}", proxy.url.authority());
    let proxies = Matcher::builder().all(address).build();
    let plain = Url::parse("http://upstream.example:81/mcp").unwrap();
    let client = Client::through(&proxies, &plain, LONG).unwrap();
    assert_eq!(text(&client).await.unwrap(), "ok");
    let head = proxy.heads.lock().unwrap()[0].clone();
    assert!(head.starts_with("GET http://upstream.example:81/mcp?a=b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("proxy-authorization: Basic bWU6c2VjcmV0\r\n"), "{head}");
    assert!(head.contains("host: upstream.example:81\r\n"), "{head}");
}

#[tokio::test]
async fn a_proxy_that_refuses_a_tunnel_is_named() {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let proxy =
        Server::start(&[b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"]).await;
    let proxies = Matcher::builder().https(format!("http://{}", proxy.url.authority())).build();
    let url = Url::parse("https://upstream.example/mcp").unwrap();
    let client = Client::through(&proxies, &url, LONG).unwrap();
    let error = text(&client).await.unwrap_err();
    let SendError::Unconnected(DialError::Proxy(reason)) = &error else { panic!("{error:?}") };
    assert!(reason.contains("407"), "{reason}");
    let head = proxy.heads.lock().unwrap()[0].clone();
    assert!(head.starts_with("CONNECT upstream.example:443 HTTP/1.1\r\n"), "{head}");
    assert!(!head.to_lowercase().contains("authorization"), "{head}");
}

#[tokio::test]
async fn no_proxy_stands_between_us_and_this_machine() {
    let server = Server::start(&[OK.as_bytes()]).await;
    let proxies = Matcher::builder().all("http://127.0.0.1:9").build();
    let client = Client::through(&proxies, &server.url, LONG).unwrap();
    assert_eq!(text(&client).await.unwrap(), "ok");
}
