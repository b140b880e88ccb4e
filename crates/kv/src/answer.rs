//! Where a command's reply goes.

use bytes::Bytes;

/// Takes replies. The server writes them in the client's protocol; tests collect [`Reply`] values.
pub trait Answer {
    /// A short status, such as `OK`.
    fn simple(&mut self, text: &str);
    /// An error: a code in capitals, then what is wrong and what to do.
    fn error(&mut self, text: &str);
    /// A number.
    fn integer(&mut self, value: i64);
    /// A string.
    fn bulk(&mut self, value: &[u8]);
    /// The null reply.
    fn null(&mut self);
    /// The next `len` replies belong together.
    fn array(&mut self, len: usize);
    /// The next `len` pairs of replies are names and values.
    fn map(&mut self, len: usize);
    /// The place behind the last reply.
    fn mark(&self) -> usize;
    /// Removes the replies written after `mark`.
    fn rollback(&mut self, mark: usize);
    /// Whether the replies have reached the bound for one client: a pipeline should stop.
    fn is_full(&self) -> bool {
        false
    }
}

/// A reply as a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A status.
    Simple(String),
    /// An error.
    Error(String),
    /// A number.
    Integer(i64),
    /// A string.
    Bulk(Bytes),
    /// The null reply.
    Null,
    /// The head of an array.
    Array(usize),
    /// The head of a map.
    Map(usize),
}

impl Answer for Vec<Reply> {
    fn simple(&mut self, text: &str) {
        self.push(Reply::Simple(text.into()));
    }
    fn error(&mut self, text: &str) {
        self.push(Reply::Error(text.into()));
    }
    fn integer(&mut self, value: i64) {
        self.push(Reply::Integer(value));
    }
    fn bulk(&mut self, value: &[u8]) {
        self.push(Reply::Bulk(Bytes::copy_from_slice(value)));
    }
    fn null(&mut self) {
        self.push(Reply::Null);
    }
    fn array(&mut self, len: usize) {
        self.push(Reply::Array(len));
    }
    fn map(&mut self, len: usize) {
        self.push(Reply::Map(len));
    }
    fn mark(&self) -> usize {
        self.len()
    }
    fn rollback(&mut self, mark: usize) {
        self.truncate(mark);
    }
}
