//! A client's connection, from its first byte to its end.

use std::future::Future;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use kv::{Answer, Engine, Work};
use tokio::net::TcpStream;
use tokio::sync::watch;
use units::Instant;

use crate::clients::Client;
use crate::cluster_turn::ClusterTurn;
use crate::connection_end::ConnectionEnd;
use crate::engine_turn;
use crate::engines::Engines;
use crate::handshake::{HANDSHAKE_WITHIN, tls_handshake};
use crate::needs::Needs;
use crate::pipeline::{Pipeline, TurnEnd};
use crate::resp::{Parser, ParserLimits, ProtocolError, Requests};
use crate::session::{ConnectionEnding, Session};
use crate::shared::Shared;
use crate::stream::Stream;

/// Free bytes in the buffer before a read of the socket, and so about the bytes of a pipeline of small commands.
const SOCKET_READ_SIZE: usize = 64 << 10;

/// Largest number of words in a command.
const ARGS_LIMIT: usize = 1 << 20;

/// Largest size of a request, and of a transaction's words, as a multiple of the longest value.
const REQUEST_LIMIT_VALUES: usize = 4;

/// Lower bound in bytes of the largest size of a request.
const REQUEST_LIMIT_MIN: usize = 16 << 20;

/// Time at which the bytes of a socket read arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// The bytes arrived before the read began.
    Before,
    /// The bytes arrived while the read waited.
    During,
}

/// Serves a client until the client or the server ends the connection.
pub(crate) async fn serve(socket: TcpStream, client: Arc<Client>, shared: Arc<Shared>) {
    struct Registration<'a>(&'a Shared, u64);
    impl Drop for Registration<'_> {
        fn drop(&mut self) {
            self.0.clients.remove(self.1);
        }
    }
    let _registration = Registration(&shared, client.id);
    match handshake_and_run(socket, &client, &shared).await {
        Ok(()) | Err(ConnectionEnd::Plain) => {}
        Err(ConnectionEnd::Logged(why)) => {
            tracing::warn!(client = %client.address, "connection closed: {why}")
        }
        Err(ConnectionEnd::Socket(error)) => {
            tracing::debug!(client = %client.address, %error, "connection lost")
        }
    }
}

async fn handshake_and_run(
    socket: TcpStream,
    client: &Client,
    shared: &Arc<Shared>,
) -> Result<(), ConnectionEnd> {
    let mut stopping = shared.stopping.subscribe();
    let stream = match &shared.tls {
        None => Stream::Plain(socket),
        Some(acceptor) => tls_handshake(acceptor, socket, HANDSHAKE_WITHIN, client, &mut stopping).await?,
    };
    let changes = shared.engines.cluster().map(|cluster| cluster.changes());
    let mut connection = Connection { stream, stopping, changes, client, shared };
    let ended = connection.run().await;
    connection.stream.end();
    ended
}

struct Connection<'a> {
    stream: Stream,
    stopping: watch::Receiver<bool>,
    /// The changes of the cluster that the server is part of.
    changes: Option<watch::Receiver<u64>>,
    client: &'a Client,
    shared: &'a Arc<Shared>,
}

