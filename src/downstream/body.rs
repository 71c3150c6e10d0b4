//! Reads the body of a request, never more of it than is allowed.
//!
//! Must not know: what is in it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::exchange::Share;

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    /// It is longer than the limit. HTTP 413.
    TooLarge,
    /// There is no room for it beside the other large messages that are under way. HTTP 503.
    NoRoom,
    /// It did not arrive in time. HTTP 408.
    Slow,
    /// It ended early, or its framing is broken. HTTP 400.
    Broken,
}

/// Reads a body of at most `limit` bytes within `budget`; keeps no more than that in memory.
///
/// # Errors
/// See [`BodyError`]. A body that declares itself too long is not read at all.
pub(super) async fn read<B>(
    headers: &HeaderMap,
    body: B,
    (limit, share): (usize, Share),
    budget: Duration,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > limit)) {
        return Err(BodyError::TooLarge);
    }
    match tokio::time::timeout(budget, collect(body, limit, share)).await {
        Ok(read) => read,
        Err(_elapsed) => Err(BodyError::Slow),
    }
}

async fn collect<B>(mut body: B, limit: usize, mut share: Share) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(BodyError::Broken) };
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > limit {
            return Err(BodyError::TooLarge);
        }
        share.resize(first.len() + rest.len() + data.len()).map_err(|_| BodyError::NoRoom)?;
        // Most bodies come in one piece, which then is kept as it is.
        match (first.is_empty(), rest.is_empty()) {
            (true, true) => first = data,
            (false, _) => {
                rest.reserve(first.len() + data.len());
                rest.extend_from_slice(&std::mem::take(&mut first));
                rest.extend_from_slice(&data);
            }
            (true, false) => rest.extend_from_slice(&data),
        }
    }
    Ok(share.keep(if rest.is_empty() { first } else { rest.freeze() }))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt as _, stream};
    use http::HeaderValue;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;

    fn bound(limit: usize) -> (usize, Share) {
        (limit, crate::exchange::Budget::new(usize::MAX).share())
    }

    const BUDGET: Duration = Duration::from_secs(5);

    fn chunks(chunks: &'static [&'static [u8]]) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        StreamBody::new(stream::iter(chunks).map(|chunk| Ok(Frame::data(Bytes::from_static(chunk)))))
    }

    #[tokio::test]
    async fn any_split_gives_the_same_body() {
        const SPLITS: [&[&[u8]]; 3] = [&[b"", b"abc", b"", b"def"], &[b"abcdef"], &[b"a", b"bcde", b"f"]];
        for parts in SPLITS {
            let read = read(&HeaderMap::new(), chunks(parts), bound(6), BUDGET).await;
            assert_eq!(read, Ok(Bytes::from_static(b"abcdef")), "{parts:?}");
        }
    }

    #[tokio::test]
    async fn the_limit_holds_for_declared_and_for_streamed_bodies() {
        let long = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("7"))]);
        let unread = Full::new(Bytes::from_static(b"x"));
        assert_eq!(read(&long, unread, bound(6), BUDGET).await, Err(BodyError::TooLarge));
        let streamed = read(&HeaderMap::new(), chunks(&[b"abc", b"defg"]), bound(6), BUDGET).await;
        assert_eq!(streamed, Err(BodyError::TooLarge));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_given_up() {
        let stalled = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        assert_eq!(read(&HeaderMap::new(), stalled, bound(6), BUDGET).await, Err(BodyError::Slow));
    }
}
