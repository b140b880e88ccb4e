//! Replies that are put together from the engines of a cluster's groups: DBSIZE, KEYS, FLUSHALL, SCAN, and the keys of a slot.

use std::ops::ControlFlow;

use bytes::Bytes;
use kv::{Claims, Command, Engine, ErrorKind, Reply, Spec, Txn, Work, key_slot};
use tokio::sync::oneshot;

use crate::cluster::ScanOrder;
use crate::connection_end::ConnectionEnd;
use crate::engines::ClusterEngines;
use crate::owned_words::OwnedWords;
use crate::turn::Gathering;
use replica::GroupId;

/// Largest number of keys that a walk for the keys of one slot visits.
const VISITED_KEYS_MAX: usize = 1_000_000;

/// Largest number of keys in the reply of CLUSTER GETKEYSINSLOT.
const SLOT_KEYS_MAX: usize = 10_000;

/// Gathers a command's replies from the groups that this process leads. A group that gets another leader meanwhile counts as not
/// led.
///
/// # Errors
/// An engine failed: the outcome of its writes is not known.
pub(crate) async fn gather(
    engines: &ClusterEngines,
    gathering: Gathering,
) -> Result<Vec<Reply>, ConnectionEnd> {
    match gathering {
        Gathering::EveryGroup(command, words) => run_in_every_group(engines, command, words).await,
        Gathering::Scan(command, words) => scan(engines, command, words).await,
        Gathering::CountKeysInSlot(slot) => Ok(match keys_of_slot(engines, slot, usize::MAX).await? {
            Ok(keys) => vec![Reply::Integer(i64::try_from(keys.len()).unwrap_or(i64::MAX))],
            Err(error) => vec![Reply::Error(error)],
        }),
        Gathering::GetKeysInSlot(slot, count) => {
            Ok(match keys_of_slot(engines, slot, count.min(SLOT_KEYS_MAX)).await? {
                Ok(keys) => array_of(keys),
                Err(error) => vec![Reply::Error(error)],
            })
        }
    }
}

async fn run_in_every_group(
    engines: &ClusterEngines,
    command: &'static Command,
    words: OwnedWords,
) -> Result<Vec<Reply>, ConnectionEnd> {
    let mut replies = Vec::new();
    for (_, engine) in engines.led() {
        let reply = match command.spec.has(Spec::WRITE) {
            true => write(&engine, command, words.clone()).await?,
            false => read(&engine, command, words.clone()).await?,
        };
        replies.extend(reply);
    }
    Ok(merge(&command.spec, replies))
}

/// The reply of a command that has run in several groups, from the replies there.
fn merge(spec: &Spec, replies: Vec<Vec<Reply>>) -> Vec<Reply> {
    let first = |reply: &Vec<Reply>| reply.first().cloned();
    if let Some(error) = replies.iter().filter_map(first).find(|first| matches!(first, Reply::Error(_))) {
        return vec![error];
    }
    match spec.name {
        "DBSIZE" => {
            let count = replies.iter().filter_map(first).map(|first| match first {
                Reply::Integer(count) => count,
                _ => 0,
            });
            vec![Reply::Integer(count.sum())]
        }
        "KEYS" => {
            array_of(replies.into_iter().flat_map(|reply| reply.into_iter().skip(1)).filter_map(|reply| {
                match reply {
                    Reply::Bulk(key) => Some(key),
                    _ => None,
                }
            }))
        }
        // FLUSHALL and FLUSHDB.
        _ => replies
            .into_iter()
            .next()
            .unwrap_or_else(|| vec![Reply::Error("READONLY this node leads no group of the cluster".into())]),
    }
}

fn array_of(keys: impl IntoIterator<Item = Bytes>) -> Vec<Reply> {
    let keys: Vec<Reply> = keys.into_iter().map(Reply::Bulk).collect();
    std::iter::once(Reply::Array(keys.len())).chain(keys).collect()
}

