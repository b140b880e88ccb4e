//! Measures one zone written by several threads, in each way that keeps its writes in order, as a table or as JSON:
//! `stage [--json] [KIB,KIB,...]`.

use bench::stage::{StageLoad, measure};
use units::Bytes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (flags, args): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let sizes = args.first().map_or("4,16,64", String::as_str);
    for one_write in [true, false] {
        for kib in sizes.split(',') {
            let load =
                StageLoad { one_write, size: Bytes(kib.parse::<u64>()? << 10), ..StageLoad::default() };
            let outcomes = measure(&load)?;
            if flags.iter().any(|flag| flag == "--json") {
                let line = serde_json::json!({
                    "profile": load.profile, "one_write": one_write, "size": load.size.0,
                    "threads": load.threads, "count": load.count, "ways": outcomes,
                });
                println!("{line}");
                continue;
            }
            println!("{} of {kib} KiB, one write of a zone in flight: {one_write}", load.profile);
            for outcome in outcomes {
                println!(
                    "  {:<8} {:>6.0} MiB/s  {:>5.3}  mean {:>6.1} us  p99 {:>6.1} us",
                    format!("{:?}", outcome.way).to_lowercase(),
                    outcome.mib_per_s,
                    outcome.of_ordered,
                    outcome.latency_us.mean,
                    outcome.latency_us.p99
                );
            }
        }
    }
    Ok(())
}
