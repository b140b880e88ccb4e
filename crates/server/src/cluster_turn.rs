//! One turn of a pipeline in a cluster: in the engine of the group that has its keys, once this process leads it.

use std::time::Duration;

use kv::{Engine, ErrorKind, Work};
use tokio::sync::watch;
use units::Instant;

use crate::clients::Client;
use crate::cluster::Router;
use crate::connection_end::ConnectionEnd;
use crate::engine_turn;
use crate::engines::ClusterEngines;
use crate::gather::gather;
use crate::needs::Needs;
use crate::pipeline::Pipeline;
use crate::shared::Shared;
use crate::turn::Place;
use replica::GroupId;

/// Pause before a turn that a leader's engine gave back is tried again there, if nothing else changed: the engine may have been
/// unable to confirm for a moment that its replica leads.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The parts that one turn of a connection in a cluster uses.
pub(crate) struct ClusterTurn<'a> {
    pub shared: &'a Shared,
    pub engines: &'a ClusterEngines,
    pub client: &'a Client,
    pub stopping: &'a mut watch::Receiver<bool>,
    /// The changes of the cluster.
    pub changes: &'a mut watch::Receiver<u64>,
}

/// Whether a turn has run.
enum Ran {
    Yes,
    /// The turn had no effect: the group's replica does not lead.
    No,
}

impl ClusterTurn<'_> {
    /// Plans and runs the pipeline's next turn, or ends it for the replies of earlier turns to be written. A turn without a leader waits, at most `hold_ms` from `arrived` on; a turn that an
    /// engine gave back is planned again.
    pub async fn run(
        &mut self,
        mut pipeline: Box<Pipeline>,
        arrived: Instant,
    ) -> Result<Box<Pipeline>, ConnectionEnd> {
        let (mut gave_back, mut hold_is_over) = (None, false);
        loop {
            // Changes from here on end the wait below.
            self.changes.borrow_and_update();
            let place = {
                let router = Router {
                    topology: &self.engines.cluster.topology(),
                    cluster: &*self.engines.cluster,
                    stale_limit_ms: self.shared.options.stale_limit_ms,
                    gave_back,
                    hold_is_over,
                };
                pipeline.plan_turn(&router)
            };
            let group = match place {
                Place::NoData => return self.read(&self.engines.no_data, pipeline).await,
                Place::Gathering(gathering) => {
                    pipeline.set_gathered(gather(self.engines, gathering).await?);
                    return self.read(&self.engines.no_data, pipeline).await;
                }
                Place::Backup(group) => match self.engines.cluster.engine(group) {
                    Some(engine) => return self.read(&engine, pipeline).await,
                    None => Some(group),
                },
                Place::Leader(group) => {
                    let ran;
                    (pipeline, ran) = self.run_at_leader(group, pipeline).await?;
                    match ran {
                        Ran::Yes => return Ok(pipeline),
                        Ran::No => Some(group),
                    }
                }
                Place::Unled => None,
            };
            if pipeline.flushes_before_waiting() {
                return Ok(pipeline);
            }
            gave_back = group.or(gave_back);
            hold_is_over = self.wait(arrived, gave_back).await?;
            if !hold_is_over {
                gave_back = None;
            }
        }
    }

    /// Waits for a change of the cluster, or for the next trial of a turn that was given back. True once the hold is over.
    async fn wait(&mut self, arrived: Instant, gave_back: Option<GroupId>) -> Result<bool, ConnectionEnd> {
        let now = self.shared.engines.driver().now();
        let left = Duration::from_millis(self.shared.options.hold_ms).saturating_sub(now.since(arrived));
        let pause = if gave_back.is_some() { left.min(RETRY_PAUSE) } else { left };
        tokio::select! {
            changed = self.changes.changed() => match changed {
                Ok(()) => Ok(left.is_zero()),
                Err(_) => Err(ConnectionEnd::Plain),
            },
            () = tokio::time::sleep(pause) => Ok(pause == left),
            () = self.client.wait_until_killed() => Err(ConnectionEnd::Plain),
            _ = self.stopping.wait_for(|stopping| *stopping) => Err(ConnectionEnd::Plain),
        }
    }

    async fn read(&self, engine: &Engine, pipeline: Box<Pipeline>) -> Result<Box<Pipeline>, ConnectionEnd> {
        let run = |engine: &Engine, pipeline: &mut Pipeline| engine.read(|txn| pipeline.run(txn));
        Ok(engine_turn::read(self.shared, engine, pipeline, run).await?.0)
    }

    async fn run_at_leader(
        &self,
        group: GroupId,
        mut pipeline: Box<Pipeline>,
    ) -> Result<(Box<Pipeline>, Ran), ConnectionEnd> {
        let Some(engine) = self.engines.cluster.engine(group) else { return Ok((pipeline, Ran::No)) };
        if pipeline.needs() == Needs::Writes {
            let pipeline = engine_turn::write(self.shared, &engine, pipeline).await?;
            let ran = if pipeline.was_given_back() { Ran::No } else { Ran::Yes };
            return Ok((pipeline, ran));
        }
        let run = |engine: &Engine, pipeline: &mut Pipeline| {
            engine.read_in_view(|txn| pipeline.run(txn)).map(|((), reading)| reading)
        };
        loop {
            let reading;
            (pipeline, reading) = engine_turn::read(self.shared, &engine, pipeline, run).await?;
            let settled = match reading {
                Ok(reading) => engine.settle(reading).await,
                Err(error) => Err(error),
            };
            match settled {
                Ok(true) => return Ok((pipeline, Ran::Yes)),
                // Values that were missing have come: the turn runs again.
                Ok(false) if !self.client.is_killed() => {}
                Ok(false) => return Err(ConnectionEnd::Plain),
                Err(error) if error.kind() == ErrorKind::Elsewhere => return Ok((pipeline, Ran::No)),
                Err(error) => return Err(ConnectionEnd::Logged(error.to_string())),
            }
        }
    }
}
