//! One connection below the eras: the transport, the ids that we mint on it, and what comes unasked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::HeaderMap;

use super::failure::Failure;
use super::transport::{Farewell, Outgoing, Reply, Resumption, Transport};
use super::unsolicited::Unsolicited;
use crate::mcp::Id;

/// A connection to a server of whichever era.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) transport: Transport,
    pub(super) unsolicited: Arc<Unsolicited>,
    last_id: AtomicU64,
}

impl Wire {
    pub(super) fn new(transport: Transport, unsolicited: Arc<Unsolicited>) -> Self {
        Self { transport, unsolicited, last_id: AtomicU64::new(0) }
    }

    /// An id that this connection has not seen yet.
    pub(super) fn mint(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Asks something of our own, for which nobody waits but us: nothing is said when it is dropped.
    pub(super) async fn ask(
        &self,
        write: impl FnOnce(&Id) -> Bytes,
        headers: HeaderMap,
    ) -> Result<Reply, Failure> {
        let id = self.mint();
        let text = write(&Id::from(id));
        let outgoing = Outgoing {
            id,
            text,
            headers,
            listener: None,
            farewell: Farewell::Silent,
            resumption: Resumption::Never,
        };
        self.transport.request(outgoing).await
    }
}
