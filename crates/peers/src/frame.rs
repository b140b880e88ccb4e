//! Frames: the bytes of a connection between two processes. Without I/O.
//!
//! | bytes | | |
//! |---|---|---|
//! | 0 | 4 | bytes behind this field, at most [`MAX_FRAME`]; little-endian, like all numbers |
//! | 4 | 4 | CRC32C of the bytes behind this field |
//! | 8 | 1 | version: 1 |
//! | 9 | 1 | kind: 1 hello, 2 messages |
//! | 10 | 16 | UUID of the cluster |
//! | 26 | 16 | UUID of the sender's node |
//! | 42 | 8 | start counter of the sender's node |
//! | 50 | 16 | kind 1: UUID of the receiver's node |
//! | 66 | 8 | kind 1: the sender's [`Hello::process`] |
//! | 50 | 4 each | kind 2: bytes of a message; then these, as in `shard::PeerMessage`; one message at least |
//!
//! A connection begins with a hello, and has frames of kind 2 behind it. There are no answers: each process connects to each other one.

use uuid::Uuid;

use crate::identity::ProcessId;
use replica::{ClusterId, NodeId};

/// The most bytes of a frame behind its length.
pub const MAX_FRAME: usize = 16 << 20;
/// The most bytes of a message: a frame with that message alone.
pub const MAX_MESSAGE: usize = MAX_FRAME - (HEADER - LENGTH) - LENGTH;

const VERSION: u8 = 1;
const HELLO: u8 = 1;
const MESSAGES: u8 = 2;
/// Bytes of a hello with its length: a connection that begins with more is refused before these are taken into memory.
pub(crate) const HELLO_BYTES: usize = HEADER + 24;
/// Bytes of a length, and of a frame before its payload.
const LENGTH: usize = 4;
const HEADER: usize = 50;
/// Bytes before those that the checksum covers.
const UNCHECKED: usize = 8;

/// The reason why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The frame is longer than this version takes.
    #[error("a frame of {0} bytes: the most are {MAX_FRAME}, or these are no frames")]
    TooLong(usize),
    /// The frame is shorter than its header.
    #[error("a frame of {0} bytes, shorter than its header")]
    TooShort(usize),
    /// The frame is of another version.
    #[error("a frame of version {0}: this program reads version {VERSION}")]
    Version(u8),
    /// The frame's bytes are not those that were sent.
    #[error("a frame whose checksum is wrong")]
    Checksum,
    /// The frame's payload is none of its kind.
    #[error("a frame of kind {0} whose payload is none of that kind")]
    Payload(u8),
}

/// The first frame of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The node that the sender wants to reach.
    pub to: NodeId,
    /// A number that the process drew when it started: two processes with one node's name and start counter differ in it.
    pub process: u64,
}

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The sender.
    pub from: ProcessId,
    /// The payload.
    pub payload: Payload<'a>,
}

/// The payload of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// The begin of a connection.
    Hello(Hello),
    /// The bytes of messages, one at least.
    Messages(Vec<&'a [u8]>),
}

impl<'a> Frame<'a> {
    /// The frame at the begin of `bytes`, and its length. `None` if more bytes are needed.
    ///
    /// # Errors
    /// The bytes are no frame, whatever follows.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, FrameError> {
        let Some((len, behind)) = bytes.split_first_chunk() else { return Ok(None) };
        let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
        if len > MAX_FRAME {
            return Err(FrameError::TooLong(len));
        }
        let version = bytes.get(UNCHECKED).copied();
        if let Some(version) = version.filter(|version| *version != VERSION) {
            return Err(FrameError::Version(version));
        }
        if len < HEADER - LENGTH {
            return Err(FrameError::TooShort(len));
        }
        let Some(frame) = behind.get(..len) else { return Ok(None) };
        let Some((checksum, checked)) = frame.split_first_chunk() else { return Ok(None) };
        if units::crc32c(&[checked]) != u32::from_le_bytes(*checksum) {
            return Err(FrameError::Checksum);
        }
        let short = FrameError::TooShort(len);
        let mut rest = checked.get(1..).ok_or(short)?;
        let [kind] = take(&mut rest).ok_or(short)?;
        let cluster = ClusterId(Uuid::from_bytes(take(&mut rest).ok_or(short)?));
        let node = NodeId(Uuid::from_bytes(take(&mut rest).ok_or(short)?));
        let starts = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
        let payload = match kind {
            HELLO => hello(rest).map(Payload::Hello),
            MESSAGES => messages(rest).map(Payload::Messages),
            _ => None,
        };
        let payload = payload.ok_or(FrameError::Payload(kind))?;
        Ok(Some((Frame { from: ProcessId { cluster, node, starts }, payload }, LENGTH + len)))
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

fn hello(mut rest: &[u8]) -> Option<Hello> {
    let to = NodeId(Uuid::from_bytes(take(&mut rest)?));
    let process = u64::from_le_bytes(take(&mut rest)?);
    rest.is_empty().then_some(Hello { to, process })
}

fn messages(mut rest: &[u8]) -> Option<Vec<&[u8]>> {
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let len = usize::try_from(u32::from_le_bytes(take(&mut rest)?)).ok()?;
        let (message, behind) = rest.split_at_checked(len)?;
        messages.push(message);
        rest = behind;
    }
    (!messages.is_empty()).then_some(messages)
}

