//! Opening a connection to one origin: names, TCP, a proxy of the environment, TLS.
//!
//! Must not know: requests, and what becomes of the connection.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, join};
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower::Service;
use url::{Host, Url};

use super::Unusable;

/// How long an idle TCP connection goes without a sign of life.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The protocols that are offered to a server behind TLS, the one that is liked best first.
const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];
const HTTP2: &[u8] = b"h2";

/// Bytes to a server and back.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that was just opened.
pub(super) struct Opened {
    pub(super) stream: Box<dyn Stream>,
    pub(super) protocol: Protocol,
}

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Why no connection came about. Nothing was sent that a server could have executed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("the time is up")]
    Late,
    #[error("the name does not resolve")]
    Name(#[source] Box<dyn Error + Send + Sync>),
    #[error("no TCP connection")]
    Tcp(#[source] Box<dyn Error + Send + Sync>),
    #[error("no TLS")]
    Tls(#[source] io::Error),
    #[error("the proxy does not let us through: {0}")]
    Proxy(String),
}

impl DialError {
    fn refused(error: hyper::Error) -> Self {
        Self::Proxy(error.to_string())
    }
}

/// The way to one origin.
pub(super) struct Dialer {
    /// Scheme, host and port.
    origin: Uri,
    tcp: HttpConnector<Resolver>,
    /// Where the origin speaks TLS.
    tls: Option<Tls>,
    proxy: Option<Proxy>,
    limit: Duration,
}

#[derive(Clone)]
struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

struct Proxy {
    address: Uri,
    credentials: Option<HeaderValue>,
    tls: Option<Tls>,
}

impl Dialer {
    /// Prepares the way to the origin of `url`; a connection takes at most `limit` to be ready. One of
    /// `proxies` is used, as curl does, but not to reach this machine itself.
    ///
    /// # Errors
    /// If TLS cannot be set up, or the proxy of the environment is of a kind that is not spoken.
    pub(super) fn new(proxies: &Matcher, url: &Url, limit: Duration) -> Result<Self, Unusable> {
        let origin: Uri =
            url.as_str().parse().map_err(|error| Unusable::because("its URL cannot be used", &error))?;
        let proxy = match is_local(url) {
            true => None,
            false => Proxy::of(proxies, &origin)?,
        };
        let tls = match url.scheme() {
            "https" => Some(Tls::new(&origin, &PROTOCOLS)?),
            _ => None,
        };
        let mut tcp = HttpConnector::new_with_resolver(Resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEP_ALIVE));
        tcp.set_connect_timeout(Some(limit));
        Ok(Self { origin, tcp, tls, proxy, limit })
    }

    /// Whether requests go through a proxy that reads them, and the credentials that it wants.
    pub(super) fn reader(&self) -> Option<Option<&HeaderValue>> {
        let proxy = self.proxy.as_ref().filter(|_| self.tls.is_none())?;
        Some(proxy.credentials.as_ref())
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn dial(&self) -> BoxFuture<'_, Result<Opened, DialError>> {
        Box::pin(async { timeout(self.limit, self.open()).await.map_err(|_| DialError::Late)? })
    }

    async fn open(&self) -> Result<Opened, DialError> {
        let stream = match &self.proxy {
            None => self.connect(&self.origin).await?,
            Some(proxy) => {
                let stream = self.connect(&proxy.address).await?;
                let stream = match &proxy.tls {
                    Some(tls) => tls.clone().wrap(stream).await?.stream,
                    None => stream,
                };
                match self.tls.is_some() {
                    true => tunnel(stream, self.origin.clone(), proxy.credentials.clone()).await?,
                    false => stream,
                }
            }
        };
        match &self.tls {
            Some(tls) => tls.clone().wrap(stream).await,
            None => Ok(Opened { stream, protocol: Protocol::Http1 }),
        }
    }

    async fn connect(&self, address: &Uri) -> Result<Box<dyn Stream>, DialError> {
        let opening = self.tcp.clone().call(address.clone());
        match opening.await {
            Ok(stream) => Ok(Box::new(stream.into_inner())),
            Err(error) if source_of::<NotResolved>(&error).is_some() => Err(DialError::Name(error.into())),
            Err(error) => Err(DialError::Tcp(error.into())),
        }
    }
}

impl Tls {
    fn new(origin: &Uri, protocols: &[&[u8]]) -> Result<Self, Unusable> {
        let text = "its TLS client could not be set up";
        let host = origin.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(host.to_owned()).map_err(|error| Unusable::because(text, &error))?;
        let verifying = rustls::ClientConfig::builder().with_platform_verifier();
        let mut config = verifying.map_err(|error| Unusable::because(text, &error))?.with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    async fn wrap(self, stream: Box<dyn Stream>) -> Result<Opened, DialError> {
        let stream = self.connector.connect(self.name, stream).await.map_err(DialError::Tls)?;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(HTTP2) => Protocol::Http2,
            Some(_) | None => Protocol::Http1,
        };
        Ok(Opened { stream: Box::new(stream), protocol })
    }
}

impl Proxy {
    fn of(proxies: &Matcher, origin: &Uri) -> Result<Option<Self>, Unusable> {
        let Some(found) = proxies.intercept(origin) else { return Ok(None) };
        let address = found.uri().clone();
        let tls = match address.scheme_str() {
            Some("http") | None => None,
            Some("https") => Some(Tls::new(&address, &[])?),
            Some(_) => {
                let text = "the proxy of the environment is of a kind that is not spoken: use http or https";
                return Err(Unusable { text, cause: String::new() });
            }
        };
        Ok(Some(Self { address, credentials: found.basic_auth().cloned(), tls }))
    }
}

/// Has a proxy pass on whatever is written from now on.
async fn tunnel(
    stream: Box<dyn Stream>,
    origin: Uri,
    credentials: Option<HeaderValue>,
) -> Result<Box<dyn Stream>, DialError> {
    let authority = format!("{}:{}", origin.host().unwrap_or_default(), origin.port_u16().unwrap_or(443));
    let mut request = Request::builder().method(Method::CONNECT).uri(&authority).header(HOST, &authority);
    if let Some(credentials) = credentials {
        request = request.header(PROXY_AUTHORIZATION, credentials);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| DialError::Proxy(error.to_string()))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(DialError::refused)?;
    let asking = async move {
        let response = sender.send_request(request).await.map_err(DialError::refused)?;
        if !response.status().is_success() {
            return Err(DialError::Proxy(format!("it answered {}", response.status().as_u16())));
        }
        hyper::upgrade::on(response).await.map_err(DialError::refused)
    };
    let driving: BoxFuture<'static, _> = Box::pin(connection.with_upgrades());
    let asking: BoxFuture<'static, _> = Box::pin(asking);
    let (upgraded, _ended) = join(asking, driving).await;
    Ok(Box::new(TokioIo::new(upgraded?)))
}

/// Resolves names as the system does.
#[derive(Clone, Copy, Debug)]
struct Resolver;

/// A name that leads nowhere.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotResolved(#[source] io::Error);

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = NotResolved;
    type Future = BoxFuture<'static, Result<Self::Response, NotResolved>>;

    fn poll_ready(&mut self, _cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), NotResolved>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(NotResolved)?;
            Ok(found.collect::<Vec<_>>().into_iter())
        })
    }
}

/// The first cause of an error that is a `T`.
pub(crate) fn source_of<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut source = Some(error);
    while let Some(error) = source {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        source = error.source();
    }
    None
}

/// Whether a URL leads to this machine itself: a proxy of the environment leads out of it.
fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
