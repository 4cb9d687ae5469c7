//! What the fleet moves: who has which entries, and who asks for which, in which order.
//!
//! The same in every run and over every plane, to the byte. `chiasm bench fleet-plan` says it as JSON, so
//! that whoever measures other classes than Chiasm's asks them for the same. It must never depend on how
//! fast anything is.

use serde::Serialize;

use super::super::Effort;
use super::super::entries::{ROW_BYTES, rows_of};

pub(super) const PRODUCERS: usize = 4;
pub(super) const CONSUMERS: usize = 4;
/// Requests under way at each consumer: 96 in all.
pub(super) const OUTSTANDING: usize = 24;
/// Of all consumers together.
const WARM_UP: usize = 200;
const TRANSFERS: usize = 1200;
const ROUNDS: usize = 5;
/// Sizes of one producer's entries in MB.
const SIZES_MB: [u64; 12] = [1, 1, 2, 2, 4, 4, 6, 8, 12, 16, 26, 42];
const CONSUMER_REGION_BYTES: u64 = 1 << 30;

/// An entry of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Who has it.
    pub(super) producer: usize,
    pub(super) rows: u32,
}

/// All that is to be moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Plan {
    pub(super) producers: usize,
    pub(super) consumers: usize,
    /// Requests under way at each consumer.
    pub(super) outstanding: usize,
    pub(super) row_bytes: u64,
    pub(super) producer_region_bytes: u64,
    pub(super) consumer_region_bytes: u64,
    /// Those that are asked for most come first.
    pub(super) entries: Vec<Entry>,
    /// Rounds, consumers, places among the entries in the order in which they are asked for. The first
    /// round warms up.
    pub(super) rounds: Vec<Vec<Vec<usize>>>,
}

impl Plan {
    pub(super) fn new(effort: Effort) -> Self {
        let entries = entries(effort);
        let rows: u64 = entries.iter().map(|entry| u64::from(entry.rows)).sum();
        let mut draws: Vec<Draw> = (0..CONSUMERS).map(Draw::new).collect();
        // A few of each entry, however little is asked for.
        let per_consumer = |all: usize| effort.of(all).max(40) / CONSUMERS;
        let mut round = |all: usize| -> Vec<Vec<usize>> {
            let list = |draw: &mut Draw| {
                (0..per_consumer(all)).map(|_| draw.next_of(entries.len())).collect()
            };
            draws.iter_mut().map(list).collect()
        };
        let mut rounds = vec![round(WARM_UP)];
        rounds.extend((0..effort.choose(ROUNDS, 2, 2)).map(|_| round(TRANSFERS)));
        Self {
            producers: PRODUCERS,
            consumers: CONSUMERS,
            outstanding: OUTSTANDING,
            row_bytes: ROW_BYTES,
            // Half of it is free.
            producer_region_bytes: rows * ROW_BYTES / PRODUCERS as u64 * 2,
            consumer_region_bytes: CONSUMER_REGION_BYTES / effort.choose(1, 10, 10),
            entries,
            rounds,
        }
    }
}

/// Every producer has one of each size; sizes and producers lie evenly among what is popular.
fn entries(effort: Effort) -> Vec<Entry> {
    let mb = effort.choose(1_000_000, 100_000, 10_000);
    let entry = |rank: usize| {
        let (producer, at) = (rank % PRODUCERS, rank / PRODUCERS);
        // 5 has no divisor in common with 12: each producer comes by each size once.
        let size = SIZES_MB[(at * 5 + producer * 3) % SIZES_MB.len()];
        Entry { name: format!("fleet-{producer}-{at}"), producer, rows: rows_of(size * mb) }
    };
    (0..PRODUCERS * SIZES_MB.len()).map(entry).collect()
}

/// What one consumer asks for: numbers that look random and are the same in every run.
struct Draw {
    state: u64,
    /// What is still under way if everything ends in the order in which it began: each request is a
    /// transfer of its own.
    recent: Vec<usize>,
}

impl Draw {
    fn new(consumer: usize) -> Self {
        let state = 0x2545_f491_4f6c_dd1d_u64.wrapping_mul(consumer as u64 + 1);
        Self { state, recent: Vec::new() }
    }

    /// The next one of so many.
    fn next_of(&mut self, count: usize) -> usize {
        let next = loop {
            let next = self.skewed(count);
            if !self.recent.contains(&next) {
                break next;
            }
        };
        self.recent.push(next);
        if self.recent.len() >= OUTSTANDING {
            self.recent.remove(0);
        }
        next
    }

    /// Below `count`; the first ones come more often: nearly half of all draws fall on the first quarter.
    fn skewed(&mut self, count: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let (one, other) =
            ((self.state >> 33) as usize % count, (self.state >> 3) as usize % count);
        one.min(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_fleet_moves_five_rounds_of_1200_after_200() {
        let plan = Plan::new(Effort::Full);
        let counts: Vec<usize> =
            plan.rounds.iter().map(|round| round.iter().map(Vec::len).sum()).collect();
        assert_eq!(counts, [200, 1200, 1200, 1200, 1200, 1200]);
        assert_eq!(plan, Plan::new(Effort::Full));
    }

    #[test]
    fn every_producer_has_every_size() {
        let plan = Plan::new(Effort::Full);
        for producer in 0..PRODUCERS {
            let of_it = plan.entries.iter().filter(|entry| entry.producer == producer);
            let mut rows: Vec<u32> = of_it.map(|entry| entry.rows).collect();
            rows.sort_unstable();
            assert_eq!(rows, SIZES_MB.map(|size| rows_of(size * 1_000_000)));
        }
    }

    #[test]
    fn what_is_outstanding_together_is_never_the_same_entry() {
        for round in Plan::new(Effort::Full).rounds {
            for list in round {
                for together in list.windows(OUTSTANDING) {
                    let mut once = together.to_vec();
                    once.sort_unstable();
                    once.dedup();
                    assert_eq!(once.len(), OUTSTANDING);
                }
            }
        }
    }

    #[test]
    fn what_comes_first_is_asked_for_more_often_than_what_comes_last() {
        let plan = Plan::new(Effort::Full);
        let mut asked = vec![0; plan.entries.len()];
        plan.rounds.iter().flatten().flatten().for_each(|at| asked[*at] += 1);
        let quarter = asked.len() / 4;
        let (first, last): (usize, usize) =
            (asked[..quarter].iter().sum(), asked[quarter * 3..].iter().sum());
        assert!(first > 3 * last, "{first} and {last}");
    }
}
