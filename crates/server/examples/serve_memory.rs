//! Serves a map in memory on the given port, to measure the protocol and the engine without RocksDB.
//!
//! `cargo run --release -p furrow-server --example serve_memory 6380`

use std::sync::Arc;

use kv::{Engine, EngineOptions, MemoryStore};
use server::{ServeOptions, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).map_or(Ok(6380), |port| port.parse())?;
    let engine =
        Engine::start(Arc::new(MemoryStore::new()), units::RealDriver::new(), EngineOptions::default());
    let server = Server::start(engine, ServeOptions { port, http: None, ..ServeOptions::default() })?;
    server.stop_on_signals()?;
    println!("ready on {}", server.address());
    Ok(server.wait()?)
}
