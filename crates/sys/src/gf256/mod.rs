//! Loops of the second parity of an array, Q, over GF(2^8) with the polynomial 0x11d and the generator 2.
//!
//! Q is computed in Horner's form, by ascending data unit: `Q <- 2 Q + D`. Products by other constants serve reconstruction.
//! Each function runs the fastest loop of the processor: AVX2 on x86-64 where the processor has AVX2, else plain Rust. All loops give
//! the same bytes for all lengths and alignments.

mod plain;
#[cfg(target_arch = "x86_64")]
mod x86_64;

/// Calls the function with this name in the module with the fastest loops that this processor runs.
macro_rules! fastest {
    ($name:ident($($argument:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the function needs AVX2 alone, which the processor has.
            return unsafe { x86_64::$name($($argument),*) };
        }
        plain::$name($($argument),*)
    }};
}

/// The product of two bytes.
pub const fn multiply(a: u8, b: u8) -> u8 {
    plain::multiply(a, b)
}

/// Twice a byte.
pub const fn double(byte: u8) -> u8 {
    plain::double(byte)
}

/// Adds the next data unit to a Q: `q <- 2 q + data`, up to the shorter length.
pub fn add_unit(q: &mut [u8], data: &[u8]) {
    fastest!(add_unit(q, data))
}

/// Takes the last data unit out of a Q: `q <- (q + data) / 2`, up to the shorter length.
pub fn remove_last_unit(q: &mut [u8], data: &[u8]) {
    fastest!(remove_last_unit(q, data))
}

/// Adds the next data units to a P and a Q of the same length: unit `n` begins at byte `n * stride` of `data` and is as long as the
/// parities. A last unit that is shorter is ignored.
///
/// Panics if the lengths of the parities differ or `stride` is 0.
pub fn add_units_to_both(p: &mut [u8], q: &mut [u8], data: &[u8], stride: usize) {
    assert!(p.len() == q.len() && stride > 0, "{} bytes of P, {} of Q, stride {stride}", p.len(), q.len());
    fastest!(add_units_to_both(p, q, data, stride))
}

/// Adds the sum of all `sources`, each times its factor, to `into`. A source that is shorter than `into` counts as if zeros followed.
pub fn add_products(into: &mut [u8], sources: &[(u8, &[u8])]) {
    fastest!(add_products(into, sources))
}

#[cfg(test)]
mod tests;