async fn scan(
    engines: &ClusterEngines,
    command: &'static Command,
    words: OwnedWords,
) -> Result<Vec<Reply>, ConnectionEnd> {
    let error = |text: String| Ok(vec![Reply::Error(text)]);
    let args = words.args();
    let cursor = std::str::from_utf8(args.get(1)).ok().and_then(|cursor| cursor.parse::<u64>().ok());
    let Some(cursor) = cursor else { return error("ERR invalid cursor".into()) };
    let order = ScanOrder::new(&engines.cluster.topology(), |group| engines.cluster.leads(group));
    let (group, cursor) = match order.find(cursor) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(page(0, &[])),
        Err(text) => return error(text),
    };
    let cursor = cursor.to_string();
    let words = [args.get(0), cursor.as_bytes()].into_iter().chain(args.rest(2));
    let words = OwnedWords::new(words, 0);
    let reply = match engines.cluster.engine(group) {
        Some(engine) => read(&engine, command, words).await?,
        None => None,
    };
    Ok(match reply {
        Some(reply) => with_cursor(&order, group, reply),
        None => page(order.next_cursor(group, 0), &[]),
    })
}

/// The reply of SCAN with a cursor and a list of keys, its head included.
fn page(cursor: u64, keys: &[Reply]) -> Vec<Reply> {
    let head = [Reply::Array(2), Reply::Bulk(cursor.to_string().into())];
    let none = keys.is_empty().then_some(Reply::Array(0));
    head.into_iter().chain(none).chain(keys.iter().cloned()).collect()
}

/// The reply of SCAN in a group, with the cursor of the cluster.
fn with_cursor(order: &ScanOrder, group: GroupId, reply: Vec<Reply>) -> Vec<Reply> {
    let [Reply::Array(2), Reply::Bulk(next), keys @ ..] = reply.as_slice() else { return reply };
    let next = std::str::from_utf8(next).ok().and_then(|next| next.parse().ok()).unwrap_or(0);
    page(order.next_cursor(group, next), keys)
}

/// At most `count` live keys of a slot, if this process leads the slot's group; an error reply if the group has too many keys.
async fn keys_of_slot(
    engines: &ClusterEngines,
    slot: u16,
    count: usize,
) -> Result<Result<Vec<Bytes>, String>, ConnectionEnd> {
    let cluster = &engines.cluster;
    let group = cluster.topology().range_of(slot).map(|range| range.group);
    let engine = group.filter(|group| cluster.leads(*group)).and_then(|group| cluster.engine(group));
    let Some(engine) = engine else { return Ok(Ok(Vec::new())) };
    let walked = settled(&engine, move |txn| {
        let (mut keys, mut visited) = (Vec::new(), 0);
        let walked = txn.scan(b"", |key, record| {
            if keys.len() == count || visited == VISITED_KEYS_MAX {
                return ControlFlow::Break(());
            }
            visited += 1;
            if record.is_some() && key_slot(key) == slot {
                keys.push(Bytes::copy_from_slice(key));
            }
            ControlFlow::Continue(())
        });
        match walked {
            Err(error) => Err(format!("ERR {error}")),
            Ok(()) if visited == VISITED_KEYS_MAX && keys.len() < count => Err(format!(
                "ERR the group of slot {slot} has more than {VISITED_KEYS_MAX} keys, too many to walk"
            )),
            Ok(()) => Ok(keys),
        }
    });
    Ok(walked.await?.unwrap_or(Ok(Vec::new())))
}

/// The reply of a command that reads in a group; `None` if the group is not led any more.
async fn read(
    engine: &Engine,
    command: &'static Command,
    words: OwnedWords,
) -> Result<Option<Vec<Reply>>, ConnectionEnd> {
    let run = move |txn: &mut Txn<'_>| {
        let mut replies = Vec::new();
        kv::execute(command, words.args(), txn, &mut replies);
        replies
    };
    settled(engine, run).await
}

