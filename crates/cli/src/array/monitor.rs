//! The command `furrow array monitor`, which prints an array's events.

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use server::array::{ArrayView, MemberView};

use super::handle::ArrayArg;
use super::status;
use crate::context::Context;
use crate::exit;
use crate::output;

/// `furrow array monitor`
#[derive(Debug, Args)]
#[command(after_help = "\
Events: drive-failed, second-failure, rebuild-started, rebuild-ended, repaired, blocks-lost, zone-worn, many-errors, scrub-started,
scrub-ended; of an array that no process holds drive-missing too; and the health whenever it changes: clean, degraded,
failed, unreachable (at the start only degraded and failed).
The command is run by sh with FURROW_EVENT, FURROW_TEXT, FURROW_ARRAY, FURROW_LABEL, FURROW_HEALTH, FURROW_SLOT and
FURROW_DRIVE in its environment, one at a time.")]
pub struct MonitorArgs {
    #[command(flatten)]
    array: ArrayArg,
    /// Run this command for each event.
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// Time between two polls.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = humantime::parse_duration)]
    interval: Duration,
    /// Poll once, and end with the exit code of `status`.
    #[arg(long)]
    once: bool,
}

/// An array's event as it is printed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PrintedEvent {
    event: String,
    text: String,
    slot: Option<u32>,
    unix_ms: u64,
    /// The array's health after the event.
    health: String,
}

/// Polls the array and prints its events, until interrupted.
pub fn run(context: &Context, args: &MonitorArgs) -> Result<ExitCode> {
    let mut watch = ArrayWatch::default();
    let mut reachable = true;
    loop {
        match args.array.view(context) {
            Ok(view) => {
                if watch.last.is_none() && !args.once {
                    // Programs wait for this line before they give an order whose events they expect.
                    eprintln!("furrow: watching array {}: {}", array_name(&view), view.health);
                }
                for event in watch.events(&view, context.unix_millis()) {
                    print_event(context, args, &view, &event)?;
                }
                if args.once {
                    return Ok(status::code(&view));
                }
                reachable = true;
                watch.last = Some(view);
            }
            Err(error) if args.once => return Err(status::unknown_health(error)),
            // An error of the first poll, as of a wrong argument, will not go away: the monitor ends.
            Err(error) => match &watch.last {
                None => return Err(error),
                Some(last) if reachable => {
                    let event = PrintedEvent {
                        event: "unreachable".to_owned(),
                        text: exit::message(&error),
                        slot: None,
                        unix_ms: context.unix_millis(),
                        health: watch.health.clone(),
                    };
                    print_event(context, args, last, &event)?;
                    reachable = false;
                }
                Some(_) => {}
            },
        }
        context.sleep(args.interval);
    }
}

/// The monitor's knowledge of the array from the polls so far.
struct ArrayWatch {
    last: Option<ArrayView>,
    /// The array's health that was printed last.
    health: String,
}

impl Default for ArrayWatch {
    fn default() -> ArrayWatch {
        ArrayWatch { last: None, health: "clean".to_owned() }
    }
}

impl ArrayWatch {
    /// The array's events since the last poll, with any health that the array had only between two polls.
    fn events(&mut self, now: &ArrayView, unix_ms: u64) -> Vec<PrintedEvent> {
        let mut printed = Vec::new();
        // The server reads its events after its health, so an event that changed the health is newer than `now.health`.
        let mut decided = false;
        if now.opened_ms > 0 {
            let (seen, before) = match &self.last {
                // Events before the monitor's first poll are not printed.
                None => (u64::MAX, None),
                Some(last) if last.opened_ms != now.opened_ms => (0, None),
                Some(last) => {
                    last.events.last().map_or((0, None), |event| (event.number, Some(&event.health)))
                }
            };
            let mut before = before.unwrap_or(&self.health).clone();
            for event in now.events.iter().filter(|event| event.number > seen) {
                printed.push(PrintedEvent {
                    event: event.event.clone(),
                    text: event.text.clone(),
                    slot: event.slot,
                    unix_ms: event.unix_ms,
                    health: event.health.clone(),
                });
                if event.health != before {
                    decided = true;
                    printed.extend(self.health_event(&event.health, now, event.unix_ms));
                    before.clone_from(&event.health);
                }
            }
        } else if let Some(last) = &self.last {
            for (old, new) in last.members.iter().zip(&now.members) {
                if let Some((event, text)) = member_event(old, new) {
                    let (event, health) = (event.to_owned(), now.health.clone());
                    printed.push(PrintedEvent { event, text, slot: Some(new.slot), unix_ms, health });
                }
            }
        }
        if !decided {
            printed.extend(self.health_event(&now.health, now, unix_ms));
        }
        printed
    }

