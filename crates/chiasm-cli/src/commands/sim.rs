//! `chiasm sim`: whole fleets in one process, from one seed.

mod fleet;
mod replay;
mod run;

use clap::{Args, Subcommand};

use crate::exit::Failure;

/// Simulate whole fleets in this process: search for broken promises, replay one, or try settings.
///
/// Nothing is contacted, no shared memory is used and no time passes but simulated time. The parts
/// that decide are those that run in a node; engines, networks and memory are models.
#[derive(Args, Debug)]
pub(crate) struct SimCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunCommand),
    Replay(replay::ReplayCommand),
    Fleet(fleet::FleetCommand),
}

/// Runs the command.
pub(crate) fn run(command: &SimCommand, json: bool) -> Result<(), Failure> {
    match &command.command {
        Command::Run(command) => run::run(command, json),
        Command::Replay(command) => replay::run(command, json),
        Command::Fleet(command) => fleet::run(command, json),
    }
}