/// The outcome of a read, on a thread that may wait for the drive, once the outcome counts; `None` if the group is not led any
/// more.
async fn settled<R: Send + 'static>(
    engine: &Engine,
    run: impl Fn(&mut Txn<'_>) -> R + Clone + Send + 'static,
) -> Result<Option<R>, ConnectionEnd> {
    let failed = |error: kv::Error| ConnectionEnd::Logged(error.to_string());
    let is_led = |error: &kv::Error| error.kind() != ErrorKind::Elsewhere;
    loop {
        let (reader, run) = (engine.clone(), run.clone());
        let reading = tokio::task::spawn_blocking(move || reader.read_in_view(|txn| run(txn)));
        let reading = reading.await.map_err(|error| ConnectionEnd::Logged(error.to_string()))?;
        let (outcome, reading) = match reading {
            Ok(read) => read,
            Err(error) if is_led(&error) => return Err(failed(error)),
            Err(_) => return Ok(None),
        };
        match engine.settle(reading).await {
            Ok(true) => return Ok(Some(outcome)),
            Ok(false) => {}
            Err(error) if is_led(&error) => return Err(failed(error)),
            Err(_) => return Ok(None),
        }
    }
}

/// The reply of a command that writes in a group; `None` if the group is not led any more.
async fn write(
    engine: &Engine,
    command: &'static Command,
    words: OwnedWords,
) -> Result<Option<Vec<Reply>>, ConnectionEnd> {
    let (to, back) = oneshot::channel();
    let work = GroupCommand { command, words, replies: Vec::new(), to };
    if let Err((error, _)) = engine.submit(Box::new(work)) {
        return match error {
            kv::Error::Closed => Ok(None),
            error => Err(ConnectionEnd::Logged(error.to_string())),
        };
    }
    back.await.map_err(|_| ConnectionEnd::Logged("the engine dropped the command".into()))
}

/// A command in one group of several.
struct GroupCommand {
    command: &'static Command,
    words: OwnedWords,
    replies: Vec<Reply>,
    to: oneshot::Sender<Option<Vec<Reply>>>,
}

impl Work for GroupCommand {
    fn claims(&self, claims: &mut Claims) {
        kv::claim(&self.command.spec, self.words.args(), claims);
    }

    fn run(&mut self, txn: &mut Txn<'_>) {
        self.replies.clear();
        kv::execute(self.command, self.words.args(), txn, &mut self.replies);
    }

    fn writes_are_durable(self: Box<Self>) {
        // If the connection has ended, nobody receives the reply.
        let _ended = self.to.send(Some(self.replies));
    }

    fn not_leader(self: Box<Self>) {
        let _ended = self.to.send(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> &'static Spec {
        &kv::find(name.as_bytes()).unwrap().spec
    }

    fn keys(keys: &[&str]) -> Vec<Reply> {
        array_of(keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())))
    }

    #[test]
    fn the_replies_of_groups_are_put_together() {
        let integers = [1, 2].map(|n| vec![Reply::Integer(n)]).to_vec();
        assert_eq!(merge(spec("DBSIZE"), integers), [Reply::Integer(3)]);
        assert_eq!(merge(spec("DBSIZE"), Vec::new()), [Reply::Integer(0)]);
        let lists = vec![keys(&["a", "b"]), keys(&[]), keys(&["c"])];
        assert_eq!(merge(spec("KEYS"), lists), keys(&["a", "b", "c"]));
        assert_eq!(merge(spec("KEYS"), Vec::new()), keys(&[]));
        let ok = vec![Reply::Simple("OK".into())];
        assert_eq!(merge(spec("FLUSHALL"), vec![ok.clone(), ok.clone()]), ok);
        assert!(matches!(&merge(spec("FLUSHALL"), Vec::new())[..], [Reply::Error(_)]));
        let error = vec![Reply::Error("ERR no".into())];
        assert_eq!(merge(spec("FLUSHALL"), vec![ok, error.clone()]), error);
    }
}
