//! `furrow array monitor`: what happens to an array, as it happens.

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use server::array::{ArrayView, MemberView};

use super::at::At;
use super::status;
use crate::context::Context;
use crate::exit;
use crate::output;

/// `furrow array monitor`
#[derive(Debug, Args)]
#[command(after_help = "\
Events: drive-failed, second-failure, rebuild-started, rebuild-ended, repaired, blocks-lost, zone-worn, many-errors, scrub-started,
scrub-ended; of drives that nobody has drive-missing too; and whenever the array becomes so, and at the start if it is:
clean (not at the start), degraded, failed, unreachable.
The command is run by sh with FURROW_EVENT, FURROW_TEXT, FURROW_ARRAY, FURROW_LABEL, FURROW_HEALTH, FURROW_SLOT and
FURROW_DRIVE in its environment, one at a time.")]
pub struct MonitorArgs {
    #[command(flatten)]
    at: At,
    /// Run this for each event.
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// Between two looks.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = humantime::parse_duration)]
    interval: Duration,
    /// Look once, and end with the exit code of `status`.
    #[arg(long)]
    once: bool,
}

/// An event, for people and programs.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Happened {
    event: String,
    text: String,
    slot: Option<u32>,
    unix_ms: u64,
}

/// Tells what happens until it is ended.
pub fn run(context: &Context, args: &MonitorArgs) -> Result<ExitCode> {
    let mut before: Option<ArrayView> = None;
    let mut reachable = true;
    loop {
        match args.at.look(context) {
            Ok(view) => {
                if before.is_none() && !args.once {
                    // For people, and for programs that order something once they are watched.
                    eprintln!("furrow: watching array {}: {}", name(&view), view.health);
                }
                let events = changes(before.as_ref(), &view, context.unix_millis());
                for event in &events {
                    tell(context, args, &view, event)?;
                }
                if args.once {
                    return Ok(status::code(&view));
                }
                reachable = true;
                before = Some(view);
            }
            Err(error) if args.once => return Err(status::cannot_tell(error)),
            // What is wrong at the start stays so: a wrong argument, say.
            Err(error) if before.is_none() => return Err(error),
            Err(error) => {
                if reachable {
                    let last = before.clone().unwrap_or_default();
                    tell(
                        context,
                        args,
                        &last,
                        &Happened {
                            event: "unreachable".to_owned(),
                            text: exit::message(&error),
                            slot: None,
                            unix_ms: context.unix_millis(),
                        },
                    )?;
                }
                reachable = false;
            }
        }
        context.sleep(args.interval);
    }
}

/// What happened between two looks.
fn changes(before: Option<&ArrayView>, now: &ArrayView, unix_ms: u64) -> Vec<Happened> {
    let mut events = Vec::new();
    let happened =
        |event: &str, text: String, slot| Happened { event: event.to_owned(), text, slot, unix_ms };
    if now.opened_ms > 0 {
        // In use: it tells itself. What was before the first look is past.
        let seen = match before {
            None => u64::MAX,
            Some(before) if before.opened_ms != now.opened_ms => 0,
            Some(before) => before.events.last().map_or(0, |event| event.number),
        };
        events.extend(now.events.iter().filter(|event| event.number > seen).map(|event| Happened {
            event: event.event.clone(),
            text: event.text.clone(),
            slot: event.slot,
            unix_ms: event.unix_ms,
        }));
    } else if let Some(before) = before {
        for (old, new) in before.members.iter().zip(&now.members) {
            if let Some((event, text)) = of_member(old, new) {
                events.push(happened(event, text, Some(new.slot)));
            }
        }
    }
    let (was, is) = (before.map_or("clean", |before| before.health.as_str()), now.health.as_str());
    if was != is {
        let text = match now.advice.first() {
            Some(advice) => format!("the array is {is}. {advice}"),
            None => format!("the array is {is}"),
        };
        events.push(happened(is, text, None));
    }
    events
}

