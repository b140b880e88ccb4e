//! Runs `furrow serve` as a process of the guest.

use std::process::Child;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{clock, shell};

/// Port of the server.
pub const PORT: &str = "7777";

/// Time limit of the server's start, shutdown and each request.
const SERVER_LIMIT: Duration = Duration::from_secs(300);

/// A running server, killed when the test ends.
pub struct Server(Child);

impl Server {
    /// Starts the server on a device; `http` is the address of its web pages, or `none`.
    pub fn start(device: &str, http: &str) -> Result<Server> {
        let server = shell::start(&[
            "furrow",
            "serve",
            "-d",
            device,
            "--port",
            PORT,
            "--http",
            http,
            "--db-path",
            "/kv",
            "--write-buffer",
            "4MiB",
        ])?;
        let mut server = Server(server);
        let start = clock::now();
        loop {
            let pong = shell::run(&["redis-cli", "-p", PORT, "ping"], SERVER_LIMIT)?;
            if pong.output.trim() == "PONG" {
                shell::ignore(&mut server.0)?;
                return Ok(server);
            }
            if let Some(status) = server.0.try_wait()? {
                let mut said = String::new();
                if let Some(mut error) = server.0.stderr.take() {
                    std::io::Read::read_to_string(&mut error, &mut said)?;
                }
                anyhow::bail!("the server ended with {status} before it was ready: {said}");
            }
            ensure!(start.elapsed() < SERVER_LIMIT, "the server does not answer");
            clock::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the server.
    pub fn kill(mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// Shuts the server down by the command SHUTDOWN.
    pub fn shut_down(mut self) -> Result<()> {
        shell::run(&["redis-cli", "-p", PORT, "shutdown"], SERVER_LIMIT)?;
        let status = self.0.wait()?;
        ensure!(status.success(), "the server ended with {status} after SHUTDOWN");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Runs one command by `redis-cli` and requires the reply `wanted`.
pub fn answer(wanted: &str, line: &[&str]) -> Result<()> {
    let whole: Vec<&str> = ["redis-cli", "-p", PORT].into_iter().chain(line.iter().copied()).collect();
    let found = shell::run_successfully(&whole, SERVER_LIMIT)?;
    ensure!(found.trim() == wanted, "redis-cli {}: '{}', not '{wanted}'", line.join(" "), found.trim());
    Ok(())
}
