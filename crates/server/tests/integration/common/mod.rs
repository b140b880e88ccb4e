//! A server over a store in memory, and a client that decodes replies, for tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kv::parallel_wal::WalMode;
use kv::{Engine, EngineOptions, MemoryStore, Overlay, Store, View, Visit, Writing};
use server::{ServeOptions, Server, Stopper};
use units::RealDriver;

/// Longest time that any step of a test may take.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A running server, which is stopped at the end of a test.
pub struct Running {
    pub address: SocketAddr,
    pub http: Option<SocketAddr>,
    stopper: Stopper,
    ended: Option<JoinHandle<server::Result<()>>>,
}

pub fn options() -> ServeOptions {
    ServeOptions { port: 0, http: None, ..ServeOptions::default() }
}

pub fn start(options: ServeOptions) -> Running {
    start_over(Arc::new(MemoryStore::new().with_wal(WalMode::Auto)), options)
}

pub fn start_over(store: Arc<dyn Store>, options: ServeOptions) -> Running {
    let durability = match options.durability {
        server::Durability::Sync => kv::Durability::Sync,
        server::Durability::Async => kv::Durability::Async,
    };
    let engine =
        Engine::start(store, RealDriver::new(), EngineOptions { durability, ..EngineOptions::default() });
    run_server(Server::start(engine, options).expect("the server starts"))
}

/// Lets a server run on a thread of its own until its end.
pub fn run_server(server: Server) -> Running {
    let (address, http, stopper) = (server.address(), server.http_address(), server.stopper());
    let ended = std::thread::Builder::new().spawn(move || server.wait()).expect("a thread");
    Running { address, http, stopper, ended: Some(ended) }
}

impl Running {
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// Waits until a server that is shutting down has ended.
    pub fn end(mut self) -> server::Result<()> {
        let ended = self.ended.take().expect("once");
        let until = Instant::now() + TEST_TIMEOUT;
        while !ended.is_finished() {
            assert!(Instant::now() < until, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        ended.join().expect("no panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

/// A reply, decoded from the server's bytes.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Verbatim(String),
    Null,
    Array(Vec<Value>),
    Set(Vec<Value>),
    Map(Vec<Value>),
}

impl Value {
    pub fn text(&self) -> String {
        match self {
            Value::Simple(text) | Value::Error(text) | Value::Verbatim(text) => text.clone(),
            Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::Integer(n) => n.to_string(),
            other => panic!("{other:?} is no text"),
        }
    }

    pub fn items(self) -> Vec<Value> {
        match self {
            Value::Array(items) | Value::Set(items) | Value::Map(items) => items,
            other => panic!("{other:?} is no array"),
        }
    }
}

pub struct Client<S = TcpStream> {
    pub stream: S,
    read: Vec<u8>,
    at: usize,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
        stream.set_write_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client::over(stream)
    }

    pub fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            let word = word.as_ref();
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend_from_slice(word);
            bytes.extend(b"\r\n");
        }
        bytes
    }
}

impl<S: Read + Write> Client<S> {
    pub fn over(stream: S) -> Client<S> {
        Client { stream, read: Vec::new(), at: 0 }
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        self.send_raw(&Client::encode(words));
    }

    pub fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Value {
        self.send(words);
        self.reply().expect("a reply")
    }

    /// Sends the words of a line as a command, and returns the reply.
    pub fn line(&mut self, line: &str) -> Value {
        self.ask(&line.split(' ').collect::<Vec<_>>())
    }

    fn fill(&mut self) -> bool {
        let mut piece = [0; 64 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => false,
            Ok(n) => {
                self.read.extend_from_slice(&piece[..n]);
                true
            }
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(e) => panic!("no reply: {e}"),
        }
    }

