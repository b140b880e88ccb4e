//! Where a command's reply goes.

use bytes::Bytes;

/// The receiver of a command's replies. The server encodes them in the client's protocol; tests collect
/// [`Reply`] values.
pub trait Answer {
    /// A status reply, such as `OK`.
    fn simple(&mut self, text: &str);
    /// An error reply: a code in capitals, then what is wrong and what to do.
    fn error(&mut self, text: &str);
    /// An integer reply.
    fn integer(&mut self, value: i64);
    /// A string reply.
    fn bulk(&mut self, value: &[u8]);
    /// The null reply.
    fn null(&mut self);
    /// The head of an array: the next `len` replies are its elements.
    fn array(&mut self, len: usize);
    /// The head of a map: the next `len` pairs of replies are its names and values.
    fn map(&mut self, len: usize);
    /// The position after the last reply, for [`rollback`](Answer::rollback).
    fn mark(&self) -> usize;
    /// Removes the replies written after `mark`.
    fn rollback(&mut self, mark: usize);
    /// Whether the buffered replies have reached the bound of one client, so that the pipeline should stop.
    fn is_full(&self) -> bool {
        false
    }
}

/// A reply as a value, for tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A status reply.
    Simple(String),
    /// An error reply.
    Error(String),
    /// An integer reply.
    Integer(i64),
    /// A string reply.
    Bulk(Bytes),
    /// The null reply.
    Null,
    /// The head of an array: the number of its elements.
    Array(usize),
    /// The head of a map: the number of its pairs.
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
