//! Measures how long the recovery of logs of some sizes takes, as JSON: `recovery DEVICE MIB,MIB,... RUNS`.

use bench::recovery::{RecoveryLoad, run};
use units::Bytes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut load = RecoveryLoad::default();
    if let Some(device) = args.next() {
        load.device = device;
    }
    if let Some(sizes) = args.next() {
        let mib = |text: &str| text.parse().map(|mib: u64| Bytes(mib << 20));
        load.sizes = sizes.split(',').map(mib).collect::<Result<_, _>>()?;
    }
    if let Some(runs) = args.next() {
        load.runs = runs.parse()?;
    }
    println!("{}", serde_json::to_string_pretty(&run(&load)?)?);
    Ok(())
}
