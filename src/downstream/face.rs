//! Our face as it is now: what serves requests is one thing for one configuration, and another one takes its place
//! when that is read again. A request stays with what it began with.
//!
//! Must not know: HTTP, pipes.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::endpoint::Endpoint;
use crate::gateway::Gateway;
use crate::seal::SealError;

/// Serves clients for as long as the process lives, whatever the configuration is.
pub struct Face {
    endpoint: ArcSwap<Endpoint>,
    renewed: watch::Sender<()>,
}

impl Face {
    /// A face of `gateway`, whose streams end with `closing`.
    ///
    /// # Errors
    /// If the system has no randomness for ids.
    pub(crate) fn new(gateway: Arc<Gateway>, closing: CancellationToken) -> Result<Arc<Self>, SealError> {
        let endpoint = ArcSwap::from_pointee(Endpoint::new(gateway, closing)?);
        Ok(Arc::new(Self { endpoint, renewed: watch::Sender::new(()) }))
    }

    /// Serves a gateway that came in the place of the one before.
    pub fn renew(&self, gateway: Arc<Gateway>) {
        let next = self.endpoint.load().succeed(gateway);
        self.endpoint.store(Arc::new(next));
        self.renewed.send_replace(());
    }

    /// What serves a request that comes now.
    pub(super) fn endpoint(&self) -> Arc<Endpoint> {
        self.endpoint.load_full()
    }

    /// Keeps up to date what callers are known by, for ever.
    pub(super) async fn keep(&self) {
        let mut renewed = self.renewed.subscribe();
        loop {
            let endpoint = self.endpoint();
            let keeping = async {
                endpoint.authenticator.keep(endpoint.gateway.metrics()).await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = keeping => {}
                changed = renewed.changed() => if changed.is_err() { return },
            }
        }
    }
}
