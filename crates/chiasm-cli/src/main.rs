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
    let arguments = commands::Arguments::parse();
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
