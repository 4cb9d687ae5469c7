//! The seeds of CI: no promise breaks, and everything that can go wrong does so often enough.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::process::Command;
use std::thread;

use chiasm_sim::Run;
use chiasm_sim::fault::Fault;
use chiasm_sim::shrink::shrink;
use chiasm_sim::tally::Tally;

use crate::expected::{AT_LEAST, SELDOM};
use crate::names;

/// So many, each time the same.
const SEEDS: u64 = 400;

/// What happens so often is no exception.
const OFTEN: u64 = 30;

#[test]
fn no_seed_breaks_a_promise_and_every_fault_and_transition_is_seen() {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get) as u64;
    let (mut tally, mut broken) = (Tally::default(), Vec::new());
    thread::scope(|scope| {
        let handles: Vec<_> =
            (0..threads).map(|first| scope.spawn(move || run_every(first, threads))).collect();
        for handle in handles {
            let (part, seeds) = handle.join().expect("panics of a run are caught in it");
            tally.merge(&part);
            broken.extend(seeds);
        }
    });
    broken.sort_unstable();
    if let Some(seed) = broken.first() {
        let shrunk = shrink(&Run::of_seed(*seed)).expect("it failed a moment ago");
        panic!("{} seeds fail: {broken:?}\n{}", broken.len(), shrunk.describe(&commit()));
    }
    let faults = Fault::ALL.iter().map(|fault| (fault.name(), 10));
    let wanted = faults.chain(AT_LEAST.iter().copied());
    let seldom: Vec<String> = wanted
        .filter(|(name, least)| tally.of(name) < *least)
        .map(|(name, least)| format!("{name}: {}, at least {least}", tally.of(name)))
        .collect();
    assert!(seldom.is_empty(), "not seen often enough:\n{}", seldom.join("\n"));
    every_name_has_its_place(&tally);
}

/// What the product can bring about, and what was counted, is either expected or an exception with a
/// reason; and exceptions do not happen often.
fn every_name_has_its_place(tally: &Tally) {
    let is_fault = |name: &str| Fault::ALL.iter().any(|fault| fault.name() == name);
    let expected: BTreeSet<&str> = AT_LEAST.iter().map(|(name, _)| *name).collect();
    let seldom: BTreeSet<&str> = SELDOM.iter().map(|(name, _)| *name).collect();
    let mut names = names::all();
    names.extend(tally.iter().map(|(name, _)| name.to_owned()));
    let mut wrong = Vec::new();
    for name in names.iter().map(String::as_str).filter(|name| !is_fault(name)) {
        let times = tally.of(name);
        match (expected.contains(name), seldom.contains(name)) {
            (false, false) => wrong.push(format!("{name}: {times}, and in neither list")),
            (true, true) => wrong.push(format!("{name}: in both lists")),
            (false, true) if times >= OFTEN => {
                wrong.push(format!("{name}: {times}, and said to be an exception"));
            }
            _ => {}
        }
    }
    for name in seldom.difference(&names.iter().map(String::as_str).collect()) {
        wrong.push(format!("{name}: an exception, and nothing has this name"));
    }
    assert!(wrong.is_empty(), "names without a place:\n{}", wrong.join("\n"));
}

fn run_every(first: u64, step: u64) -> (Tally, Vec<u64>) {
    let (mut tally, mut broken) = (Tally::default(), Vec::new());
    let mut seed = first;
    while seed < SEEDS {
        let outcome = Run::of_seed(seed).outcome();
        tally.merge(&outcome.tally);
        broken.extend(outcome.violation.map(|_| seed));
        seed += step;
    }
    (tally, broken)
}

/// The commit that was tested, for who reads the failure.
fn commit() -> String {
    let git = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let text = git.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