/// What became of a drive that nobody has.
fn of_member(old: &MemberView, new: &MemberView) -> Option<(&'static str, String)> {
    let slot = new.slot;
    if (&old.state, &old.uuid) == (&new.state, &new.uuid) {
        return None;
    }
    Some(match new.state.as_str() {
        "good" => ("rebuild-ended", format!("drive {slot} is there again")),
        "rebuilding" => ("rebuild-started", format!("drive {slot} is being rebuilt")),
        "missing" => ("drive-missing", format!("drive {slot} is missing")),
        _ => ("drive-failed", format!("drive {slot} failed")),
    })
}

/// What people call the array.
fn name(view: &ArrayView) -> &str {
    if view.label.is_empty() { &view.array } else { &view.label }
}

/// Prints an event and runs the command.
fn tell(context: &Context, args: &MonitorArgs, view: &ArrayView, event: &Happened) -> Result<()> {
    let drive = event.slot.and_then(|slot| view.members.iter().find(|member| member.slot == slot));
    let drive = drive.and_then(|member| member.drive.clone()).unwrap_or_default();
    if context.json {
        let line = json!({
            "unix_ms": event.unix_ms, "event": event.event, "text": event.text, "array": view.array,
            "label": view.label, "health": view.health, "slot": event.slot, "drive": drive,
        });
        output::line(line.to_string())?;
    } else {
        output::line(format!("{}: {}: {}", name(view), event.event, event.text))?;
    }
    let Some(command) = &args.exec else { return Ok(()) };
    let ended = Command::new("/bin/sh")
        .args(["-c", command])
        .env("FURROW_EVENT", &event.event)
        .env("FURROW_TEXT", &event.text)
        .env("FURROW_ARRAY", &view.array)
        .env("FURROW_LABEL", &view.label)
        .env("FURROW_HEALTH", &view.health)
        .env("FURROW_SLOT", event.slot.map_or(String::new(), |slot| slot.to_string()))
        .env("FURROW_DRIVE", drive)
        .stdin(Stdio::null())
        .status();
    // The next event is told all the same.
    match ended {
        Ok(status) if status.success() => {}
        Ok(status) => tracing::warn!(command, %status, "the command failed"),
        Err(error) => tracing::warn!(command, %error, "the command cannot be run"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use server::array::EventView;

    use super::*;

    fn view(health: &str, states: [&str; 3]) -> ArrayView {
        let member = |(slot, state): (u32, &&str)| MemberView {
            slot,
            state: (*state).to_owned(),
            ..MemberView::default()
        };
        let members = (0..).zip(&states).map(member).collect();
        ArrayView { health: health.to_owned(), members, ..ArrayView::default() }
    }

    fn names(before: Option<&ArrayView>, now: &ArrayView) -> Vec<String> {
        changes(before, now, 7).into_iter().map(|happened| happened.event).collect()
    }

    #[test]
    fn a_change_of_a_drive_that_nobody_has_is_an_event_once() {
        let clean = view("clean", ["good"; 3]);
        let lacking = view("degraded", ["good", "missing", "good"]);
        assert_eq!(names(None, &clean), [""; 0]);
        assert_eq!(names(None, &lacking), ["degraded"]);
        assert_eq!(names(Some(&clean), &lacking), ["drive-missing", "degraded"]);
        assert_eq!(names(Some(&lacking), &lacking), [""; 0]);
        let filling = view("degraded", ["good", "rebuilding", "good"]);
        assert_eq!(names(Some(&lacking), &filling), ["rebuild-started"]);
        assert_eq!(names(Some(&filling), &clean), ["rebuild-ended", "clean"]);
    }

    #[test]
    fn a_server_s_events_are_told_once_and_those_after_its_restart_from_the_first() {
        let with = |opened_ms, numbers: std::ops::RangeInclusive<u64>| {
            let event = |number| EventView { number, event: format!("e{number}"), ..EventView::default() };
            ArrayView { opened_ms, events: numbers.map(event).collect(), ..view("clean", ["good"; 3]) }
        };
        assert_eq!(names(None, &with(1, 1..=2)), [""; 0]);
        assert_eq!(names(Some(&with(1, 1..=2)), &with(1, 1..=4)), ["e3", "e4"]);
        assert_eq!(names(Some(&with(1, 1..=4)), &with(2, 1..=1)), ["e1"]);
    }
}
