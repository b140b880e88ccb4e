//! `furrow serve`, as a process of its own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::program::Program;
use crate::resp::{Client, Reply};

/// The longest time that the server's start may take.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest time that the server's shutdown may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two polls of the server.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running `furrow serve`. Dropping it kills the process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// The server's address of the redis protocol.
    pub address: SocketAddr,
    /// The URL of the server's HTTP pages, which take orders to an array.
    pub pages: String,
}

impl Server {
    /// Starts the server and waits until it answers PING.
    ///
    /// # Errors
    /// A server that ends, or does not answer in time.
    pub fn start(program: &Program, device: &str, wal: &str) -> Result<Server> {
        let [address, pages] = free_addresses()?;
        let child = program
            .command(&["serve", "--device", device, "--http", &pages.to_string(), "--wal", wal])
            .args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()])
            .stdout(Stdio::null())
            .spawn()
            .context("starting the server")?;
        let mut server = Server { child, address, pages: format!("http://{pages}") };
        let give_up = program.now().after(START_TIMEOUT);
        loop {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended before it answered ({status})");
            }
            let pong = Client::connect(address).and_then(|mut client| client.call(&[b"PING"]));
            if matches!(pong, Ok(Reply::Status(_))) {
                return Ok(server);
            }
            if program.now() > give_up {
                bail!("the server did not answer within {START_TIMEOUT:?}");
            }
            program.sleep(POLL_INTERVAL);
        }
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL to the server and waits for its process to end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing the server")?;
        self.child.wait().context("waiting for the killed server")?;
        Ok(())
    }

    /// Sends SHUTDOWN to the server and waits for its process to end.
    pub fn shut_down(mut self, program: &Program) -> Result<()> {
        // The server may end before it answers.
        let _ = Client::connect(self.address).and_then(|mut client| client.call(&[b"SHUTDOWN"]));
        let give_up = program.now().after(SHUTDOWN_TIMEOUT);
        loop {
            if let Some(status) = self.child.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                bail!("the server ended with {status}");
            }
            if program.now() > give_up {
                bail!("the server did not stop within {SHUTDOWN_TIMEOUT:?} of SHUTDOWN");
            }
            program.sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server's process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two loopback addresses with free ports.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port");
    // Both sockets listen until both addresses are known, so that the ports differ.
    let both = [bind()?, bind()?];
    Ok([both[0].local_addr()?, both[1].local_addr()?])
}
