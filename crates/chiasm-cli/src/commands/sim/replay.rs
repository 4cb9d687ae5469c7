//! `chiasm sim replay`: one seed once more, with its whole trace.

use std::io::Write as _;

use anyhow::{Context as _, bail};
use chiasm_sim::Run;
use chiasm_sim::fault::Fault;
use clap::Args;
use serde_json::json;

use crate::commands::number::whole;
use crate::exit::Failure;

/// Run one seed again, step by step, and print everything that happens.
///
/// `chiasm sim run` prints the command for a seed that breaks a promise. Exit code 1 if it still does.
/// What each line means is in docs/simulation.md.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub(crate) struct ReplayCommand {
    /// The seed.
    #[arg(value_parser = whole(0..=u64::MAX))]
    seed: u64,

    /// The parts of its plan that happen, by number: 3,7-9 or none. All if not given.
    #[arg(long, value_name = "NUMBERS")]
    keep: Option<String>,

    /// Faults that do not happen, by name: message-lost,node-killed.
    #[arg(long, value_name = "FAULTS", value_delimiter = ',')]
    without: Vec<String>,

    /// Print the outcome only.
    #[arg(long)]
    quiet: bool,
}

/// Runs the command.
pub(crate) fn run(command: &ReplayCommand, json: bool) -> Result<(), Failure> {
    let mut run = Run::of_seed(command.seed);
    run.keep = command.keep.as_deref().map(numbers).transpose().map_err(Failure::Input)?;
    run.without = faults(&command.without).map_err(Failure::Input)?;
    run.keeps_lines = !command.quiet && !json;
    let outcome = run.outcome();
    let mut out = std::io::stdout().lock();
    let mut say = |line: String| writeln!(out, "{line}").map_err(Failure::work);
    for line in &outcome.lines {
        say(line.clone())?;
    }
    let violation = outcome.violation.as_ref().map(ToString::to_string);
    if json {
        let report = json!({
            "seed": command.seed,
            "hash": format!("{:016x}", outcome.hash),
            "events": outcome.events,
            "requests": outcome.stats.requests,
            "violation": violation,
        });
        say(format!("{report:#}"))?;
    } else {
        let verdict = violation.clone().unwrap_or_else(|| "no promise is broken".to_owned());
        say(format!(
            "seed {}: {verdict} ({} events, hash {:016x})",
            command.seed, outcome.events, outcome.hash
        ))?;
    }
    if violation.is_none() { Ok(()) } else { Err(Failure::Reported) }
}

/// `3,7-9` or `none`.
fn numbers(text: &str) -> anyhow::Result<Vec<usize>> {
    let mut numbers = Vec::new();
    if text == "none" {
        return Ok(numbers);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let parse = |text: &str| {
            text.parse::<usize>()
                .with_context(|| format!("--keep {part:?}: a number, or first-last, or none"))
        };
        let (first, last) = (parse(first)?, parse(last)?);
        if first > last || last > 1_000_000 {
            bail!("--keep {part:?}: from a smaller to a larger number, up to 1000000");
        }
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

fn faults(words: &[String]) -> anyhow::Result<Vec<Fault>> {
    let known = |word: &String| {
        Fault::from_word(word).with_context(|| {
            let all: Vec<String> = Fault::ALL.iter().map(|fault| fault.word()).collect();
            format!("--without: {word:?} is no fault; there are {}", all.join(", "))
        })
    };
    words.iter().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_single_ones_ranges_or_none() {
        assert_eq!(numbers("3,7-9").unwrap(), [3, 7, 8, 9]);
        assert_eq!(numbers("none").unwrap(), [0; 0]);
        for wrong in ["", "x", "9-7", "1,", "0-99999999"] {
            assert!(numbers(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_fault_has_a_word_that_leads_back_to_it() {
        for fault in Fault::ALL {
            assert_eq!(faults(&[fault.word()]).unwrap(), [*fault]);
        }
        assert!(faults(&["nonsense".to_owned()]).is_err());
    }
}
