//! The commands `furrow figures`, which measure a paper's figures beside the published numbers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use ::bench::Host;
use ::figures::table::{Settings, Table};
use ::figures::{Figure, PROFILES, Row, Run, buffered, priority, raizn, raizn_plus, svg, waltz, zwal};
use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::{self, Code, Failure};
use crate::{output, progress};

/// `furrow figures`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct FiguresArgs {
    #[command(subcommand)]
    set: Set,
}

#[derive(Debug, Subcommand)]
enum Set {
    /// The drives' published latencies and rates beside those of their profiles.
    Profiles(OutArgs),
    /// The figures of the ZWAL paper on both of its drives. Wants a quiet machine.
    Zwal(PaperArgs),
    /// The figures of the WALTZ paper. Wants a quiet machine.
    Waltz(PaperArgs),
    /// The figures of the RAIZN paper: an array of five drives, almost all of it in virtual time.
    Raizn(PaperArgs),
    /// Atomic writes, db_bench, memory and reclaim as in the RAIZN dissertation's chapter 5 (RAIZN+), almost all of it in virtual time.
    RaiznPlus(PaperArgs),
    /// RocksDB and LevelDB over the page cache as in the paper on buffered I/O for zones. Wants a quiet machine.
    Buffered(BufferedArgs),
    /// A log beside bulk writes, and snapshots in turns, as in the paper on logs on shared drives: in virtual time.
    Priority(PaperArgs),
}

#[derive(Debug, Args)]
struct OutArgs {
    /// Write NAME.json, NAME.csv and NAME.svg of each figure into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct PaperArgs {
    #[command(flatten)]
    out: OutArgs,
    /// Measure only these figures: fig4, fig14...
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Run shorter measurements; the notes of the rows say so.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Args)]
struct BufferedArgs {
    #[command(flatten)]
    paper: PaperArgs,
    /// Records of each database, and operations of each workload [default: 80000, and 20000 operations]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(buffered::MIN_RECORDS..=MAX_RECORDS))]
    records: Option<u64>,
    /// Runs of which each number is the median [default: each figure's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_RUNS))]
    runs: Option<u32>,
}

/// The most records of a database: the drive, in memory, has 8 GiB.
const MAX_RECORDS: u64 = 2_000_000;

/// The most runs of which a number is the median.
const MAX_RUNS: i64 = 99;

/// Measures the figures. A figure that fails is reported, the other figures are measured, and the exit code is 1.
pub fn run(context: &Context, args: &FiguresArgs) -> Result<ExitCode> {
    let (figures, out, quick) = match &args.set {
        Set::Profiles(out) => (vec![PROFILES], out, false),
        Set::Zwal(args) => (chosen_figures(&zwal::FIGURES, &args.only)?, &args.out, args.quick),
        Set::Waltz(args) => (chosen_figures(&waltz::FIGURES, &args.only)?, &args.out, args.quick),
        Set::RaiznPlus(args) => (chosen_figures(&raizn_plus::FIGURES, &args.only)?, &args.out, args.quick),
        Set::Priority(args) => (chosen_figures(&priority::FIGURES, &args.only)?, &args.out, args.quick),
        Set::Raizn(args) => (chosen_figures(&raizn::FIGURES, &args.only)?, &args.out, args.quick),
        Set::Buffered(BufferedArgs { paper: args, .. }) => {
            (chosen_figures(&buffered::FIGURES, &args.only)?, &args.out, args.quick)
        }
    };
    let (records, runs) = match &args.set {
        Set::Buffered(args) => (args.records, args.runs),
        _ => (None, None),
    };
    if let Some(out) = &out.out {
        std::fs::create_dir_all(out).with_context(|| format!("making the directory {}", out.display()))?;
    }
    let date = UNIX_EPOCH + Duration::from_millis(context.unix_millis());
    let date = humantime::format_rfc3339_seconds(date).to_string();
    let settings = Settings { host: Host::here(), date, quick };
    let bar = progress::spinner();
    let mut all = Vec::new();
    let mut failed = 0;
    for figure in &figures {
        let report = |what: &str| bar.set_message(format!("{}: {what}", figure.name));
        let measured =
            figure.rows(&Run { quick, records, runs, progress: &report }).map_err(anyhow::Error::from);
        let written = measured.and_then(|rows| {
            match &out.out {
                Some(directory) => write_files(directory, figure, &settings, &rows)?,
                None if !context.json => bar.suspend(|| print_rows(figure, &rows))?,
                None => {}
            }
            all.extend(rows);
            Ok(())
        });
        if let Err(error) = written {
            failed += 1;
            bar.suspend(|| eprintln!("furrow: {}: {}", figure.name, exit::message(&error)));
        }
    }
    bar.finish_and_clear();
    if context.json {
        output::line(Table { settings: &settings, rows: &all }.json().trim_end())?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { Code::Failure.into() })
}

/// The figures that `--only` names; all if `only` is empty.
fn chosen_figures(figures: &[Figure], only: &[String]) -> Result<Vec<Figure>> {
    for word in only {
        if !figures.iter().any(|figure| figure.is_called(word)) {
            let names: Vec<&str> = figures.iter().map(|figure| figure.name).collect();
            return Err(Failure::usage(format!(
                "there is no figure '{word}': there are {}",
                names.join(", ")
            )));
        }
    }
    let named = |figure: &&Figure| only.is_empty() || only.iter().any(|word| figure.is_called(word));
    Ok(figures.iter().filter(named).copied().collect())
}

fn write_files(directory: &Path, figure: &Figure, settings: &Settings, rows: &[Row]) -> Result<()> {
    let table = Table { settings, rows };
    let files =
        [("json", table.json()), ("csv", table.csv()), ("svg", svg::draw(figure.title, figure.panels, rows))];
    for (extension, text) in files {
        let file = directory.join(figure.name).with_extension(extension);
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

fn print_rows(figure: &Figure, rows: &[Row]) -> Result<()> {
    output::line(format!("{}: {}", figure.name, figure.title))?;
    let cells = |row: &Row| {
        vec![
            row.figure.to_owned(),
            row.series.clone(),
            row.x.to_string(),
            row.paper.map(svg::number).unwrap_or_default(),
            svg::number(row.ours),
            row.unit.name().to_owned(),
            row.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            row.note.clone(),
        ]
    };
    let header = ["figure", "series", "x", "paper", "ours", "unit", "ratio", "note"];
    output::table(&header, &["paper", "ours", "ratio"], rows.iter().map(cells).collect())
}
