//! Fuzz targets for values, write batches and recorded traces, which the engine and the crash explorer read.

use kv::parallel_wal::parse;
use kv::{OnceRecord, Record, RecordRef, RecordedAnswer};
use sim::Trace;

/// Decodes the value of a key.
pub(crate) fn stored_value(bytes: &[u8]) {
    let Ok(first) = RecordRef::decode(bytes) else { return };
    let record = Record { expires: first.expires, value: first.value.to_vec().into() };
    let encoded = record.encode();
    let again = RecordRef::decode(&encoded).expect("a record of this build");
    assert_eq!((again.expires, again.value), (record.expires, &*record.value));
}

/// Decodes the record of an id for commands that run once.
pub(crate) fn once_record(bytes: &[u8]) {
    let Ok(record) = OnceRecord::decode(bytes) else { return };
    assert_eq!(record.encode(), bytes);
    let mut again = RecordedAnswer::default();
    record.answer.repeat(&mut again);
    assert_eq!(again, record.answer);
}

/// Decodes a RocksDB write batch, as a program hands it in.
pub(crate) fn write_batch(bytes: &[u8]) {
    if let Ok(records) = parse(bytes) {
        // The iterator over a batch's records ends after an error.
        let number = records.count();
        assert!(number <= bytes.len() + 1, "{number} records in {} bytes", bytes.len());
    }
}

/// Decodes a recorded workload of the crash explorer; its checksum is made right first.
pub(crate) fn crash_trace(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    bytes.extend_from_slice(&units::crc32c(&[&bytes]).to_le_bytes());
    if let Ok(first) = Trace::decode(&bytes) {
        let encoded = first.encode();
        let again = Trace::decode(&encoded).expect("a trace of this build");
        assert_eq!(again.encode(), encoded);
    }
}
