//! `chiasm sim run`: many seeds, each a fleet to which everything happens that can go wrong.

use std::fmt::Write as _;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use chiasm_sim::Run;
use chiasm_sim::shrink::{Shrunk, shrink};
use chiasm_sim::tally::Tally;
use clap::Args;
use serde_json::{Value, json};

use crate::commands::number::whole;
use crate::commands::{progress, table};
use crate::exit::Failure;

/// Most threads. A simulation waits for nothing, so more than there are processors are of no use.
const MAX_THREADS: usize = 1024;

/// Run one simulated fleet for each of many seeds, and check the promises after every step.
///
/// A seed that breaks one is made as short as possible and told with the command that replays it.
/// Exit code 1 if there is any.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub(crate) struct RunCommand {
    /// How many seeds.
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = whole(1..=u64::MAX))]
    seeds: u64,

    /// The first of them.
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = whole(0..=u64::MAX))]
    first: u64,

    /// Threads; as many as there are processors if not given.
    #[arg(long, value_name = "COUNT", value_parser = whole(1..=MAX_THREADS))]
    threads: Option<usize>,

    /// Also print how often each fault fired and each state was entered. What each name means is in
    /// docs/simulation.md.
    #[arg(long)]
    tally: bool,
}

#[derive(Default)]
struct Sum {
    requests: u64,
    events: u64,
    simulated: u64,
    tally: Tally,
    broken: Vec<u64>,
}

/// Runs the command.
pub(crate) fn run(command: &RunCommand, json: bool) -> Result<(), Failure> {
    let started = Instant::now();
    // A panic in a run is a finding, which is told as one.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut sum = simulate(command);
    sum.broken.sort_unstable();
    let shrunk = sum.broken.first().and_then(|seed| shrink(&Run::of_seed(*seed)));
    std::panic::set_hook(before);
    let seconds = started.elapsed().as_secs_f64();
    let text = if json {
        format!("{:#}", to_json(command, &sum, shrunk.as_ref(), seconds))
    } else {
        to_text(command, &sum, shrunk.as_ref(), seconds)
    };
    writeln!(std::io::stdout(), "{text}").map_err(Failure::work)?;
    if sum.broken.is_empty() { Ok(()) } else { Err(Failure::Reported) }
}

fn simulate(command: &RunCommand) -> Sum {
    let bar = progress::count(command.seeds, "simulate");
    let processors = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = command.threads.unwrap_or_else(processors);
    let next = AtomicU64::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut sum = Sum::default();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= command.seeds {
                        return;
                    }
                    let seed = command.first.wrapping_add(at);
                    if sender.send((seed, Run::of_seed(seed).outcome())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (seed, outcome) in receiver {
            sum.requests += outcome.stats.requests;
            sum.events += outcome.events;
            sum.simulated += outcome.simulated;
            sum.tally.merge(&outcome.tally);
            sum.broken.extend(outcome.violation.map(|_| seed));
            bar.inc(1);
        }
    });
    bar.finish_and_clear();
    sum
}

fn version() -> String {
    format!("of version {}", env!("CARGO_PKG_VERSION"))
}

fn to_text(command: &RunCommand, sum: &Sum, shrunk: Option<&Shrunk>, seconds: f64) -> String {
    let mut text = String::new();
    if command.tally {
        let mut rows = table::table(&["what", "times"], &["times"]);
        for (name, times) in sum.tally.iter() {
            rows.add_row([name.to_owned(), times.to_string()]);
        }
        text = rows.trim_fmt() + "\n\n";
    }
    if let Some(shrunk) = shrunk {
        let told = shrunk.describe(&version());
        let _ = write!(text, "broken by seeds {:?}\n{told}\n\n", sum.broken);
    }
    let _ = write!(
        text,
        "{} seeds, {} broken: {} requests, {} events, {:.1} simulated hours in {seconds:.1} s",
        command.seeds,
        sum.broken.len(),
        sum.requests,
        sum.events,
        hours(sum.simulated),
    );
    text
}

fn to_json(command: &RunCommand, sum: &Sum, shrunk: Option<&Shrunk>, seconds: f64) -> Value {
    let tally: serde_json::Map<String, Value> =
        sum.tally.iter().map(|(name, times)| (name.to_owned(), times.into())).collect();
    let first = shrunk.map(|shrunk| {
        json!({
            "seed": shrunk.run.setup.seed,
            "violation": shrunk.outcome.violation.as_ref().map(ToString::to_string),
            "replay": shrunk.command(),
        })
    });
    json!({
        "first": command.first,
        "seeds": command.seeds,
        "broken": sum.broken,
        "first_broken": first,
        "requests": sum.requests,
        "events": sum.events,
        "simulated_hours": hours(sum.simulated),
        "seconds": seconds,
        "tally": tally,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn hours(nanos: u64) -> f64 {
    nanos as f64 / 3.6e12
}
