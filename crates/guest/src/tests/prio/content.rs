//! The bytes of a log of the tests, which follow from its name and place. No byte is zero: behind the last one are zeros.

/// The bytes of a log from `from` on.
pub(super) fn expected(name: &str, from: u64, length: usize) -> Vec<u8> {
    let seed = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (from..).take(length).map(|at| byte(seed, at)).collect()
}

fn byte(seed: u64, at: u64) -> u8 {
    let mixed = (seed ^ at).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 56) as u8 | 1
}

/// Where the log ends of which these are the file's bytes.
pub(super) fn end(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_s_bytes_follow_from_its_name_and_place() {
        let whole = expected("a", 0, 100);
        assert_eq!(whole[40..], expected("a", 40, 60));
        assert_ne!(whole, expected("b", 0, 100));
        assert_eq!(end(&whole), 100);
        assert_eq!(end(&[whole, vec![0; 5], vec![1; 5]].concat()), 100);
    }
}
