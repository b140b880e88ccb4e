//! Fuzz targets for the bytes that the server reads from its sockets.

use server::array::{FailOrder, ReplaceOrder, ScrubOrder};
use server::resp::{Parser, ParserLimits, Requests};

/// Parses RESP, whole and in pieces: the result must not depend on where the bytes are cut. The first byte sets the cut.
pub(crate) fn resp(bytes: &[u8]) {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let whole = commands(bytes, bytes.len().max(1));
    let pieces = commands(bytes, usize::from(step).max(1));
    assert_eq!(whole, pieces, "the same commands, however the bytes come in");
}

/// The words of all RESP commands in the bytes, and whether the connection would be closed for an error.
fn commands(bytes: &[u8], step: usize) -> (Vec<Vec<Vec<u8>>>, bool) {
    let limits = ParserLimits { bulk: 1 << 16, args: 1 << 10, request: 1 << 17 };
    let mut parser = Parser::new(limits, false);
    let (mut found, mut used, mut failed) = (Vec::new(), Requests::default(), false);
    for piece in bytes.chunks(step) {
        parser.buffer().extend_from_slice(piece);
        failed = parser.parse().is_err();
        used = parser.take(used);
        found.extend(used.iter().map(|args| args.rest(0).map(<[u8]>::to_vec).collect()));
        if failed {
            break;
        }
    }
    (found, failed)
}

/// Parses an order to an array that a server holds.
pub(crate) fn array_order(bytes: &[u8]) {
    fn check<O: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
        if let Ok(first) = serde_json::from_slice::<O>(bytes) {
            let text = serde_json::to_vec(&first).expect("an order is JSON");
            assert_eq!(serde_json::from_slice::<O>(&text).expect("an order of this build"), first);
        }
    }
    check::<FailOrder>(bytes);
    check::<ReplaceOrder>(bytes);
    check::<ScrubOrder>(bytes);
}
