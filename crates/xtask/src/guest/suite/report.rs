//! Results of the suite's tests: a line for each test, and JSON for programs.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::guest::clock;
use crate::guest::job::Event;

/// The results so far. Groups of tests run side by side.
pub struct Report {
    start: Instant,
    found: Mutex<TestResults>,
}

/// The results of one group of tests.
#[derive(Clone, Copy)]
pub struct GroupReport<'a> {
    all: &'a Report,
    name: &'static str,
}

#[derive(Default)]
struct TestResults {
    passed: u32,
    failures: Vec<String>,
    events: Vec<Value>,
}

impl Report {
    /// Nothing yet.
    pub fn new() -> Report {
        Report { start: clock::now(), found: Mutex::default() }
    }

    /// The receiver of the results of the group `name`.
    pub fn group(&self, name: &'static str) -> GroupReport<'_> {
        GroupReport { all: self, name }
    }

    /// Writes the results as JSON and a summary; true if there were tests, and all passed.
    pub fn finish(&self, to: &Path) -> Result<bool> {
        let found = self.found();
        let took = self.start.elapsed().as_secs();
        let failures = &found.failures;
        let all =
            json!({ "passed": found.passed, "failed": failures, "seconds": took, "events": found.events });
        fs::write(to, format!("{all}\n")).with_context(|| format!("cannot write {}", to.display()))?;
        println!("guest: {} passed, {} failed, {took} s; {}", found.passed, failures.len(), to.display());
        // The reasons once more: a reader of the last lines alone must see why a test failed.
        for failure in failures {
            println!("guest: FAILED {failure}");
        }
        Ok(failures.is_empty() && found.passed > 0)
    }

    fn found(&self) -> MutexGuard<'_, TestResults> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupReport<'_> {
    /// Records a guest's event; true if the event is a failure.
    pub fn event(&self, event: &Event) -> bool {
        let mut found = self.all.found();
        if let Ok(mut value) = serde_json::to_value(event) {
            if let Some(fields) = value.as_object_mut() {
                fields.insert("group".to_owned(), json!(self.name));
            }
            found.events.push(value);
        }
        let group = self.name;
        match event {
            Event::Test { name, millis, failure: None } => {
                println!("{group:12} ok     {:6.1} s  {name}", seconds(*millis));
                found.passed += 1;
                false
            }
            Event::Test { name, millis, failure: Some(why) } => {
                println!("{group:12} FAILED {:6.1} s  {name}: {why}", seconds(*millis));
                found.failures.push(format!("{group}: {name}: {why}"));
                true
            }
            Event::Note { text } => {
                println!("{group:12}                  {text}");
                false
            }
            Event::Measured { name, value, unit } => {
                println!("{group:12}                  {name}: {value:.2} {unit}");
                false
            }
            _ => false,
        }
    }

    /// Records a test on the host that passed.
    pub fn success(&self, name: &str, since: Instant) {
        let millis = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.event(&Event::Test { name: name.to_owned(), millis, failure: None });
    }

    /// Records a group that could not be completed.
    pub fn failure(&self, why: &str) {
        let name = "the rest of the group".to_owned();
        self.event(&Event::Test { name, millis: 0, failure: Some(why.to_owned()) });
    }
}

fn seconds(millis: u64) -> f64 {
    std::time::Duration::from_millis(millis).as_secs_f64()
}
