//! An array of two parities, with as many data units as the measured array has. Paper: RAIZN+, section 5.2.5.

use zoned::Result;

use super::{ArrayLoad, KIB, Kind, Line, MIB, Setup, fill_with_zeros};

/// Operations in flight.
const DEPTH: usize = 32;

impl ArrayLoad {
    /// The same load for an array of as many data drives and two parities.
    fn with_two_parities(&self) -> ArrayLoad {
        let drives = self.setup.data_drives() + 2;
        ArrayLoad { setup: Setup { drives, parities: 2, ..self.setup }, ..*self }
    }

    /// Writes, reads with up to two drives missing, and a rebuild of an array with two parities.
    pub(super) fn two_parities(&self) -> Result<Vec<Line>> {
        let load = self.with_two_parities();
        let drives = load.setup.drives;
        let mut lines = load.stripes_of_two_parities()?;
        let one = load.drive(Kind::Sequential, DEPTH)?;
        let mut bed = load.setup.build()?;
        fill_with_zeros(&bed.device, 1, load.total)?;
        let all = load.load(&bed.device, Kind::Sequential, MIB, DEPTH)?;
        let which = format!("{drives} drives, {} KiB, depth {DEPTH}", load.setup.stripe_unit.0 / KIB);
        let what = format!("1 MiB read, two parities, depth {DEPTH}");
        lines.push(Line::rate(what.clone(), all.mib, one.mib * f64::from(drives), which));
        for (missing, words) in [(1, "a drive is lost"), (2, "two drives are lost")] {
            bed = bed.without(0)?;
            let degraded = load.load(&bed.device, Kind::Sequential, MIB, DEPTH)?;
            let line =
                Line::rate(format!("{what}, {words}"), degraded.mib, all.mib, "the same with all drives");
            // A stripe has as many units to read as it has data units, whichever drives are left. Roles move by two drives from stripe
            // to stripe, so that without one drive the others' shares differ a little.
            let whole_stripes = MIB.is_multiple_of(load.stripe());
            let more = if whole_stripes { 0 } else { load.stripe() };
            let share = f64::from(drives - missing) / f64::from(drives) * MIB as f64 / (MIB + more) as f64;
            lines.push(Line { wanted: if missing == 1 { 0.94 } else { 0.975 } * share, ..line });
        }
        for zones in [1, 2, 4] {
            let rebuilt = load.rebuild(zones)?;
            lines.push(Line { what: format!("two parities, {}", rebuilt.what), ..rebuilt });
        }
        Ok(lines)
    }

    /// Writes of whole stripes with two parities, beside as many drives as there are data units.
    fn stripes_of_two_parities(&self) -> Result<Vec<Line>> {
        let one = self.drive(Kind::Write, DEPTH)?;
        let unit = self.setup.stripe_unit.0 / KIB;
        let whole = self.load(&self.setup.build()?.device, Kind::Write, self.stripe(), DEPTH)?;
        let what = format!("whole stripes written, two parities, depth {DEPTH}");
        let which = format!("{} drives, {unit} KiB, depth {DEPTH}", self.data_drives());
        let rate = Line::rate(what.clone(), whole.mib, one.mib * self.data_drives(), which);
        let which = format!("one drive, {unit} KiB, depth {DEPTH}");
        let tail = Line::latency(format!("p99.9 of {what}"), whole.p99_9, one.p99_9, which);
        Ok(vec![rate, tail])
    }
}

#[cfg(test)]
mod tests {
    use zoned::Bytes;

    use super::*;

    #[test]
    fn two_parities_write_and_read_at_the_rate_of_their_drives() {
        let setup = Setup { zone_size: Some(Bytes(256 * MIB)), ..Setup::default() };
        let load = ArrayLoad { setup, total: Bytes(256 * MIB) };
        let lines = load.two_parities().expect("measured");
        lines.iter().for_each(|line| println!("{}", line.words()));
        let missed: Vec<&Line> = lines.iter().filter(|line| !line.holds()).collect();
        assert!(missed.is_empty() && lines.len() == 8, "{missed:#?}");
    }
}
