//! The command `furrow zk`, turns of snapshots for stock ZooKeeper.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use units::{Bytes, Driver, RealDriver};
use zk::coordinator::TurnEnd;
use zk::{AdminServer, Credentials, Ended, Ensemble, Mode, Notice, Role, ServerAddress, ServerId, Settings};

use crate::context::Context;
use crate::exit::{Code, Failure};
use crate::output;
use crate::size;

/// `furrow zk`
#[derive(Debug, Args)]
pub struct ZkArgs {
    #[command(subcommand)]
    command: ZkCommand,
}

/// The verbs.
#[derive(Debug, Subcommand)]
enum ZkCommand {
    /// Command the snapshots of an ensemble's servers one at a time, the leader's last.
    Turns(TurnsArgs),
}

/// `furrow zk turns`
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  furrow zk turns --ensemble zk1:8080,zk2:8080,zk3:8080 --credentials /etc/furrow/zookeeper\n\
    Run one for an ensemble, on any machine. docs/zookeeper.md lists the settings that the servers need."
)]
struct TurnsArgs {
    /// The AdminServers of all voters.
    #[arg(long, value_name = "HOST:PORT,...")]
    ensemble: String,
    /// File with USER:PASSWORD of a user who may take snapshots; only its owner may read it.
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// The servers run under furrow prio run, which writes behind: a snapshot is on the drive when it is answered.
    #[arg(long)]
    synced: bool,
    /// End when no snapshot is due; 1 if one fails, or no turn can begin for --longest-snapshot and --longest-settle-time.
    #[arg(long, conflicts_with = "dry_run")]
    once: bool,
    /// Check the servers, say whose turn would be next, and command nothing.
    #[arg(long)]
    dry_run: bool,
    /// The longest time that a snapshot takes; nothing is commanded for that long after the start.
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = humantime::parse_duration)]
    longest_snapshot: Duration,
    /// Time between two polls of a server.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = humantime::parse_duration)]
    interval: Duration,
    /// After a snapshot the server's syncs must be as fast as before for this long.
    #[arg(long, default_value = "35s", value_name = "TIME", value_parser = humantime::parse_duration)]
    settle_time: Duration,
    /// The longest wait for that.
    #[arg(long, default_value = "2m", value_name = "TIME", value_parser = humantime::parse_duration)]
    longest_settle_time: Duration,
    /// A server with a shorter log takes no snapshot; otherwise one is due when the log is as large as the snapshot.
    #[arg(long, default_value = "64MiB", value_name = "SIZE", value_parser = size::parse)]
    least_log: Bytes,
    /// A snapshot is due at this length of the log in any case.
    #[arg(long, default_value = "4GiB", value_name = "SIZE", value_parser = size::parse)]
    longest_log: Bytes,
}

/// The shortest time between two polls.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// A sample may be older than two polls by the time that its requests take.
const SLACK_OF_SAMPLES: Duration = Duration::from_secs(5);

/// Runs `furrow zk`.
pub fn run(context: &Context, args: &ZkArgs) -> Result<ExitCode> {
    let ZkCommand::Turns(args) = &args.command;
    turns(context, args)
}

