//! `sys::gf256` beside ISA-L, which computes the same code with another order of the units.
#![allow(clippy::indexing_slicing, reason = "tests")]

mod library;

use library::{ALIGN, Isal};
use sys::{BufMut, gf256};

/// Aligned bytes that differ at each place.
fn unit(len: usize, seed: usize) -> BufMut {
    let mut unit = BufMut::zeroed(len);
    for (n, byte) in unit.iter_mut().enumerate() {
        *byte = ((n + 1) * (2 * seed + 37) + n / 251 + (n * n) % 113) as u8;
    }
    unit
}

#[test]
fn p_and_q_are_those_of_isa_l_for_the_units_in_reverse() {
    let Some(isal) = Isal::load() else { return };
    for count in 2..=30 {
        for len in [ALIGN, 3 * ALIGN, 4096, 65536] {
            let mut stripe = Vec::new();
            let units: Vec<BufMut> = (0..count).map(|n| unit(len, n)).collect();
            units.iter().for_each(|unit| stripe.extend_from_slice(unit));
            let (mut p, mut q) = (BufMut::zeroed(len), BufMut::zeroed(len));
            gf256::add_units_to_both(&mut p, &mut q, &stripe, len);
            let (mut wanted_p, mut wanted_q) = (BufMut::zeroed(len), BufMut::zeroed(len));
            let given: Vec<&[u8]> = units.iter().map(|unit| &**unit).collect();
            isal.parities(&given, &mut wanted_p, &mut wanted_q);
            assert!(p[..] == wanted_p[..], "P of {count} units of {len} bytes");
            assert!(q[..] == wanted_q[..], "Q of {count} units of {len} bytes");
        }
    }
}

#[test]
fn sums_of_products_are_those_of_isa_l() {
    let Some(isal) = Isal::load() else { return };
    for count in 1..=20 {
        for len in [64, 65, 127, 4096, 5000] {
            let units: Vec<BufMut> = (0..count).map(|n| unit(len, n)).collect();
            let sources: Vec<&[u8]> = units.iter().map(|unit| &**unit).collect();
            let mut factors: Vec<u8> = (0..2 * count).map(|n| (n * 89 + len) as u8).collect();
            let (mut first, mut second) = (vec![0; len], vec![0; len]);
            let mut tables = isal.tables(count, &mut factors);
            isal.sums(&mut tables, &sources, &mut [&mut first, &mut second]);
            for (factors, wanted) in factors.chunks(count).zip([first, second]) {
                let given: Vec<(u8, &[u8])> = factors.iter().copied().zip(sources.iter().copied()).collect();
                let mut found = vec![0; len];
                gf256::add_products(&mut found, &given);
                assert!(found == wanted, "{count} sources of {len} bytes");
            }
        }
    }
}
