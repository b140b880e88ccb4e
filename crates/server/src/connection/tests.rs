use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream as Socket};

use fs::{FormatOptions, Fs, MountOptions};
use kv::{Engine, EngineOptions, MemoryStore};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use units::{Blocks, RealDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions};

use super::*;
use crate::backing::Backing;
use crate::clients::Clients;
use crate::commands;
use crate::counters::Counters;
use crate::engines::Engines;
use crate::options::ServeOptions;
use crate::output::OutputBudget;
use crate::recent_reads::RecentReads;

/// A server over a store in memory, with `readers` permits to read the drive on a worker thread.
fn shared(backing: Backing, readers: usize) -> Arc<Shared> {
    let options = ServeOptions::default();
    Arc::new(Shared {
        engines: Engines::One(Engine::start(
            Arc::new(MemoryStore::new()),
            RealDriver::new(),
            EngineOptions::default(),
        )),
        backing,
        password: None,
        tls: None,
        clients: Clients::default(),
        counters: Counters::new(commands::names()),
        output: OutputBudget::new(options.max_output_total),
        started_ms: 0,
        port: 0,
        readers: Semaphore::new(readers),
        recent_reads: RecentReads::default(),
        ending: watch::Sender::new(false),
        stopping: watch::Sender::new(false),
        reset: Mutex::default(),
        options,
    })
}

/// Serves two clients on one thread. The first client sends `busy` and then CLIENT LIST; the second one sets its name.
/// Both have sent everything before the first one is served. Returns the replies to the first client.
fn replies_beside_another_client(busy: &[u8]) -> String {
    let shared = shared(Backing::default(), 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut first = runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut sockets = Vec::new();
        let mut serving = Vec::new();
        for commands in [[busy, b"CLIENT LIST\r\nQUIT\r\n"].concat(), b"CLIENT SETNAME second\r\n".to_vec()] {
            let mut socket = Socket::connect(at).unwrap();
            socket.write_all(&commands).unwrap();
            sockets.push(socket);
            let (stream, peer) = listener.accept().await.unwrap();
            let client = shared.clients.admit(peer, at, 2, true, &**shared.engines.driver()).unwrap();
            serving.push(tokio::spawn(serve(stream, client, Arc::clone(&shared))));
        }
        serving.remove(0).await.unwrap();
        sockets.remove(0)
    });
    drop(runtime);
    shared.engines.close().unwrap();
    let mut replies = Vec::new();
    first.read_to_end(&mut replies).unwrap();
    String::from_utf8(replies).unwrap()
}

#[test]
fn another_client_is_served_between_two_reads_of_a_client_that_sends_without_a_pause() {
    // A read of the socket has fewer commands than a turn, and all commands have more bytes than one read takes.
    let value = "x".repeat(8 << 10);
    let busy = format!("*2\r\n$4\r\nECHO\r\n${}\r\n{value}\r\n", value.len()).repeat(9);
    assert!(busy.len() > SOCKET_READ_SIZE);
    let replies = replies_beside_another_client(busy.as_bytes());
    assert!(replies.contains("name=second"), "{}", replies.replace(&value, ""));
}

#[test]
fn another_client_is_served_within_a_pipeline_of_twenty_commands() {
    let replies = replies_beside_another_client("PING\r\n".repeat(20).as_bytes());
    assert!(replies.starts_with(&"+PONG\r\n".repeat(20)) && replies.contains("name=second"), "{replies}");
}

#[test]
fn a_read_from_memory_does_not_wait_until_a_permit_is_free() {
    let size = Blocks(1 << 10);
    let drive = EmuOptions { zones: 64, zone_size: size, zone_capacity: size, ..EmuOptions::default() };
    let device: Arc<dyn ZonedDevice> = Emu::memory(drive, RealDriver::new());
    let driver = Arc::clone(device.driver());
    let fs = block_on(&*driver, async {
        Fs::format(&device, &FormatOptions::default()).await.unwrap();
        Fs::mount(device, &MountOptions::default()).await.unwrap()
    });
    let shared = shared(Backing { fs: Some(fs), array: None }, 0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut socket = runtime.block_on(async {
        while !shared.reads_memory_only() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut socket = Socket::connect(at).unwrap();
        socket.write_all(b"GET key\r\nQUIT\r\n").unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let client = shared.clients.admit(peer, at, 1, true, &**shared.engines.driver()).unwrap();
        let serving = serve(stream, client, Arc::clone(&shared));
        tokio::time::timeout(Duration::from_secs(60), serving).await.expect("the read waits for a permit");
        socket
    });
    shared.engines.close().unwrap();
    let mut replies = String::new();
    socket.read_to_string(&mut replies).unwrap();
    assert_eq!(replies, "$-1\r\n+OK\r\n");
}
