//! Messages between a program and its writer process.
//!
//! All numbers are little-endian. The writer's first message says its version. The program then sends [`HERE_IS_THE_FILE`] with the descriptor of the log's file: a program that is no writer
//! never has the file. Then come requests and replies.
//!
//! | request | bytes | |
//! |---|---|---|
//! | 0 | 8 | number of the request, which its reply repeats |
//! | 8 | 8 | first byte in the file |
//! | 16 | 4 | number of bytes |
//! | 20 | 4 | bit 0: durable at completion; bit 1: zeros, and no bytes follow; bit 2: in bulk class |
//! | 24 | .. | the bytes |
//!
//! | reply | bytes | |
//! |---|---|---|
//! | 0 | 8 | number of the request; 0 in the writer's first message |
//! | 8 | 4 | errno; 0 for success. In the first message: [`VERSION`] |
//! | 12 | 4 | in the first message: 1 if the writer's requests are real-time |

/// Version of the messages.
pub(super) const VERSION: u32 = 1;
/// The message with the descriptor of the log's file.
pub(super) const HERE_IS_THE_FILE: &[u8; 4] = b"file";
/// Bytes of a request before its data.
pub(super) const HEADER: usize = 24;
/// Bytes of a reply.
pub(super) const REPLY: usize = 16;
/// Data of one request, at most: a socket's buffer holds a few.
pub(super) const MAX_DATA: usize = 64 << 10;
/// Zeros of one request, at most: no bytes of theirs go through the socket.
pub(super) const MAX_ZEROS: usize = 1 << 20;

const DURABLE: u32 = 1;
const ZEROS: u32 = 2;
const BULK: u32 = 4;

/// A request without its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) id: u64,
    pub(super) at: u64,
    pub(super) len: u32,
    pub(super) durable: bool,
    pub(super) zeros: bool,
    pub(super) bulk: bool,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER] {
        let flag = |is: bool, flag: u32| if is { flag } else { 0 };
        let flags = flag(self.durable, DURABLE) | flag(self.zeros, ZEROS) | flag(self.bulk, BULK);
        let mut bytes = [0; HEADER];
        let fields = [
            &self.id.to_le_bytes()[..],
            &self.at.to_le_bytes(),
            &self.len.to_le_bytes(),
            &flags.to_le_bytes(),
        ];
        let mut rest = bytes.iter_mut();
        fields.concat().iter().zip(&mut rest).for_each(|(from, to)| *to = *from);
        bytes
    }

    /// The header of a request whose data has `data` bytes. `None` for anything else.
    pub(super) fn decode(bytes: &[u8; HEADER], data: usize) -> Option<Header> {
        let [id, at, rest] = words(bytes)?;
        let (len, flags) = (rest as u32, (rest >> 32) as u32);
        let has = |flag: u32| flags & flag != 0;
        let header = Header { id, at, len, durable: has(DURABLE), zeros: has(ZEROS), bulk: has(BULK) };
        let (follows, most) = if header.zeros { (0, MAX_ZEROS) } else { (len as usize, MAX_DATA) };
        let is_known = flags & !(DURABLE | ZEROS | BULK) == 0 && id != 0 && len as usize <= most;
        (is_known && follows == data).then_some(header)
    }
}

/// A reply, or the writer's first message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reply {
    pub(super) id: u64,
    pub(super) errno: u32,
    pub(super) real_time: bool,
}

impl Reply {
    pub(super) fn encode(self) -> [u8; REPLY] {
        let second = u64::from(self.errno) | u64::from(self.real_time) << 32;
        let mut bytes = [0; REPLY];
        let fields = [self.id.to_le_bytes(), second.to_le_bytes()];
        fields.concat().iter().zip(&mut bytes).for_each(|(from, to)| *to = *from);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Reply> {
        let [id, second] = words::<2>(bytes)?;
        let real_time = second >> 32;
        (real_time <= 1).then_some(Reply { id, errno: second as u32, real_time: real_time == 1 })
    }
}

/// The numbers of 8 bytes that `bytes` are.
fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let words: Vec<u64> =
        bytes.chunks(8).map(|word| word.try_into().map(u64::from_le_bytes)).collect::<Result<_, _>>().ok()?;
    words.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_and_nonsense_is_refused() {
        let header = Header { id: 7, at: 1 << 40, len: 512, durable: true, zeros: false, bulk: false };
        assert_eq!(Header::decode(&header.encode(), 512), Some(header));
        assert_eq!(Header::decode(&header.encode(), 511), None, "data is missing");
        let zeros = Header { zeros: true, durable: false, bulk: true, ..header };
        assert_eq!(Header::decode(&zeros.encode(), 0), Some(zeros));
        assert_eq!(Header::decode(&zeros.encode(), 512), None, "zeros have no data");
        assert_eq!(Header::decode(&[0xff; HEADER], 0), None);
        let reply = Reply { id: 9, errno: 28, real_time: true };
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        assert_eq!(Reply::decode(&reply.encode()[..15]), None);
        assert_eq!(Reply::decode(&[0xff; REPLY]), None);
    }
}
