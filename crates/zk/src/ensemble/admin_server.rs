//! One server's AdminServer.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use serde_json::Value;
use units::Bytes;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::address::ServerAddress;
use super::answer::{Answer, shortened};
use super::connector::{ConnectError, MarkingConnector, MarkingResolver};
use super::credentials::Credentials;
use super::error::AskError;
use crate::sample::{Role, Sample, ServerId, Zxid};

/// The longest answer that is read, in bytes. `system_properties` with a long class path is the longest one.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// The longest time that any command but `snapshot` may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time that resolving the host's name, or connecting, may take. Shorter than [`REQUEST_TIMEOUT`], so that the error says that nothing was sent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes that a snapshot takes for each node beside its path and data: versions, times, lengths.
const BYTES_PER_NODE: u64 = 90;

/// The AdminServer of one server. Clones share connections.
#[derive(Clone, Debug)]
pub struct AdminServer {
    address: ServerAddress,
    agent: Agent,
    credentials: Option<Credentials>,
}

/// A snapshot that a server took on command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotTaken {
    /// Size of the snapshot's file. The file may lie in the page cache only.
    pub size: Bytes,
    /// The last transaction in the snapshot.
    pub zxid: Zxid,
}

impl AdminServer {
    /// The AdminServer at `address`. Nothing is sent yet.
    pub fn new(address: ServerAddress, credentials: Option<Credentials>) -> AdminServer {
        let config = Agent::config_builder()
            .timeout_global(Some(REQUEST_TIMEOUT))
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            // Credentials go to the server itself, whatever proxy the environment names.
            .proxy(None)
            .build();
        let agent = Agent::with_parts(config, MarkingConnector::default(), MarkingResolver::default());
        AdminServer { address, agent, credentials }
    }

    /// The address.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// The server's number in its ensemble, by `configuration`.
    pub fn id(&self) -> Result<ServerId, AskError> {
        Ok(ServerId(self.ask("configuration")?.number(&["server_id"])?))
    }

    /// The server's version, such as `3.9.5-...`, and its state, such as `follower`, by `monitor`.
    pub fn version_and_state(&self) -> Result<(String, String), AskError> {
        let answer = self.ask("monitor")?;
        Ok((shortened(answer.text("version")?), shortened(answer.text("server_state")?)))
    }

    /// The voters of the ensemble, by `voting_view`.
    pub fn voters(&self) -> Result<BTreeSet<ServerId>, AskError> {
        let answer = self.ask("voting_view")?;
        let lacks = || answer.lacks("current_config");
        let view = answer.fields().get("current_config").and_then(Value::as_object).ok_or_else(lacks)?;
        view.keys().map(|id| id.parse().map(ServerId).map_err(|_| lacks())).collect()
    }

    /// The server's Java properties, among them the lines of its zoo.cfg that ZooKeeper's own parser does not know (`snapCount`), with `zookeeper.` before
    /// their names.
    pub fn properties(&self) -> Result<BTreeMap<String, String>, AskError> {
        let answer = self.ask("system_properties")?;
        let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        Ok(answer.fields().iter().filter_map(text).collect())
    }

