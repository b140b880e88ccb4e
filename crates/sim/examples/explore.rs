//! Explores a target from the command line, without the `furrow` binary:
//! `cargo run -p furrow-sim --example explore -- TARGET SEED STATES [STATE-ID] [--on-array] [--break RULE] [--trace FILE]`

use fs::BrokenRule;
use sim::{BrokenRules, CrashOptions, Target, crash};
use units::{Driver, RealDriver};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = Vec::new();
    let mut args = std::env::args().skip(1);
    let (mut broken_rule, mut trace, mut on_array) = (None, None, false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--break" => {
                broken_rule = match args.next().as_deref() {
                    Some("sync") => Some(BrokenRule::Sync),
                    Some("rename") => Some(BrokenRule::Rename),
                    Some("torntail") => Some(BrokenRule::TornTail),
                    Some("reset") => Some(BrokenRule::Reset),
                    Some("gap") => Some(BrokenRule::Gap),
                    Some("barrier") => Some(BrokenRule::Barrier),
                    Some("syncorder") => Some(BrokenRule::SyncOrder),
                    Some("needs") => Some(BrokenRule::Needs),
                    Some("known") => Some(BrokenRule::Known),
                    Some("void") => Some(BrokenRule::Void),
                    other => {
                        let known =
                            "sync, rename, torntail, reset, gap, barrier, syncorder, needs, known or void";
                        return Err(format!("--break {other:?}: take {known}").into());
                    }
                }
            }
            "--on-array" => on_array = true,
            "--trace" => trace = args.next().map(Into::into),
            _ => words.push(arg),
        }
    }
    let word = |at: usize| words.get(at).map(String::as_str);
    let target: Target = word(0).unwrap_or("fs").parse()?;
    let seed = word(1).unwrap_or("1").parse()?;
    let states = word(2).unwrap_or("500").parse()?;
    let only = word(3).map(str::parse).transpose()?;
    let clock = RealDriver::new();
    let begun = clock.now();
    let broken_rules = BrokenRules { fs: broken_rule, ..BrokenRules::default() };
    let options =
        CrashOptions { broken_rules, trace, only, on_array, ..CrashOptions::new(target, seed, states) };
    let report = crash(&options)?;
    let seconds = clock.now().since(begun).as_secs_f64();
    println!("{} in {seconds:.1} s", serde_json::to_string_pretty(&report)?);
    Ok(())
}
