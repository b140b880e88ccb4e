//! The loops with AVX2: vectors of 32 bytes, and products by two shuffles of a table each.

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::plain;

/// Bytes of a vector.
const VECTOR_BYTES: usize = 32;
/// Vectors that are computed at a time.
const VECTORS: usize = 4;
/// Sources whose tables are kept at a time: more of them are added in several passes.
const MAX_SOURCES: usize = 16;

#[target_feature(enable = "avx2")]
pub(super) fn add_unit(q: &mut [u8], data: &[u8]) {
    plain::add_unit_lanes(q, data);
}

#[target_feature(enable = "avx2")]
pub(super) fn remove_last_unit(q: &mut [u8], data: &[u8]) {
    plain::remove_last_unit_lanes(q, data);
}

#[target_feature(enable = "avx2")]
pub(super) fn add_units_to_both(p: &mut [u8], q: &mut [u8], data: &[u8], stride: usize) {
    plain::add_units_to_both_lanes(p, q, data, stride);
}

/// The products of a factor with all values of the low and of the high half of a byte, each table in both halves of a vector.
#[derive(Clone, Copy)]
struct Tables {
    low: __m256i,
    high: __m256i,
}

/// The products of each byte with the 16 values of a byte's low half, and with those of its high half.
#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
static HALF_PRODUCTS: [[[u8; 16]; 2]; 256] = {
    let mut all = [[[0; 16]; 2]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut half = 0;
        while half < 16 {
            all[factor][0][half] = plain::multiply(factor as u8, half as u8);
            all[factor][1][half] = plain::multiply(factor as u8, (half as u8) << 4);
            half += 1;
        }
        factor += 1;
    }
    all
};

#[target_feature(enable = "avx2")]
#[expect(clippy::indexing_slicing, reason = "every byte has its products")]
fn tables(factor: u8) -> Tables {
    let table = |products: &[u8; 16]| {
        // SAFETY: the array has the 16 bytes that are read.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(products.as_ptr().cast()) })
    };
    let [low, high] = &HALF_PRODUCTS[usize::from(factor)];
    Tables { low: table(low), high: table(high) }
}

/// The bytes of a vector times the factor of the tables.
#[target_feature(enable = "avx2")]
fn times(tables: &Tables, bytes: __m256i) -> __m256i {
    let mask = _mm256_set1_epi8(0x0f);
    let low = _mm256_and_si256(bytes, mask);
    let high = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), mask);
    _mm256_xor_si256(_mm256_shuffle_epi8(tables.low, low), _mm256_shuffle_epi8(tables.high, high))
}

#[target_feature(enable = "avx2")]
pub(super) fn add_products(into: &mut [u8], sources: &[(u8, &[u8])]) {
    for sources in sources.chunks(MAX_SOURCES) {
        add_some_products(into, sources);
    }
}

/// Adds the products of at most [`MAX_SOURCES`] sources.
#[target_feature(enable = "avx2")]
fn add_some_products(into: &mut [u8], sources: &[(u8, &[u8])]) {
    let mut made = [tables(0); MAX_SOURCES];
    for (tables_of, (factor, _)) in made.iter_mut().zip(sources) {
        *tables_of = tables(*factor);
    }
    const STEP: usize = VECTOR_BYTES * VECTORS;
    let whole = sources.iter().map(|(_, source)| source.len()).chain([into.len()]).min().unwrap_or(0) / STEP;
    for (n, place) in into.as_chunks_mut::<STEP>().0.iter_mut().enumerate().take(whole) {
        let mut sums: [__m256i; VECTORS] = std::array::from_fn(|vector| {
            // SAFETY: vector `vector` of the chunk is within its `STEP` bytes; the load needs no alignment.
            unsafe { _mm256_loadu_si256(place.as_ptr().add(vector * VECTOR_BYTES).cast()) }
        });
        for (tables, (_, source)) in made.iter().zip(sources) {
            let Some(source) = source.as_chunks::<STEP>().0.get(n) else { continue };
            for (vector, sum) in sums.iter_mut().enumerate() {
                // SAFETY: as above, for the chunk of the source.
                let bytes = unsafe { _mm256_loadu_si256(source.as_ptr().add(vector * VECTOR_BYTES).cast()) };
                *sum = _mm256_xor_si256(*sum, times(tables, bytes));
            }
        }
        for (vector, sum) in sums.into_iter().enumerate() {
            // SAFETY: as above, for a store.
            unsafe { _mm256_storeu_si256(place.as_mut_ptr().add(vector * VECTOR_BYTES).cast(), sum) };
        }
    }
    plain::add_products_from(into, sources, whole * STEP);
}