    /// One sample of the server's state.
    ///
    /// # Errors
    /// [`AskError::Starting`] if the server serves no clients.
    pub fn sample(&self) -> Result<Sample, AskError> {
        let leader = self.ask("leader")?;
        let role = if leader.flag("is_leader")? { Role::Leader } else { Role::Follower };
        let state = self.ask("zabstate")?;
        // Without a server that serves, `zabstate` has no other fields.
        if state.text("zabstate")? != "broadcast" {
            return Err(AskError::Starting);
        }
        let zxid = state.zxid("last_zxid")?.unwrap_or_default();
        let snapshot = self.ask("last_snapshot")?.zxid("zxid")?;
        let monitor = self.ask("monitor")?;
        // The second name of each is the one under the metrics provider for Prometheus.
        let count = |names: &[&'static str]| monitor.number(names);
        let nodes = count(&["znode_count"])?;
        Ok(Sample {
            role,
            leader: ServerId(leader.number(&["leader_id"])?),
            zxid: Zxid(zxid),
            snapshot: snapshot.map(Zxid),
            snapshots: count(&["cnt_snapshottime", "snapshottime_count"])?,
            syncs: count(&["cnt_fsynctime", "fsynctime_count"])?,
            sync_time: Duration::from_millis(count(&["sum_fsynctime", "fsynctime_sum"])?),
            data: Bytes(
                count(&["approximate_data_size"])?.saturating_add(nodes.saturating_mul(BYTES_PER_NODE)),
            ),
            proposal: count(&["last_proposal_size"]).ok().filter(|size| *size > 0).map(Bytes),
        })
    }

    /// Checks the credentials without a snapshot: a GET of `restore` is authorised as a snapshot is, and does nothing, because only a POST restores. Its answer
    /// to authorised users has no meaning (500 in ZooKeeper 3.9).
    pub fn check_credentials(&self) -> Result<(), AskError> {
        let response = self.send("restore", "restore", REQUEST_TIMEOUT)?;
        match response.status().as_u16() {
            401 => Err(AskError::NotAuthenticated),
            403 => Err(AskError::NotAuthorized),
            200 => self.decode("restore", response).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Has the server take a snapshot, and waits for its answer for `longest`.
    ///
    /// # Errors
    /// After [`AskError::Unanswered`], [`AskError::NoAdminServer`] and [`AskError::Malformed`] the server may be taking a snapshot. After
    /// [`AskError::Failed`] the server has tried and takes none now. After all others the command has begun none.
    pub fn snapshot(&self, longest: Duration) -> Result<SnapshotTaken, AskError> {
        const COMMAND: &str = "snapshot";
        let response = self.send(COMMAND, "snapshot?streaming=false", longest)?;
        if response.status().as_u16() != 200 {
            return Err(self.refusal(COMMAND, response));
        }
        let header =
            |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (size, zxid) = (header("snapshot_size"), header("last_zxid"));
        self.decode(COMMAND, response)?;
        // The answer is whole: the snapshot is taken, whatever the headers say.
        let lacks = |field| AskError::Malformed { command: COMMAND, field };
        let size = size.and_then(|size| size.parse().ok()).ok_or_else(|| lacks("snapshot_size"))?;
        let zxid = zxid
            .and_then(|zxid| u64::from_str_radix(zxid.strip_prefix("0x").unwrap_or(&zxid), 16).ok())
            .ok_or_else(|| lacks("last_zxid"))?;
        Ok(SnapshotTaken { size: Bytes(size), zxid: Zxid(zxid) })
    }

    /// The meaning of a status other than 200. AdminServer's own answers name the command. A gateway's do not, and its 500, 502, 503 or 504 leaves open what
    /// the server does.
    fn refusal(&self, command: &'static str, mut response: Response<Body>) -> AskError {
        let status = response.status().as_u16();
        let mut is_own = || {
            let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string();
            let answer: Option<Value> = body.ok().and_then(|body| serde_json::from_str(&body).ok());
            answer.and_then(|answer| Some(answer.get("command")? == command)).unwrap_or(false)
        };
        let refused = |why: String| AskError::Refused { command, why };
        match status {
            401 => AskError::NotAuthenticated,
            403 => AskError::NotAuthorized,
            400 | 402 | 404 => refused(format!("HTTP status {status}")),
            429 => AskError::RateLimited,
            500 if is_own() => AskError::Failed { command, status },
            503 if is_own() => refused("admin.snapshot.enabled is false".to_owned()),
            _ => AskError::Unanswered { command, why: format!("HTTP status {status}") },
        }
    }

    fn ask(&self, command: &'static str) -> Result<Answer, AskError> {
        let response = self.send(command, command, REQUEST_TIMEOUT)?;
        self.decode(command, response)
    }

    fn send(
        &self,
        command: &'static str,
        query: &str,
        longest: Duration,
    ) -> Result<Response<Body>, AskError> {
        let request = self.agent.get(format!("http://{}/commands/{query}", self.address));
        let request = match (&self.credentials, command) {
            // Other commands need no credentials.
            (Some(credentials), "snapshot" | "restore") => {
                request.header("authorization", credentials.header())
            }
            _ => request,
        };
        let sent = request.config().timeout_global(Some(longest)).build().call();
        sent.map_err(|error| ask_error(command, error))
    }

    fn decode(&self, command: &'static str, mut response: Response<Body>) -> Result<Answer, AskError> {
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string();
        let body =
            body.map_err(|error| AskError::Unanswered { command, why: shortened(&error.to_string()) })?;
        match status {
            200 => Answer::decode(command, &body),
            // `monitor` of a server that serves nobody.
            500 if command == "monitor" => Err(AskError::Starting),
            404 => Err(AskError::NoAdminServer { command }),
            _ => Err(AskError::Failed { command, status }),
        }
    }
}

/// The error of a request without an answer.
fn ask_error(command: &'static str, error: ureq::Error) -> AskError {
    let marked = match &error {
        ureq::Error::Other(error) => error.downcast_ref::<ConnectError>(),
        _ => None,
    };
    match marked {
        Some(ConnectError(ureq::Error::Io(error))) if error.kind() == io::ErrorKind::ConnectionRefused => {
            AskError::NotListening(error.to_string())
        }
        Some(ConnectError(error)) => AskError::NotConnected(shortened(&error.to_string())),
        None => AskError::Unanswered { command, why: shortened(&error.to_string()) },
    }
}

#[cfg(test)]
mod tests;
