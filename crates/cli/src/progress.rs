//! Progress bars on stderr, if stderr is a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time between two pictures of a spinner.
const SPINNER_INTERVAL: Duration = Duration::from_millis(120);

/// A progress bar over `length` items; draws nothing if stderr is no terminal.
pub fn bar(length: u64, what: &'static str) -> ProgressBar {
    styled_bar(length, what, "{msg} [{bar:32}] {human_pos}/{human_len} {per_sec} {eta}")
}

/// A progress bar over `length` bytes; draws nothing if stderr is no terminal.
pub fn bytes(length: u64, what: &'static str) -> ProgressBar {
    styled_bar(
        length,
        what,
        "{msg} [{bar:32}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
    )
}

/// A spinner with the name of the current step.
pub fn spinner() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(SPINNER_INTERVAL);
    bar
}

fn styled_bar(length: u64, what: &'static str, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(10))
        .with_style(style.progress_chars("=> "))
        .with_message(what)
}
