//! Progress on stderr, and only where a person is watching.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over `length` things, or one that draws nothing where stderr is no terminal.
pub fn bar(length: u64, what: &'static str) -> ProgressBar {
    styled(length, what, "{msg} [{bar:32}] {human_pos}/{human_len} {per_sec} {eta}")
}

/// The same for bytes.
pub fn bytes(length: u64, what: &'static str) -> ProgressBar {
    styled(length, what, "{msg} [{bar:32}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}")
}

fn styled(length: u64, what: &'static str, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(10))
        .with_style(style.progress_chars("=> "))
        .with_message(what)
}