fn turns(context: &Context, args: &TurnsArgs) -> Result<ExitCode> {
    let addresses = ServerAddress::parse_ensemble(&args.ensemble).map_err(Failure::usage)?;
    let settings = args.settings()?;
    let credentials =
        args.credentials.as_deref().map(Credentials::read).transpose().map_err(Failure::refused)?;
    let servers = addresses.into_iter().map(|address| AdminServer::new(address, credentials.clone()));
    let ensemble = match Ensemble::check(servers.collect()) {
        Ok(ensemble) => ensemble,
        Err(faults) => return refuse(context, &faults),
    };
    let driver: Arc<dyn Driver> = RealDriver::new();
    let mode = match (args.once, args.dry_run) {
        (true, _) => Mode::Once,
        (_, true) => Mode::DryRun,
        _ => Mode::Watch,
    };
    let printer = Printer { ensemble: &ensemble, driver: &*driver, json: context.json };
    let ended = ensemble.run(&driver, settings, args.interval, mode, |notice| printer.notice(notice))?;
    match ended {
        Ended::NothingDue => Ok(ExitCode::SUCCESS),
        Ended::Failed(why) => Err(Failure::refused(why)),
        Ended::DryRun { servers, not_serving, next } => {
            printer.dry_run(&servers, &not_serving, next)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl TurnsArgs {
    fn settings(&self) -> Result<Settings> {
        if self.interval < SHORTEST_INTERVAL {
            return Err(Failure::usage(format!("--interval is at least {SHORTEST_INTERVAL:?}")));
        }
        let settings = Settings {
            longest_snapshot: self.longest_snapshot,
            sample_age: self.interval.saturating_mul(2).saturating_add(SLACK_OF_SAMPLES),
            settle_time: if self.synced { Duration::ZERO } else { self.settle_time },
            longest_settle_time: self.longest_settle_time,
            least_log: self.least_log,
            longest_log: self.longest_log,
            ..Settings::default()
        };
        settings.check().map_err(Failure::usage)?;
        Ok(settings)
    }
}

/// Prints every fault of the servers, one a line.
fn refuse(context: &Context, faults: &[String]) -> Result<ExitCode> {
    if context.json {
        output::line(json!({ "faults": faults }).to_string())?;
    }
    for fault in faults {
        eprintln!("furrow: {fault}");
    }
    Ok(Code::Failure.into())
}

/// Prints what happens: a line of text, or a line of JSON.
struct Printer<'a> {
    ensemble: &'a Ensemble,
    driver: &'a dyn Driver,
    json: bool,
}

impl Printer<'_> {
    fn name(&self, server: ServerId) -> String {
        let address = self.ensemble.address(server).map(ToString::to_string).unwrap_or_default();
        format!("{server} ({address})")
    }

    fn notice(&self, notice: &Notice) -> Result<()> {
        let ms = self.driver.unix_millis();
        if self.json {
            let mut value = as_json(notice);
            if let Some(fields) = value.as_object_mut() {
                fields.insert("unix_ms".to_owned(), json!(ms));
            }
            return output::line(value.to_string());
        }
        let time = std::time::UNIX_EPOCH + Duration::from_millis(ms);
        output::line(format!("{}  {}", humantime::format_rfc3339_seconds(time), self.text(notice)))
    }

    fn text(&self, notice: &Notice) -> String {
        let name = |server: &ServerId| self.name(*server);
        match notice {
            Notice::Leader { server } => format!("{} leads", name(server)),
            Notice::TurnBegins { server, role, log, snapshot, also_due } => format!(
                "{}, {}: its turn begins; log {}, snapshot {}, {} more due",
                name(server),
                role_name(*role),
                size::show(*log),
                size::show(*snapshot),
                also_due.len()
            ),
            Notice::SnapshotTaken { server, size, took } => {
                format!("{}: snapshot of {} taken in {took:.1?}", name(server), size::show(*size))
            }
            Notice::TurnEnds { server, took, because } => {
                format!("{}: its turn is over after {took:.1?}: {}", name(server), end_text(*because))
            }
            Notice::Unanswered { server, why } => {
                format!("{}: not known whether a snapshot is under way: {why}", name(server))
            }
            Notice::CommandedAgain { server } => {
                format!("{}: its snapshot is commanded again", name(server))
            }
            Notice::NoSnapshot { server, why } => format!("{}: no snapshot: {why}", name(server)),
            Notice::OwnSnapshots { server, count } => {
                format!("{}: took {count} snapshots by itself", name(server))
            }
            Notice::NotServing { server, why } => format!("{}: {why}", name(server)),
            Notice::Serves { server } => format!("{}: serves", name(server)),
            Notice::Waits { why } => format!("waits: {why}"),
        }
    }

    fn dry_run(
        &self,
        servers: &[(ServerId, zk::Sample, u64, u64)],
        not_serving: &[ServerId],
        next: Option<ServerId>,
    ) -> Result<()> {
        if self.json {
            let rows = servers.iter().map(|(id, sample, log, snapshot)| {
                json!({ "server": id.0, "role": role_name(sample.role), "log": log, "snapshot": snapshot })
            });
            let rows: Vec<Value> = rows.collect();
            let not_serving: Vec<u64> = not_serving.iter().map(|server| server.0).collect();
            let next = next.map(|next| next.0);
            return output::json(&json!({ "servers": rows, "not_serving": not_serving, "next": next }));
        }
        let row = |(id, sample, log, snapshot): &(ServerId, zk::Sample, u64, u64)| {
            let sizes = [size::show(Bytes(*log)), size::show(Bytes(*snapshot))];
            [vec![self.name(*id), role_name(sample.role).to_owned()], sizes.to_vec()].concat()
        };
        let silent =
            |id: &ServerId| vec![self.name(*id), "not serving".to_owned(), "-".to_owned(), "-".to_owned()];
        let rows = servers.iter().map(row).chain(not_serving.iter().map(silent)).collect();
        output::table(&["server", "role", "log", "snapshot"], &["log", "snapshot"], rows)?;
        output::line(next.map_or_else(
            || "no snapshot is due".to_owned(),
            |next| format!("the next turn is that of {}", self.name(next)),
        ))
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
    }
}

fn end_name(because: TurnEnd) -> &'static str {
    match because {
        TurnEnd::Settled => "settled",
        TurnEnd::StillSlow => "still-slow",
        TurnEnd::NoSnapshot => "no-snapshot",
        TurnEnd::Restarted => "restarted",
        TurnEnd::Gone => "gone",
    }
}

