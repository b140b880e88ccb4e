//! The running server: its sockets, its threads and its shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fs::Fs;
use kv::Engine;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use units::Driver;

use crate::backing::Backing;
use crate::client_tls::ClientTlsFiles;
use crate::clients::Clients;
use crate::cluster::Cluster;
use crate::counters::Counters;
use crate::end_signals::{EndRequest, EndSignals};
use crate::engines::Engines;
use crate::error::{Error, Result};
use crate::options::ServeOptions;
use crate::output::OutputBudget;
use crate::recent_reads::RecentReads;
use crate::shared::Shared;
use crate::{commands, connection, descriptors, http};

/// Smallest number of worker threads: one may wait for the drive while the others serve sockets.
const WORKERS_MIN: usize = 4;

/// Number of threads for walks over the database, and for reads that find no worker free.
const READER_THREADS: usize = 8;

/// Largest number of connections that wait in the kernel to be accepted.
const LISTEN_BACKLOG: u32 = 1024;

/// Time at a shutdown in which connections must end.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// Pause after a failed accept, mostly for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running server. [`wait`](Server::wait) ends it cleanly; dropping it cuts its connections.
pub struct Server {
    runtime: Runtime,
    shared: Arc<Shared>,
    address: SocketAddr,
    http_address: Option<SocketAddr>,
    listening: JoinHandle<()>,
}

/// The listening sockets of a server that does not serve yet: connections wait.
pub(crate) struct Sockets {
    runtime: Runtime,
    workers: usize,
    password: Option<Vec<u8>>,
    tls: Option<TlsAcceptor>,
    listener: TcpListener,
    http_listener: Option<TcpListener>,
}

impl Sockets {
    /// Checks the settings, reads the files of secrets and of TLS, and binds the ports, before the device is opened.
    pub(crate) fn bind(options: &ServeOptions) -> Result<Sockets> {
        options.validate()?;
        descriptors::raise_descriptor_limit(options.max_clients)?;
        let password = options.password()?;
        let tls = options.client_tls.as_ref().map(ClientTlsFiles::load).transpose()?;
        for warning in options.secret_warnings() {
            tracing::warn!("{warning}");
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = cores.max(WORKERS_MIN);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .max_blocking_threads(READER_THREADS)
            .thread_name("furrow-server")
            .enable_all()
            .build()?;
        let guard = runtime.enter();
        let listener = listen(SocketAddr::new(options.bind, options.port), "the redis protocol", "--port")?;
        let http_listener = options.http.map(|at| listen(at, "HTTP", "--http")).transpose()?;
        drop(guard);
        Ok(Sockets { runtime, workers, password, tls, listener, http_listener })
    }
}

impl Server {
    /// Starts a server for `engine` on its own threads.
    ///
    /// # Errors
    /// Settings out of range, an unreadable password file, files of TLS that cannot be used, a port that is taken.
    pub fn start(engine: Engine, options: ServeOptions) -> Result<Server> {
        Server::start_on(Sockets::bind(&options)?, Engines::One(engine), Backing::default(), options)
    }

    /// Starts a server of a process that is part of a cluster, on its own threads. `driver`: the clock; `fs`: the file system
    /// with the data, for metrics and for the number of reads of the drive.
    ///
    /// # Errors
    /// As for [`start`](Server::start).
    pub fn start_in_cluster(
        cluster: Arc<dyn Cluster>,
        driver: Arc<dyn Driver>,
        fs: Option<Fs>,
        options: ServeOptions,
    ) -> Result<Server> {
        let engines = Engines::of_cluster(cluster, driver);
        Server::start_on(Sockets::bind(&options)?, engines, Backing { fs, array: None }, options)
    }

