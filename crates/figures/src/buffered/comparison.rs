//! A load of YCSB with the page cache buffered and direct, in turn.

use bench::ycsb::{self, Phase, Workload, YcsbLoad};

use super::setup::{MODES, engine_name, memory, note};
use crate::spread::Spread;
use crate::{Error, Result, Row, Run, Unit, X};

/// The name of a workload C behind another one.
pub(super) const C_AGAIN: &str = "C again";

/// One workload's numbers, buffered and direct.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    pub(super) name: &'static str,
    /// Thousand operations a second of each run, by mode.
    kiops: [Vec<f64>; MODES.len()],
    /// MiB read from the drive in each run, by mode; reads of compactions are among them.
    read_mib: [Vec<f64>; MODES.len()],
    note: String,
}

/// Runs the load's workloads on one open database, `runs` times with each mode in turn. `share`: the memory over the data.
pub(super) fn compare(run: &Run<'_>, load: YcsbLoad, share: f64, runs: u32) -> Result<Vec<Compared>> {
    let load = YcsbLoad { memory: Some(memory(load.records, share)), ..load };
    let note = format!("memory {share} of the data; {}", note(&load));
    let empty = |name| Compared {
        name,
        kiops: [const { Vec::new() }; MODES.len()],
        read_mib: [const { Vec::new() }; MODES.len()],
        note: note.clone(),
    };
    let mut all: Vec<Compared> = names(&load.workloads).into_iter().map(empty).collect();
    for number in 0..runs {
        for (at, (mode, cache_mode)) in MODES.into_iter().enumerate() {
            let load = YcsbLoad { cache_mode, seed: load.seed + u64::from(number), ..load.clone() };
            let what = format!("{}, {mode}, memory {share}", engine_name(load.engine));
            let progress = |doing: &str| (run.progress)(&format!("{what}, run {}: {doing}", number + 1));
            progress("load");
            let outcome = ycsb::run(&load, &|phase| progress(&format!("after {}", phase.workload)));
            let outcome = outcome.map_err(|e| Error::new(what.clone(), e))?;
            for (phase, of) in outcome.phases.iter().zip(&mut all) {
                of.add(at, phase).map_err(|why| Error::new(what.clone(), why))?;
            }
        }
    }
    Ok(all)
}

/// The names of workloads in rows.
fn names(workloads: &[Workload]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for workload in workloads {
        names.push(match workload {
            Workload::Load => "load",
            Workload::A => "A",
            Workload::B => "B",
            Workload::C if names.contains(&"C") => C_AGAIN,
            Workload::C => "C",
            Workload::D => "D",
            Workload::E => "E",
            Workload::F => "F",
        });
    }
    names
}

impl Compared {
    /// Adds a run with the mode at `at`. A run that lost records has no rate.
    fn add(&mut self, at: usize, phase: &Phase) -> std::result::Result<(), String> {
        if phase.missing > 0 {
            return Err(format!("{}: {} records were not found", self.name, phase.missing));
        }
        if let (Some(kiops), Some(read_mib)) = (self.kiops.get_mut(at), self.read_mib.get_mut(at)) {
            kiops.push(phase.ops_per_s / 1e3);
            read_mib.push(phase.device_operations.read_bytes as f64 / f64::from(1 << 20));
        }
        Ok(())
    }

    /// The rows of the rates, a series for each mode.
    pub(super) fn rates(&self, figure: &'static str, x: impl Into<X>) -> Vec<Row> {
        self.rows(figure, x.into(), Unit::Kiops, &self.kiops)
    }

    /// The rows of the bytes read from the drive, a series for each mode.
    pub(super) fn reads(&self, figure: &'static str, x: impl Into<X>) -> Vec<Row> {
        self.rows(figure, x.into(), Unit::Mib, &self.read_mib)
    }

    fn rows(&self, figure: &'static str, x: X, unit: Unit, runs: &[Vec<f64>; MODES.len()]) -> Vec<Row> {
        let of_mode = |((mode, _), runs): ((&str, _), &Vec<f64>)| {
            let spread = Spread::of(runs);
            Row::new(figure, mode, x.clone(), unit, spread.median).note(spread.note()).note(&self.note)
        };
        MODES.into_iter().zip(runs).map(of_mode).collect()
    }

    /// The row of the buffered median rate over the direct one.
    pub(super) fn over(&self, figure: &'static str, series: impl Into<String>, x: impl Into<X>) -> Row {
        let [buffered, direct] = self.kiops.each_ref().map(|runs| Spread::of(runs));
        let ratio = if direct.median > 0.0 { buffered.median / direct.median } else { 0.0 };
        Row::new(figure, series, x, Unit::Times, ratio).note(buffered.runs_note()).note(&self.note)
    }
}
