//! The server under demonstration: this very program, as a process of its own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ::server::WalMode;
use anyhow::{Context as _, Result, bail};

use crate::array::Remote;
use crate::context::Context;
use crate::demo::resp::{Client, Reply};

/// How long a start may take.
const START: Duration = Duration::from_secs(60);

/// How long a graceful stop may take.
const STOP: Duration = Duration::from_secs(60);

/// How often to look.
const POLL: Duration = Duration::from_millis(20);

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where its pages are, if it has some.
    pages: Option<SocketAddr>,
}

impl Server {
    /// Starts the server and waits until it answers.
    pub fn start(context: &Context, device: &str, wal: WalMode) -> Result<Server> {
        Server::start_on(context, device, wal, false)
    }

    /// The same with the pages that orders go to.
    pub fn start_with_pages(context: &Context, device: &str) -> Result<Server> {
        Server::start_on(context, device, WalMode::Auto, true)
    }

    /// Its pages.
    pub fn pages(&self) -> Result<Remote> {
        let at = self.pages.context("the server has no pages")?;
        Remote::new(&format!("http://{at}"), None)
    }

    fn start_on(context: &Context, device: &str, wal: WalMode, pages: bool) -> Result<Server> {
        let [address, free] = free_addresses()?;
        let pages = pages.then_some(free);
        let http = pages.map_or("none".to_owned(), |at| at.to_string());
        // Whoever gives orders there tells what it does.
        let log = if pages.is_some() { "off" } else { "warn" };
        let program = std::env::current_exe().context("finding this program")?;
        let child = Command::new(program)
            .args(["serve", "--device", device, "--http", &http, "--wal", wal.name()])
            .args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()])
            .env("FURROW_LOG", log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("starting the server")?;
        let mut server = Server { child, address, pages };
        let give_up = context.now().after(START);
        loop {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended before it answered ({status})");
            }
            let pong = Client::connect(address).and_then(|mut client| client.call(&[b"PING"]));
            if matches!(pong, Ok(Reply::Status(_))) {
                return Ok(server);
            }
            if context.now() > give_up {
                bail!("the server did not answer within {START:?}");
            }
            context.sleep(POLL);
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL: nothing that the server has not flushed survives.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing the server")?;
        self.child.wait().context("waiting for the killed server")?;
        Ok(())
    }

    /// SHUTDOWN, and waits for the end.
    pub fn shut_down(mut self, context: &Context) -> Result<()> {
        // The server may end before it answers.
        let _ = Client::connect(self.address).and_then(|mut client| client.call(&[b"SHUTDOWN"]));
        let give_up = context.now().after(STOP);
        loop {
            if let Some(status) = self.child.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                bail!("the server ended with {status}");
            }
            if context.now() > give_up {
                bail!("the server did not stop within {STOP:?} of SHUTDOWN");
            }
            context.sleep(POLL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two loopback addresses that nobody listens on now.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port");
    // Both at once: the second one must not be the first one again.
    let both = [bind()?, bind()?];
    Ok([both[0].local_addr()?, both[1].local_addr()?])
}
