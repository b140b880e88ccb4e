//! A client of the redis protocol, with pipelines of SET, GET, PING and SHUTDOWN.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest time to wait for the server's reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// The most bytes of a value in a reply.
const MAX_BULK_BYTES: usize = 64 << 20;

/// A connection to a server of the redis protocol.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
}

/// A reply of the redis protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A status, such as `+OK`.
    Status(String),
    /// An error, such as `-ERR ...`.
    Error(String),
    /// An integer, such as `:7`.
    Integer(i64),
    /// A value, such as `$3...`; `None` for `$-1`, a key that does not exist.
    Bulk(Option<Vec<u8>>),
    /// An array of replies.
    Array(Vec<Reply>),
}

impl Client {
    /// Connects to a server of the redis protocol.
    pub fn connect(at: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&at, REPLY_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Client { stream: BufReader::with_capacity(256 << 10, stream), out: Vec::new() })
    }

    /// Adds a command to the pipeline.
    pub fn queue(&mut self, command: &[&[u8]]) {
        self.out.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for part in command {
            self.out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            self.out.extend_from_slice(part);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Sends the queued commands to the server.
    pub fn send(&mut self) -> io::Result<()> {
        let sent = self.stream.get_mut().write_all(&self.out);
        self.out.clear();
        sent
    }

    /// Sends one command and reads its reply.
    pub fn call(&mut self, command: &[&[u8]]) -> io::Result<Reply> {
        self.queue(command);
        self.send()?;
        self.reply()
    }

    /// Reads one reply from the server.
    pub fn reply(&mut self) -> io::Result<Reply> {
        read_reply(&mut self.stream)
    }
}

fn read_reply(stream: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
    }
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: {line:?}"));
    let line = line.strip_suffix("\r\n").ok_or_else(malformed)?;
    let kind = line.chars().next().ok_or_else(malformed)?;
    let rest = line.get(kind.len_utf8()..).ok_or_else(malformed)?;
    match kind {
        '+' => Ok(Reply::Status(rest.to_owned())),
        '-' => Ok(Reply::Error(rest.to_owned())),
        ':' => rest.parse().map(Reply::Integer).map_err(|_| malformed()),
        '$' if rest == "-1" => Ok(Reply::Bulk(None)),
        '$' => {
            let length: usize =
                rest.parse().ok().filter(|length| *length <= MAX_BULK_BYTES).ok_or_else(malformed)?;
            let mut value = vec![0; length];
            stream.read_exact(&mut value)?;
            stream.read_exact(&mut [0; 2])?;
            Ok(Reply::Bulk(Some(value)))
        }
        '*' => {
            let length: usize =
                rest.parse().ok().filter(|length| *length <= MAX_BULK_BYTES).ok_or_else(malformed)?;
            (0..length).map(|_| read_reply(stream)).collect::<io::Result<_>>().map(Reply::Array)
        }
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_reply(bytes: &[u8]) -> io::Result<Reply> {
        read_reply(&mut io::BufReader::new(bytes))
    }

    #[test]
    fn replies_of_every_kind_are_read() {
        assert_eq!(parse_reply(b"+OK\r\n").unwrap(), Reply::Status("OK".into()));
        assert_eq!(parse_reply(b":12\r\n").unwrap(), Reply::Integer(12));
        assert_eq!(
            parse_reply(b"*2\r\n$3\r\na\r\n\r\n$-1\r\n").unwrap(),
            Reply::Array(vec![Reply::Bulk(Some(b"a\r\n".to_vec())), Reply::Bulk(None)])
        );
    }

    #[test]
    fn a_reply_cut_short_is_an_error() {
        assert!(parse_reply(b"$3\r\nab").is_err());
        assert!(parse_reply(b"").is_err());
        assert!(parse_reply(b"what\r\n").is_err());
    }
}
