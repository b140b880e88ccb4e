//! The way to etcd.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use super::credentials::{read_public, read_secret, read_user};
use crate::address::Address;
use crate::error::Error;

/// The time between two pings of an idle connection with an open stream. Etcd closes connections that ask more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// A client certificate.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    /// The certificate, in PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, in PEM: a file that only its owner may use.
    pub key: PathBuf,
}

/// The way to etcd: by `http` on this machine, by `https` elsewhere.
#[derive(Clone, Debug)]
pub struct EtcdSettings {
    /// One URL or more, `http://HOST:PORT` or `https://HOST:PORT`, all of one kind: members of one etcd.
    pub endpoints: Vec<String>,
    /// The certificates, in PEM, of the authorities that vouch for etcd's: `https` demands them.
    pub authority: Option<PathBuf>,
    /// This process's certificate.
    pub identity: Option<ClientCertificate>,
    /// A file, which only its owner may use, whose first line is `USER:PASSWORD`.
    pub user: Option<PathBuf>,
    /// The longest time of a request. 5 s suit an etcd in one building.
    pub timeout: Duration,
}

impl EtcdSettings {
    /// Settings for an etcd without credentials, with 5 s for a request.
    pub fn new(endpoints: impl IntoIterator<Item = String>) -> EtcdSettings {
        EtcdSettings {
            endpoints: endpoints.into_iter().collect(),
            authority: None,
            identity: None,
            user: None,
            timeout: Duration::from_secs(5),
        }
    }

    /// Checks the settings without the files that they name, which may come later.
    ///
    /// # Errors
    /// [`Error::Endpoint`]: no endpoint, one that is no URL of the two forms, `http` and `https` together, `http` to another machine, `https` without an authority, `https` to another machine without a client certificate or
    /// a user.
    pub fn validate(&self) -> Result<(), Error> {
        self.check().map(|_| ())
    }

    /// Checks the settings, and reads the files that they name.
    ///
    /// # Errors
    /// The errors of [`EtcdSettings::validate`], and [`Error::CredentialFile`].
    pub(super) fn options(&self) -> Result<ConnectOptions, Error> {
        let tls = self.check()?;
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.timeout)
            .with_keep_alive(PING_INTERVAL, self.timeout)
            .with_keep_alive_while_idle(false)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if tls {
            let mut tls = TlsOptions::new();
            if let Some(authority) = &self.authority {
                tls = tls.ca_certificate(Certificate::from_pem(read_public(authority)?));
            }
            if let Some(identity) = &self.identity {
                let certificate = read_public(&identity.certificate)?;
                tls = tls.identity(Identity::from_pem(certificate, read_secret(&identity.key)?));
            }
            options = options.with_tls(tls);
        }
        if let Some(path) = &self.user {
            let (user, password) = read_user(path)?;
            options = options.with_user(user, password);
        }
        Ok(options)
    }

    /// True if etcd is reached by `https`.
    fn check(&self) -> Result<bool, Error> {
        let fault = |endpoint: &str, why: &str| {
            Err(Error::Endpoint { endpoint: endpoint.to_owned(), why: why.to_owned() })
        };
        let mut https = None;
        for endpoint in &self.endpoints {
            let (tls, address) = match (endpoint.strip_prefix("http://"), endpoint.strip_prefix("https://")) {
                (Some(address), _) => (false, address),
                (_, Some(address)) => (true, address),
                _ => return fault(endpoint, "is no URL http://HOST:PORT or https://HOST:PORT"),
            };
            let address = match Address::parse(address) {
                Ok(address) => address,
                Err(error) => return fault(endpoint, &error.to_string()),
            };
            if *https.get_or_insert(tls) != tls {
                return fault(endpoint, "http and https together");
            }
            let here = is_loopback(&address);
            if !tls && !here {
                return fault(
                    endpoint,
                    "http to another machine would show and alter everything on the way: use https",
                );
            }
            if !tls && (self.authority.is_some() || self.identity.is_some()) {
                return fault(endpoint, "certificates are for https");
            }
            if tls && self.authority.is_none() {
                return fault(
                    endpoint,
                    "https needs the file of an authority that vouches for etcd's certificate",
                );
            }
            if !here && self.identity.is_none() && self.user.is_none() {
                return fault(
                    endpoint,
                    "etcd on another machine needs a client certificate or a file with a user and a password",
                );
            }
        }
        match https {
            Some(https) => Ok(https),
            None => fault("", "no endpoint is given"),
        }
    }
}

/// True if the address is one of this machine alone.
fn is_loopback(address: &Address) -> bool {
    let host = address.host();
    let inside = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        || inside.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn fault(settings: &EtcdSettings) -> String {
        settings.options().map(|_| ()).unwrap_err().to_string()
    }

    fn to(endpoints: &[&str]) -> EtcdSettings {
        EtcdSettings::new(endpoints.iter().map(|endpoint| (*endpoint).to_owned()))
    }

    #[test]
    fn http_is_for_this_machine_and_https_needs_an_authority_and_credentials() {
        for here in ["http://127.0.0.1:2379", "http://[::1]:2379", "http://localhost:2379"] {
            assert!(to(&[here]).options().is_ok(), "{here}");
        }
        for (endpoints, why) in [
            (&["http://10.0.0.1:2379"][..], "use https"),
            (&["http://127.0.0.1:2379", "http://barn.example:2379"], "use https"),
            (&["https://10.0.0.1:2379"], "https needs the file of an authority"),
            (&["http://127.0.0.1:2379", "https://127.0.0.1:2379"], "http and https together"),
            (&["127.0.0.1:2379"], "is no URL"),
            (&["http://127.0.0.1"], "has no port"),
            (&["http://127.0.0.1:2379/v3"], "has no port of 1 to 65535"),
            (&["http://user@127.0.0.1:2379"], "has no host"),
            (&[], "no endpoint"),
        ] {
            let message = fault(&to(endpoints));
            assert!(message.contains(why), "{endpoints:?}: {message}");
            assert_eq!(to(endpoints).validate().unwrap_err().to_string(), message);
        }
        let mut settings = to(&["https://10.0.0.1:2379"]);
        settings.authority = Some("/ca.pem".into());
        assert!(fault(&settings).contains("needs a client certificate or a file with a user"));
        let mut settings = to(&["http://127.0.0.1:2379"]);
        settings.authority = Some("/ca.pem".into());
        assert!(fault(&settings).contains("certificates are for https"));
    }

    #[test]
    fn a_file_of_credentials_that_others_may_read_is_refused_and_no_message_shows_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("user");
        let mut settings = to(&["http://127.0.0.1:2379"]);
        settings.user = Some(path.clone());
        assert!(fault(&settings).contains("cannot be opened"));
        std::fs::write(&path, "barn:hidden\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        let message = fault(&settings);
        assert!(message.contains("mode 644") && !message.contains("hidden"), "{message}");
        mode(0o600);
        assert!(settings.options().is_ok());
        for wrong in ["", "hidden", ":hidden", "hidden:", "\nbarn:hidden"] {
            std::fs::write(&path, wrong).unwrap();
            let message = fault(&settings);
            assert!(message.contains("USER:PASSWORD") && !message.contains("hidden"), "{message}");
        }
    }
}
