//! Factors of the second parity, Q, over GF(2^8) with the polynomial 0x11d and the generator 2. The loops over content are those of
//! [`sys::gf256`].
//!
//! Q is computed in Horner's form, by ascending data unit: `Q <- 2 Q + D`. So the Q of the first units of a stripe is a prefix of the
//! Q of the whole stripe, and a write only doubles. Multiplication by other constants serves reconstruction alone.

pub(crate) use sys::gf256::{add_products, add_unit, add_units_to_both, multiply, remove_last_unit};

use sys::gf256::double;

/// The byte whose product with `byte` is 1; 0 for 0.
pub(crate) fn inverse(byte: u8) -> u8 {
    // The 255 bytes other than 0 are a group, so that the power 254 is the inverse: the product of the powers 2, 4, ..., 128.
    let square = |byte| multiply(byte, byte);
    let powers = std::iter::successors(Some(square(byte)), |power| Some(square(*power)));
    powers.take(7).fold(1, multiply)
}

/// The power of 2 with this exponent.
pub(crate) fn power_of_2(exponent: u64) -> u8 {
    (0..exponent % 255).fold(1, |power, _| double(power))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn inverses_and_powers_are_those_of_the_field() {
        for a in 0..=255 {
            assert_eq!(multiply(a, inverse(a)), u8::from(a != 0));
        }
        let mut powers: Vec<u8> = (0..255).map(power_of_2).collect();
        powers.sort_unstable();
        assert_eq!(powers, (1..=255).collect::<Vec<u8>>(), "2 generates the field");
        assert_eq!(power_of_2(255 + 3), 8);
    }

    proptest! {
        #[test]
        fn a_q_is_the_sum_of_its_units_times_powers_of_2(
            units in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 131), 1..9)
        ) {
            let (mut p, mut q, mut both) = (vec![0; 131], vec![0; 131], vec![0; 131]);
            for (count, unit) in (1_u64..).zip(&units) {
                add_unit(&mut q, unit);
                add_units_to_both(&mut p, &mut both, unit, unit.len());
                for at in 0..131 {
                    let power = |index: u64| power_of_2(count - 1 - index);
                    let there = || (0..count).zip(&units);
                    prop_assert_eq!(q[at], there().fold(0, |sum, (n, unit)| sum ^ multiply(power(n), unit[at])));
                    prop_assert_eq!(p[at], there().fold(0, |sum, (_, unit)| sum ^ unit[at]));
                }
            }
            prop_assert_eq!(&both, &q);
            for (count, unit) in (1_u64..).zip(&units).collect::<Vec<_>>().into_iter().rev() {
                remove_last_unit(&mut q, unit);
                let mut prefix = vec![0; 131];
                units.iter().take(count as usize - 1).for_each(|unit| add_unit(&mut prefix, unit));
                prop_assert_eq!(&q, &prefix);
            }
        }
    }
}
