use proptest::prelude::*;

use super::model::ModelBatch;
use crate::parallel_wal::{BatchError, Family, RecordKind, parse};

fn kinds(batch: &[u8]) -> Result<Vec<RecordKind>, BatchError> {
    parse(batch)?.map(|record| record.map(|record| record.kind)).collect()
}

#[test]
fn records_come_in_order_with_family_key_and_value() {
    let batch = ModelBatch::default().put(1, "a", 7).delete(0, "bc").delete_range(3, "x", "y").done();
    let records: Vec<_> = parse(&batch).unwrap().map(Result::unwrap).collect();
    assert_eq!(
        records.iter().map(|r| r.kind).collect::<Vec<_>>(),
        [RecordKind::Put, RecordKind::Delete, RecordKind::DeleteRange]
    );
    assert_eq!(
        (records[0].family, records[0].key, records[0].value),
        (Family(1), &b"a"[..], &7_i64.to_le_bytes()[..])
    );
    assert_eq!((records[2].family, records[2].key, records[2].value), (Family(3), &b"x"[..], &b"y"[..]));
}

#[test]
fn records_that_cannot_be_ordered_are_refused_with_their_kind() {
    for (tag, word) in
        [(0x09, "transactions"), (0x11, "blob"), (0x17, "PutEntity"), (0x19, "TimedPut"), (0x7f, "kind")]
    {
        let mut batch = vec![0; 12];
        batch.push(tag);
        let error = kinds(&batch).unwrap_err();
        assert!(matches!(error, BatchError::Unsupported(_)) && error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_count_that_does_not_fit_is_damage() {
    for count in [0_u8, 1, 3] {
        let mut batch = ModelBatch::default().put(0, "a", 1).put(0, "b", 2).done();
        batch[8] = count;
        assert!(matches!(kinds(&batch), Err(BatchError::Damaged { .. })), "{count}");
    }
}

#[test]
fn a_number_above_32_bits_is_damage_and_the_largest_is_not() {
    let with = |varint: &[u8]| {
        let mut batch = vec![0; 12];
        batch[8] = 1;
        batch.push(0x04);
        batch.extend(varint);
        batch.extend([1, b'k']);
        parse(&batch).unwrap().next().unwrap().map(|r| r.family)
    };
    assert_eq!(with(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(Family(u32::MAX)));
    assert!(with(&[0xff, 0xff, 0xff, 0xff, 0x1f]).is_err());
    assert!(with(&[0xff, 0xff, 0xff, 0xff, 0x8f, 0x00]).is_err());
}

proptest! {
    #[test]
    fn any_bytes_give_records_or_an_error(batch: Vec<u8>) {
        let _either = kinds(&batch);
    }

    #[test]
    fn a_batch_cut_short_is_damage(keys in prop::collection::vec("[a-z]{0,200}", 1..5), cut: prop::sample::Index) {
        let batch = keys.iter().fold(ModelBatch::default(), |b, k| b.put(0, k, 1)).done();
        prop_assert_eq!(kinds(&batch).unwrap().len(), keys.len());
        let cut = cut.index(batch.len());
        prop_assert!(kinds(&batch[..cut]).is_err());
    }
}
