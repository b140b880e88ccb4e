//! The server's settings.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use kv::parallel_wal::WalMode;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::client_tls::ClientTlsFiles;
use crate::error::{Error, Result};

/// Largest setting of a value's longest length in bytes: a request's spans are 32 bits wide, and the server keeps the
/// request in memory.
const MAX_VALUE_LIMIT: u64 = 512 << 20;

/// The bit of a file's mode that lets all users read the file.
const READABLE_BY_OTHERS: u32 = 0o004;

/// What an acknowledgement of a write promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Acknowledged writes are durable.
    #[default]
    Sync,
    /// Acknowledged writes become durable once a second.
    Async,
}

impl Durability {
    /// Whether acknowledged writes are durable.
    pub fn is_sync(self) -> bool {
        self == Durability::Sync
    }
}

impl std::str::FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Durability, String> {
        match text {
            "sync" => Ok(Durability::Sync),
            "async" => Ok(Durability::Async),
            other => Err(format!("durability is 'sync' or 'async', not '{other}'")),
        }
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Durability::Sync => "sync",
            Durability::Async => "async",
        })
    }
}

/// The settings of `furrow serve`. Every field has a default but `device`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServeOptions {
    /// URL of the device that holds the data, such as `emu:drive.img`. No default.
    pub device: String,
    /// Whether a file system is made on a blank emulated drive. Default: yes. A drive with data is never formatted.
    pub format_if_blank: bool,
    /// Directory of the database in the file system. Default: `/kv`.
    pub db_path: String,
    /// Address to listen on. Default: 127.0.0.1; other addresses need a password.
    pub bind: IpAddr,
    /// Port of the Redis protocol; 0 takes a free one. Default: 6379.
    pub port: u16,
    /// Address of the HTTP port with metrics and status; `None`: no HTTP port. Default: 127.0.0.1:9121.
    pub http: Option<SocketAddr>,
    /// What an acknowledgement of a write promises. Default: sync.
    pub durability: Durability,
    /// The log that writes go to: RocksDB's own (`group`), or the parallel WAL, to which each pipeline appends by
    /// itself (`waltz`) or pipelines join where appends would wait for each other (`auto`). May change between starts.
    /// Default: auto.
    pub wal: WalMode,
    /// File whose first line is the password that clients give with AUTH. Default: none; the server has no password.
    pub password_file: Option<PathBuf>,
    /// Files of TLS on the clients' port, which then takes no clients without TLS. Default: none; the port speaks no TLS.
    pub client_tls: Option<ClientTlsFiles>,
    /// Largest number of clients at a time, 1 to 100,000. The process's limit on file descriptors is raised to fit.
    /// Default: 1000.
    pub max_clients: usize,
    /// Longest value in bytes, 1 KiB to 512 MiB. Default: 64 MiB.
    pub max_value: u64,
    /// Longest reply of one command or transaction in bytes; at least twice `max_value`. Default: 256 MiB.
    pub max_output: u64,
    /// Bytes of replies that all clients together have not received yet, beyond 1 MiB for each client; at least
    /// `max_output`. Commands whose replies need more wait. Default: 1 GiB.
    pub max_output_total: u64,
    /// Seconds without receiving any reply after which a client is disconnected. Default: 60.
    pub stall_seconds: u64,
    /// Seconds without a command after which a client is disconnected; 0: never. Default: 0.
    pub idle_seconds: u64,
    /// Milliseconds, from the arrival of a command, for which a server of a cluster keeps it while its group has no leader.
    /// Default: 2000.
    pub hold_ms: u64,
    /// The time in milliseconds by which a backup may be behind the leader to answer reads of clients in READONLY mode. Default: 1000.
    pub stale_limit_ms: u64,
    /// Bytes of RocksDB's block cache. Default: 64 MiB.
    pub block_cache: usize,
    /// Bytes of the file system's page cache, for the tables as they lie on the drive; 0: no cache. Default: 0.
    pub cache: u64,
    /// Bytes of RocksDB's memtable, which determines the reserve of free room on the drive. `None` (the default): 64
    /// MiB, or less on a small drive.
    pub write_buffer: Option<usize>,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            device: String::new(),
            format_if_blank: true,
            db_path: "/kv".into(),
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 6379,
            http: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9121))),
            durability: Durability::Sync,
            wal: WalMode::Auto,
            password_file: None,
            client_tls: None,
            max_clients: 1000,
            max_value: 64 << 20,
            max_output: 256 << 20,
            max_output_total: 1 << 30,
            stall_seconds: 60,
            idle_seconds: 0,
            hold_ms: 2000,
            stale_limit_ms: 1000,
            block_cache: 64 << 20,
            cache: 0,
            write_buffer: None,
        }
    }
}

