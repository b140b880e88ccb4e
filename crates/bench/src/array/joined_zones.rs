//! A zone of several physical zones of each drive, whose stripes take turns, on drives whose zones are slower than the drives. Paper:
//! RAIZN+, section 6.2.1, which leaves such drives open.

use ::array::Placement;
use zoned::Result;

use super::{ArrayLoad, Bytes, Kind, Line, Load, MIB, Setup, Summary, fill_with_zeros};

/// The profile of drives with small zones.
const PROFILE: &str = "smallzone";
/// Physical zones of each drive in a zone.
const SECTIONS: u32 = 8;
/// Zones of each drive.
const ZONES: u32 = 40;
/// Stripes in flight.
const DEPTH: usize = 64;
/// Bytes that are moved: fewer than the zone holds.
const TOTAL: Bytes = Bytes(512 * MIB);

impl ArrayLoad {
    /// The rate of one interleaved zone, written and read, beside that of as many zones of each drive that holds data.
    pub(super) fn joined_zones(&self) -> Result<Vec<Line>> {
        let setup = Setup {
            profile: PROFILE,
            zones: ZONES,
            placement: Placement::Stored,
            sections: SECTIONS,
            ..self.setup
        };
        let load = ArrayLoad { setup, total: TOTAL };
        let mut lines = Vec::new();
        for (kind, what, drives) in [
            (Kind::Write, "whole stripes written", setup.data_drives()),
            (Kind::Sequential, "whole stripes read", setup.drives),
        ] {
            let bed = setup.build()?;
            if kind == Kind::Sequential {
                fill_with_zeros(&bed.device, 1, TOTAL)?;
            }
            let ours = load.load(&bed.device, kind, load.stripe(), DEPTH)?;
            let all = load.zones_of_one_drive(kind)?.mib * f64::from(drives);
            let what = format!("{what}, one zone of {SECTIONS} of each drive, {PROFILE}, depth {DEPTH}");
            lines.push(Line::rate(what, ours.mib, all, format!("{drives} drives, {SECTIONS} zones of each")));
        }
        Ok(lines)
    }

    /// Runs a load on as many zones of one drive as a joined zone has there, in operations of a stripe unit.
    fn zones_of_one_drive(&self, kind: Kind) -> Result<Summary> {
        let (device, size) = (self.setup.alone(), self.setup.stripe_unit);
        let share = Bytes(TOTAL.0 / u64::from(self.setup.data_drives()) / u64::from(SECTIONS));
        if kind == Kind::Sequential {
            fill_with_zeros(&device, SECTIONS, share)?;
        }
        let load =
            Load { jobs: SECTIONS, ..Load::new(kind, size, DEPTH / SECTIONS as usize, share.0 / size.0) };
        Ok(Summary::of(&load.run(&device)?, size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_zone_of_several_of_each_drive_has_their_rate() {
        let lines = ArrayLoad::default().joined_zones().expect("measured");
        lines.iter().for_each(|line| println!("{}", line.words()));
        let missed: Vec<&Line> = lines.iter().filter(|line| !line.holds()).collect();
        assert!(missed.is_empty() && lines.len() == 2, "{missed:#?}");
    }
}
