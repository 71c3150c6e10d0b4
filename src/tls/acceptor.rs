//! TLS towards clients, with certificates that may change while we serve.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{TlsError, authorities, identity};
use crate::config::ServerTls;
use crate::telemetry::{CertificatesFailed, CertificatesRead};

/// How often it is looked whether the files have changed.
const LOOK: Duration = Duration::from_secs(10);

/// Takes connections over TLS, by the files as they are now.
pub(crate) struct Acceptor {
    files: ServerTls,
    clients: Clients,
    protocols: Vec<Vec<u8>>,
    current: ArcSwap<ServerConfig>,
    /// When the files had last changed as we read them.
    seen: Mutex<Stamp>,
}

/// Whether clients must have a certificate where authorities for them are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// They may come without, and be known otherwise.
    MayHave,
    /// Without, there is no connection.
    MustHave,
}

/// When each file was changed, and how long it is.
type Stamp = Vec<Option<(SystemTime, u64)>>;

impl Acceptor {
    /// Reads the files. `protocols` are what is offered to clients, what is liked best first.
    ///
    /// # Errors
    /// If they cannot be used.
    pub(crate) fn open(files: &ServerTls, clients: Clients, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let seen = stamp(files);
        let current = load(files, clients, &protocols)?;
        let (current, seen) = (ArcSwap::from_pointee(current), Mutex::new(seen));
        Ok(Self { files: files.clone(), clients, protocols, current, seen })
    }

    /// Reads the files again if they have changed; those before hold where that fails. Says whether anything is
    /// new. Reads small files, and blocks for that long.
    ///
    /// # Errors
    /// If they have changed and cannot be used; it is told once for each change.
    pub(crate) fn refresh(&self) -> Result<bool, TlsError> {
        let now = stamp(&self.files);
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if *seen == now {
                return Ok(false);
            }
            *seen = now;
        }
        self.current.store(Arc::new(load(&self.files, self.clients, &self.protocols)?));
        Ok(true)
    }

    /// Reads the files again whenever they have changed, for ever. `listener` is the key of the configuration.
    pub(crate) async fn keep(self: Arc<Self>, listener: &'static str) {
        loop {
            sleep(LOOK).await;
            let own = Arc::clone(&self);
            match spawn_blocking(move || own.refresh()).await {
                Ok(Ok(true)) => CertificatesRead { listener }.emit(),
                Ok(Err(error)) => CertificatesFailed { listener, reason: &error.to_string() }.emit(),
                Ok(Ok(false)) | Err(_) => {}
            }
        }
    }

    /// Shakes hands.
    ///
    /// Cancel safe: dropping the future closes the connection.
    ///
    /// # Errors
    /// If the client cannot agree, or has a certificate that is not believed.
    pub(crate) async fn accept<S>(&self, stream: S) -> std::io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        TlsAcceptor::from(self.current.load_full()).accept(stream).await
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").field("files", &self.files).finish_non_exhaustive()
    }
}

fn stamp(files: &ServerTls) -> Stamp {
    let of = |path: &Path| {
        let about = fs::metadata(path).ok()?;
        Some((about.modified().ok()?, about.len()))
    };
    [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()]
        .into_iter()
        .flatten()
        .map(|path| of(path))
        .collect()
}

fn load(files: &ServerTls, clients: Clients, protocols: &[Vec<u8>]) -> Result<ServerConfig, TlsError> {
    let (chain, key) = identity(&files.cert, &files.key)?;
    let builder = ServerConfig::builder();
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let verifier = WebPkiClientVerifier::builder(authorities(file)?);
            let verifier = match clients {
                Clients::MayHave => verifier.allow_unauthenticated().build(),
                Clients::MustHave => verifier.build(),
            };
            builder.with_client_cert_verifier(verifier.map_err(|error| TlsError::of(file, error))?)
        }
    };
    let mut config =
        builder.with_single_cert(chain, key).map_err(|error| TlsError::of(&files.cert, error))?;
    config.alpn_protocols = protocols.to_vec();
    Ok(config)
}
