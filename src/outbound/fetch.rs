//! One small document from one address.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderValue, Request, Uri};
use http_body_util::Full;
use tokio::time::timeout;
use url::Url;

use super::{Client, ReadError, SendError, Unusable, chain};

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
pub(crate) async fn fetch(url: &Url, bounds: Bounds) -> Result<Bytes, FetchError> {
    let client = Client::new(url, bounds.within)?;
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = path(url)?;
    request.headers_mut().insert(USER_AGENT, OURSELVES);
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
    let fetching = async {
        let mut response = client.send(request).await?;
        if response.status() != http::StatusCode::OK {
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
