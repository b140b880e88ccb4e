//! The files of TLS on the clients' port, and the side of TLS that they make.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{Error as TlsError, RootCertStore, ServerConfig};

use crate::error::{Error, Result};

const CERTIFICATE: &str = "--client-tls-certificate";
const KEY: &str = "--client-tls-key";
const AUTHORITY: &str = "--client-tls-authority";

/// The files of TLS on the clients' port, in PEM. They are read once, at the server's start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientTlsFiles {
    /// The server's certificate, followed by those between it and an authority that clients trust. Names the hosts by
    /// which clients reach the server. No default.
    pub certificate: PathBuf,
    /// The certificate's key. No default.
    pub key: PathBuf,
    /// The certificates of authorities: each client must show a certificate that one of them signed. Default: none;
    /// clients need no certificate.
    #[serde(default)]
    pub authority: Option<PathBuf>,
}

impl ClientTlsFiles {
    /// Reads the files, and makes the server's side of TLS 1.3 and 1.2.
    ///
    /// # Errors
    /// [`Error::ClientTls`]: a file cannot be read or used, or the key is another certificate's.
    pub(crate) fn load(&self) -> Result<TlsAcceptor> {
        let certificates = certificates(CERTIFICATE, &self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| unreadable(KEY, &self.key, error, "private key"))?;
        let unusable = |error: TlsError| match error {
            TlsError::InconsistentKeys(_) => {
                let certificate = self.certificate.display();
                bad(KEY, &self.key, format_args!("the key does not belong to the certificate {certificate}"))
            }
            TlsError::InvalidCertificate(_) => bad(CERTIFICATE, &self.certificate, error),
            error => bad(KEY, &self.key, error),
        };
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("ring has cipher suites of both versions");
        let builder = match &self.authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for root in self::certificates(AUTHORITY, path)? {
                    roots.add(root).map_err(|error| bad(AUTHORITY, path, error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| bad(AUTHORITY, path, error))?)
            }
        };
        let config = builder.with_single_cert(certificates, key).map_err(unusable)?;
        Ok(Arc::new(config).into())
    }
}

fn certificates(option: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(none) if none.is_empty() => Err(unreadable(option, path, PemError::NoItemsFound, "certificate")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unreadable(option, path, error, "certificate")),
    }
}

/// The error of a file that lacks what was sought.
fn unreadable(option: &'static str, path: &Path, error: PemError, sought: &str) -> Error {
    match error {
        PemError::Io(error) => bad(option, path, format_args!("{error}; give a readable file")),
        PemError::NoItemsFound => bad(option, path, format_args!("the file has no {sought} in PEM")),
        error => bad(option, path, error),
    }
}

fn bad(option: &'static str, path: &Path, detail: impl Display) -> Error {
    Error::ClientTls { option, path: path.to_owned(), detail: detail.to_string() }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use tempfile::TempDir;

    use super::*;

    /// A folder with a certificate, its key, and the key of another one.
    fn folder() -> TempDir {
        let folder = TempDir::new().unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
        for (name, text) in [
            ("server.pem", certificate.pem()),
            ("server.key", key.serialize_pem()),
            ("other.key", KeyPair::generate().unwrap().serialize_pem()),
            ("text", "no PEM\n".into()),
            ("torn.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n".into()),
            ("wrong.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into()),
            ("wrong.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".into()),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_its_option_and_its_fault() {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        let load = |certificate: &str, key: &str, authority: Option<&str>| {
            let (certificate, key, authority) = (path(certificate), path(key), authority.map(path));
            ClientTlsFiles { certificate, key, authority }.load().map(drop)
        };
        load("server.pem", "server.key", None).unwrap();
        load("server.pem", "server.key", Some("server.pem")).unwrap();
        for (certificate, key, authority, option, file, fault) in [
            ("none", "server.key", None, CERTIFICATE, "none", "No such file"),
            ("text", "server.key", None, CERTIFICATE, "text", "no certificate in PEM"),
            ("server.key", "server.key", None, CERTIFICATE, "server.key", "no certificate in PEM"),
            ("torn.pem", "server.key", None, CERTIFICATE, "torn.pem", "section end"),
            ("wrong.pem", "server.key", None, CERTIFICATE, "wrong.pem", "BadEncoding"),
            ("server.pem", "none", None, KEY, "none", "No such file"),
            ("server.pem", "server.pem", None, KEY, "server.pem", "no private key in PEM"),
            ("server.pem", "wrong.key", None, KEY, "wrong.key", "key"),
            ("server.pem", "other.key", None, KEY, "other.key", "does not belong to the certificate"),
            ("server.pem", "server.key", Some("none"), AUTHORITY, "none", "No such file"),
            ("server.pem", "server.key", Some("text"), AUTHORITY, "text", "no certificate in PEM"),
            ("server.pem", "server.key", Some("wrong.pem"), AUTHORITY, "wrong.pem", "BadEncoding"),
        ] {
            let error = load(certificate, key, authority).expect_err(fault).to_string();
            let named = format!("({option} {})", path(file).display());
            assert!(error.contains(fault) && error.ends_with(&named), "{error}");
        }
    }
}
