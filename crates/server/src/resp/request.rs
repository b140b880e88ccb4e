//! The parser of requests in the Redis protocol: incremental and total. Any bytes, split anywhere, give the same
//! commands or the same error.

use bytes::{Bytes, BytesMut};
use kv::{Args, Span, parse_integer};

/// Longest line of a request in bytes: a count, or an inline command.
const LINE_LIMIT: usize = 64 << 10;

/// Longest request in bytes, whatever the other limits: spans are 32 bits wide.
const REQUEST_LIMIT: usize = 1 << 30;

/// Limits on the requests of a client that has not given the password: words of a command, and bytes of a word.
const UNAUTHENTICATED_ARGS: usize = 10;
const UNAUTHENTICATED_BULK: usize = 16 << 10;

/// Limits on requests, checked before a command runs.
#[derive(Clone, Copy, Debug)]
pub struct ParserLimits {
    /// Longest word in bytes.
    pub bulk: usize,
    /// Largest number of words in a command.
    pub args: usize,
    /// Longest command in bytes; at most 1 GiB.
    pub request: usize,
}

/// First words of lines that an HTTP client sends, for example a browser that a web page makes connect to this port.
const HTTP_WORDS: [&[u8]; 2] = [b"post", b"host:"];

/// Why the parser gives up, so that the connection is closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The text of the error reply after `-ERR Protocol error: `.
    #[error("{0}")]
    Malformed(String),
    /// An HTTP request, which gets no answer. Bytes after it are not parsed, since its body may hold commands.
    #[error(
        "an HTTP request came to the port of the redis protocol: a web page may be trying to reach the data"
    )]
    Http,
}

/// Whole commands, in the buffer that they were read into.
#[derive(Debug, Default)]
pub struct Requests {
    buffer: Bytes,
    spans: Vec<Span>,
    /// For each command the index of the span after its last word.
    ends: Vec<u32>,
}