impl ServeOptions {
    /// Checks the settings; the error names the wrong setting and the remedy.
    pub fn validate(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::Options(text));
        if !self.bind.is_loopback() && self.password_file.is_none() {
            return wrong(format!(
                "--bind {} is reachable from other machines: give --password-file FILE, or bind 127.0.0.1",
                self.bind
            ));
        }
        if let Some(http) = self.http
            && !http.ip().is_loopback()
            && self.password_file.is_none()
        {
            return wrong(format!(
                "--http {http} is reachable from other machines and asks for no password: give 127.0.0.1:{}, or \
                 give --password-file too if that is what you want",
                http.port()
            ));
        }
        if let Err(error) = fs::check_cache_size(Bytes(self.cache)) {
            return wrong(format!("--cache {}: {error}", self.cache));
        }
        if !(1..=100_000).contains(&self.max_clients) {
            return wrong(format!("--max-clients {} is not within 1 and 100000", self.max_clients));
        }
        if !(1024..=MAX_VALUE_LIMIT).contains(&self.max_value) {
            return wrong(format!("--max-value {} is not within 1 KiB and 512 MiB", self.max_value));
        }
        if self.max_output < 2 * self.max_value {
            return wrong(format!(
                "--max-output {} is less than twice --max-value {}",
                self.max_output, self.max_value
            ));
        }
        if self.max_output_total < self.max_output {
            return wrong(format!(
                "--max-output-total {} is less than --max-output {}",
                self.max_output_total, self.max_output
            ));
        }
        if self.stall_seconds == 0 {
            return wrong("--stall-seconds 0 would close every client: give at least 1".into());
        }
        if !self.db_path.starts_with('/') || self.db_path == "/" {
            return wrong(format!("--db-path '{}' is not a directory below /", self.db_path));
        }
        Ok(())
    }

    /// Reads the password from its file.
    pub(crate) fn password(&self) -> Result<Option<Vec<u8>>> {
        let Some(path) = &self.password_file else { return Ok(None) };
        let wrong = |detail: String| Error::Password { path: path.clone(), detail };
        let text = std::fs::read(path).map_err(|e| wrong(format!("{e}; give a readable file")))?;
        let line = text.split(|b| *b == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Err(wrong("its first line is empty; write the password there".into()));
        }
        Ok(Some(line.to_vec()))
    }

    /// A warning for each file with a secret that every user of the machine can read.
    pub(crate) fn secret_warnings(&self) -> impl Iterator<Item = String> {
        let key = self.client_tls.as_ref().map(|files| ("key", &files.key));
        let password = self.password_file.as_ref().map(|path| ("password file", path));
        let secrets = password.into_iter().chain(key);
        secrets.filter_map(|(secret, path)| {
            let mode = std::fs::metadata(path).ok()?.permissions().mode();
            let path = path.display();
            (mode & READABLE_BY_OTHERS != 0)
                .then(|| format!("every user of this machine can read the {secret} {path}: chmod o-r {path}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn the_defaults_are_valid_and_local() {
        ServeOptions::default().validate().expect("valid");
    }

    #[test]
    fn an_open_address_needs_a_password() {
        let mut options = ServeOptions { bind: IpAddr::from([0, 0, 0, 0]), ..ServeOptions::default() };
        let text = options.validate().expect_err("refused").to_string();
        assert!(text.contains("0.0.0.0") && text.contains("--password-file"), "{text}");
        options.password_file = Some("secret".into());
        options.validate().expect("valid");
        assert!(matches!(options.password(), Err(Error::Password { .. })));
    }

    #[test]
    fn a_secret_that_other_users_can_read_gives_a_warning() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_owned();
        let options = ServeOptions { password_file: Some(path.clone()), ..ServeOptions::default() };
        let files = ClientTlsFiles { certificate: path.clone(), key: path, authority: None };
        let with_key = ServeOptions { client_tls: Some(files), ..ServeOptions::default() };
        let set =
            |mode| std::fs::set_permissions(file.path(), Permissions::from_mode(mode)).expect("its owner");
        for (mode, warned) in [(0o600, false), (0o640, false), (0o644, true), (0o604, true)] {
            set(mode);
            assert_eq!(options.secret_warnings().count(), usize::from(warned), "{mode:o}");
            assert_eq!(with_key.secret_warnings().count(), usize::from(warned), "{mode:o}");
        }
        assert!(options.secret_warnings().all(|warning| warning.contains("password file /")));
        assert!(with_key.secret_warnings().all(|warning| warning.contains("key /")));
        assert_eq!(ServeOptions::default().secret_warnings().count(), 0);
    }

    #[test]
    fn values_out_of_range_are_named() {
        for (options, name) in [
            (ServeOptions { max_clients: 0, ..ServeOptions::default() }, "--max-clients"),
            (ServeOptions { max_value: 1, ..ServeOptions::default() }, "--max-value"),
            (ServeOptions { max_output: 1, ..ServeOptions::default() }, "--max-output"),
            (ServeOptions { max_output_total: 1, ..ServeOptions::default() }, "--max-output-total"),
            (ServeOptions { db_path: "db".into(), ..ServeOptions::default() }, "--db-path"),
        ] {
            assert!(options.validate().expect_err("refused").to_string().contains(name));
        }
    }
}
