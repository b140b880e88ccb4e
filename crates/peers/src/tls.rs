//! TLS between processes: both sides show a certificate that names their node.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::error::{Error, Result};
use replica::NodeId;

/// The files of a node's TLS, in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The node's certificate, with those between it and the authority. Names the node: `UUID.furrow` as a DNS name in its subjectAltName.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
    /// The certificates of the authorities that sign the nodes' certificates.
    pub authority: PathBuf,
}

/// The two sides of TLS 1.3.
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) connector: TlsConnector,
}

impl Tls {
    /// Reads the files of the node.
    ///
    /// # Errors
    /// A file cannot be read or used, or the certificate does not name the node.
    pub(crate) fn load(files: &TlsFiles, node: NodeId) -> Result<Tls> {
        let certificates = certificates(&files.certificate)?;
        if !certificates.first().is_some_and(|own| names(own, node)) {
            return Err(Error::CertificateName { path: files.certificate.clone(), node });
        }
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| bad(&files.key, error))?;
        let mut roots = RootCertStore::empty();
        for root in self::certificates(&files.authority)? {
            roots.add(root).map_err(|error| bad(&files.authority, error))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(default_provider()));
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| bad(&files.authority, error))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| bad(&files.certificate, error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates.clone(), key.clone_key())
            .map_err(|error| bad(&files.certificate, error))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| bad(&files.certificate, error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates, key)
            .map_err(|error| bad(&files.certificate, error))?;
        let (server, client) = (Arc::new(server), Arc::new(client));
        Ok(Tls { acceptor: server.into(), connector: client.into() })
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// The name by which TLS knows a node.
pub(crate) fn server_name(node: NodeId) -> ServerName<'static> {
    ServerName::try_from(node.dns_name()).expect("a UUID and a word are a DNS name")
}

/// True if the certificate names the node.
pub(crate) fn names(certificate: &CertificateDer<'_>, node: NodeId) -> bool {
    let parsed = ParsedCertificate::try_from(certificate);
    parsed.is_ok_and(|parsed| verify_server_name(&parsed, &server_name(node)).is_ok())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    match read.map_err(|error| bad(path, error))? {
        none if none.is_empty() => Err(bad(path, "it has no certificate")),
        certificates => Ok(certificates),
    }
}

fn bad(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::TlsFile { path: path.to_owned(), why: error.to_string() }
}
