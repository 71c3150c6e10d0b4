//! Certificates of the moment, and what carries plain bytes over TLS: for clients that speak none, and servers.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, copy_bidirectional,
};
use tokio::net::{TcpListener, TcpStream};

/// An authority that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, PEM.
#[derive(Clone)]
pub struct Issued {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let serial: String =
            key.public_key_raw().iter().rev().take(8).map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, format!("authority {serial}"));
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// For names like `localhost`, `127.0.0.1` or `spiffe://…`.
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.issue_until(names, 2100)
    }

    /// One whose time is over.
    pub fn issue_expired(&self, names: &[&str]) -> Issued {
        self.issue_until(names, 2020)
    }

    fn issue_until(&self, names: &[&str], year: i32) -> Issued {
        let mut params = CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(2010, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.subject_alt_names = names
            .iter()
            .map(|name| match (name.parse(), name.contains("://")) {
                (Ok(address), _) => SanType::IpAddress(address),
                (Err(_), true) => SanType::URI((*name).try_into().expect("a URI")),
                (Err(_), false) => SanType::DnsName((*name).try_into().expect("a name")),
            })
            .collect();
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Issued { cert, key: key.serialize_pem() }
    }

    /// Its own certificate, PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("PEM")).expect("an authority");
        roots
    }

    /// A client that believes this authority, with a certificate or without.
    pub fn client(&self, own: Option<&Issued>) -> ClientConfig {
        let builder = ClientConfig::builder().with_root_certificates(self.roots());
        match own {
            Some(own) => {
                let (chain, key) = own.parts();
                builder.with_client_auth_cert(chain, key).expect("a certificate with its key")
            }
            None => builder.with_no_client_auth(),
        }
    }
}

impl Issued {
    /// Writes both files, whose names begin so.
    pub fn write(&self, folder: &Path, name: &str) {
        std::fs::write(folder.join(format!("{name}.pem")), &self.cert).expect("a file");
        std::fs::write(folder.join(format!("{name}.key")), &self.key).expect("a file");
    }

    fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let chain = vec![CertificateDer::from_pem_slice(self.cert.as_bytes()).expect("PEM")];
        (chain, PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("PEM"))
    }

    /// A server with this certificate, which asks for one of `clients` if there is such an authority.
    pub fn server(&self, clients: Option<&Authority>) -> ServerConfig {
        let builder = ServerConfig::builder();
        let builder = match clients {
            Some(clients) => {
                let verifier = WebPkiClientVerifier::builder(Arc::new(clients.roots())).build();
                builder.with_client_cert_verifier(verifier.expect("a verifier"))
            }
            None => builder.with_no_client_auth(),
        };
        let (chain, key) = self.parts();
        builder.with_single_cert(chain, key).expect("a certificate with its key")
    }
}

/// Something that passes bytes on, until the end of the test.
pub struct Passage {
    pub address: SocketAddr,
    /// The first line of each CONNECT.
    pub asked: Arc<Mutex<Vec<String>>>,
    _runtime: tokio::runtime::Runtime,
}

fn pass<F>(carry: impl Fn(TcpStream, Arc<Mutex<Vec<String>>>) -> F + Send + 'static) -> Passage
where
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&asked);
    runtime.spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.expect("a connection");
            tokio::spawn(carry(socket, Arc::clone(&heard)));
        }
    });
    Passage { address, asked, _runtime: runtime }
}

/// Speaks TLS with whoever connects, and passes on what they say to `target`.
pub fn terminate(target: SocketAddr, config: ServerConfig) -> Passage {
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    pass(move |socket, _| {
        let acceptor = acceptor.clone();
        async move { join(acceptor.accept(socket).await?, TcpStream::connect(target).await?).await }
    })
}

/// Passes on whatever comes over TLS to `target`, which is called `name`.
pub fn initiate(target: SocketAddr, config: ClientConfig, name: &str) -> Passage {
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    pass(move |socket, _| {
        let (connector, name) = (connector.clone(), name.clone());
        async move { join(connector.connect(name, TcpStream::connect(target).await?).await?, socket).await }
    })
}

/// A proxy that takes CONNECT, whatever it names, as one to `target`.
pub fn proxy(target: SocketAddr) -> Passage {
    pass(move |socket, asked| async move {
        let mut socket = BufReader::new(socket);
        let mut first = String::new();
        socket.read_line(&mut first).await?;
        let mut line = first.clone();
        while line.trim() != "" {
            line.clear();
            socket.read_line(&mut line).await?;
        }
        asked.lock().unwrap_or_else(PoisonError::into_inner).push(first.trim().to_owned());
        socket.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
        join(socket, TcpStream::connect(target).await?).await
    })
}

async fn join<A, B>(mut one: A, mut other: B) -> std::io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    copy_bidirectional(&mut one, &mut other).await.map(drop)
}
