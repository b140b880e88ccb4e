//! Fuzz target for the messages between a program and the writer process of its log.

// The messages are private to their crate, whose file is compiled into this one as well.
#[allow(dead_code, reason = "the target decodes, and sends nothing")]
#[path = "../../../prio/src/process/message.rs"]
mod messages;

use messages::{HEADER, Header, MAX_DATA, MAX_ZEROS, Reply};

/// Decodes a message as a request and as a reply.
pub(crate) fn message(bytes: &[u8]) {
    if let Some((header, data)) = bytes.split_first_chunk::<HEADER>()
        && let Some(request) = Header::decode(header, data.len())
    {
        let most = if request.zeros { MAX_ZEROS } else { MAX_DATA };
        assert!(request.len as usize <= most && request.id != 0, "{request:?}");
        assert!(data.len() == if request.zeros { 0 } else { request.len as usize }, "{request:?}");
        assert_eq!(&request.encode(), header, "{request:?}");
    }
    if let Some(reply) = Reply::decode(bytes) {
        assert_eq!(reply.encode().as_slice(), bytes, "{reply:?}");
    }
}
