//! Certificates and keys from files: ours, and those that others are believed by.
//!
//! Must not know: what is said on a connection.

mod acceptor;
mod certificate;

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) use acceptor::{Acceptor, Clients};
pub(crate) use certificate::names;

/// What is wrong with a certificate or a key of ours. Names the file, and shows nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{file}`: {reason}")]
pub(crate) struct TlsError {
    file: String,
    reason: String,
}

impl TlsError {
    fn of(file: &Path, reason: impl std::fmt::Display) -> Self {
        Self { file: file.display().to_string(), reason: reason.to_string() }
    }
}

/// A chain of certificates that is ours, the one for ourselves first, and its key.
pub(crate) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads a chain of certificates and its key, both PEM.
///
/// # Errors
/// If there is none in the files. Whether they belong together shows in their use.
pub(crate) fn identity(cert: &Path, key: &Path) -> Result<Identity, TlsError> {
    let chain = certificates(cert)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::of(key, error))?;
    Ok((chain, key))
}

/// Reads authorities, PEM.
///
/// # Errors
/// If there is none in the file, or one that cannot be used.
pub(crate) fn authorities(file: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| TlsError::of(file, error))?;
    }
    Ok(Arc::new(roots))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| TlsError::of(file, error))?;
    let found: Result<Vec<_>, _> = read.collect();
    let found = found.map_err(|error| TlsError::of(file, error))?;
    match found.is_empty() {
        true => Err(TlsError::of(file, "it holds no certificate")),
        false => Ok(found),
    }
}
