//! The scale of a vertical axis, and its ticks.

/// Most ticks of a linear axis.
const MAX_TICKS: f64 = 6.0;

/// On an axis of more than this many decades only powers of ten are marked.
const MAX_DECADES_WITH_ALL_TICKS: f64 = 2.2;

/// The scale of a vertical axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    log: bool,
    low: f64,
    high: f64,
    /// The numbers at which the axis has ticks.
    pub ticks: Vec<f64>,
}

impl Scale {
    /// A linear scale from zero to a round number that no value exceeds.
    pub fn linear(values: impl Iterator<Item = f64>) -> Scale {
        let most = values.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let power = 10_f64.powf((most / MAX_TICKS).log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| step * MAX_TICKS >= most)
            .unwrap_or(power * 10.0);
        let count = (most / step).ceil();
        let ticks = (0..=count as u32).map(|n| f64::from(n) * step).collect();
        Scale { log: false, low: 0.0, high: count * step, ticks }
    }

    /// A logarithmic scale over whole steps of 1, 2, 5. Values that are not above zero lie on the axis.
    pub fn log(values: impl Iterator<Item = f64> + Clone) -> Scale {
        let values = values.filter(|value| *value > 0.0);
        let least = values.clone().fold(f64::INFINITY, f64::min);
        if !least.is_finite() {
            return Scale { log: true, low: 1.0, high: 10.0, ticks: vec![1.0, 10.0] };
        }
        let most = values.fold(least, f64::max);
        let wide = (most / least).log10() > MAX_DECADES_WITH_ALL_TICKS;
        let factors: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let from = least.log10().floor() as i32;
        let to = most.log10().ceil() as i32 + 1;
        let all: Vec<f64> = (from..=to)
            .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)))
            .collect();
        // The slack keeps a value of just a tick's size from counting as above the tick.
        let slack = 1.0 + 1e-9;
        let low = all.iter().copied().filter(|tick| *tick <= least * slack).fold(0.0, f64::max);
        let high = all.iter().copied().filter(|tick| *tick * slack >= most).fold(f64::INFINITY, f64::min);
        let high = if high > low { high } else { low * 10.0 };
        let ticks = all.into_iter().filter(|tick| *tick >= low / slack && *tick <= high * slack).collect();
        Scale { log: true, low, high, ticks }
    }

    /// The position of a value on the axis: 0 at the bottom, 1 at the top.
    pub fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }
}

/// Formats a number for axes and tables: three significant digits, thousands separated by commas.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    let (whole, rest) = text.find('.').map_or((text, ""), |dot| text.split_at(dot));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left.is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_ends_at_a_round_number_above_all() {
        let scale = Scale::linear([35.55, 2.0].into_iter());
        assert_eq!((scale.high, scale.ticks.len()), (40.0, 5));
        assert_eq!(scale.at(20.0), 0.5);
        assert_eq!(Scale::linear([0.0].into_iter()).at(0.0), 0.0);
    }

    #[test]
    fn a_logarithmic_axis_has_every_value_within() {
        let scale = Scale::log([0.30, 84.7].into_iter());
        assert_eq!(scale.ticks, [0.1, 1.0, 10.0, 100.0]);
        assert!((scale.at(1.0) - 1.0 / 3.0).abs() < 1e-9);
        let scale = Scale::log([1.99, 29.4].into_iter());
        assert_eq!(scale.ticks, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(Scale::log([0.0].into_iter()).at(0.0), 0.0);
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (1152.4, "1,152"),
            (35.55, "35.5"),
            (2.064, "2.06"),
            (-12.0, "-12"),
            (0.3, "0.3"),
            (1234567.0, "1,234,567"),
            (-100000.0, "-100,000"),
            (5.0, "5"),
            (100.0, "100"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
