//! From a failing run to a shorter one that fails in the same way, and what a person needs to look at
//! it.

use std::fmt::Write as _;

use crate::fault::Fault;
use crate::run::{Outcome, Run};
use crate::violation::Promise;

/// Runs that are tried, at most: a failing seed must not keep anybody waiting for an hour.
const MAX_RUNS: usize = 600;

/// A failing run, as short as it could be made.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The run.
    pub run: Run,
    /// What comes of it.
    pub outcome: Outcome,
    /// Runs that it took.
    pub runs: usize,
}

struct Shrinker {
    best: Run,
    outcome: Outcome,
    promise: Promise,
    runs: usize,
}

/// Makes a failing run shorter: faults that do not matter are left out, then parts of the plan, in
/// halves, quarters and so on. `None` if the run does not fail.
#[must_use]
pub fn shrink(run: &Run) -> Option<Shrunk> {
    let outcome = run.outcome();
    let promise = outcome.violation.as_ref()?.promise;
    let mut shrinker = Shrinker { best: run.clone(), outcome, promise, runs: 1 };
    shrinker.leave_out_faults();
    shrinker.leave_out_plan();
    shrinker.leave_out_faults();
    let Shrinker { best, outcome, runs, .. } = shrinker;
    Some(Shrunk { run: best, outcome, runs })
}

impl Shrinker {
    /// Takes this run over if it breaks the same promise.
    fn attempt(&mut self, run: Run) -> bool {
        if self.runs >= MAX_RUNS {
            return false;
        }
        self.runs += 1;
        let outcome = run.outcome();
        let same = outcome.violation.as_ref().is_some_and(|it| it.promise == self.promise);
        if same {
            (self.best, self.outcome) = (run, outcome);
        }
        same
    }

    fn leave_out_faults(&mut self) {
        for fault in Fault::ALL {
            let on = self.best.setup.rates.of(*fault) > 0 && !self.best.without.contains(fault);
            if on {
                let mut without = self.best.clone();
                without.without.push(*fault);
                self.attempt(without);
            }
        }
    }

    fn leave_out_plan(&mut self) {
        let all: Vec<usize> = (0..self.outcome.planned).collect();
        let mut kept = self.best.keep.clone().unwrap_or(all);
        let mut size = kept.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < kept.len() {
                let mut fewer = kept.clone();
                fewer.drain(at..(at + size).min(kept.len()));
                let run = Run { keep: Some(fewer.clone()), ..self.best.clone() };
                if self.attempt(run) {
                    kept = fewer;
                } else {
                    at += size;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}

impl Shrunk {
    /// What is said about it: the promise, the seed, `commit`, how short it is, and the command that
    /// replays it with its whole trace.
    #[must_use]
    pub fn describe(&self, commit: &str) -> String {
        let mut text = String::new();
        if let Some(violation) = &self.outcome.violation {
            let _ = writeln!(text, "{violation}");
        }
        let kept = self.run.keep.as_ref().map_or(self.outcome.planned, Vec::len);
        let _ = writeln!(
            text,
            "seed {}, commit {commit}; shrunk in {} runs to {kept} of {} planned things, {} events",
            self.run.setup.seed, self.runs, self.outcome.planned, self.outcome.events
        );
        let _ = write!(text, "replay: {}", self.command());
        text
    }

    /// The command that replays it.
    #[must_use]
    pub fn command(&self) -> String {
        let mut command = format!("chiasm sim replay {}", self.run.setup.seed);
        if let Some(keep) = &self.run.keep {
            let keep: Vec<String> = keep.iter().map(ToString::to_string).collect();
            let list = if keep.is_empty() { "none".to_owned() } else { keep.join(",") };
            let _ = write!(command, " --keep {list}");
        }
        if !self.run.without.is_empty() {
            let without: Vec<String> = self.run.without.iter().map(|fault| fault.word()).collect();
            let _ = write!(command, " --without {}", without.join(","));
        }
        command
    }
}
