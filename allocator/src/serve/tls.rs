//! Certificates: read from folders, read again when they change, and the old ones kept while the new ones are bad.
//!
//! Connections that are open keep the certificates they began with; nothing is dropped.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use berth_runtime::CancellationToken;
use berth_runtime::error::chain;
use prometheus_client::metrics::counter::Counter;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::front_proxy::FrontProxy;

/// How often the folders are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file or folder.
    #[error("could not read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that does not hold what it should.
    #[error("{path} does not hold {what} in PEM")]
    Pem {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// No CA of clients.
    #[error("no CA of clients is in {path}; put *.crt or *.pem files there, or turn mTLS off")]
    NoClientCa {
        /// Where they should be.
        path: PathBuf,
    },
    /// They do not fit together.
    #[error("the certificates cannot be used")]
    Unfit {
        /// Why.
        source: rustls::Error,
    },
    /// The CAs of clients cannot be used.
    #[error("the CAs of clients cannot be used")]
    Clients {
        /// Why.
        source: rustls::server::VerifierBuilderError,
    },
}

/// Where our certificate is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The folder with `tls.crt` and `tls.key`.
    pub folder: PathBuf,
}

/// Whose certificates are asked for.
#[derive(Clone, Debug)]
pub enum Clients {
    /// Nobody's.
    Anyone,
    /// Every client's; it must be signed by a CA of this folder.
    SignedBy(PathBuf),
    /// Those of clients that have one, signed so; others show something else than a certificate.
    MaybeSignedBy(PathBuf),
    /// The API server's; others may connect, and are told so at their request.
    FrontProxy(watch::Receiver<Arc<FrontProxy>>),
}

/// Keeps one server's certificates up to date.
pub struct TlsKeeper {
    identity: Identity,
    clients: Clients,
    known: Material,
    sender: watch::Sender<Arc<ServerConfig>>,
    /// Counts new certificates that could not be used.
    failures: Counter,
}

/// Everything that a configuration is made of, to tell whether it has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Material {
    certificate: Vec<u8>,
    key: Vec<u8>,
    clients: Vec<(PathBuf, Vec<u8>)>,
}

impl TlsKeeper {
    /// Reads the certificates for the first time.
    ///
    /// # Errors
    /// When they cannot be used: the file is named.
    pub fn new(
        identity: Identity,
        clients: Clients,
        failures: Counter,
    ) -> Result<(Self, watch::Receiver<Arc<ServerConfig>>), TlsError> {
        let known = gather(&identity, &clients)?;
        let (sender, receiver) = watch::channel(Arc::new(configure(&identity, &clients, &known)?));
        Ok((Self { identity, clients, known, sender, failures }, receiver))
    }

    /// Looks for new ones until `stop`.
    ///
    /// # Errors
    /// None.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = sleep(LOOK) => {}
            }
            self.look();
        }
    }

    fn look(&mut self) {
        let told = gather(&self.identity, &self.clients).and_then(|material| {
            if material == self.known {
                return Ok(());
            }
            // Noted also where it cannot be used: one bad file is told once.
            self.known = material;
            let configuration = configure(&self.identity, &self.clients, &self.known)?;
            self.sender.send_replace(Arc::new(configuration));
            info!(folder = %self.identity.folder.display(), "new certificates in use");
            Ok(())
        });
        if let Err(error) = told {
            self.failures.inc();
            warn!(error = %chain(&error), "new certificates cannot be used; the old ones stay");
        }
    }
}

fn gather(identity: &Identity, clients: &Clients) -> Result<Material, TlsError> {
    let clients = match clients {
        Clients::Anyone => Vec::new(),
        Clients::SignedBy(folder) | Clients::MaybeSignedBy(folder) => client_files(folder)?,
        Clients::FrontProxy(front) => {
            vec![(PathBuf::from("the front proxy's CA"), front.borrow().authority.clone())]
        }
    };
    Ok(Material {
        certificate: read(&identity.folder.join("tls.crt"))?,
        key: read(&identity.folder.join("tls.key"))?,
        clients,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn client_files(folder: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, TlsError> {
    let listed = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let listed = listed.map_err(|source| TlsError::Read { path: folder.to_owned(), source })?;
    let is_certificate = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "crt" || ending == "pem") && path.is_file()
    };
    let mut paths: Vec<PathBuf> =
        listed.into_iter().map(|entry| entry.path()).filter(is_certificate).collect();
    paths.sort();
    if paths.is_empty() {
        return Err(TlsError::NoClientCa { path: folder.to_owned() });
    }
    paths.into_iter().map(|path| Ok((path.clone(), read(&path)?))).collect()
}

fn configure(identity: &Identity, clients: &Clients, material: &Material) -> Result<ServerConfig, TlsError> {
    let path = |name: &str| identity.folder.join(name);
    let chain = certificates(&path("tls.crt"), &material.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&material.key)
        .map_err(|_| TlsError::Pem { path: path("tls.key"), what: "a private key" })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|source| TlsError::Unfit { source })?;
    let builder = match clients {
        Clients::Anyone => builder.with_no_client_auth(),
        Clients::SignedBy(_) | Clients::MaybeSignedBy(_) | Clients::FrontProxy(_) => {
            let mut roots = RootCertStore::empty();
            for (path, pem) in &material.clients {
                for certificate in certificates(path, pem)? {
                    roots.add(certificate).map_err(|source| TlsError::Unfit { source })?;
                }
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match clients {
                Clients::FrontProxy(_) | Clients::MaybeSignedBy(_) => verifier.allow_unauthenticated(),
                Clients::Anyone | Clients::SignedBy(_) => verifier,
            };
            builder
                .with_client_cert_verifier(verifier.build().map_err(|source| TlsError::Clients { source })?)
        }
    };
    let mut configuration =
        builder.with_single_cert(chain, key).map_err(|source| TlsError::Unfit { source })?;
    configuration.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(configuration)
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    read.ok()
        .filter(|certificates| !certificates.is_empty())
        .ok_or_else(|| TlsError::Pem { path: path.to_owned(), what: "a certificate" })
}

/// The common name of a certificate's subject.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}
