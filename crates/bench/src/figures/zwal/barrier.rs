//! Section 4.4: how far apart barriers are, against what a log takes and how long it is recovered.

use fs::log::IoMode;
use units::Bytes;

use crate::figures::{Figure, Panel, Result, Row, Run, Shape, Unit};
use crate::wal::WalLoad;

use super::Drive;
use super::alone::alone;

const X: &str = "barrier";
const Y: &str = "4 KiB records, thousand a second";

/// The figure.
pub const FIGURE: Figure = Figure {
    name: "zwal-barrier",
    title: "Section 4.4: the distance between barriers",
    panels: &[
        Panel { figure: "barrier-a", title: "a: confzns", x: X, y: Y, shape: Shape::Lines { log: true } },
        Panel { figure: "barrier-b", title: "b: zn540", x: X, y: Y, shape: Shape::Lines { log: true } },
    ],
    measure,
};

/// Name, bytes, and ZWAL's rate on `confzns` where the text gives it: at a zone it is 3.91 % above that at 16 MiB.
const BARRIERS: [(&str, u64, Option<f64>); 8] = [
    ("4K", 4 << 10, Some(1.99)),
    ("16K", 16 << 10, None),
    ("64K", 64 << 10, None),
    ("256K", 256 << 10, None),
    ("1M", 1 << 20, None),
    ("4M", 4 << 20, None),
    ("16M", 16 << 20, Some(28.25)),
    ("zone", 0, Some(29.35)),
];

/// Bytes of the log whose rate is measured.
const WRITTEN: u64 = 128 << 20;

fn measure(run: &Run<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for drive in Drive::BOTH {
        for (name, barrier, paper) in BARRIERS {
            (run.progress)(&format!("{}, barrier {name}", drive.profile()));
            let load = WalLoad {
                io: IoMode::Append,
                buffer: Bytes(4096),
                barrier: Bytes(barrier),
                total: Bytes(WRITTEN / run.pick(1, 8)),
                ..WalLoad::default()
            };
            let (rate, note) = alone(drive, load)?;
            let figure = drive.pick("barrier-b", "barrier-a");
            let row = Row::new(figure, "append", name, Unit::Kiops, rate).note(note);
            rows.push(match drive.pick(None, paper) {
                Some(paper) => row.paper(paper).note("published: through RocksDB, on the real clock"),
                None => row,
            });
        }
    }
    Ok(rows)
}
