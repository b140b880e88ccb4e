//! The loops without instructions of a certain processor: the compiler turns them into vector instructions of the least processor
//! of the target.
//!
//! The functions with a name that ends in `_lanes` are compiled again with more instructions by the module of a processor.

/// The low byte of the polynomial.
const POLYNOMIAL: u8 = 0x1d;
/// Half of the polynomial: what half of an odd byte contains of it.
const HALF_POLYNOMIAL: u8 = 0x8e;
/// Bytes that are computed at a time: they stay in registers.
const LANE_BYTES: usize = 64;

/// Twice a byte.
#[inline(always)]
pub(super) const fn double(byte: u8) -> u8 {
    let carry = (byte.cast_signed() >> 7).cast_unsigned();
    (byte << 1) ^ (carry & POLYNOMIAL)
}

/// Half of a byte: twice the result is the byte.
#[inline(always)]
const fn halve(byte: u8) -> u8 {
    let odd = (byte & 1).wrapping_neg();
    (byte >> 1) ^ (odd & HALF_POLYNOMIAL)
}

/// The product of two bytes.
pub(super) const fn multiply(a: u8, b: u8) -> u8 {
    let (mut product, mut bit) = (0, 8);
    while bit > 0 {
        bit -= 1;
        product = double(product) ^ (a * (b >> bit & 1));
    }
    product
}

pub(super) fn add_unit(q: &mut [u8], data: &[u8]) {
    add_unit_lanes(q, data);
}

pub(super) fn remove_last_unit(q: &mut [u8], data: &[u8]) {
    remove_last_unit_lanes(q, data);
}

pub(super) fn add_units_to_both(p: &mut [u8], q: &mut [u8], data: &[u8], stride: usize) {
    add_units_to_both_lanes(p, q, data, stride);
}

#[inline(always)]
pub(super) fn add_unit_lanes(q: &mut [u8], data: &[u8]) {
    for (q, data) in q.iter_mut().zip(data) {
        *q = double(*q) ^ data;
    }
}

#[inline(always)]
pub(super) fn remove_last_unit_lanes(q: &mut [u8], data: &[u8]) {
    for (q, data) in q.iter_mut().zip(data) {
        *q = halve(*q ^ data);
    }
}

/// Each lane of both parities goes through all units in registers, so that the parities are read and written once.
#[inline(always)]
pub(super) fn add_units_to_both_lanes(p: &mut [u8], q: &mut [u8], data: &[u8], stride: usize) {
    let unit = p.len();
    let units = (data.len() + stride).saturating_sub(unit) / stride;
    let ((p_lanes, p_rest), (q_lanes, q_rest)) =
        (p.as_chunks_mut::<LANE_BYTES>(), q.as_chunks_mut::<LANE_BYTES>());
    for (n, (p, q)) in p_lanes.iter_mut().zip(q_lanes.iter_mut()).enumerate() {
        let (mut p_sum, mut q_sum) = (*p, *q);
        let mut at = n * LANE_BYTES;
        for _ in 0..units {
            let Some(lane) = data.get(at..).and_then(|data| data.first_chunk::<LANE_BYTES>()) else { break };
            for ((p, q), data) in p_sum.iter_mut().zip(&mut q_sum).zip(lane) {
                *p ^= data;
                *q = double(*q) ^ data;
            }
            at += stride;
        }
        (*p, *q) = (p_sum, q_sum);
    }
    let first = p_lanes.len() * LANE_BYTES;
    for n in 0..units {
        let bytes = data.get(n * stride + first..n * stride + unit).unwrap_or_default();
        for ((p, q), data) in p_rest.iter_mut().zip(q_rest.iter_mut()).zip(bytes) {
            *p ^= data;
            *q = double(*q) ^ data;
        }
    }
}

/// Horner's form over the bits of the factors: all sources share seven doublings.
pub(super) fn add_products(into: &mut [u8], sources: &[(u8, &[u8])]) {
    let (lanes, _) = into.as_chunks_mut::<LANE_BYTES>();
    let whole = sources.iter().map(|(_, source)| source.len()).chain([lanes.len() * LANE_BYTES]).min();
    let whole = whole.unwrap_or(0) / LANE_BYTES;
    for (n, lane) in lanes.iter_mut().enumerate().take(whole) {
        let mut sum = [0; LANE_BYTES];
        for bit in (0..8).rev() {
            sum = sum.map(double);
            for (factor, source) in sources {
                if factor >> bit & 1 == 1
                    && let Some(source) = source.as_chunks::<LANE_BYTES>().0.get(n)
                {
                    sum.iter_mut().zip(source).for_each(|(sum, byte)| *sum ^= byte);
                }
            }
        }
        lane.iter_mut().zip(&sum).for_each(|(lane, sum)| *lane ^= sum);
    }
    add_products_from(into, sources, whole * LANE_BYTES);
}

/// Adds the products of the bytes from `first` on, byte by byte.
pub(super) fn add_products_from(into: &mut [u8], sources: &[(u8, &[u8])], first: usize) {
    for (factor, source) in sources {
        let places = into.get_mut(first..).unwrap_or_default().iter_mut();
        for (place, byte) in places.zip(source.get(first..).unwrap_or_default()) {
            *place ^= multiply(*factor, *byte);
        }
    }
}
