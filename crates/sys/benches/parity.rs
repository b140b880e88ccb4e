//! `cargo bench -p furrow-sys --bench parity`: P and Q of whole stripes, and two lost data units put together, beside ISA-L
//! where the machine has `libisal.so.2`. Rates count the stripe's data for parities, and the two units for reconstruction.
#![allow(missing_docs, reason = "a benchmark")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sys::{BufMut, gf256};

#[path = "../tests/isal/library.rs"]
mod library;

use library::Isal;

/// Bytes of a stripe unit.
const UNIT_BYTES: usize = 64 << 10;
/// Data units of a stripe: an array of six drives with two parities.
const DATA_UNITS: usize = 4;
/// Stripes of different addresses: more bytes than the second-level cache has.
const STRIPES: usize = 16;

fn filled(len: usize, seed: usize) -> BufMut {
    let mut bytes = BufMut::zeroed(len);
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = ((n + 1) * (2 * seed + 37) + n / 251) as u8;
    }
    bytes
}

fn bench_parities(c: &mut Criterion) {
    let stripes: Vec<BufMut> = (0..STRIPES).map(|n| filled(DATA_UNITS * UNIT_BYTES, n)).collect();
    let (mut p, mut q) = (BufMut::zeroed(UNIT_BYTES), BufMut::zeroed(UNIT_BYTES));
    let mut group = c.benchmark_group("P and Q of a stripe of four units of 64 KiB");
    group.throughput(Throughput::Bytes((DATA_UNITS * UNIT_BYTES) as u64));
    let mut turns = stripes.iter().cycle();
    group.bench_function("ours", |b| {
        b.iter(|| {
            let stripe = turns.next().expect("a cycle");
            let (first, later) = stripe.split_at(UNIT_BYTES);
            p.copy_from_slice(first);
            q.copy_from_slice(first);
            gf256::add_units_to_both(&mut p, &mut q, later, UNIT_BYTES);
        });
    });
    if let Some(isal) = Isal::load() {
        group.bench_function("ISA-L", |b| {
            b.iter(|| {
                let stripe = turns.next().expect("a cycle");
                let units: Vec<&[u8]> = stripe.chunks(UNIT_BYTES).collect();
                isal.parities(&units, &mut p, &mut q);
            });
        });
    }
    group.finish();
}

fn bench_two_lost_units(c: &mut Criterion) {
    let units: Vec<Vec<BufMut>> =
        (0..STRIPES).map(|n| (0..DATA_UNITS).map(|unit| filled(UNIT_BYTES, n + unit)).collect()).collect();
    let mut found = [BufMut::zeroed(UNIT_BYTES), BufMut::zeroed(UNIT_BYTES)];
    // The factors of two parities and two data units, for each lost unit.
    let mut factors = [[0x8e, 0x03, 0x47, 0xa5], [0x8f, 0x03, 0x46, 0xa4]];
    let mut group = c.benchmark_group("two lost units of 64 KiB of a stripe of six");
    group.throughput(Throughput::Bytes(2 * UNIT_BYTES as u64));
    let mut turns = units.iter().cycle();
    group.bench_function("ours", |b| {
        b.iter(|| {
            let stripe = turns.next().expect("a cycle");
            for (found, factors) in found.iter_mut().zip(&factors) {
                found.fill(0);
                let sources: Vec<(u8, &[u8])> =
                    factors.iter().copied().zip(stripe.iter().map(|unit| &**unit)).collect();
                gf256::add_products(found, &sources);
            }
        });
    });
    if let Some(isal) = Isal::load() {
        let mut tables = isal.tables(DATA_UNITS, factors.as_flattened_mut());
        group.bench_function("ISA-L", |b| {
            b.iter(|| {
                let stripe = turns.next().expect("a cycle");
                let sources: Vec<&[u8]> = stripe.iter().map(|unit| &**unit).collect();
                let [first, second] = &mut found;
                isal.sums(&mut tables, &sources, &mut [first, second]);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench_parities, bench_two_lost_units);
criterion_main!(benches);
