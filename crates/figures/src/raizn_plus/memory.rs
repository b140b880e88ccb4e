//! Table 5.1: the memory of an array of five whole zn540, from the array's own count of its structures.

use ::array::{Memory, Placement};
use bench::array::Setup;
use units::block_on;
use zoned::{Buf, Bytes, Durability, ZoneId};

use crate::raizn::setup::DRIVES;
use crate::{Better, Error, Figure, Panel, Result, Row, Run, Shape, Unit};

/// Table 5.1 of the dissertation.
pub(super) const FIGURE: Figure = Figure {
    name: "raiznplus-table1",
    title: "Table 5.1: memory of an array of five zn540, 904 zones each",
    panels: &[
        Panel::new("table5.1-tables", "tables, KiB for each TB of the array", "", "KiB", Shape::Bars),
        Panel::new("table5.1-open", "KiB for each open zone", "", "KiB", Shape::Bars),
    ],
    measure,
};

/// Zones of a drive.
const ZONES: u32 = 904;
/// Bytes of a stripe unit.
const STRIPE_UNIT: Bytes = Bytes(64 << 10);

/// Bytes that the table's lines give: a map of 6 B for each drive, generation counters of 8.05 B, a persistence bitmap of 2 KiB and
/// descriptors of 64 B for the logical zone and for each physical zone.
const PUBLISHED_BYTES_OF_A_ZONE: f64 = 6.0 * DRIVES as f64 + 8.05 + 2048.0 + 64.0 + 64.0 * DRIVES as f64;
/// KiB that the table's line of stripe buffers gives for an open zone: eight of five units.
const PUBLISHED_KIB_OF_AN_OPEN_ZONE: f64 = 320.0 * 8.0;

/// The memory of an array whose zones are open as far as the drives allow, the number of these, and the array's size.
struct Measured {
    memory: Memory,
    open: u32,
    zones: u32,
    terabytes: f64,
}

fn measure_array(setup: &Setup) -> zoned::Result<Measured> {
    let bed = setup.build()?;
    let geometry = bed.device.geometry().clone();
    let open = geometry.max_open.unwrap_or(1);
    let unit = usize::try_from(setup.stripe_unit.0).expect("fits memory");
    block_on(&*bed.driver, async {
        for zone in (0..open).map(ZoneId) {
            bed.device.write(geometry.start(zone), Buf::zeroed(unit), Durability::Cached).await?;
        }
        Ok::<(), zoned::Error>(())
    })?;
    let bytes = geometry.zone_capacity.bytes(geometry.block_size).0 * u64::from(geometry.zones);
    Ok(Measured {
        memory: bed.array.status().memory.unwrap_or_default(),
        open,
        zones: geometry.zones,
        terabytes: bytes as f64 / 1e12,
    })
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (series, placement, parities) in [
        ("fixed placement", Placement::Fixed, 1),
        ("stored maps", Placement::Stored, 1),
        ("stored maps, two parities on six drives", Placement::Stored, 2),
    ] {
        (run.progress)(series);
        let setup = Setup {
            drives: DRIVES - 1 + parities,
            zones: ZONES,
            stripe_unit: STRIPE_UNIT,
            placement,
            parities,
            ..Setup::default()
        };
        let Measured { memory, open, zones, terabytes } =
            measure_array(&setup).map_err(|e| Error::new(format!("an array with {series}"), e))?;
        let kib = |bytes: u64| bytes as f64 / 1024.0;
        let published =
            (parities == 1).then_some(f64::from(zones) * PUBLISHED_BYTES_OF_A_ZONE / 1024.0 / terabytes);
        let row = |figure, ours| Row {
            better: Better::Lower,
            ..Row::new(figure, series, "Furrow", Unit::Kib, ours)
                .note("counted by the array: status --json, memory")
        };
        rows.push(row("table5.1-tables", kib(memory.tables.0) / terabytes).paper(published).note(format!(
            "{zones} logical zones, {terabytes:.2} TB; published: the lines of the table added up"
        )));
        let open_kib = kib(memory.parity.0) / f64::from(open);
        let published = (parities == 1).then_some(PUBLISHED_KIB_OF_AN_OPEN_ZONE);
        rows.push(row("table5.1-open", open_kib).paper(published).note(format!("{open} zones are open")));
    }
    Ok(rows)
}
