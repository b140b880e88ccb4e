//! The engine over an emulated drive, and clients without a socket.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use fs::{FormatOptions, Fs, MountOptions};
use kv::parallel_wal::WalMode;
use kv::*;
use units::{Blocks, block_on};
use zoned::ZonedDevice;
use zoned::emu::EmuOptions;

/// Longest time that a test waits before it fails.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(600);

pub fn drive(zones: u32, zone_mib: u64) -> EmuOptions {
    let size = Blocks(zone_mib << 8);
    EmuOptions { name: "test".into(), zones, zone_size: size, zone_capacity: size, ..EmuOptions::default() }
}

pub fn mount(device: Arc<dyn ZonedDevice>, format: bool) -> Fs {
    let driver = Arc::clone(device.driver());
    block_on(&*driver, async {
        if format {
            Fs::format(&device, &FormatOptions::default()).await.unwrap();
        }
        Fs::mount(device, &MountOptions::default()).await.unwrap()
    })
}

pub fn unmount(fs: &Fs) {
    block_on(&**fs.driver(), fs.unmount()).unwrap();
}

pub fn store(fs: &Fs, wal: WalMode) -> Arc<RocksStore> {
    Arc::new(RocksStore::open(fs, "/db", &RocksStoreOptions { wal, ..RocksStoreOptions::default() }).unwrap())
}

pub fn engine(fs: &Fs, wal: WalMode) -> Engine {
    Engine::start(store(fs, wal), Arc::clone(fs.driver()), EngineOptions::default())
}

struct LinePipeline(Vec<Vec<String>>, Vec<Reply>, mpsc::Sender<Vec<Reply>>);

impl Work for LinePipeline {
    fn claims(&self, claims: &mut Claims) {
        for words in &self.0 {
            let (buffer, spans) = join_words(words);
            kv::claim(&find(words[0].as_bytes()).unwrap().spec, Args::new(&buffer, &spans), claims);
        }
    }

    fn run(&mut self, txn: &mut Txn<'_>) {
        self.1.clear();
        for words in &self.0 {
            let (buffer, spans) = join_words(words);
            execute(find(words[0].as_bytes()).unwrap(), Args::new(&buffer, &spans), txn, &mut self.1);
        }
    }

    fn writes_are_durable(self: Box<Self>) {
        let _gone = self.2.send(self.1);
    }
}

pub fn join_words(words: &[String]) -> (Bytes, Vec<Span>) {
    let mut end = 0;
    let span = |word: &String| {
        let start = end;
        end += word.len() as u32;
        Span { start, end }
    };
    let spans = words.iter().map(span).collect();
    (Bytes::from(words.concat()), spans)
}

/// Sends a pipeline of command lines to the engine; the replies come through the channel.
pub fn send(engine: &Engine, lines: &[&str]) -> mpsc::Receiver<Vec<Reply>> {
    let lines = lines.iter().map(|l| l.split(' ').map(str::to_owned).collect()).collect();
    let (to, from) = mpsc::channel();
    if let Err((error, _)) = engine.submit(Box::new(LinePipeline(lines, Vec::new(), to))) {
        panic!("{error}");
    }
    from
}

pub fn ask(engine: &Engine, lines: &[&str]) -> Vec<Reply> {
    send(engine, lines).recv_timeout(TEST_TIMEOUT).expect("an answer in time")
}

pub fn ok() -> Reply {
    Reply::Simple("OK".into())
}

pub fn bulk(text: &str) -> Reply {
    Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}
