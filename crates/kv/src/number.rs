//! Numbers in strings: 64-bit integers in their one canonical form, and decimals that add exactly.

/// Number of digits after the point in a [`Decimal`].
const FRACTION_DIGITS: usize = 17;

/// Largest number of digits before the point: those of the largest value of Redis's INCRBYFLOAT, an 80-bit
/// float.
const WHOLE_DIGITS_MAX: usize = 4933;

/// Parses a signed 64-bit number in its canonical form: no spaces, no plus sign, no leading zeros, no `-0`.
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

/// A decimal number with 17 digits after the point and up to 4933 before it: the values of INCRBYFLOAT. Sums
/// are exact, where binary floating point would show 10.600000000000001.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decimal {
    negative: bool,
    /// The digits, lowest first, in units of 10^-17; the last one is not 0. Zero has no digits, and is not
    /// negative.
    digits: Vec<u8>,
}

/// Parses a decimal number, with or without an exponent. Digits beyond the 17th after the point are rounded,
/// half up.
pub fn parse_decimal(text: &[u8]) -> Option<Decimal> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (mantissa, exponent) = match rest.iter().position(|b| matches!(b, b'e' | b'E')) {
        Some(at) => {
            let (mantissa, tail) = rest.split_at(at);
            let tail = tail.get(1..)?;
            let tail = tail.strip_prefix(b"+").unwrap_or(tail);
            if !tail.strip_prefix(b"-").unwrap_or(tail).first()?.is_ascii_digit() {
                return None;
            }
            (mantissa, std::str::from_utf8(tail).ok()?.parse::<i32>().ok()?)
        }
        None => (rest, 0),
    };
    let (whole, fraction) = match mantissa.iter().position(|&b| b == b'.') {
        Some(at) => (mantissa.get(..at)?, mantissa.get(at + 1..)?),
        None => (mantissa, &[][..]),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // The digit at index n stands for 10^(place - n), so that it is digit `place - n + FRACTION_DIGITS` of the number.
    let first = i64::try_from(whole.len() + FRACTION_DIGITS).ok()? - 1 + i64::from(exponent);
    let mut digits = Vec::new();
    let mut round_up = false;
    for (n, &digit) in whole.iter().chain(fraction).enumerate() {
        if !digit.is_ascii_digit() {
            return None;
        }
        let (digit, place) = (digit - b'0', first - i64::try_from(n).ok()?);
        match usize::try_from(place) {
            Ok(place) if digit != 0 => {
                if place >= WHOLE_DIGITS_MAX + FRACTION_DIGITS {
                    return None;
                }
                if digits.is_empty() {
                    digits.resize(place + 1, 0);
                }
                *digits.get_mut(place)? = digit;
            }
            Ok(_) => {}
            Err(_) => round_up |= place == -1 && digit >= 5,
        }
    }
    let number = Decimal::new(negative, digits);
    let last_place = Decimal { negative, digits: vec![1] };
    if round_up { number.plus(&last_place) } else { Some(number) }
}

impl Decimal {
    fn new(negative: bool, mut digits: Vec<u8>) -> Decimal {
        let len = digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
        digits.truncate(len);
        Decimal { negative: negative && len > 0, digits }
    }

    /// The sum of two decimals, if it has at most 4933 digits before the point.
    pub fn plus(&self, other: &Decimal) -> Option<Decimal> {
        let magnitude =
            |number: &Decimal| (number.digits.len(), number.digits.iter().rev().copied().collect());
        let (mine, others): ((usize, Vec<u8>), _) = (magnitude(self), magnitude(other));
        let (large, small) = if mine >= others { (self, other) } else { (other, self) };
        let sign = if large.negative == small.negative { 1 } else { -1 };
        let mut digits = Vec::with_capacity(large.digits.len() + 1);
        let mut carry = 0;
        for (n, digit) in large.digits.iter().enumerate() {
            let sum = *digit as i8 + sign * small.digits.get(n).map_or(0, |digit| *digit as i8) + carry;
            digits.push(sum.rem_euclid(10) as u8);
            carry = sum.div_euclid(10);
        }
        if carry > 0 {
            digits.push(1);
        }
        (digits.len() <= WHOLE_DIGITS_MAX + FRACTION_DIGITS).then(|| Decimal::new(large.negative, digits))
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digit = |n: usize| self.digits.get(n).copied().unwrap_or(0);
        let mut text = String::with_capacity(self.digits.len().max(FRACTION_DIGITS) + 2);
        if self.negative {
            text.push('-');
        }
        let places = self.digits.len().max(FRACTION_DIGITS + 1);
        text.extend((FRACTION_DIGITS..places).rev().map(|n| char::from(b'0' + digit(n))));
        if let Some(last) = (0..FRACTION_DIGITS).find(|n| digit(*n) != 0) {
            text.push('.');
            text.extend((last..FRACTION_DIGITS).rev().map(|n| char::from(b'0' + digit(n))));
        }
        f.write_str(&text)
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
            Some(a.plus(&b)?.to_string())
        };
        assert_eq!(sum("10.50", "0.1").as_deref(), Some("10.6"));
        assert_eq!(sum("5.0e3", "2.0e2").as_deref(), Some("5200"));
        assert_eq!(sum("-1.5", "1").as_deref(), Some("-0.5"));
        assert_eq!(sum("1e-17", "0").as_deref(), Some("0.00000000000000001"));
        assert_eq!(sum("1e20", "1e20").as_deref(), Some("200000000000000000000"));
        assert_eq!(sum("3e25", "1").as_deref(), Some("30000000000000000000000001"));
        assert_eq!(sum("1e25", "-0.5").as_deref(), Some("9999999999999999999999999.5"));
        assert_eq!(sum("-1e30", "1e30").as_deref(), Some("0"));
        assert_eq!(sum("0.999999999999999995", "0").as_deref(), Some("1"), "half is rounded up");
        assert_eq!(sum("-0.00000000000000000499", "0").as_deref(), Some("0"));
        assert_eq!(sum("1e4932", "0").map(|text| text.len()), Some(4933));
        assert_eq!(sum("9e4932", "9e4932"), None);
        for bad in ["", "abc", "1e", "1.2.3", "nan", "inf", " 1", "1e4933", "1e999999999", "e5", "--1", "."] {
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
        fn decimals_add_like_integers_scaled_to_the_last_digit(a: i64, b: i64) {
            let decimal = |n: i128| {
                let digits = format!("{:018}", n.unsigned_abs());
                let (whole, fraction) = digits.split_at(digits.len() - FRACTION_DIGITS);
                parse_decimal(format!("{}{whole}.{fraction}", if n < 0 { "-" } else { "" }).as_bytes()).unwrap()
            };
            let (a, b) = (i128::from(a), i128::from(b));
            prop_assert_eq!(decimal(a).plus(&decimal(b)), Some(decimal(a + b)));
            prop_assert_eq!(parse_decimal(decimal(a).to_string().as_bytes()), Some(decimal(a)));
        }

        #[test]
        fn integers_survive_the_round_trip(value: i64) {
            prop_assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        }
    }
}
