//! The progress bar of long work: on standard error, and only if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `bytes` bytes of work.
pub(crate) fn bar(bytes: u64, verb: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let style =
        "{prefix:>10} [{bar:32}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {msg}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.with_prefix(verb)
}

/// A bar over so many pieces of work.
pub(crate) fn count(pieces: u64, verb: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(pieces);
    if let Ok(style) = ProgressStyle::with_template("{prefix:>10} [{bar:32}] {pos}/{len} {eta}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.with_prefix(verb)
}

/// A sign of life for work of unknown length, likewise.
pub(crate) fn spinner(what: &'static str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    spinner
}
