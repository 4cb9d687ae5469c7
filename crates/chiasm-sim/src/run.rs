//! One run from its setup to its outcome.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fault::Fault;
use crate::setup::Setup;
use crate::stats::Stats;
use crate::tally::Tally;
use crate::violation::{Promise, Violation};
use crate::world::World;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The fleet.
    pub setup: Setup,
    /// The parts of its plan that happen, by number; all if there is none.
    pub keep: Option<Vec<usize>>,
    /// Faults of the setup that do not happen.
    pub without: Vec<Fault>,
    /// Whether the lines of the trace are kept.
    pub keeps_lines: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The hash of everything that happened: equal for equal runs (S10).
    pub hash: u64,
    /// How many things happened.
    pub events: u64,
    /// Simulated time, in nanoseconds.
    pub simulated: u64,
    /// Parts of the plan.
    pub planned: usize,
    /// What came of requests.
    pub stats: Stats,
    /// How often each fault fired and each state was entered.
    pub tally: Tally,
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
    /// The lines of the trace, if they were to be kept.
    pub lines: Vec<String>,
}

impl Run {
    /// The whole run of a seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        Self::of(Setup::of_seed(seed))
    }

    /// The whole run of a setup.
    #[must_use]
    pub fn of(setup: Setup) -> Self {
        Self { setup, keep: None, without: Vec::new(), keeps_lines: false }
    }

    /// When it ends, in nanoseconds of simulated time, if no promise is broken before.
    #[must_use]
    pub fn end(&self) -> u64 {
        crate::phases::phases(&self.setup).last().map_or(0, |(at, _)| *at)
    }

    /// Runs it.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome_with(&mut |_| {})
    }

    /// Runs it and tells `progress` how much simulated time has passed, now and then.
    #[must_use]
    pub fn outcome_with(&self, progress: &mut dyn FnMut(u64)) -> Outcome {
        let mut world = World::new(self);
        let ran = catch_unwind(AssertUnwindSafe(|| world.run(progress)));
        let violation = match ran {
            Ok(ended) => ended.err(),
            Err(panic) => {
                let said = panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                let what = format!("panic: {}", said.unwrap_or_default());
                Some(Violation { promise: Promise::S7, at: world.now, what })
            }
        };
        Outcome {
            hash: world.trace.hash(),
            events: world.trace.events(),
            simulated: world.now,
            planned: world.planned,
            lines: world.trace.take_lines(),
            stats: world.stats,
            tally: world.tally,
            violation,
        }
    }
}
