//! One small document from one address.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;
use url::{Url, form_urlencoded};

use super::{Client, ReadError, SendError, Unusable, chain};
use crate::config::Way;

/// What every request says of its sender.
const OURSELVES: HeaderValue = HeaderValue::from_static(concat!("waypost/", env!("CARGO_PKG_VERSION")));

/// Bounds of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Its bytes.
    pub(crate) bytes: usize,
    /// From the first name that is resolved to its last byte.
    pub(crate) within: Duration,
}

/// Why there is no document.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Unusable(#[from] Unusable),
    #[error(transparent)]
    Unsent(#[from] SendError),
    /// Redirects are among them: none is followed.
    #[error("it answered {0}")]
    Status(u16),
    #[error("its answer is larger than {0} bytes")]
    TooLarge(usize),
    #[error(transparent)]
    Broken(#[from] ReadError),
    #[error("it took too long")]
    Late,
}

impl FetchError {
    /// What our log says.
    pub(crate) fn reason(&self) -> String {
        chain(self)
    }
}

/// Fetches what is at `url`. Follows no redirect. Must be called within a runtime.
///
/// Cancel safe: dropping the future closes the connection.
///
/// # Errors
/// See [`FetchError`]; an answer that is not 200 is one.
pub(crate) async fn fetch(url: &Url, way: &Way, bounds: Bounds) -> Result<Bytes, FetchError> {
    exchange((url, way), Request::new(Full::new(Bytes::new())), bounds).await
}

/// Sends a form to `url` in the name of a client, which is its id and its secret (RFC 6749, 2.3.1). Otherwise as
/// [`fetch`].
///
/// # Errors
/// As [`fetch`].
pub(crate) async fn post_form(
    (url, way): (&Url, &Way),
    form: &[(&str, &str)],
    (id, secret): (&str, &SecretString),
    bounds: Bounds,
) -> Result<Bytes, FetchError> {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let credentials = STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret.expose_secret())));
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    if let Ok(mut credentials) = HeaderValue::try_from(format!("Basic {credentials}")) {
        credentials.set_sensitive(true);
        headers.insert(AUTHORIZATION, credentials);
    }
    exchange((url, way), request, bounds).await
}

async fn exchange(
    (url, way): (&Url, &Way),
    mut request: Request<Full<Bytes>>,
    bounds: Bounds,
) -> Result<Bytes, FetchError> {
    let client = Client::new(url, way, bounds.within)?;
    *request.uri_mut() = path(url)?;
    request.headers_mut().insert(USER_AGENT, OURSELVES);
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
    let fetching = async {
        let mut response = client.send(request).await?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > bounds.bytes {
                return Err(FetchError::TooLarge(bounds.bytes));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    };
    timeout(bounds.within, fetching).await.map_err(|_| FetchError::Late)?
}

/// The path and the query of a URL, as a request has them.
///
/// # Errors
/// If they cannot be written in a request.
pub(crate) fn path(url: &Url) -> Result<Uri, Unusable> {
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path: Result<Uri, _> = format!("{}{query}", url.path()).parse();
    path.map_err(|error| Unusable::because("its URL cannot be used", &error))
}
