//! The `furrow` program, run as a user runs it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use units::{Driver, Instant, RealDriver};

/// The path of the `furrow` program, and the clock of the demonstration.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    driver: std::sync::Arc<dyn Driver>,
}

impl Program {
    /// The `furrow` program at a path.
    pub fn new(path: PathBuf) -> Program {
        Program { path, driver: RealDriver::new() }
    }

    /// A `furrow` command that is not started yet; its log is off and its stdin empty.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args).env_remove("FURROW_DEVICE").env("FURROW_LOG", "off").stdin(Stdio::null());
        command
    }

    /// Runs a `furrow` command to its end, which must be a success.
    ///
    /// # Errors
    ///
    /// The command's errors, with its arguments.
    pub fn run(&self, args: &[&str]) -> Result<()> {
        let output = self.output(args)?;
        if output.status.success() {
            return Ok(());
        }
        bail!("furrow {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim())
    }

    /// Runs a `furrow` command; returns the JSON that it prints, whatever its exit code: `array status` ends with 1 where the
    /// array is degraded.
    ///
    /// # Errors
    ///
    /// The command's errors; an error where the command prints no JSON.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let output = self.output(args)?;
        match serde_json::from_slice::<Value>(&output.stdout) {
            Ok(value) if value.get("error").is_none() => Ok(value),
            _ => bail!("furrow {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()),
        }
    }

    fn output(&self, args: &[&str]) -> Result<Output> {
        self.command(args).output().with_context(|| format!("running {}", self.path.display()))
    }

    /// The time on the demonstration's clock.
    pub fn now(&self) -> Instant {
        self.driver.now()
    }

    /// Sleeps on the demonstration's clock.
    pub fn sleep(&self, time: Duration) {
        units::block_on(&*self.driver, units::sleep_until(&*self.driver, self.now().after(time)));
    }
}