    /// The event of a health that differs from the health before.
    fn health_event(&mut self, health: &str, now: &ArrayView, unix_ms: u64) -> Option<PrintedEvent> {
        if self.health == health {
            return None;
        }
        self.health = health.to_owned();
        // The server's advice is for the health that it reports now.
        let text = match now.advice.first().filter(|_| now.health == health) {
            Some(advice) => format!("the array is {health}. {advice}"),
            None => format!("the array is {health}"),
        };
        Some(PrintedEvent { event: health.to_owned(), text, slot: None, unix_ms, health: health.to_owned() })
    }
}

/// The event of a changed member, for an array that no process holds.
fn member_event(old: &MemberView, new: &MemberView) -> Option<(&'static str, String)> {
    let slot = new.slot;
    if (&old.state, &old.uuid) == (&new.state, &new.uuid) {
        return None;
    }
    if (old.state.as_str(), new.state.as_str()) == ("failed", "vacated") {
        return None;
    }
    Some(match new.state.as_str() {
        "good" => ("rebuild-ended", format!("drive {slot} is good again")),
        "rebuilding" => ("rebuild-started", format!("drive {slot} is being rebuilt")),
        "missing" => ("drive-missing", format!("drive {slot} is missing")),
        _ => ("drive-failed", format!("drive {slot} failed")),
    })
}

/// The array's label, or its UUID.
fn array_name(view: &ArrayView) -> &str {
    if view.label.is_empty() { &view.array } else { &view.label }
}

