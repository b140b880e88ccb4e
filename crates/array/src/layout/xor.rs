//! Parity: plain loops that the compiler turns into vector instructions.

use zoned::BufMut;

/// XORs `from` into `into`, up to the shorter length.
pub(crate) fn xor(into: &mut [u8], from: &[u8]) {
    let (words, rest) = into.as_chunks_mut::<8>();
    let (from_words, from_rest) = from.as_chunks::<8>();
    for (to, from) in words.iter_mut().zip(from_words) {
        *to = (u64::from_ne_bytes(*to) ^ u64::from_ne_bytes(*from)).to_ne_bytes();
    }
    for (to, from) in rest.iter_mut().zip(from_rest) {
        *to ^= from;
    }
}

/// Bytes of parity that are computed at a time: they stay in the first-level cache.
const PARITY_CHUNK_BYTES: usize = 4096;

/// Appends the XOR of the parts of `whole` to `onto`. Each part has `unit` bytes; a shorter last part is ignored.
pub(crate) fn xor_parts(onto: &mut BufMut, whole: &[u8], unit: usize) {
    let mut at = 0;
    while at < unit {
        let (begin, to) = (onto.len(), unit.min(at + PARITY_CHUNK_BYTES));
        let mut parts = whole.chunks_exact(unit).filter_map(|part| part.get(at..to));
        onto.extend_from_slice(parts.next().unwrap_or_default());
        if let Some(parity) = onto.get_mut(begin..) {
            parts.for_each(|part| xor(parity, part));
        }
        at = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fold_is_the_xor_of_all_parts() {
        for unit in [1, 512, 4096, 5000, 65536] {
            let whole: Vec<u8> = (0..4 * unit).map(|n| (n * n / 7 + n) as u8).collect();
            let mut onto = BufMut::with_capacity(unit);
            onto.extend_from_slice(b"before");
            xor_parts(&mut onto, &whole, unit);
            let mut wanted = whole[..unit].to_vec();
            whole.chunks(unit).skip(1).for_each(|part| xor(&mut wanted, part));
            assert_eq!((&onto[..6], &onto[6..]), (&b"before"[..], &wanted[..]), "{unit}");
        }
    }

    #[test]
    fn xor_twice_restores_the_data() {
        for len in [0, 1, 7, 8, 9, 4096, 4099] {
            let a: Vec<u8> = (0..len).map(|n| (n * 7 + 3) as u8).collect();
            let b: Vec<u8> = (0..len).map(|n| (n * 13 + 5) as u8).collect();
            let mut c = a.clone();
            xor(&mut c, &b);
            assert!(c.iter().zip(a.iter().zip(&b)).all(|(c, (a, b))| *c == a ^ b));
            xor(&mut c, &b);
            assert_eq!(c, a);
        }
    }
}