/// The bytes of a frame as they are put together. The memory is used again for the next frame.
#[derive(Clone, Debug)]
pub struct FrameWriter {
    from: ProcessId,
    bytes: Vec<u8>,
}

impl FrameWriter {
    /// A writer of frames of this sender.
    pub fn new(from: ProcessId) -> FrameWriter {
        FrameWriter { from, bytes: Vec::new() }
    }

    /// The frame that begins a connection.
    pub fn hello(&mut self, hello: Hello) -> &[u8] {
        self.begin(HELLO);
        self.bytes.extend(hello.to.0.as_bytes());
        self.bytes.extend(hello.process.to_le_bytes());
        self.end()
    }

    /// Begins a frame of messages.
    pub fn begin_messages(&mut self) {
        self.begin(MESSAGES);
    }

    /// Adds a message. The first one is of [`MAX_MESSAGE`] bytes at most, and all together fill a frame.
    ///
    /// # Panics
    /// A message of 4 GiB or more.
    pub fn add(&mut self, message: &[u8]) {
        let len = u32::try_from(message.len()).expect("a message fits into a frame");
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend_from_slice(message);
    }

    /// Bytes of the frame so far.
    #[allow(clippy::len_without_is_empty, reason = "a frame that was begun has its header")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    fn begin(&mut self, kind: u8) {
        let ProcessId { cluster, node, starts } = self.from;
        self.bytes.clear();
        self.bytes.extend([0; UNCHECKED]);
        self.bytes.extend([VERSION, kind]);
        self.bytes.extend(cluster.0.as_bytes());
        self.bytes.extend(node.0.as_bytes());
        self.bytes.extend(starts.to_le_bytes());
    }

    /// The bytes of the frame.
    ///
    /// # Panics
    /// The frame is longer than [`MAX_FRAME`].
    pub fn end(&mut self) -> &[u8] {
        let len = u32::try_from(self.bytes.len() - LENGTH).expect("a frame is bounded");
        assert!(self.bytes.len() <= LENGTH + MAX_FRAME, "a frame is no longer than others take");
        let checksum = units::crc32c(&[self.bytes.get(UNCHECKED..).unwrap_or_default()]);
        let head = len.to_le_bytes().into_iter().chain(checksum.to_le_bytes());
        self.bytes.iter_mut().zip(head).for_each(|(byte, of)| *byte = of);
        &self.bytes
    }
}

/// A fuzz test of the decoder: bytes that decode to a frame are the bytes of that frame. The checksum is made right first.
///
/// # Panics
/// Bytes decode to a frame that encodes to other bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz_frame(bytes: &[u8]) {
    check(bytes);
    let mut sealed = bytes.to_vec();
    if let Some((head, checked)) = sealed.split_at_mut_checked(UNCHECKED) {
        let len = u32::try_from(UNCHECKED - LENGTH + checked.len()).unwrap_or(u32::MAX);
        let right = len.to_le_bytes().into_iter().chain(units::crc32c(&[checked]).to_le_bytes());
        head.iter_mut().zip(right).for_each(|(byte, of)| *byte = of);
    }
    check(&sealed);
}