fn end_text(because: TurnEnd) -> &'static str {
    match because {
        TurnEnd::Settled => "its syncs are as fast as before",
        TurnEnd::StillSlow => "its syncs stay slow, and the longest wait has passed",
        TurnEnd::NoSnapshot => "no snapshot was taken",
        TurnEnd::Restarted => "the server was restarted",
        TurnEnd::Gone => "the server's process has ended",
    }
}

fn as_json(notice: &Notice) -> Value {
    let seconds = |time: &Duration| time.as_secs_f64();
    match notice {
        Notice::Leader { server } => json!({ "event": "leader", "server": server.0 }),
        Notice::TurnBegins { server, role, log, snapshot, also_due } => json!({
            "event": "turn-begins", "server": server.0, "role": role_name(*role), "log": log.0, "snapshot": snapshot.0,
            "also_due": also_due.iter().map(|server| server.0).collect::<Vec<_>>(),
        }),
        Notice::SnapshotTaken { server, size, took } => {
            json!({ "event": "snapshot-taken", "server": server.0, "size": size.0, "seconds": seconds(took) })
        }
        Notice::TurnEnds { server, took, because } => {
            json!({ "event": "turn-ends", "server": server.0, "seconds": seconds(took), "because": end_name(*because) })
        }
        Notice::Unanswered { server, why } => {
            json!({ "event": "unanswered", "server": server.0, "text": why })
        }
        Notice::CommandedAgain { server } => json!({ "event": "commanded-again", "server": server.0 }),
        Notice::NoSnapshot { server, why } => {
            json!({ "event": "no-snapshot", "server": server.0, "text": why })
        }
        Notice::OwnSnapshots { server, count } => {
            json!({ "event": "own-snapshots", "server": server.0, "count": count })
        }
        Notice::NotServing { server, why } => {
            json!({ "event": "not-serving", "server": server.0, "text": why })
        }
        Notice::Serves { server } => json!({ "event": "serves", "server": server.0 }),
        Notice::Waits { why } => json!({ "event": "waits", "text": why }),
    }
}
