//! `chiasm sim fleet`: what a fleet would do with these settings.

use std::io::Write as _;
use std::time::Duration;

use chiasm_core::byte_size::ByteSize;
use chiasm_sim::Run;
use chiasm_sim::fleet::{FleetSettings, limits, report};
use clap::Args;
use serde_json::Value;

use crate::commands::number::{number, seconds, whole};
use crate::commands::{progress, table};
use crate::exit::Failure;

/// Simulate a fleet without faults, to try settings before a roll-out.
///
/// Says how often items are found where they are needed, how long requests wait, how much is moved and
/// evicted. Times are those of the settings: it compares settings, it does not measure a machine.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub(crate) struct FleetCommand {
    /// Encoder instances.
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = whole(limits::NODES))]
    encoders: usize,

    /// Prefill or decode instances.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = whole(limits::NODES))]
    consumers: usize,

    /// All of them on one host: they read over shm.
    #[arg(long)]
    one_host: bool,

    /// Region of each encoder (ec_cpu_bytes).
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size)]
    encoder_region: u64,

    /// Region of each consumer (ec_cpu_bytes).
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size)]
    consumer_region: u64,

    /// Smallest encoder output.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size)]
    smallest: u64,

    /// Largest encoder output.
    #[arg(long, value_name = "SIZE", default_value = "14MiB", value_parser = size)]
    largest: u64,

    /// Different items that requests ask for.
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = whole(limits::ITEMS))]
    items: usize,

    /// Items of one request, at most.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 2,
        value_parser = whole(limits::ITEMS_PER_REQUEST)
    )]
    items_per_request: usize,

    /// How much more often popular items are asked for: 0 all alike, 1 as words in a text.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0.8,
        value_parser = number(limits::POPULARITY)
    )]
    popularity: f64,

    /// Requests per second, over all consumers.
    #[arg(long, value_name = "NUMBER", default_value_t = 20.0, value_parser = number(limits::RATE))]
    rate: f64,

    /// How long requests arrive, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    duration: Duration,

    /// Requests out of a hundred that carry real input, so that they can be encoded where they are.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = whole(0..=100_u32))]
    local_input: u32,

    /// Requests that run at once on one consumer.
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = whole(limits::RUNNING))]
    running: usize,

    /// Longest step of an engine, in seconds; the shortest is a sixth of it.
    #[arg(long, value_name = "SECONDS", default_value = "0.06", value_parser = seconds)]
    step: Duration,

    /// Longest time that an encoder takes for a request, in seconds; the shortest is an eighth of it.
    #[arg(long, value_name = "SECONDS", default_value = "0.4", value_parser = seconds)]
    encode: Duration,

    /// What one copy or stream moves in a second.
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = size)]
    throughput: u64,

    /// pin_lease_s.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    lease: Duration,

    /// wait_budget_s.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    budget: Duration,

    /// Another seed, another order of events.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    seed: u64,
}

/// Runs the command.
pub(crate) fn run(command: &FleetCommand, json: bool) -> Result<(), Failure> {
    let settings = FleetSettings {
        seed: command.seed,
        encoders: command.encoders,
        consumers: command.consumers,
        one_host: command.one_host,
        encoder_bytes: command.encoder_region,
        consumer_bytes: command.consumer_region,
        entry_bytes: (command.smallest, command.largest),
        entries: command.items,
        popularity: command.popularity,
        rate: command.rate,
        duration: command.duration,
        items: command.items_per_request,
        local_input: command.local_input * 10,
        running: command.running,
        step: (command.step / 6, command.step),
        encode: (command.encode / 8, command.encode),
        bytes_per_second: command.throughput,
        lease: command.lease,
        wait_budget: command.budget,
        ..FleetSettings::default()
    };
    let run = Run::of(settings.setup().map_err(Failure::input)?);
    let bar = progress::count(run.end() / 1_000_000_000, "simulate");
    let outcome = run.outcome_with(&mut |now| bar.set_position(now / 1_000_000_000));
    bar.finish_and_clear();
    if let Some(violation) = &outcome.violation {
        return Err(Failure::work(anyhow::anyhow!("the simulation failed: {violation}")));
    }
    let report = report(&outcome);
    let text = if json { format!("{report:#}") } else { to_table(&report) };
    writeln!(std::io::stdout(), "{text}").map_err(Failure::work)
}

/// One line per group of figures.
fn to_table(report: &Value) -> String {
    let mut rows = table::table(&["what", "figures"], &[]);
    for (group, figures) in report.as_object().into_iter().flatten() {
        let text = match figures {
            Value::Object(figures) => {
                let shown = figures.iter().map(|(name, value)| match (group.as_str(), value) {
                    ("bytes", value) => {
                        format!("{name} {}", table::size(value.as_u64().unwrap_or(0)))
                    }
                    (_, value) => format!("{} {value}", name.replace('_', " ")),
                });
                shown.collect::<Vec<_>>().join(", ")
            }
            value => value.to_string(),
        };
        rows.add_row([group.replace('_', " "), text]);
    }
    rows.trim_fmt()
}

fn size(text: &str) -> Result<u64, String> {
    ByteSize::parse(text).map(|size| size.0).map_err(|error| error.to_string())
}
