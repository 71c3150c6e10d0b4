//! Certificates, and where a server may be.

use std::path::PathBuf;

use crate::config::reference as keys;
use crate::config::section::{Section, quoted};
use crate::config::source::Finding;
use crate::config::{Reach, ServerTls, Way};

/// Reads what is asked of the way to an upstream.
pub(crate) fn of_upstream(section: &mut Section<'_>) -> Way {
    let cert = file(section, &keys::CLIENT_CERT);
    let key = file(section, &keys::CLIENT_KEY);
    let has = |key: &keys::Key<keys::Free>| section.has(key.name);
    if has(&keys::CLIENT_CERT) != has(&keys::CLIENT_KEY) {
        let (there, missing) = match has(&keys::CLIENT_CERT) {
            true => (&keys::CLIENT_CERT, &keys::CLIENT_KEY),
            false => (&keys::CLIENT_KEY, &keys::CLIENT_CERT),
        };
        let finding = Finding::error(format!("`{}` is of no use without `{}`", there.name, missing.name));
        section.report(finding.at(section.place(there.name)));
    }
    Way { identity: cert.zip(key), ..common(section) }
}

/// Reads what is asked of the way to whatever else is fetched from.
pub(crate) fn common(section: &mut Section<'_>) -> Way {
    let ca_file = file(section, &keys::CA_FILE);
    let reach = match section.flag(&keys::DENY_PRIVATE) {
        Some(true) => Reach::Public,
        Some(false) | None => Reach::Anywhere,
    };
    Way { ca_file, identity: None, reach }
}

/// Reads the certificates of a listener.
pub(crate) fn of_listener(section: &mut Section<'_>) -> Option<ServerTls> {
    section.within(&keys::LISTEN_TLS, |tls| {
        let mut needed = |key: &'static keys::Key<keys::Free>| {
            if !tls.has(key.name) && !tls.misspells(key.name) {
                tls.report(Finding::error(format!("`tls` has no {}", quoted(key.name))).at(tls.at));
            }
            file(tls, key)
        };
        let (cert, key) = (needed(&keys::TLS_CERT), needed(&keys::TLS_KEY));
        let client_ca = file(tls, &keys::TLS_CLIENT_CA);
        Some(ServerTls { cert: cert?, key: key?, client_ca })
    })
}

/// The path of a file; a relative one counts from the folder of the configuration.
fn file(section: &mut Section<'_>, key: &'static keys::Key<keys::Free>) -> Option<PathBuf> {
    let text = section.text(key)?;
    if text.value.is_empty() || text.value.contains('\0') {
        section.report(Finding::error(format!("{} is no path", quoted(key.name))).at(text.span));
        return None;
    }
    Some(section.reader.folder.join(&text.value))
}
