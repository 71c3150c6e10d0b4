//! The answer to a request, as it comes in: the head, then the body piece by piece, decoded.
//!
//! Must not know: MCP, what is in a body.

use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::header::CONTENT_ENCODING;
use http::response::Parts;
use http::{HeaderMap, Response, StatusCode};
use hyper::body::{Body as _, Frame, Incoming};

use super::client::{Link, Pool};

/// How much of a compressed body is decoded at once: it grows by a factor of a thousand at the most.
const PORTION: usize = 1024;

/// An answer that is being received. Dropped before its end, it closes its connection.
pub(crate) struct Received {
    head: Parts,
    body: Incoming,
    /// The connection, where it is not driven by somebody else, and where it goes after the body.
    link: Option<(Link, Arc<Pool>)>,
    gzip: Option<Gunzip>,
}

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Http(hyper::Error),
    #[error("it is not compressed as it says")]
    Gzip(#[source] std::io::Error),
}

/// A compressed body on its way.
struct Gunzip {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// What has come and is not decoded yet.
    coded: Bytes,
}

impl Received {
    pub(super) fn new(response: Response<Incoming>, link: Option<(Link, Arc<Pool>)>) -> Self {
        let (head, body) = response.into_parts();
        let mut received = Self { gzip: Gunzip::for_answer(&head.headers), head, body, link };
        if received.body.is_end_stream() {
            received.release();
        }
        received
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.head.status
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The next piece of the body; `None` at its end. Cancel safe.
    ///
    /// # Errors
    /// If the body breaks off.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, ReadError> {
        loop {
            if let Some(gzip) = &mut self.gzip
                && let Some(decoded) = gzip.next()?
            {
                return Ok(Some(decoded));
            }
            let frame = std::future::poll_fn(|cx| self.poll_frame(cx)).await;
            let Some(frame) = frame.transpose().map_err(ReadError::Http)? else {
                self.release();
                return self.gzip.as_mut().map_or(Ok(None), Gunzip::finish);
            };
            if self.body.is_end_stream() {
                self.release();
            }
            let Ok(data) = frame.into_data() else { continue };
            match &mut self.gzip {
                Some(gzip) => gzip.coded = data,
                None if data.is_empty() => {}
                None => return Ok(Some(data)),
            }
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let Some((link, _)) = self.link.as_mut().filter(|_| frame.is_pending()) else { return frame };
        if link.poll(cx).is_ready() {
            self.link = None;
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    /// Gives the connection back.
    fn release(&mut self) {
        if let Some((link, pool)) = self.link.take() {
            pool.put(link);
        }
    }
}

impl Gunzip {
    /// What decodes a body with these headers; `None` where there is nothing to decode.
    fn for_answer(headers: &HeaderMap) -> Option<Self> {
        let coding = headers.get(CONTENT_ENCODING)?.as_bytes().trim_ascii();
        let is_gzip = coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip");
        is_gzip.then(|| Self { decoder: MultiGzDecoder::new(Vec::new()), coded: Bytes::new() })
    }

    /// The next piece; `None` if more must come first.
    fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        while !self.coded.is_empty() {
            let portion = self.coded.split_to(self.coded.len().min(PORTION));
            self.decoder.write_all(&portion).map_err(ReadError::Gzip)?;
            // What is complete goes on: an event must not wait for the next one.
            self.decoder.flush().map_err(ReadError::Gzip)?;
            if let Some(decoded) = self.decoded() {
                return Ok(Some(decoded));
            }
        }
        Ok(None)
    }

    /// The last piece.
    fn finish(&mut self) -> Result<Option<Bytes>, ReadError> {
        self.decoder.try_finish().map_err(ReadError::Gzip)?;
        Ok(self.decoded())
    }

    fn decoded(&mut self) -> Option<Bytes> {
        let decoded = std::mem::take(self.decoder.get_mut());
        (!decoded.is_empty()).then(|| Bytes::from(decoded))
    }
}

impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Received").field("status", &self.head.status).finish_non_exhaustive()
    }
}
