//! Subscriptions of a modern server, and the one to changes of its lists.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{farewell, headers};
use crate::exchange::Cancel;
use crate::mcp::{Body, Code, Id, ListKind, Raw, code_of};
use crate::translate::hello::{Hello, own_meta, write_request};
use crate::upstream::backoff::Backoff;
use crate::upstream::failure::Failure;
use crate::upstream::transport::{Outgoing, Reply, Resumption};
use crate::upstream::wire::Wire;

/// The waits before an ended subscription is made again.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(500);
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long a subscription must have lived for the next wait to be a short one again.
pub(super) const SUSTAINED: Duration = Duration::from_secs(30);

/// The lists whose changes a server says that it tells.
pub(super) fn offered(hello: &Hello) -> Vec<ListKind> {
    let is_told = |kind: &ListKind| {
        let has = hello.capability(kind.capability());
        let says = has.and_then(|has| has.object().raw(has.bytes(), "listChanged"));
        says.is_some_and(|says| says.bytes().as_ref() == b"true")
    };
    ListKind::ALL.into_iter().filter(is_told).collect()
}

/// Keeps the subscription for as long as the server has such a thing. What it brings goes where everything
/// goes that belongs to no call.
pub(super) async fn keep(wire: Arc<Wire>, hello: Hello, kinds: Vec<ListKind>) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let filter: serde_json::Map<_, _> =
        kinds.iter().map(|kind| (kind.filter().to_owned(), Value::Bool(true))).collect();
    let (filter, nothing) = (Raw::from_value(&filter.into()), serde_json::json!({}));
    loop {
        let began = Instant::now();
        if is_refused(&subscribe(&wire, &hello, wire.mint(), (filter.clone(), &nothing)).await) {
            tracing::debug!("an upstream offers changes of its lists, but no subscription to them");
            return;
        }
        if began.elapsed() >= SUSTAINED {
            backoff.reset();
        }
        sleep(backoff.next()).await;
        // What changed meanwhile was told to nobody.
        wire.unsolicited.doubt(&kinds);
    }
}

/// Subscribes under this id to what a filter names, as a client that is `able` to do so, and waits for the end of the
/// subscription.
pub(super) async fn subscribe(
    wire: &Wire,
    hello: &Hello,
    id: u64,
    (filter, able): (Raw, &Value),
) -> Result<Reply, Failure> {
    const METHOD: &str = "subscriptions/listen";
    let meta = own_meta(hello.version, able);
    let text = write_request(&Id::from(id), METHOD, &[("notifications", filter)], &meta);
    let outgoing = Outgoing {
        id,
        text,
        headers: Arc::new(headers(hello.version, METHOD, None)),
        listener: None,
        farewell: farewell(wire, Cancel::default()),
        resumption: Resumption::Never,
    };
    wire.transport.request(outgoing).await
}

/// Whether there is no point in asking again.
pub(super) fn is_refused(end: &Result<Reply, Failure>) -> bool {
    match end {
        Ok(Reply { response, .. }) => {
            let permanent = [Code::MethodNotFound, Code::InvalidParams, Code::InvalidRequest].map(code_of);
            matches!(response.body, Body::Error(_))
                && response.error_code().is_none_or(|code| permanent.contains(&code))
        }
        Err(failure) => failure.status.is_some_and(|status| match status {
            408 | 425 | 429 => false,
            other => (200..500).contains(&other),
        }),
    }
}
