//! One file per subcommand; here only what they share.

use clap::{Parser, Subcommand};

use crate::exit::Failure;

/// Moves encoder outputs (embeddings of images, audio, video) from the instances that compute them
/// to the prefill and decode instances that need them.
///
/// Exit codes: 0 done, 1 the work failed, 2 the input was wrong.
#[derive(Debug, Parser)]
#[command(name = "chiasm", version, propagate_version = true)]
pub(crate) struct Arguments {
    /// Print machine-readable JSON on standard output instead of text for people.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

/// Runs the subcommand that was asked for.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {}
}
