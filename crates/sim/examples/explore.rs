//! Explores a target from the command line, without the `furrow` binary:
//! `cargo run -p furrow-sim --example explore -- TARGET SEED STATES [STATE-ID] [--on-array] [--break RULE] [--trace FILE]`

use fs::BrokenRule;
use sim::{BrokenRule as TablesRule, BrokenRules, CrashOptions, Target, crash};
use units::{Driver, RealDriver};

const FS_RULES: [(&str, BrokenRule); 13] = [
    ("sync", BrokenRule::Sync),
    ("rename", BrokenRule::Rename),
    ("torntail", BrokenRule::TornTail),
    ("reset", BrokenRule::Reset),
    ("gap", BrokenRule::Gap),
    ("rewritesequence", BrokenRule::RewriteSequence),
    ("durablewrite", BrokenRule::DurableWrite),
    ("barrier", BrokenRule::Barrier),
    ("syncorder", BrokenRule::SyncOrder),
    ("needs", BrokenRule::Needs),
    ("known", BrokenRule::Known),
    ("void", BrokenRule::Void),
    ("stalepage", BrokenRule::StalePage),
];
const TABLES_RULES: [(&str, TablesRule); 3] = [
    ("flushchoice", TablesRule::FlushChoice),
    ("abandonedflush", TablesRule::AbandonedFlush),
    ("ingestionmarks", TablesRule::IngestionMarks),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = Vec::new();
    let mut args = std::env::args().skip(1);
    let (mut broken_rules, mut trace, mut on_array) = (BrokenRules::default(), None, false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--break" => {
                let rule = args.next().unwrap_or_default();
                let of_fs = FS_RULES.iter().find(|(name, _)| *name == rule).map(|(_, rule)| *rule);
                let of_tables = TABLES_RULES.iter().find(|(name, _)| *name == rule).map(|(_, rule)| *rule);
                if of_fs.is_none() && of_tables.is_none() {
                    let names = FS_RULES.map(|(name, _)| name).join(", ");
                    return Err(format!(
                        "--break {rule}: take {names}, {}",
                        TABLES_RULES.map(|r| r.0).join(", ")
                    )
                    .into());
                }
                broken_rules = BrokenRules { fs: of_fs, tables: of_tables, ..broken_rules };
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
    let options =
        CrashOptions { broken_rules, trace, only, on_array, ..CrashOptions::new(target, seed, states) };
    let report = crash(&options)?;
    let seconds = clock.now().since(begun).as_secs_f64();
    println!("{} in {seconds:.1} s", serde_json::to_string_pretty(&report)?);
    Ok(())
}