#[cfg(any(test, feature = "fuzzing"))]
fn check(bytes: &[u8]) {
    let Ok(Some((frame, len))) = Frame::decode(bytes) else { return };
    let mut writer = FrameWriter::new(frame.from);
    let encoded = match frame.payload {
        Payload::Hello(hello) => writer.hello(hello),
        Payload::Messages(messages) => {
            writer.begin_messages();
            messages.iter().for_each(|message| writer.add(message));
            writer.end()
        }
    };
    assert_eq!(Some(encoded), bytes.get(..len));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn process() -> ProcessId {
        let uuid = |byte| Uuid::from_bytes([byte; 16]);
        ProcessId { cluster: ClusterId(uuid(0xc1)), node: NodeId(uuid(0x0d)), starts: 3 }
    }

    fn hello() -> Hello {
        Hello { to: NodeId(Uuid::from_bytes([0x0e; 16])), process: 1 << 40 }
    }

    fn of_messages(messages: &[&[u8]]) -> Vec<u8> {
        let mut writer = FrameWriter::new(process());
        writer.begin_messages();
        messages.iter().for_each(|message| writer.add(message));
        writer.end().to_vec()
    }

    #[test]
    fn frames_are_those_of_the_golden_files_and_no_part_of_one_is_a_frame() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        let messages = vec![&b"message"[..], b"", b"another message"];
        for (name, bytes, payload) in [
            ("hello", FrameWriter::new(process()).hello(hello()).to_vec(), Payload::Hello(hello())),
            ("messages", of_messages(&messages), Payload::Messages(messages)),
        ] {
            let file = format!("{directory}/frame-{name}-v1.bin");
            if std::env::var_os("FURROW_BLESS").is_some() {
                std::fs::write(&file, &bytes).expect("writes");
            }
            assert_eq!(std::fs::read(&file).expect("a golden file"), bytes, "{name}");
            let frame = Frame { from: process(), payload };
            assert_eq!(Frame::decode(&bytes), Ok(Some((frame.clone(), bytes.len()))), "{name}");
            let behind = [&bytes[..], &bytes[..9]].concat();
            assert_eq!(Frame::decode(&behind), Ok(Some((frame, bytes.len()))), "{name}");
            for len in 0..bytes.len() {
                assert_eq!(Frame::decode(&bytes[..len]), Ok(None), "{len} of {name}");
            }
        }
    }

    #[test]
    fn a_hello_has_the_length_that_is_waited_for() {
        assert_eq!(FrameWriter::new(process()).hello(hello()).len(), HELLO_BYTES);
    }

    #[test]
    fn each_fault_of_a_frame_has_its_name() {
        let good = of_messages(&[b"message"]);
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        let decoded = |bytes: &[u8]| Frame::decode(bytes).expect_err("no frame");
        assert_eq!(decoded(&changed(good.len() - 1, 0)), FrameError::Checksum);
        assert_eq!(decoded(&changed(15, 0)), FrameError::Checksum);
        assert_eq!(decoded(&changed(8, 2)), FrameError::Version(2));
        assert_eq!(decoded(&(16_777_217_u32.to_le_bytes())), FrameError::TooLong(MAX_FRAME + 1));
        assert_eq!(decoded(&[45, 0, 0, 0]), FrameError::TooShort(45));
        assert_eq!(decoded(&of_messages(&[])), FrameError::Payload(MESSAGES));
    }

    #[test]
    fn the_longest_message_fills_a_frame() {
        let mut writer = FrameWriter::new(process());
        writer.begin_messages();
        writer.add(&vec![7; MAX_MESSAGE]);
        let bytes = writer.end();
        assert_eq!(bytes.len(), LENGTH + MAX_FRAME);
        assert!(matches!(Frame::decode(bytes), Ok(Some(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_none(kind in 0_u8..4, bytes: Vec<u8>) {
            fuzz_frame(&bytes);
            fuzz_frame(&[&[0; 8][..], &[VERSION, kind], &[9; 40], &bytes].concat());
            let long = [&[7, 0, 0, 0], &bytes[..]].concat();
            fuzz_frame(&[&[0; 8][..], &[VERSION, MESSAGES], &[9; 40], &long].concat());
        }
    }
}
