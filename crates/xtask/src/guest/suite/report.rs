//! Results of the suite's tests: a line for each test, and JSON for programs.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::guest::clock;
use crate::guest::job::Event;

/// The results so far. Tests may run side by side.
pub struct Report {
    start: Instant,
    found: Mutex<TestResults>,
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

    /// Records a guest's event; true if the event is a failure.
    pub fn event(&self, event: &Event) -> bool {
        let mut found = self.found();
        if let Ok(value) = serde_json::to_value(event) {
            found.events.push(value);
        }
        match event {
            Event::Test { name, millis, failure: None } => {
                println!("  ok     {:6.1} s  {name}", seconds(*millis));
                found.passed += 1;
                false
            }
            Event::Test { name, millis, failure: Some(why) } => {
                println!("  FAILED {:6.1} s  {name}: {why}", seconds(*millis));
                found.failures.push(name.clone());
                true
            }
            Event::Note { text } => {
                println!("                   {text}");
                false
            }
            Event::Measured { name, value, unit } => {
                println!("                   {name}: {value:.2} {unit}");
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

    /// Records a test that could not be completed.
    pub fn failure(&self, name: &str, why: &str) {
        self.event(&Event::Test { name: name.to_owned(), millis: 0, failure: Some(why.to_owned()) });
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
        for name in failures {
            println!("guest: FAILED {name}");
        }
        Ok(failures.is_empty() && found.passed > 0)
    }

    fn found(&self) -> MutexGuard<'_, TestResults> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn seconds(millis: u64) -> f64 {
    std::time::Duration::from_millis(millis).as_secs_f64()
}
