//! `chiasm bench`: what this machine does with the product, in numbers, without anything else installed.
//!
//! Each figure is one row: family, case, metric, value. It measures and judges nothing; `make bench` sets
//! the rows beside those of upstream's own classes, in the same run.

mod ack;
mod cache;
mod contact;
mod effort;
mod entries;
mod fallback;
mod fleet;
mod idle;
mod latency;
mod stats;
mod transfers;

use std::io::Write as _;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::effort::Effort;
use super::nixl::NixlArguments;
use super::{progress, table};
use crate::exit::Failure;

/// Measure this machine: cache, acks, transfers, latency, fallback, a fleet.
///
/// Transfers go over every plane, beside a plain copy and a plain stream. Every byte that is moved is
/// checked. With --json each figure is one line. Nothing else should run meanwhile; what ran is for
/// `uptime` to say. nixl is measured where NIXL is found, as `chiasm planes` says it is. `make bench`
/// compares with upstream.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub(crate) struct BenchCommand {
    /// What to measure. Default: everything.
    #[arg(value_name = "FAMILY", value_enum)]
    families: Vec<Family>,

    /// A tenth of the work: the order of things, not the figures.
    #[arg(long)]
    quick: bool,

    /// Next to no work: that everything runs, not how fast.
    #[arg(long, hide = true)]
    smoke: bool,

    /// fleet: kill one of the producers half way; items can fall back.
    #[arg(long)]
    kill: bool,

    #[command(flatten)]
    nixl: NixlArguments,

    #[command(subcommand)]
    role: Option<Role>,
}

/// Processes that the fleet is made of.
#[derive(Debug, Subcommand)]
enum Role {
    /// A producer of the fleet, started by `chiasm bench fleet`.
    #[command(name = "fleet-producer", hide = true)]
    Producer(fleet::ProducerRole),
    /// A consumer of the fleet, started by `chiasm bench fleet`.
    #[command(name = "fleet-consumer", hide = true)]
    Consumer(fleet::ConsumerRole),
    /// What the fleet moves.
    #[command(name = "fleet-plan", hide = true)]
    Plan(fleet::PlanRole),
}

/// A group of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Family {
    /// Saving entries into a full region, eviction included.
    Cache,
    /// A producer's answer: its bytes and its time, by size of the region.
    Ack,
    /// Entries from one node to another, over every plane, beside a copy and a plain stream.
    Transfers,
    /// A small entry while the producer's engine is busy for so long at a time.
    Latency,
    /// The first entry that two nodes move, by size of the region.
    Contact,
    /// How long until the engine encodes an item itself, with a producer that is not there any more.
    Fallback,
    /// What a node does while nothing is asked of it, with peers connected.
    Idle,
    /// Four producers and four consumers, each a process, realistic sizes.
    Fleet,
}

const ALL: [Family; 8] = [
    Family::Cache,
    Family::Ack,
    Family::Transfers,
    Family::Latency,
    Family::Contact,
    Family::Fallback,
    Family::Idle,
    Family::Fleet,
];

impl Family {
    fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Ack => "ack",
            Self::Transfers => "transfers",
            Self::Latency => "latency",
            Self::Contact => "contact",
            Self::Fallback => "fallback",
            Self::Idle => "idle",
            Self::Fleet => "fleet",
        }
    }
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
struct Row {
    family: &'static str,
    /// Who: `chiasm`, or a bound that nobody passes.
    what: &'static str,
    /// The parameters, by name.
    case: Map<String, Value>,
    /// What is measured, its unit last.
    metric: &'static str,
    value: f64,
}

/// Takes the rows of one family.
struct Rows<'a> {
    family: &'static str,
    take: &'a mut dyn FnMut(Row) -> anyhow::Result<()>,
}

impl Rows<'_> {
    /// One figure of this case, which is a JSON object.
    fn add(
        &mut self,
        what: &'static str,
        case: &Value,
        metric: &'static str,
        value: f64,
    ) -> anyhow::Result<()> {
        let case = case.as_object().cloned().unwrap_or_default();
        (self.take)(Row { family: self.family, what, case, metric, value })
    }
}

/// Runs the command.
pub(crate) fn run(command: &BenchCommand, json: bool) -> Result<(), Failure> {
    match &command.role {
        Some(Role::Producer(role)) => return fleet::produce(role).map_err(Failure::Work),
        Some(Role::Consumer(role)) => return fleet::consume(role).map_err(Failure::Work),
        Some(Role::Plan(role)) => return fleet::say_plan(role).map_err(Failure::Work),
        None => {}
    }
    let chosen = if command.families.is_empty() { &ALL[..] } else { &command.families };
    let effort = match (command.smoke, command.quick) {
        (true, _) => Effort::Smoke,
        (_, true) => Effort::Quick,
        _ => Effort::Full,
    };
    let mut out = std::io::stdout().lock();
    let mut all = Vec::new();
    let bar = progress::count(chosen.len() as u64, "measure");
    bar.tick();
    for family in chosen {
        let mut take = |row: Row| -> anyhow::Result<()> {
            if json {
                writeln!(out, "{}", json!(row)).context("standard output")?;
            }
            all.push(row);
            Ok(())
        };
        let mut rows = Rows { family: family.name(), take: &mut take };
        let measured = match family {
            Family::Cache => cache::measure(effort, &mut rows),
            Family::Ack => ack::measure(effort, &mut rows),
            Family::Transfers => transfers::measure(effort, &command.nixl, &mut rows),
            Family::Latency => latency::measure(effort, &mut rows),
            Family::Contact => contact::measure(effort, &mut rows),
            Family::Fallback => fallback::measure(effort, &mut rows),
            Family::Idle => idle::measure(effort, &mut rows),
            Family::Fleet => fleet::measure(effort, command.kill, &command.nixl, &mut rows),
        };
        measured.with_context(|| family.name()).map_err(Failure::Work)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    if json {
        return Ok(());
    }
    writeln!(out, "{}", overview(&all)).map_err(Failure::work)
}

fn overview(rows: &[Row]) -> String {
    let mut table = table::table(&["family", "case", "who", "metric", "value"], &["value"]);
    for row in rows {
        let case = row.case.iter().map(|(name, value)| format!("{name} {value}"));
        let case = case.collect::<Vec<_>>().join(", ").replace('"', "");
        let value = format!("{:.3}", row.value);
        table.add_row([row.family, case.as_str(), row.what, row.metric, value.as_str()]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_called_as_its_argument_is() {
        for family in ALL {
            assert_eq!(family.to_possible_value().unwrap().get_name(), family.name());
        }
    }
}