    /// Starts a server on sockets that were bound with the same options. `backing`: the file system and the array with
    /// the data.
    pub(crate) fn start_on(
        sockets: Sockets,
        engines: Engines,
        backing: Backing,
        options: ServeOptions,
    ) -> Result<Server> {
        let Sockets { runtime, workers, password, tls, listener, http_listener } = sockets;
        let address = listener.local_addr()?;
        let http_address = http_listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let shared = Arc::new(Shared {
            started_ms: engines.driver().unix_millis(),
            engines,
            backing,
            password,
            tls,
            clients: Clients::default(),
            counters: Counters::new(commands::names()),
            output: OutputBudget::new(options.max_output_total),
            reset: Mutex::default(),
            port: address.port(),
            readers: Semaphore::new(workers - 1),
            recent_reads: RecentReads::default(),
            ending: watch::Sender::new(false),
            stopping: watch::Sender::new(false),
            options,
        });
        if let Some(listener) = http_listener {
            runtime.spawn(http::serve(listener, Arc::clone(&shared)));
        }
        let ended = Arc::clone(&shared);
        runtime.spawn(async move { ended.shut_down_when_asked().await });
        let listening = runtime.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Server { runtime, shared, address, http_address, listening })
    }

    /// The address of the Redis port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the HTTP port, if the server has one.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Begins the shutdown, which [`wait`](Server::wait) completes.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// A handle that begins the shutdown from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Makes SIGTERM, SIGINT and SIGHUP begin the shutdown. SIGHUP does not if the process was started with SIGHUP
    /// ignored, as by nohup. A signal that comes a second or more after the first one ends the process at once.
    pub fn stop_on_signals(&self) -> Result<()> {
        let _guard = self.runtime.enter();
        let mut signals = EndSignals::listen()?;
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move {
            loop {
                match signals.next().await {
                    EndRequest::First(name) => {
                        tracing::info!("{name}: shutting down; again after a second to end at once");
                        shared.stop();
                    }
                    EndRequest::Repeated(name) => {
                        tracing::warn!("{name} again: ending at once");
                        std::process::exit(REPEATED_SIGNAL_CODE);
                    }
                }
            }
        });
        Ok(())
    }

    /// Waits until the shutdown begins, lets the connections finish, and closes the engine, or those of the
    /// cluster's groups.
    pub fn wait(self) -> Result<()> {
        let Server { runtime, shared, listening, .. } = self;
        let listened = runtime.block_on(listening);
        let closed = shared.engines.close();
        runtime.shutdown_timeout(Duration::from_secs(1));
        listened.map_err(|error| Error::System(std::io::Error::other(error)))?;
        Ok(closed?)
    }
}

/// Begins the shutdown of a server.
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Begins the shutdown, which [`Server::wait`] completes.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the shutdown of a server")
    }
}

/// The exit code when a repeated signal ends the process.
const REPEATED_SIGNAL_CODE: i32 = 130;

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

fn listen(address: SocketAddr, protocol: &'static str, option: &str) -> Result<TcpListener> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(LISTEN_BACKLOG)
    };
    open().map_err(|source| {
        let advice = match source.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!(
                    "; another program has port {}: stop it, or give another with {option}",
                    address.port()
                )
            }
            std::io::ErrorKind::PermissionDenied => format!("; give a port above 1023 with {option}"),
            _ => String::new(),
        };
        Error::Listen { address, protocol, source, advice }
    })
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let (mut stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let local = stream.local_addr().unwrap_or(address);
        let driver = &**shared.engines.driver();
        match shared.clients.admit(
            address,
            local,
            shared.options.max_clients,
            shared.password.is_none(),
            driver,
        ) {
            Some(client) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY");
                }
                connections.spawn(connection::serve(stream, client, Arc::clone(&shared)));
            }
            // A client would take a text without TLS for garbage.
            None if shared.tls.is_some() => {}
            None => {
                connections.spawn(async move {
                    let refusal = stream.write_all(b"-ERR max number of clients reached\r\n");
                    let _gone = tokio::time::timeout(Duration::from_secs(1), refusal).await;
                });
            }
        }
    }
    drop(listener);
    let ended =
        tokio::time::timeout(SHUTDOWN_GRACE, async { while connections.join_next().await.is_some() {} })
            .await;
    if ended.is_err() {
        tracing::warn!(left = connections.len(), "connections did not end in time and are cut");
    }
}
