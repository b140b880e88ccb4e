//! An authority, and the certificates that it signs.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use server::{ClientTlsFiles, ServeOptions};
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use crate::common::options;

/// An authority, and the folder with the files that it makes.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = params("authority", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("authority.pem"), issuer.pem()).unwrap();
        let authority = Authority { issuer, folder };
        authority.sign("server", &["localhost", "127.0.0.1"]);
        authority.sign("client", &[]);
        authority
    }

    fn sign(&self, file: &str, names: &[&str]) {
        let key = KeyPair::generate().unwrap();
        let certificate = params(file, names).signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{file}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    /// The path of one of the files: `authority.pem`, and `server` and `client` with `.pem` and `.key`.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// The files of a server, which takes clients without a certificate.
    pub fn files(&self) -> ClientTlsFiles {
        ClientTlsFiles { certificate: self.path("server.pem"), key: self.path("server.key"), authority: None }
    }

    /// The options of a server that speaks TLS.
    pub fn options(&self) -> ServeOptions {
        ServeOptions { client_tls: Some(self.files()), ..options() }
    }

    /// The options of a server that takes clients with a certificate of this authority.
    pub fn options_for_certified_clients(&self) -> ServeOptions {
        let files = ClientTlsFiles { authority: Some(self.path("authority.pem")), ..self.files() };
        ServeOptions { client_tls: Some(files), ..options() }
    }

    /// The settings of a client that trusts this authority. `certified_by`: the authority whose certificate the client
    /// shows.
    pub fn client(
        &self,
        version: &'static SupportedProtocolVersion,
        certified_by: Option<&Authority>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("authority.pem")).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        match certified_by {
            None => builder.with_no_client_auth(),
            Some(signer) => {
                let certificate = CertificateDer::from_pem_file(signer.path("client.pem")).unwrap();
                let key = PrivateKeyDer::from_pem_file(signer.path("client.key")).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        }
    }

    /// The settings of a client that speaks TLS 1.3 and shows no certificate.
    pub fn plain_client(&self) -> ClientConfig {
        self.client(&TLS13, None)
    }
}

/// A certificate for `names`. OpenSSL takes one with its issuer's subject for self-signed.
fn params(subject: &str, names: &[&str]) -> CertificateParams {
    let mut params =
        CertificateParams::new(names.iter().map(|name| (*name).into()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name.push(DnType::CommonName, subject);
    params
}
