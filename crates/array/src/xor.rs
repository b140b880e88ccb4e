//! Parity: plain loops that the compiler turns into vector instructions.

/// XORs `from` into `into`. Both are as long as each other; what is longer is left alone.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_is_nothing() {
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
