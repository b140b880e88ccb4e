//! The median and the spread of a measurement that was repeated.

/// Numbers below this one are written with three decimal places instead of one.
const SMALL: f64 = 10.0;

/// The median, the least and the most of a measurement's runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    /// The median; of an even number of runs the mean of the two in the middle. 0 without runs.
    pub(crate) median: f64,
    least: f64,
    most: f64,
    runs: usize,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |n: usize| sorted.get(n).copied().unwrap_or(0.0);
        let runs = sorted.len();
        let median = f64::midpoint(at(runs.saturating_sub(1) / 2), at(runs / 2));
        Spread { median, least: at(0), most: at(runs.saturating_sub(1)), runs }
    }

    /// The part of a row's note that says how many runs there were, and how far apart they are.
    pub(crate) fn note(&self) -> String {
        match self.runs {
            1 => String::from("one run"),
            runs => {
                let digits = if self.most < SMALL { 3 } else { 1 };
                format!("median of {runs} runs, {:.digits$} to {:.digits$}", self.least, self.most)
            }
        }
    }

    /// The note of a row that is computed from medians: the number of runs behind each median.
    pub(crate) fn runs_note(&self) -> String {
        match self.runs {
            1 => String::from("one run each"),
            runs => format!("of medians of {runs} runs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_and_the_note_has_the_ends() {
        let spread = Spread::of(&[3.0, 10.0, 1.0, 4.0, 2.0]);
        assert_eq!((spread.median, spread.note().as_str()), (3.0, "median of 5 runs, 1.0 to 10.0"));
        assert_eq!(Spread::of(&[0.031, 0.02]).note(), "median of 2 runs, 0.020 to 0.031");
        assert_eq!(Spread::of(&[2.0, 1.0]).median, 1.5);
        assert_eq!(Spread::of(&[7.0]).note(), "one run");
        assert_eq!(Spread::of(&[]).median, 0.0);
    }
}
