//! One file per subcommand; here only what they share.

mod bench;
mod config;
mod demo;
mod endpoint;
mod fetch;
mod identity;
mod metrics;
mod nixl;
mod number;
mod planes;
mod produce;
mod progress;
mod sim;
mod status;
mod stop;
mod table;
mod wire;

use clap::{Parser, Subcommand};
use tracing_subscriber::filter::LevelFilter;

use crate::exit::Failure;
use crate::log;

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

    /// Write log lines of this level and above on standard error: off, error, warn, info, debug or
    /// trace. Default: warn for produce, error for the others.
    #[arg(long, global = true, value_name = "LEVEL")]
    log: Option<LevelFilter>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::BenchCommand),
    Config(config::ConfigCommand),
    Demo(demo::DemoCommand),
    Endpoint(endpoint::EndpointCommand),
    Fetch(fetch::FetchCommand),
    Planes(planes::PlanesCommand),
    Produce(produce::ProduceCommand),
    Sim(sim::SimCommand),
    Status(status::StatusCommand),
    Wire(wire::WireCommand),
}

/// Runs the subcommand that was asked for.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    // Who fetches is told in the report; a producer runs for long, and nobody but its log tells.
    let usual = match arguments.command {
        Command::Produce(_) => LevelFilter::WARN,
        _ => LevelFilter::ERROR,
    };
    log::start(arguments.log.unwrap_or(usual));
    match arguments.command {
        Command::Bench(command) => bench::run(&command, arguments.json),
        Command::Config(command) => config::run(&command, arguments.json),
        Command::Demo(command) => demo::run(&command, arguments.json),
        Command::Endpoint(command) => endpoint::run(&command, arguments.json),
        Command::Fetch(command) => fetch::run(&command, arguments.json),
        Command::Planes(command) => planes::run(&command, arguments.json),
        Command::Produce(command) => produce::run(&command, arguments.json),
        Command::Sim(command) => sim::run(&command, arguments.json),
        Command::Status(command) => status::run(&command, arguments.json),
        Command::Wire(command) => wire::run(command, arguments.json),
    }
}
