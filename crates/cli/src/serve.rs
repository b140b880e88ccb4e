//! The command `furrow serve`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use server::{ClientTlsFiles, Durability, ServeOptions, WalMode};
use units::Bytes;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::exit::Failure;
use crate::join::JoinArgs;
use crate::size;

/// Longest value of a server without a cluster.
const MAX_VALUE: Bytes = Bytes(64 << 20);

/// `furrow serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    join: JoinArgs,
    /// Address to listen on; one that other machines reach needs --password-file, and in a cluster TLS.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    bind: IpAddr,
    /// Port of the redis protocol; 0 takes a free one.
    #[arg(long, default_value_t = 6379)]
    port: u16,
    /// Address of the metrics and status pages, or none.
    #[arg(long, default_value = "127.0.0.1:9121", value_name = "ADDRESS")]
    http: Http,
    /// sync: acknowledged is durable. async: made durable once a second.
    #[arg(long, default_value_t = Durability::Sync, value_name = "sync|async")]
    durability: Durability,
    /// group: RocksDB's own log. waltz: a parallel log, each pipeline an append of its own. auto: a parallel log that joins pipelines
    /// when the drive has no parallelism to spare.
    #[arg(long, default_value_t = WalMode::Auto, value_name = "group|waltz|auto")]
    wal: WalMode,
    /// File whose first line is the password that clients give with AUTH.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Certificate by which the port speaks TLS, and no longer takes clients without.
    #[arg(long, value_name = "FILE", requires = "client_tls_key")]
    client_tls_certificate: Option<PathBuf>,
    /// The certificate's key.
    #[arg(long, value_name = "FILE", requires = "client_tls_certificate")]
    client_tls_key: Option<PathBuf>,
    /// Certificates of the authority of clients: each must show a certificate that it signed.
    #[arg(long, value_name = "FILE", requires = "client_tls_certificate")]
    client_tls_authority: Option<PathBuf>,
    /// Directory of the database in the file system.
    #[arg(long, default_value = "/kv", value_name = "PATH")]
    db_path: String,
    /// Refuse a blank emulated drive instead of making a file system on it.
    #[arg(long)]
    no_format: bool,
    /// The most clients at a time.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    max_clients: usize,
    /// Longest value [default: 64MiB, in a cluster 4MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_value: Option<Bytes>,
    /// Longest reply.
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = size::parse)]
    max_output: Bytes,
    /// Bytes of unsent replies of all clients together; commands whose replies need more wait.
    #[arg(long, default_value = "1GiB", value_name = "SIZE", value_parser = size::parse)]
    max_output_total: Bytes,
    /// Close a client that reads no reply for this long.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    stall_seconds: u64,
    /// Close a client that sends nothing for this long; 0: never.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    idle_seconds: u64,
    /// In a cluster: refuse a command whose keys have had no leader for this long since it came.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = humantime::parse_duration)]
    hold: Duration,
    /// In a cluster: how far a backup may be behind to answer clients that sent READONLY.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = humantime::parse_duration)]
    stale_limit: Duration,
    /// RocksDB's block cache.
    #[arg(long, default_value = "64MiB", value_name = "SIZE", value_parser = size::parse)]
    block_cache: Bytes,
    /// The file system's page cache; 0: none [default: a sixteenth of the memory, 32 MiB to 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    cache: Option<Bytes>,
    /// RocksDB's memtable [default: 64MiB, less on a small drive]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    write_buffer: Option<Bytes>,
}

/// The address of the server's HTTP pages; `None` for no pages.
#[derive(Clone, Copy, Debug)]
struct Http(Option<SocketAddr>);

impl std::str::FromStr for Http {
    type Err = String;

    fn from_str(text: &str) -> Result<Http, String> {
        if text == "none" {
            return Ok(Http(None));
        }
        let address =
            text.parse().map_err(|_| format!("'{text}' is no address: write 127.0.0.1:9121, or none"))?;
        Ok(Http(Some(address)))
    }
}

/// Serves redis clients until SHUTDOWN or a signal.
pub fn run(context: &Context, args: ServeArgs) -> Result<ExitCode> {
    let bytes = |size: Bytes| usize::try_from(size.0).context("a size is beyond this machine's memory");
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let client_tls = args.client_tls_certificate.zip(args.client_tls_key);
    let authority = args.client_tls_authority;
    let options = ServeOptions {
        device: args.device.device,
        format_if_blank: !args.no_format,
        db_path: args.db_path,
        bind: args.bind,
        port: args.port,
        http: args.http.0,
        durability: args.durability,
        wal: args.wal,
        password_file: args.password_file,
        client_tls: client_tls.map(|(certificate, key)| ClientTlsFiles { certificate, key, authority }),
        max_clients: args.max_clients,
        max_value: args.max_value.unwrap_or(MAX_VALUE).0,
        max_output: args.max_output.0,
        max_output_total: args.max_output_total.0,
        stall_seconds: args.stall_seconds,
        idle_seconds: args.idle_seconds,
        hold_ms: milliseconds(args.hold),
        stale_limit_ms: milliseconds(args.stale_limit),
        block_cache: bytes(args.block_cache)?,
        cache: args.cache.unwrap_or_else(fs::default_cache_size).0,
        write_buffer: args.write_buffer.map(bytes).transpose()?,
    };
    options.validate().map_err(|error| Failure::usage(error.to_string()))?;
    // A wrong URL, a held device and an array's member have exit codes of their own.
    context.try_open(&DeviceArg { device: options.device.clone() })?;
    match args.join.node(options, args.max_value.is_some())? {
        Ok(options) => node::run(options)?,
        Err(options) => server::run(options)?,
    }
    Ok(ExitCode::SUCCESS)
}
