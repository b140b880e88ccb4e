//! Content that says where it belongs, and is fast to make without optimization.

/// A block of `length` bytes that names two numbers; its rest follows from them.
pub(super) fn block(numbers: [u64; 2], length: usize) -> Vec<u8> {
    let [first, second] = numbers.map(u64::to_le_bytes);
    let mut bytes = [first, second].concat();
    let mixed =
        first.iter().chain(&second).fold(0_u8, |mixed, byte| mixed.wrapping_mul(31).wrapping_add(*byte));
    bytes.resize(length.max(bytes.len()), mixed);
    bytes.truncate(length);
    bytes
}
