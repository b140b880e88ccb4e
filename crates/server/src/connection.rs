//! One client's connection, from its first byte to its end.

use std::io::{Error as IoError, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kv::{Answer, Work};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use crate::clients::Client;
use crate::pipeline::{Needs, Pipeline};
use crate::resp::{Parser, ParserLimits, ProtocolError};
use crate::session::{Ending, Session};
use crate::shared::Shared;

/// Free bytes in the buffer before a read: what one pipeline of small commands can have.
const READ_SIZE: usize = 64 << 10;

/// Most words of a command.
const ARGS_LIMIT: usize = 1 << 20;

/// A request may hold so many times the longest value.
const REQUEST_VALUES: usize = 4;

/// Requests may be so long, whatever the longest value.
const REQUEST_LEAST: usize = 16 << 20;

/// Why a connection ended.
#[derive(Debug)]
enum End {
    /// The client went, or asked for it, or the server stops.
    Plain,
    /// Something that the log should tell.
    Told(String),
    /// The socket failed.
    Socket(IoError),
}

impl From<IoError> for End {
    fn from(error: IoError) -> End {
        End::Socket(error)
    }
}

/// Serves a client until either side ends it.
pub(crate) async fn serve(stream: TcpStream, client: Arc<Client>, shared: Arc<Shared>) {
    struct Leaving<'a>(&'a Shared, u64);
    impl Drop for Leaving<'_> {
        fn drop(&mut self) {
            self.0.clients.leave(self.1);
        }
    }
    let _leaving = Leaving(&shared, client.id);
    let stopping = shared.stopping.subscribe();
    let mut connection = Connection { stream, stopping, client: &client, shared: &shared };
    match connection.run().await {
        Ok(()) | Err(End::Plain) => {}
        Err(End::Told(why)) => tracing::warn!(client = %client.address, "connection closed: {why}"),
        Err(End::Socket(error)) => tracing::debug!(client = %client.address, %error, "connection lost"),
    }
}

struct Connection<'a> {
    stream: TcpStream,
    stopping: watch::Receiver<bool>,
    client: &'a Client,
    shared: &'a Arc<Shared>,
}

impl Connection<'_> {
    async fn run(&mut self) -> Result<(), End> {
        let trusted = self.shared.password.is_none();
        let bulk = usize::try_from(self.shared.options.max_value).unwrap_or(usize::MAX);
        let request = bulk.saturating_mul(REQUEST_VALUES).max(REQUEST_LEAST);
        let limits = ParserLimits { bulk, args: ARGS_LIMIT, request };
        let session =
            Session { id: self.client.id, name: "".into(), resp3: false, trusted, ending: Ending::None };
        let mut parser = Parser::new(limits, !trusted);
        let mut pipeline = Pipeline::new(Arc::clone(self.shared), session);
        loop {
            self.read(&mut parser).await?;
            let parsed = parser.parse();
            let requests = parser.take(pipeline.used());
            if !requests.is_empty() {
                let began = self.shared.engine.driver().now();
                self.client.active_ms.store(self.shared.now_ms(), Ordering::Relaxed);
                let (needs, last) = pipeline.load(requests);
                pipeline = self.execute(pipeline, needs).await?;
                if pipeline.out.is_full() {
                    let limit = self.shared.options.max_output;
                    return Err(End::Told(format!("the replies of a pipeline exceed {limit} bytes")));
                }
                self.note(&pipeline.session, last);
                parser.set_stranger(!pipeline.session.trusted);
                self.write(pipeline.out.bytes()).await?;
                self.shared.metrics.observe(needs, self.shared.engine.driver().now().since(began));
                match pipeline.session.ending {
                    Ending::None => {}
                    Ending::Close => return Ok(()),
                    Ending::Shutdown => {
                        tracing::info!(client = %self.client.address, "a client asks for the shutdown");
                        self.shared.stop();
                        return Ok(());
                    }
                }
            }
            if let Err(error) = parsed {
                if error == ProtocolError::Http {
                    return Err(End::Told(error.to_string()));
                }
                pipeline.out.clear();
                pipeline.out.error(&format!("ERR Protocol error: {error}"));
                self.write(pipeline.out.bytes()).await?;
                return Err(End::Told(format!("protocol error: {error}")));
            }
        }
    }

    /// Reads what is there, or waits for it. Never more than a buffer's worth, so that a batch stays small.
    async fn read(&mut self, parser: &mut Parser) -> Result<(), End> {
        loop {
            parser.buffer().reserve(READ_SIZE);
            match self.stream.try_read_buf(parser.buffer()) {
                Ok(0) => return Err(End::Plain),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            let idle = self.shared.options.idle_seconds;
            tokio::select! {
                ready = self.stream.readable() => ready?,
                () = self.client.kill.notified() => return Err(End::Plain),
                _ = self.stopping.wait_for(|stopping| *stopping) => return Err(End::Plain),
                () = tokio::time::sleep(Duration::from_secs(idle)), if idle > 0 => return Err(End::Plain),
            }
        }
    }

    async fn execute(&self, mut pipeline: Box<Pipeline>, needs: Needs) -> Result<Box<Pipeline>, End> {
        let engine = &self.shared.engine;
        match needs {
            Needs::Nothing => {
                engine.read(|txn| pipeline.run(txn));
                return Ok(pipeline);
            }
            Needs::Reads => {
                // A read may wait for the drive, so it may not take the last worker from the sockets.
                if let Ok(_permit) = self.shared.readers.try_acquire() {
                    engine.read(|txn| pipeline.run(txn));
                    return Ok(pipeline);
                }
            }
            Needs::Walks => {}
            Needs::Writes => {
                let (to, back) = oneshot::channel();
                pipeline.send_back(to);
                if let Err((error, _)) = engine.submit(pipeline) {
                    return Err(End::Told(error.to_string()));
                }
                return back.await.map_err(|_| End::Told("the engine gave the pipeline up".into()));
            }
        }
        let engine = engine.clone();
        let reading = tokio::task::spawn_blocking(move || {
            engine.read(|txn| pipeline.run(txn));
            pipeline
        });
        reading.await.map_err(|error| End::Told(error.to_string()))
    }

    /// What CLIENT LIST shows.
    fn note(&self, session: &Session, command: &'static str) {
        let mut seen = self.client.seen.lock();
        seen.command = command;
        seen.resp3 = session.resp3;
        if !Arc::ptr_eq(&seen.name, &session.name) {
            seen.name = Arc::clone(&session.name);
        }
    }

    /// Most replies fit the socket at once; a client that does not take them in time is closed.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        let written = match self.stream.try_write(bytes) {
            Ok(written) => written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        let mut rest = bytes.get(written..).unwrap_or_default();
        let stall = Duration::from_secs(self.shared.options.stall_seconds);
        while !rest.is_empty() {
            match tokio::time::timeout(stall, self.stream.write(rest)).await {
                Ok(Ok(0)) => return Err(IoError::from(ErrorKind::WriteZero).into()),
                Ok(Ok(n)) => rest = rest.get(n..).unwrap_or_default(),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Err(End::Told(format!("the client took no reply for {stall:?}"))),
            }
        }
        Ok(())
    }
}
