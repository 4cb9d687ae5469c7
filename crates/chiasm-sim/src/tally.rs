//! How often each fault fired and each state was entered.

use std::collections::BTreeMap;

/// Counts by name. Names of faults begin with `fault `, those of transitions with the machine that
/// makes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<String, u64>);

impl Tally {
    /// Once more.
    pub fn count(&mut self, name: &str) {
        self.add(name, 1);
    }

    /// So many times more.
    pub fn add(&mut self, name: &str, times: u64) {
        if times == 0 {
            return;
        }
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
