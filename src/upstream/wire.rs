//! One connection below the eras: the transport, the ids that we mint on it, and what comes unasked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::HeaderMap;

use super::failure::Failure;
use super::tenancy::Tenancy;
use super::transport::{Farewell, Outgoing, Reply, Resumption, Transport};
use super::unsolicited::Unsolicited;
use crate::mcp::{Code, Id, ListKind, code_of};

/// The code that servers use where they have none for what they refuse.
const SERVER_ERROR: i64 = -32000;

/// A connection to a server of whichever era.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) transport: Transport,
    pub(super) unsolicited: Arc<Unsolicited>,
    pub(super) tenancy: Tenancy,
    last_id: AtomicU64,
}

impl Wire {
    pub(super) fn new(transport: Transport, unsolicited: Arc<Unsolicited>, tenancy: Tenancy) -> Self {
        Self { transport, unsolicited, tenancy, last_id: AtomicU64::new(0) }
    }

    /// An id that this connection has not seen yet.
    pub(super) fn mint(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether every request has a stream of its own.
    pub(super) fn is_http(&self) -> bool {
        matches!(self.transport, Transport::Http(_))
    }

    /// Looks whether an answer raises doubts that we still know the server: an error over HTTP that says
    /// that we speak wrongly. It may have been restarted as something else, or have changed a schema; reading
    /// its lists again will show that.
    pub(super) fn note(&self, reply: &Reply) {
        const CODES: [Code; 5] = [
            Code::InvalidRequest,
            Code::MethodNotFound,
            Code::InvalidParams,
            Code::HeaderMismatch,
            Code::UnsupportedVersion,
        ];
        let code = reply.response.error_code();
        let is_doubtful =
            code == Some(SERVER_ERROR) || CODES.iter().any(|known| code == Some(code_of(*known)));
        if is_doubtful && matches!(reply.status, Some(400 | 404)) {
            self.unsolicited.doubt(&[ListKind::Tools]);
        }
    }

    /// Asks something of our own, for which nobody waits but us: nothing is said when it is dropped.
    pub(super) async fn ask(
        &self,
        write: impl FnOnce(&Id) -> Bytes,
        headers: Arc<HeaderMap>,
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
