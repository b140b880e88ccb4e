//! QEMU's monitor protocol (QMP): JSON, one line for each command and reply.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Time limit of QEMU's replies.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// A connection to QEMU's monitor.
pub struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects.
    pub fn connect(socket: &Path) -> Result<Monitor> {
        let stream = UnixStream::connect(socket).context("cannot reach QEMU's monitor")?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        let mut monitor = Monitor { lines: BufReader::new(stream) };
        monitor.line()?;
        monitor.execute("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// Runs a command of QEMU's monitor; returns its result.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        self.lines.get_mut().write_all(line.as_bytes())?;
        loop {
            let mut answer = self.line()?;
            if let Some(error) = answer.get("error") {
                bail!("QEMU refuses {command}: {error}");
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            // Any line that is neither a result nor an error is an asynchronous event.
        }
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        let count = self.lines.read_line(&mut line).context("QEMU's monitor does not answer")?;
        if count == 0 {
            bail!("QEMU's monitor is closed");
        }
        serde_json::from_str(&line).with_context(|| format!("QEMU's monitor said {line}"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_event_before_an_answer_is_passed_over_and_a_refusal_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("qmp");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                stream.write_all(b"{\"QMP\": {}}\n").unwrap();
                for answer in [
                    "{\"return\": {}}\n",
                    "{\"event\": \"RESET\"}\n{\"return\": 7}\n",
                    "{\"error\": {\"desc\": \"no such thing\"}}\n",
                ] {
                    lines.read_line(&mut line).unwrap();
                    stream.write_all(answer.as_bytes()).unwrap();
                }
                assert!(line.contains("system_reset"));
            });
            let mut monitor = Monitor::connect(&socket).unwrap();
            assert_eq!(monitor.execute("system_reset", json!({})).unwrap(), 7);
            let error = monitor.execute("device_del", json!({})).unwrap_err().to_string();
            assert!(error.contains("no such thing"), "{error}");
        });
    }
}
