//! How often each fault fired and each state was entered.

use std::collections::BTreeMap;

use chiasm_core::admission::Event as Admitted;
use chiasm_core::dispatch::Event as Dispatched;

/// The name of what a node says about requests.
#[must_use]
pub fn of_admitted(event: &Admitted) -> String {
    match event {
        Admitted::Refused(_) => "event refused".to_owned(),
        Admitted::AckTimeout { .. } => "event ack timeout".to_owned(),
        Admitted::FellBack { reason, .. } => format!("fell back: {}", reason.word()),
        Admitted::Failed { reason, .. } => format!("failed: {}", reason.word()),
        Admitted::Disagree { .. } => "event disagree".to_owned(),
        Admitted::WrongBytes { .. } => "event wrong bytes".to_owned(),
        Admitted::BreakerOpened { .. } => "breaker opened".to_owned(),
        Admitted::BreakerClosed { .. } => "breaker closed".to_owned(),
    }
}

/// The name of what a node says about orders.
#[must_use]
pub const fn of_dispatched(event: &Dispatched) -> &'static str {
    match event {
        Dispatched::SaveLost { .. } => "event save lost",
        Dispatched::LoadLate { .. } => "event load late",
        Dispatched::SaveFailed { .. } => "event save failed",
        Dispatched::WorkerGone { .. } => "event worker gone",
    }
}

/// Counts by name. Names of faults begin with `fault `, those of transitions with the machine that
/// makes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<String, u64>);

impl Tally {
    /// Once more.
    pub fn count(&mut self, name: &str) {
        self.add(name, 1);
    }

    /// So many times more. None at all makes the name known.
    pub fn add(&mut self, name: &str, times: u64) {
        if let Some(known) = self.0.get_mut(name) {
            *known += times;
        } else {
            self.0.insert(name.to_owned(), times);
        }
    }

    /// How often it was counted.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// All counts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, times)| (name.as_str(), *times))
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Self) {
        for (name, times) in other.iter() {
            self.add(name, times);
        }
    }
}