impl Connection<'_> {
    async fn run(&mut self) -> Result<(), ConnectionEnd> {
        let authenticated = self.shared.password.is_none();
        let bulk = usize::try_from(self.shared.options.max_value).unwrap_or(usize::MAX);
        let request = bulk.saturating_mul(REQUEST_LIMIT_VALUES).max(REQUEST_LIMIT_MIN);
        let limits = ParserLimits { bulk, args: ARGS_LIMIT, request };
        let session = Session::new(self.client.id, authenticated);
        let mut parser = Parser::new(limits, !authenticated);
        let mut pipeline = Pipeline::new(Arc::clone(self.shared), session, request);
        loop {
            if self.read(&mut parser).await? == Arrival::Before {
                // This client sends faster than the server answers: let other connections' pipelines run first.
                tokio::task::yield_now().await;
            }
            let parsed = parser.parse();
            let requests = parser.take(pipeline.take_used_requests());
            if !requests.is_empty() {
                pipeline = self.answer(pipeline, requests).await?;
                parser.set_unauthenticated(!pipeline.session.authenticated);
                match pipeline.session.ending {
                    ConnectionEnding::None => {}
                    ConnectionEnding::Close => return Ok(()),
                    ConnectionEnding::Shutdown => {
                        tracing::info!(client = %self.client.address, "shutting down: a client sent SHUTDOWN");
                        self.shared.stop();
                        return Ok(());
                    }
                }
            }
            if let Err(error) = parsed {
                if error == ProtocolError::Http {
                    return Err(ConnectionEnd::Logged(error.to_string()));
                }
                pipeline.out.error(&format!("ERR Protocol error: {error}"));
                self.write(pipeline.out.bytes()).await?;
                return Err(ConnectionEnd::Logged(format!("protocol error: {error}")));
            }
        }
    }

    /// Reads the bytes that have arrived, or waits for some. Reads at most one buffer's worth, so that a batch stays
    /// small.
    async fn read(&mut self, parser: &mut Parser) -> Result<Arrival, ConnectionEnd> {
        let mut arrival = Arrival::Before;
        loop {
            if self.client.is_killed() {
                return Err(ConnectionEnd::Plain);
            }
            parser.buffer().reserve(SOCKET_READ_SIZE);
            match self.stream.try_read_buf(parser.buffer()) {
                Ok(0) => return Err(ConnectionEnd::Plain),
                Ok(_) => return Ok(arrival),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            arrival = Arrival::During;
            let idle = self.shared.options.idle_seconds;
            tokio::select! {
                ready = self.stream.readable() => ready?,
                () = self.client.wait_until_killed() => return Err(ConnectionEnd::Plain),
                _ = self.stopping.wait_for(|stopping| *stopping) => return Err(ConnectionEnd::Plain),
                () = tokio::time::sleep(Duration::from_secs(idle)), if idle > 0 => return Err(ConnectionEnd::Plain),
            }
        }
    }

    /// Runs a pipeline in turns, and writes its replies as fast as the client receives them.
    async fn answer(
        &mut self,
        mut pipeline: Box<Pipeline>,
        requests: Requests,
    ) -> Result<Box<Pipeline>, ConnectionEnd> {
        let began = self.shared.engines.driver().now();
        self.client.note_activity(self.shared.now_ms());
        let last = pipeline.load(requests);
        loop {
            pipeline = self.run_turn(pipeline, began).await?;
            let stop = pipeline.end_turn();
            if stop == TurnEnd::Yield {
                tokio::task::yield_now().await;
                continue;
            }
            if stop == TurnEnd::Done {
                self.client.note_session(&pipeline.session, last);
            }
            self.write(pipeline.out.bytes()).await?;
            pipeline.note_replies_written();
            match stop {
                TurnEnd::Done => break,
                TurnEnd::Reserve => {
                    let reserving = self.shared.output.reserve(self.shared.max_output());
                    pipeline.reserve(self.unless_killed(reserving).await?);
                }
                // The client may receive replies as fast as they are made: let other connections' turns run first.
                TurnEnd::Flush | TurnEnd::Yield => tokio::task::yield_now().await,
            }
        }
        self.shared.counters.observe(pipeline.all_needs(), self.shared.engines.driver().now().since(began));
        Ok(pipeline)
    }

    /// Runs the pipeline's next turn. `arrived`: when the pipeline came.
    async fn run_turn(
        &mut self,
        pipeline: Box<Pipeline>,
        arrived: Instant,
    ) -> Result<Box<Pipeline>, ConnectionEnd> {
        let shared = &**self.shared;
        match (&shared.engines, &mut self.changes) {
            (Engines::One(engine), _) if pipeline.needs() == Needs::Writes => {
                engine_turn::write(shared, engine, pipeline).await
            }
            (Engines::One(engine), _) => {
                let run = |engine: &Engine, pipeline: &mut Pipeline| engine.read(|txn| pipeline.run(txn));
                Ok(engine_turn::read(shared, engine, pipeline, run).await?.0)
            }
            (Engines::Cluster(engines), Some(changes)) => {
                let mut turn = ClusterTurn {
                    shared,
                    engines,
                    client: self.client,
                    stopping: &mut self.stopping,
                    changes,
                };
                turn.run(pipeline, arrived).await
            }
            (Engines::Cluster(_), None) => unreachable!("a connection of a cluster follows its changes"),
        }
    }

    async fn unless_killed<T>(&self, waiting: impl Future<Output = T>) -> Result<T, ConnectionEnd> {
        tokio::select! {
            done = waiting => Ok(done),
            () = self.client.wait_until_killed() => Err(ConnectionEnd::Plain),
        }
    }

    /// Sends replies. Most replies fit into the socket at once; a client that receives nothing for the stall time is
    /// disconnected.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), ConnectionEnd> {
        let mut rest = bytes;
        if !rest.is_empty() {
            self.stream.try_send(&mut rest)?;
        }
        if rest.is_empty() && !self.stream.has_unsent() {
            return Ok(());
        }
        let client = self.client;
        let stall = Duration::from_secs(self.shared.options.stall_seconds);
        while !rest.is_empty() || self.stream.has_unsent() {
            client.note_unread_bytes(rest.len());
            let sending = tokio::time::timeout(stall, self.stream.send(&mut rest));
            let outcome = tokio::select! {
                outcome = sending => outcome,
                () = client.wait_until_killed() => return Err(ConnectionEnd::Plain),
            };
            match outcome {
                Ok(sent) => sent?,
                Err(_) => {
                    return Err(ConnectionEnd::Logged(format!(
                        "the client took no reply for {stall:?} (--stall-seconds)"
                    )));
                }
            }
            // A client that receives as fast as replies are encrypted does not keep this thread.
            tokio::task::consume_budget().await;
        }
        client.note_unread_bytes(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
