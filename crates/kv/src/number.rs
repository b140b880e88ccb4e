//! Numbers in strings: 64-bit integers in their one canonical form, and decimals that add exactly.

/// Digits after the point that a [`Decimal`] keeps.
const SCALE: u32 = 17;

/// Reads a signed 64-bit number in its canonical form: no spaces, no plus sign, no leading zeros, no `-0`.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: i64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        value = value.checked_mul(10)?;
        value = if negative { value.checked_sub(digit)? } else { value.checked_add(digit)? };
    }
    Some(value)
}

/// A decimal number with 17 digits after the point, of magnitude below about 10^21: what INCRBYFLOAT counts in.
/// Sums are exact, where binary floating point would show 10.600000000000001.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decimal(i128);

/// Reads a decimal, with or without an exponent. Digits beyond the 17th after the point are rounded.
pub fn parse_decimal(text: &[u8]) -> Option<Decimal> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (digits, exponent) = match rest.iter().position(|b| matches!(b, b'e' | b'E')) {
        Some(at) => {
            let (digits, tail) = rest.split_at(at);
            let tail = tail.get(1..)?;
            let tail = tail.strip_prefix(b"+").unwrap_or(tail);
            if !tail.strip_prefix(b"-").unwrap_or(tail).first()?.is_ascii_digit() {
                return None;
            }
            (digits, std::str::from_utf8(tail).ok()?.parse::<i32>().ok()?)
        }
        None => (rest, 0),
    };
    let (whole, fraction) = match digits.iter().position(|&b| b == b'.') {
        Some(at) => (digits.get(..at)?, digits.get(at + 1..)?),
        None => (digits, &[][..]),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // The digit at index n stands for 10^(place - n).
    let mut place = i64::try_from(whole.len()).ok()? - 1 + i64::from(exponent);
    let mut value: i128 = 0;
    for &digit in whole.iter().chain(fraction) {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i128::from(digit - b'0');
        let power = place + i64::from(SCALE);
        if power >= 0 && digit != 0 {
            let unit = 10i128.checked_pow(u32::try_from(power).ok()?)?;
            value = value.checked_add(digit.checked_mul(unit)?)?;
        } else if power == -1 && digit >= 5 {
            value = value.checked_add(1)?;
        }
        place -= 1;
    }
    Some(Decimal(if negative { -value } else { value }))
}

impl Decimal {
    /// The sum, if it is not too large.
    pub fn plus(self, other: Decimal) -> Option<Decimal> {
        self.0.checked_add(other.0).map(Decimal)
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = 10u128.pow(SCALE);
        let magnitude = self.0.unsigned_abs();
        let (whole, fraction) = (magnitude / unit, magnitude % unit);
        if self.0 < 0 {
            f.write_str("-")?;
        }
        write!(f, "{whole}")?;
        if fraction != 0 {
            let digits = format!("{fraction:017}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_canonical_integers_are_numbers() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("", None),
            ("-", None),
            ("1x", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn decimals_add_exactly() {
        let sum = |a: &str, b: &str| {
            let (a, b) = (parse_decimal(a.as_bytes())?, parse_decimal(b.as_bytes())?);
            Some(a.plus(b)?.to_string())
        };
        assert_eq!(sum("10.50", "0.1").as_deref(), Some("10.6"));
        assert_eq!(sum("5.0e3", "2.0e2").as_deref(), Some("5200"));
        assert_eq!(sum("-1.5", "1").as_deref(), Some("-0.5"));
        assert_eq!(sum("1e-17", "0").as_deref(), Some("0.00000000000000001"));
        assert_eq!(sum("1e20", "1e20").as_deref(), Some("200000000000000000000"));
        for bad in ["", "abc", "1e", "1.2.3", "nan", "inf", " 1", "1e99", "e5", "--1", "."] {
            assert_eq!(parse_decimal(bad.as_bytes()), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_number_or_not(text: Vec<u8>) {
            parse_decimal(&text);
            parse_integer(&text);
        }

        #[test]
        fn integers_survive_the_round_trip(value: i64) {
            prop_assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        }
    }
}
