//! One turn of a pipeline in one engine: on this thread, on a reader thread, or on one of the engine's writers.

use kv::Engine;
use tokio::sync::oneshot;

use crate::connection_end::ConnectionEnd;
use crate::needs::Needs;
use crate::pipeline::Pipeline;
use crate::shared::Shared;

/// Number of attempts of a read from memory to get a permit, before the read goes to another thread. Other connections'
/// turns run between two attempts.
const PERMIT_ATTEMPTS: usize = 8;

/// Runs a turn that does not write, by `run`, on a thread that may wait for the drive if the turn's `needs` want that.
pub(crate) async fn read<R: Send + 'static>(
    shared: &Shared,
    engine: &Engine,
    mut pipeline: Box<Pipeline>,
    run: fn(&Engine, &mut Pipeline) -> R,
) -> Result<(Box<Pipeline>, R), ConnectionEnd> {
    let mut permit = None;
    let runs_here = match pipeline.needs() {
        Needs::Nothing => true,
        Needs::Reads => {
            // A read may wait for the drive, so it takes a permit, which leaves one worker to the sockets. Reads from
            // memory hold their permits briefly, and more threads than processors would only delay each other.
            for _ in 0..PERMIT_ATTEMPTS {
                permit = shared.readers.try_acquire().ok();
                if permit.is_some() || !shared.reads_memory_only() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            permit.is_some()
        }
        Needs::Walks | Needs::Writes => false,
    };
    if runs_here {
        let outcome = run(engine, &mut pipeline);
        return Ok((pipeline, outcome));
    }
    let engine = engine.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let outcome = run(&engine, &mut pipeline);
        (pipeline, outcome)
    });
    reading.await.map_err(|error| ConnectionEnd::Logged(error.to_string()))
}

/// Runs a turn on one of the engine's writers. [`Pipeline::was_given_back`] says whether the engine gave the turn back without
/// an effect, since its replica does not lead.
///
/// # Errors
/// The engine is closed or busy, or dropped the pipeline: the outcome of the writes is not known.
pub(crate) async fn write(
    shared: &Shared,
    engine: &Engine,
    mut pipeline: Box<Pipeline>,
) -> Result<Box<Pipeline>, ConnectionEnd> {
    let (to, back) = oneshot::channel();
    pipeline.return_to(to);
    if let Err((error, work)) = engine.submit(pipeline) {
        // A process of a cluster goes on without a group whose engine it has closed.
        if shared.engines.cluster().is_none() || !matches!(error, kv::Error::Closed) {
            return Err(ConnectionEnd::Logged(error.to_string()));
        }
        work.not_leader();
    }
    back.await.map_err(|_| ConnectionEnd::Logged("the engine dropped the pipeline".into()))
}