impl Requests {
    /// The number of commands.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no command.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The words of each command, in order.
    pub fn iter(&self) -> impl Iterator<Item = Args<'_>> {
        self.iter_from(0)
    }

    /// The words of each command from the `first`th on.
    pub fn iter_from(&self, first: usize) -> impl Iterator<Item = Args<'_>> {
        let mut start = first.checked_sub(1).and_then(|n| self.ends.get(n)).map_or(0, |&end| end as usize);
        self.ends.get(first..).unwrap_or_default().iter().map(move |&end| {
            let spans = self.spans.get(start..end as usize).unwrap_or_default();
            start = end as usize;
            Args::new(&self.buffer, spans)
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ParserState {
    /// The parser is before a command.
    Idle,
    /// The parser is before the `$` of a word; `left` words are missing, this one included.
    Word { left: usize },
    /// The parser is within a word of `len` bytes.
    Body { left: usize, len: usize },
}

/// The parser, which splits the bytes of a socket into commands.
#[derive(Debug)]
pub struct Parser {
    buffer: BytesMut,
    /// Index of the next byte to parse.
    at: usize,
    /// Index after the last whole command, where the unfinished command begins.
    whole: usize,
    state: ParserState,
    spans: Vec<Span>,
    ends: Vec<u32>,
    limits: ParserLimits,
    unauthenticated: bool,
    failed: Option<ProtocolError>,
}

impl Parser {
    /// A parser that has read nothing. `unauthenticated`: the client has not given the password, so that small limits
    /// apply.
    pub fn new(limits: ParserLimits, unauthenticated: bool) -> Parser {
        Parser {
            buffer: BytesMut::new(),
            at: 0,
            whole: 0,
            state: ParserState::Idle,
            spans: Vec::new(),
            ends: Vec::new(),
            limits: ParserLimits { request: limits.request.min(REQUEST_LIMIT), ..limits },
            unauthenticated,
            failed: None,
        }
    }

    /// The buffer for bytes from the socket; call [`parse`](Parser::parse) after adding bytes.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Sets whether the small limits apply, those of a client that has not given the password.
    pub fn set_unauthenticated(&mut self, unauthenticated: bool) {
        self.unauthenticated = unauthenticated;
    }

    /// Parses all whole commands in the buffer. After an error the parser stops; the commands before the error can be
    /// taken.
    pub fn parse(&mut self) -> Result<(), ProtocolError> {
        if self.failed.is_none() {
            self.failed = self.parse_all().err();
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Takes the whole commands parsed so far. `used`: an earlier result, whose memory is used again.
    pub fn take(&mut self, mut used: Requests) -> Requests {
        used.spans.clear();
        used.ends.clear();
        let done = self.ends.last().map_or(0, |&end| end as usize);
        used.buffer = self.buffer.split_to(self.whole).freeze();
        used.ends.append(&mut self.ends);
        used.spans.extend_from_slice(self.spans.get(..done).unwrap_or_default());
        self.spans.drain(..done);
        let moved = u32::try_from(self.whole).expect("the buffer is below 4 GiB");
        for span in &mut self.spans {
            span.start -= moved;
            span.end -= moved;
        }
        self.at -= self.whole;
        self.whole = 0;
        used
    }

    fn parse_all(&mut self) -> Result<(), ProtocolError> {
        loop {
            let progressed = match self.state {
                ParserState::Idle => self.parse_command_start()?,
                ParserState::Word { left } => self.parse_word(left)?,
                ParserState::Body { left, len } => self.parse_body(left, len)?,
            };
            if !progressed {
                return Ok(());
            }
        }
    }

    /// The line at `at` without its end, and the start of the next line; `None` if the buffer has no whole line.
    fn next_line(&self, too_long: &str) -> Result<Option<(Span, usize)>, ProtocolError> {
        let rest = self.buffer.get(self.at..).unwrap_or_default();
        let window = rest.get(..LINE_LIMIT + 2).unwrap_or(rest);
        let Some(len) = window.iter().position(|&b| b == b'\n') else {
            return if rest.len() > LINE_LIMIT { protocol_error(too_long) } else { Ok(None) };
        };
        let text = window.get(..len).unwrap_or_default();
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.len() > LINE_LIMIT {
            return protocol_error(too_long);
        }
        Ok(Some((span(self.at, self.at + text.len()), self.at + len + 1)))
    }

    fn text(&self, span: Span) -> &[u8] {
        self.buffer.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    fn parse_command_start(&mut self) -> Result<bool, ProtocolError> {
        let Some(&first) = self.buffer.get(self.at) else { return Ok(false) };
        if first != b'*' {
            return self.parse_inline();
        }
        let Some((line, next)) = self.next_line("too big mbulk count string")? else { return Ok(false) };
        let count = self.text(line).get(1..).and_then(parse_integer);
        let Some(count) = count.filter(|n| *n <= self.limits.args as i64) else {
            return protocol_error("invalid multibulk length");
        };
        let left = usize::try_from(count).unwrap_or(0);
        if self.unauthenticated && left > UNAUTHENTICATED_ARGS {
            return protocol_error("unauthenticated multibulk length");
        }
        self.at = next;
        if left == 0 {
            self.whole = self.at;
        } else {
            self.state = ParserState::Word { left };
        }
        Ok(true)
    }

    fn parse_word(&mut self, left: usize) -> Result<bool, ProtocolError> {
        match self.buffer.get(self.at) {
            None => return Ok(false),
            Some(b'$') => {}
            Some(&other) => return protocol_error(format!("expected '$', got '{}'", other.escape_ascii())),
        }
        let Some((line, next)) = self.next_line("too big bulk count string")? else { return Ok(false) };
        let len = self.text(line).get(1..).and_then(parse_integer).and_then(|n| usize::try_from(n).ok());
        let Some(len) = len else { return protocol_error("invalid bulk length") };
        if len > self.limits.bulk {
            let limit = self.limits.bulk;
            return protocol_error(format!(
                "invalid bulk length: {len} bytes are above the limit of {limit} (--max-value)"
            ));
        }
        if self.unauthenticated && len > UNAUTHENTICATED_BULK {
            return protocol_error("unauthenticated bulk length");
        }
        if next + len + 2 - self.whole > self.limits.request {
            return protocol_error(format!("request is longer than {} bytes", self.limits.request));
        }
        self.at = next;
        self.state = ParserState::Body { left, len };
        Ok(true)
    }

    fn parse_body(&mut self, left: usize, len: usize) -> Result<bool, ProtocolError> {
        let end = self.at + len;
        let Some(tail) = self.buffer.get(end..end + 2) else { return Ok(false) };
        if tail != b"\r\n" {
            return protocol_error("a bulk string does not end where its length says");
        }
        self.spans.push(span(self.at, end));
        self.at = end + 2;
        self.state = match left {
            1 => {
                self.finish_command();
                ParserState::Idle
            }
            _ => ParserState::Word { left: left - 1 },
        };
        Ok(true)
    }

    fn parse_inline(&mut self) -> Result<bool, ProtocolError> {
        let Some((line, next)) = self.next_line("too big inline request")? else { return Ok(false) };
        let (start, end) = (line.start as usize, line.end as usize);
        let text = self.buffer.get_mut(start..end).unwrap_or_default();
        let before = self.spans.len();
        if !split_words(text, start, &mut self.spans) {
            self.spans.truncate(before);
            return protocol_error("unbalanced quotes in request");
        }
        self.at = next;
        if let Some(&first) = self.spans.get(before) {
            let word = self.text(first);
            if HTTP_WORDS.iter().any(|http| word.eq_ignore_ascii_case(http)) {
                self.spans.truncate(before);
                return Err(ProtocolError::Http);
            }
            if self.unauthenticated && self.spans.len() - before > UNAUTHENTICATED_ARGS {
                return protocol_error("unauthenticated multibulk length");
            }
            self.finish_command();
        } else {
            self.whole = self.at;
        }
        Ok(true)
    }

    fn finish_command(&mut self) {
        self.ends.push(u32::try_from(self.spans.len()).expect("far fewer words than bytes"));
        self.whole = self.at;
    }
}

fn protocol_error<T>(text: impl Into<String>) -> Result<T, ProtocolError> {
    Err(ProtocolError::Malformed(text.into()))
}

fn span(start: usize, end: usize) -> Span {
    let narrow = |n| u32::try_from(n).expect("the buffer is below 4 GiB");
    Span { start: narrow(start), end: narrow(end) }
}

/// Splits an inline command into words: at blanks, with "quotes" that know escapes and 'quotes' that know only `\'`. A
/// quoted word is unescaped in place. False if a quote is not closed, or a character other than a blank follows a
/// closing quote.
fn split_words(text: &mut [u8], base: usize, spans: &mut Vec<Span>) -> bool {
    let (mut read, len) = (0, text.len());
    let at = |text: &[u8], n: usize| text.get(n).copied();
    while read < len {
        if at(text, read).is_some_and(|b| b.is_ascii_whitespace() || b == 0) {
            read += 1;
            continue;
        }
        let start = read;
        let mut write = read;
        let mut quote = None;
        loop {
            let Some(byte) = at(text, read) else {
                if quote.is_some() {
                    return false;
                }
                break;
            };
            let mut kept = byte;
            read += 1;
            match quote {
                None if byte.is_ascii_whitespace() || byte == 0 => break,
                None if byte == b'"' || byte == b'\'' => {
                    quote = Some(byte);
                    continue;
                }
                None => {}
                Some(q) if byte == q => {
                    if at(text, read).is_some_and(|b| !b.is_ascii_whitespace()) {
                        return false;
                    }
                    break;
                }
                Some(b'"') if byte == b'\\' => {
                    let Some(escaped) = at(text, read) else { return false };
                    let digits = text.get(read + 1..read + 3).and_then(|d| std::str::from_utf8(d).ok());
                    let hex = digits
                        .filter(|d| escaped == b'x' && d.bytes().all(|b| b.is_ascii_hexdigit()))
                        .and_then(|d| u8::from_str_radix(d, 16).ok());
                    read += if hex.is_some() { 3 } else { 1 };
                    kept = hex.unwrap_or(match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 8,
                        b'a' => 7,
                        other => other,
                    });
                }
                Some(_) if byte == b'\\' && at(text, read) == Some(b'\'') => {
                    kept = b'\'';
                    read += 1;
                }
                Some(_) => {}
            }
            if let Some(slot) = text.get_mut(write) {
                *slot = kept;
            }
            write += 1;
        }
        spans.push(span(base + start, base + write));
    }
    true
}

#[cfg(test)]
mod tests;
