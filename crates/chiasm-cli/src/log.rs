//! Log lines on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::LevelFilter;

/// From here on lines of `level` and above are written. That nobody reads them is no reason to fail.
pub(crate) fn start(level: LevelFilter) {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .with_max_level(level)
        .log_internal_errors(false)
        .init();
}