    fn take_line(&mut self) -> Option<String> {
        loop {
            if let Some(n) = self.read[self.at..].windows(2).position(|w| w == b"\r\n") {
                let line = String::from_utf8_lossy(&self.read[self.at..self.at + n]).into_owned();
                self.at += n + 2;
                return Some(line);
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// Reads the next reply; `None` if the connection ended.
    pub fn reply(&mut self) -> Option<Value> {
        if self.at > 1 << 20 {
            self.read.drain(..self.at);
            self.at = 0;
        }
        let line = self.take_line()?;
        let rest = line[1..].to_owned();
        let count = || rest.parse::<i64>().expect("a count");
        Some(match line.as_bytes()[0] {
            b'+' => Value::Simple(rest),
            b'-' => Value::Error(rest),
            b':' => Value::Integer(count()),
            b'_' => Value::Null,
            b'$' | b'*' if rest == "-1" => Value::Null,
            b'$' | b'=' => {
                let len = count() as usize;
                while self.read.len() < self.at + len + 2 {
                    if !self.fill() {
                        return None;
                    }
                }
                let bytes = self.read[self.at..self.at + len].to_vec();
                self.at += len + 2;
                match line.starts_with('=') {
                    true => Value::Verbatim(String::from_utf8(bytes).expect("a text")),
                    false => Value::Bulk(bytes),
                }
            }
            b'*' => Value::Array((0..count()).map(|_| self.reply()).collect::<Option<_>>()?),
            b'~' => Value::Set((0..count()).map(|_| self.reply()).collect::<Option<_>>()?),
            b'%' => Value::Map((0..2 * count()).map(|_| self.reply()).collect::<Option<_>>()?),
            other => panic!("reply of kind {other} in {line:?}"),
        })
    }

    /// Whether the server closes the connection without another reply.
    pub fn is_closed(&mut self) -> bool {
        self.reply().is_none()
    }
}

/// A child process of a test, killed when this is dropped.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// The command of a stock program. Panics with advice if the program is not installed.
pub fn stock_command(program: &str) -> Command {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(found.is_ok(), "{program} is missing: apt-get install redis-tools");
    Command::new(program)
}

/// Runs a program to its end, for at most `TEST_TIMEOUT`.
pub fn run(command: &mut Command) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut killed = KillOnDrop(child);
    let (stdout, stderr) = (read_in_thread(killed.0.stdout.take()), read_in_thread(killed.0.stderr.take()));
    let until = Instant::now() + TEST_TIMEOUT;
    let status = loop {
        if let Some(status) = killed.0.try_wait().expect("a child") {
            break status;
        }
        assert!(Instant::now() < until, "{command:?} does not end");
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = |t: JoinHandle<std::io::Result<Vec<u8>>>| t.join().expect("no panic").expect("readable");
    Output { status, stdout: text(stdout), stderr: text(stderr) }
}

fn read_in_thread(from: Option<impl Read + Send + 'static>) -> JoinHandle<std::io::Result<Vec<u8>>> {
    let mut from = from.expect("piped");
    std::thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).map(|_| all)
    })
}

impl<S: Read + Write> Client<S> {
    /// Reads the next `len` bytes of replies, undecoded.
    pub fn take_raw(&mut self, len: usize) -> Vec<u8> {
        while self.read.len() < self.at + len {
            assert!(self.fill(), "the connection ended");
        }
        let bytes = self.read[self.at..self.at + len].to_vec();
        self.at += len;
        bytes
    }
}

/// Sends an HTTP request for `path` with `headers` (lines with their ends), and returns the whole answer.
pub fn http_get(address: SocketAddr, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server answers");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("the server answers");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n")
        .expect("the server answers");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the server answers");
    text
}

/// A store in memory whose reads and whose close take some time.
#[derive(Debug, Default)]
pub struct SlowStore {
    pub store: MemoryStore,
    pub get: Duration,
    pub close: Duration,
}

impl Store for SlowStore {
    fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> kv::Result<()> {
        if !self.get.is_zero() {
            std::thread::sleep(self.get);
        }
        self.store.get(key, found)
    }
    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> kv::Result<()> {
        self.store.multi_get(keys, found)
    }
    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> kv::Result<()> {
        self.store.scan(from, visit)
    }
    fn write(&self, batch: &Overlay, sync: bool, _view: View) -> Writing<'_> {
        self.store.write(batch, sync, View::default())
    }
    fn key_estimate(&self) -> u64 {
        self.store.key_estimate()
    }
    fn sync(&self) -> kv::Result<()> {
        self.store.sync()
    }
    fn close(&self) -> kv::Result<()> {
        std::thread::sleep(self.close);
        println!("closed");
        self.store.close()
    }
}
