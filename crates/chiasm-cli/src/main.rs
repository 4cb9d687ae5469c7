//! The `chiasm` command: produce, fetch and look at encoder outputs from a shell.

#![expect(
    clippy::doc_markdown,
    reason = "the comments of arguments are the help text, where backticks would show"
)]

mod commands;
mod exit;
mod log;
mod store;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // A node starts this program as its NIXL helper process. Nothing else is to happen then: what runs
    // before could be in the helper's way.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == chiasm_nixl::HELPER_ARGUMENT) {
        chiasm_nixl::helper_main();
    }
    let arguments = commands::Arguments::parse();
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
