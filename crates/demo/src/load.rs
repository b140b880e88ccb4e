//! Writes records over several connections, and reads them back.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail};

use crate::report::Report;
use crate::resp::{Client, Reply};

/// Number of connections of a load.
const CONNECTIONS: usize = 4;

/// Number of commands in a pipeline.
const COMMANDS_PER_PIPELINE: usize = 64;

/// A SET command of a load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The key to set.
    pub key: String,
    /// The value to set.
    pub value: String,
    /// Whether the server acknowledged the write.
    pub acknowledged: bool,
}

/// Sends all of `writes`, marks those that the server acknowledges, and counts them in `acknowledged`. A server that
/// dies ends the load without an error.
///
/// # Errors
/// A server that refuses a write, or cannot be reached at the start.
pub fn set(
    at: SocketAddr,
    writes: &mut [Write],
    report: &dyn Report,
    acknowledged: &AtomicU64,
) -> Result<()> {
    let share = writes.len().div_ceil(CONNECTIONS).max(1);
    each_share(writes, share, |writes| {
        let mut client = Client::connect(at).context("connecting to the server")?;
        for batch in writes.chunks_mut(COMMANDS_PER_PIPELINE) {
            for write in batch.iter() {
                client.queue(&[b"SET", write.key.as_bytes(), write.value.as_bytes()]);
            }
            if client.send().is_err() {
                return Ok(());
            }
            for write in batch {
                match client.reply() {
                    Ok(Reply::Status(status)) if status == "OK" => write.acknowledged = true,
                    Ok(reply) => bail!("the server answered SET {} with {reply:?}", write.key),
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error.into()),
                    Err(_) => return Ok(()),
                }
                acknowledged.fetch_add(1, Ordering::Relaxed);
                report.advance();
            }
        }
        Ok(())
    })
}

/// Reads every key and hands its value to `verdict`; returns the problems that `verdict` found.
///
/// # Errors
/// A server that cannot be reached, or gives no values.
pub fn check<T: Sync>(
    at: SocketAddr,
    expected: &[T],
    key: impl Fn(&T) -> &str + Sync,
    verdict: impl Fn(&T, Option<&[u8]>) -> Option<String> + Sync,
    report: &dyn Report,
) -> Result<Vec<String>> {
    let problems = std::sync::Mutex::new(Vec::new());
    let mut shares: Vec<&T> = expected.iter().collect();
    let share = shares.len().div_ceil(CONNECTIONS).max(1);
    each_share(&mut shares, share, |expected| {
        let mut client = Client::connect(at).context("connecting to the server")?;
        for batch in expected.chunks(COMMANDS_PER_PIPELINE) {
            for item in batch {
                client.queue(&[b"GET", key(item).as_bytes()]);
            }
            client.send()?;
            for item in batch {
                let Reply::Bulk(value) = client.reply()? else {
                    bail!("the server did not answer GET {} with a value", key(item));
                };
                if let Some(problem) = verdict(item, value.as_deref()) {
                    problems.lock().expect("no thread panics while it holds this").push(problem);
                }
                report.advance();
            }
        }
        Ok(())
    })?;
    Ok(problems.into_inner().expect("no thread panics while it holds this"))
}

/// Runs `work` on each share of `items`, in a thread for each share.
fn each_share<T: Send>(
    items: &mut [T],
    share: usize,
    work: impl Fn(&mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.chunks_mut(share).map(|share| scope.spawn(|| work(share))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a loader does not panic"))
    })
}