/// Prints an event of the array and runs the command of `--exec`.
fn print_event(context: &Context, args: &MonitorArgs, view: &ArrayView, event: &PrintedEvent) -> Result<()> {
    let drive = event.slot.and_then(|slot| view.members.iter().find(|member| member.slot == slot));
    let drive = drive.and_then(|member| member.drive.clone()).unwrap_or_default();
    if context.json {
        let line = json!({
            "unix_ms": event.unix_ms, "event": event.event, "text": event.text, "array": view.array,
            "label": view.label, "health": event.health, "slot": event.slot, "drive": drive,
        });
        output::line(line.to_string())?;
    } else {
        output::line(format!("{}: {}: {}", array_name(view), event.event, event.text))?;
    }
    let Some(command) = &args.exec else { return Ok(()) };
    let ended = Command::new("/bin/sh")
        .args(["-c", command])
        .env("FURROW_EVENT", &event.event)
        .env("FURROW_TEXT", &event.text)
        .env("FURROW_ARRAY", &view.array)
        .env("FURROW_LABEL", &view.label)
        .env("FURROW_HEALTH", &event.health)
        .env("FURROW_SLOT", event.slot.map_or(String::new(), |slot| slot.to_string()))
        .env("FURROW_DRIVE", drive)
        .stdin(Stdio::null())
        .status();
    // A command of `--exec` that fails for one event still runs for the next.
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

    /// The view of a server that opened the array at `opened_ms`, with events and the health after each, numbered from 1.
    fn view_of_server(opened_ms: u64, health: &str, events: &[(&str, &str)]) -> ArrayView {
        let event = |(number, (event, health)): (u64, &(&str, &str))| EventView {
            number,
            event: (*event).to_owned(),
            health: (*health).to_owned(),
            ..EventView::default()
        };
        let events = (1..).zip(events).map(event).collect();
        ArrayView { opened_ms, events, ..view(health, ["good"; 3]) }
    }

    impl ArrayWatch {
        /// Polls the array; gives each event with the health after it.
        fn poll(&mut self, now: ArrayView) -> Vec<String> {
            let events = self.events(&now, 7);
            self.last = Some(now);
            events.into_iter().map(|printed| format!("{} {}", printed.event, printed.health)).collect()
        }
    }

    #[test]
    fn a_change_of_a_member_that_no_process_holds_is_printed_once() {
        let mut watch = ArrayWatch::default();
        assert_eq!(watch.poll(view("clean", ["good"; 3])), [""; 0]);
        let lacking = view("degraded", ["good", "missing", "good"]);
        assert_eq!(watch.poll(lacking.clone()), ["drive-missing degraded", "degraded degraded"]);
        assert_eq!(watch.poll(lacking.clone()), [""; 0]);
        let rebuilding = view("degraded", ["good", "rebuilding", "good"]);
        assert_eq!(watch.poll(rebuilding), ["rebuild-started degraded"]);
        assert_eq!(watch.poll(view("clean", ["good"; 3])), ["rebuild-ended clean", "clean clean"]);
        assert_eq!(ArrayWatch::default().poll(lacking), ["degraded degraded"]);
    }

    #[test]
    fn a_servers_events_are_printed_once_and_after_its_restart_from_the_first() {
        let (a, b, c, d) = (("a", "clean"), ("b", "clean"), ("c", "clean"), ("d", "clean"));
        let mut watch = ArrayWatch::default();
        assert_eq!(watch.poll(view_of_server(1, "clean", &[a, b])), [""; 0]);
        assert_eq!(watch.poll(view_of_server(1, "clean", &[a, b, c, d])), ["c clean", "d clean"]);
        assert_eq!(watch.poll(view_of_server(2, "clean", &[("e", "clean")])), ["e clean"]);
    }

    #[test]
    fn a_health_between_two_polls_is_printed() {
        let mut watch = ArrayWatch::default();
        watch.poll(view_of_server(1, "clean", &[]));
        let events = [
            ("drive-failed", "degraded"),
            ("rebuild-started", "degraded"),
            ("repaired", "degraded"),
            ("rebuild-ended", "clean"),
        ];
        assert_eq!(
            watch.poll(view_of_server(1, "clean", &events)),
            [
                "drive-failed degraded",
                "degraded degraded",
                "rebuild-started degraded",
                "repaired degraded",
                "rebuild-ended clean",
                "clean clean",
            ]
        );
    }

    #[test]
    fn a_failed_rebuild_prints_no_clean_health() {
        let mut watch = ArrayWatch::default();
        watch.poll(view_of_server(1, "clean", &[]));
        let events = [
            ("drive-failed", "degraded"),
            ("rebuild-started", "degraded"),
            ("rebuild-ended", "degraded"),
            ("second-failure", "failed"),
        ];
        let printed = watch.poll(view_of_server(1, "failed", &events));
        assert_eq!(printed.last().map(String::as_str), Some("failed failed"));
        assert!(!printed.iter().any(|event| event.ends_with("clean")), "{printed:?}");
    }

    #[test]
    fn an_event_that_changed_the_health_is_newer_than_the_reported_health() {
        let failed = ("drive-failed", "degraded");
        let mut watch = ArrayWatch::default();
        watch.poll(view_of_server(1, "clean", &[]));
        assert_eq!(
            watch.poll(view_of_server(1, "clean", &[failed])),
            ["drive-failed degraded", "degraded degraded"]
        );
        assert_eq!(watch.poll(view_of_server(1, "degraded", &[failed])), [""; 0]);
        // The new drive is a member before the event of the rebuild's end.
        assert_eq!(watch.poll(view_of_server(1, "clean", &[failed])), ["clean clean"]);
        let repaired = ("repaired", "degraded");
        assert_eq!(watch.poll(view_of_server(1, "clean", &[failed, repaired])), ["repaired degraded"]);
        let ended = ("rebuild-ended", "clean");
        assert_eq!(
            watch.poll(view_of_server(1, "clean", &[failed, repaired, ended])),
            ["rebuild-ended clean"]
        );
    }

    #[test]
    fn the_health_of_an_event_is_the_servers_whatever_the_event_is_called() {
        let mut watch = ArrayWatch::default();
        watch.poll(view_of_server(1, "clean", &[]));
        assert_eq!(
            watch.poll(view_of_server(1, "clean", &[("new-event", "failed")])),
            ["new-event failed", "failed failed"]
        );
    }
}
