use proptest::prelude::*;

use super::*;

/// The product by long multiplication of polynomials, bit by bit.
fn slow_product(a: u8, b: u8) -> u8 {
    let mut product: u16 = 0;
    for bit in 0..8 {
        product ^= (u16::from(a) << bit) * (u16::from(b) >> bit & 1);
    }
    for bit in (8..16).rev() {
        product ^= (0x11d << (bit - 8)) * (product >> bit & 1);
    }
    u8::try_from(product).expect("reduced")
}

/// Bytes that differ at each place.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| ((n + 1) * (2 * seed + 37) + n / 251 + (n * n) % 113) as u8).collect()
}

/// The longest content of the tests: more than two steps of each loop.
const LONGEST: usize = 300;

#[test]
fn products_are_those_of_the_field() {
    for a in 0..=255 {
        assert_eq!(double(a), slow_product(a, 2));
        for b in 0..=255 {
            assert_eq!(multiply(a, b), slow_product(a, b), "{a} times {b}");
        }
    }
}

#[test]
fn products_of_all_factors_are_added_as_byte_by_byte() {
    let source: Vec<u8> = (0..=255).collect();
    for factor in 0..=255 {
        let mut found = bytes(256, 5);
        let wanted: Vec<u8> =
            found.iter().zip(&source).map(|(before, byte)| before ^ slow_product(factor, *byte)).collect();
        let mut plainly = found.clone();
        add_products(&mut found, &[(factor, &source)]);
        plain::add_products(&mut plainly, &[(factor, &source)]);
        assert_eq!((&found, &plainly), (&wanted, &wanted), "factor {factor}");
    }
}

#[test]
fn products_of_all_lengths_and_alignments_are_those_of_the_plain_loop() {
    for len in 0..=LONGEST {
        for skip in [0, 1, 7, 15, 16, 31, 32, 33, 63] {
            let sources: Vec<Vec<u8>> = (0..4).map(|n| bytes(skip + n + len, n)).collect();
            let given: Vec<(u8, &[u8])> = (0..)
                .zip(&sources)
                .map(|(n, source)| (n * 67 + 3, &source[skip + usize::from(n)..]))
                .collect();
            let mut found = bytes(skip + len + 1, 9);
            let mut wanted = found.clone();
            add_products(&mut found[skip..skip + len], &given);
            for (factor, source) in &given {
                for (place, byte) in wanted[skip..skip + len].iter_mut().zip(*source) {
                    *place ^= slow_product(*factor, *byte);
                }
            }
            assert_eq!(found, wanted, "{len} bytes from byte {skip} on");
        }
    }
}

#[test]
fn more_sources_than_tables_are_kept_of_and_shorter_sources_are_added() {
    let sources: Vec<Vec<u8>> = (0..40).map(|n| bytes(LONGEST - 3 * n, n)).collect();
    let given: Vec<(u8, &[u8])> = (1..).zip(&sources).map(|(n, source)| (n * 5, &source[..])).collect();
    let mut wanted = vec![0; LONGEST];
    for (factor, source) in &given {
        wanted.iter_mut().zip(*source).for_each(|(place, byte)| *place ^= slow_product(*factor, *byte));
    }
    let (mut found, mut plainly) = (vec![0; LONGEST], vec![0; LONGEST]);
    add_products(&mut found, &given);
    plain::add_products(&mut plainly, &given);
    assert_eq!((&found, &plainly), (&wanted, &wanted));
}

/// Adds units byte by byte.
fn add_slowly(p: &mut [u8], q: &mut [u8], data: &[u8]) {
    for ((p, q), data) in p.iter_mut().zip(q).zip(data) {
        *p ^= data;
        *q = slow_product(2, *q) ^ data;
    }
}

#[test]
fn units_of_all_lengths_and_alignments_are_added_as_byte_by_byte() {
    for len in 0..=LONGEST {
        for (skip, units, stride) in [(0, 1, 300), (1, 3, 301), (31, 4, 333), (7, 2, 300), (33, 0, 300)] {
            let whole = bytes(skip + units * stride, units);
            let data = &whole[skip..];
            let (mut p, mut q) = (bytes(skip + len, 1), bytes(skip + len, 2));
            let (mut wanted_p, mut wanted_q) = (p.clone(), q.clone());
            let (mut plain_p, mut plain_q, mut one_by_one) = (p.clone(), q.clone(), q.clone());
            for unit in data.chunks(stride) {
                add_slowly(&mut wanted_p[skip..], &mut wanted_q[skip..], unit);
                add_unit(&mut one_by_one[skip..], unit);
            }
            add_units_to_both(&mut p[skip..], &mut q[skip..], data, stride);
            plain::add_units_to_both(&mut plain_p[skip..], &mut plain_q[skip..], data, stride);
            assert_eq!((&p, &q), (&wanted_p, &wanted_q), "{units} units of {len} bytes from byte {skip} on");
            assert_eq!((&plain_p, &plain_q, &one_by_one), (&wanted_p, &wanted_q, &wanted_q));
        }
    }
}

#[test]
fn a_last_unit_that_is_shorter_than_the_parities_is_ignored() {
    let data = bytes(2 * 100 + 63, 3);
    let (mut p, mut q) = (vec![0; 64], vec![0; 64]);
    add_units_to_both(&mut p, &mut q, &data, 100);
    let (mut wanted_p, mut wanted_q) = (vec![0; 64], vec![0; 64]);
    data.chunks(100).take(2).for_each(|unit| add_slowly(&mut wanted_p, &mut wanted_q, unit));
    assert_eq!((p, q), (wanted_p, wanted_q));
}

proptest! {
    #[test]
    fn a_unit_that_was_added_is_taken_out_again(
        before in proptest::collection::vec(any::<u8>(), 0..LONGEST), data in proptest::collection::vec(any::<u8>(), 0..LONGEST)
    ) {
        let (mut q, mut plainly) = (before.clone(), before.clone());
        add_unit(&mut q, &data);
        plain::add_unit(&mut plainly, &data);
        prop_assert_eq!(&q, &plainly);
        remove_last_unit(&mut q, &data);
        plain::remove_last_unit(&mut plainly, &data);
        prop_assert_eq!(&q, &before);
        prop_assert_eq!(&plainly, &before);
    }
}
