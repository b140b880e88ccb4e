//! A model of a drive that collects garbage: the pages that it moves for each page written.
//!
//! Of a drive whose flash has `1 / u` times the pages in use, written uniformly at random, garbage collection that erases the block
//! with the fewest valid pages finds a share `v` of its pages valid, where `v = exp(-(1 - v) / u)`. It writes `1 / (1 - v)` pages for each
//! page of the host. Source: Xiang and Kurkoski, "An Improved Analytical Expression for Write Amplification in NAND Flash", 2011
//! (arXiv:1110.4245), there with the Lambert W function: with 30 % over-provisioning, `u = 1 / 1.3`, 2.36.

/// Steps of the fixed point: the share changes by less than a millionth with each step long before the last one, up to 95 % in use.
const STEPS: u32 = 2000;

/// Bytes that a drive writes for each byte of the host, with the share `utilisation` of its flash in use, from 0 to below 1.
pub(super) fn write_amplification(utilisation: f64) -> f64 {
    let mut valid = 0.0;
    for _ in 0..STEPS {
        valid = f64::exp(-(1.0 - valid) / utilisation);
    }
    1.0 / (1.0 - valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_write_amplification_is_the_published_one() {
        // The expression gives 2.36 where simulations give 2.35.
        assert!((write_amplification(1.0 / 1.3) - 2.36).abs() < 0.005, "{}", write_amplification(1.0 / 1.3));
    }

    #[test]
    fn it_grows_with_the_utilisation_and_is_one_on_an_empty_drive() {
        let all: Vec<f64> = [0.1, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95].map(write_amplification).to_vec();
        assert!(all.is_sorted() && all.iter().all(|written| *written >= 1.0), "{all:?}");
        assert!(all[0] < 1.001 && all[6] > 10.0, "{all:?}");
    }
}
