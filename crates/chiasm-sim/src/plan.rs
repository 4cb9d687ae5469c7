//! What is going to happen in a run, drawn from its seed before it begins: which requests arrive, and
//! what becomes of nodes and of the network between them. A failing run is made shorter by leaving
//! parts of its plan out.

use crate::fault::Fault;
use crate::random::Random;
use crate::setup::{Role, Setup};

/// One item of a planned request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedItem {
    /// Number of the entry in the catalogue.
    pub(crate) entry: usize,
    /// The node that is asked to encode it.
    pub(crate) encoder: usize,
    /// How its announcement is spoiled, if it is.
    pub(crate) lie: Option<Fault>,
    pub(crate) local_input: bool,
}

/// One thing that happens by itself.
#[derive(Clone, Debug)]
pub(crate) enum Planned {
    Request {
        consumer: usize,
        items: Vec<PlannedItem>,
        abort_after: Option<u64>,
    },
    /// An encoder encodes something that nobody reads, and evicts for it what somebody may want.
    Save {
        node: usize,
        entry: usize,
    },
    /// Something happens to a node, or between two of them, for so long.
    Trouble {
        fault: Fault,
        node: usize,
        other: usize,
        length: u64,
    },
}

/// What happens, and when.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) items: Vec<(u64, Planned)>,
}

/// Faults that have a beginning and an end.
const TROUBLES: &[Fault] = &[
    Fault::Partition,
    Fault::PartitionOneWay,
    Fault::NodePaused,
    Fault::NodeKilled,
    Fault::PowerLost,
    Fault::NodeDrained,
    Fault::ConnectRefused,
    Fault::ConnectBlackHole,
    Fault::AllowlistReloaded,
    Fault::OtherModel,
    Fault::OtherPlanes,
    Fault::NameTaken,
    Fault::WorkerDied,
    Fault::ServeHelperDied,
    Fault::ReadHelperDied,
];

/// Ways in which clients spoil an announcement.
const LIES: &[Fault] = &[
    Fault::WrongRows,
    Fault::WrongWidth,
    Fault::Unapproved,
    Fault::Garbage,
    Fault::NotAnnounced,
    Fault::Stale,
    Fault::TooLarge,
];

/// Items of a request that does not wait long, and how long it does, in nanoseconds.
const ASKED_AT_ONCE: usize = 8;
const SHORT_WAIT: u64 = 100_000_000;

impl Plan {
    /// The plan of a setup. `random` is drawn from.
    pub(crate) fn new(setup: &Setup, random: &mut Random) -> Self {
        let mut items = Vec::new();
        let with = |suits: fn(Role) -> bool| -> Vec<usize> {
            let nodes = setup.nodes.iter().enumerate();
            nodes.filter(|(_, node)| suits(node.role)).map(|(number, _)| number).collect()
        };
        let (encoders, consumers) = (with(Role::serves), with(Role::consumes));
        let popularity = Popularity::new(setup.entries, setup.popularity);
        for _ in 0..setup.requests {
            let at = random.below(setup.span);
            let consumer = random.pick(&consumers).copied().unwrap_or(0);
            let wanted = random.between(1, setup.items as u64);
            let local_input = random.chance(setup.local_input);
            let items_of = (0..wanted).map(|_| {
                let entry = popularity.draw(random);
                // An entry has a home; now and then somebody else encodes it too.
                let home = encoders.get(entry % encoders.len()).copied().unwrap_or(0);
                let other = random.pick(&encoders).copied().unwrap_or(0);
                let encoder = if random.chance(150) { other } else { home };
                let lie = LIES.iter().copied().find(|lie| random.chance(setup.rates.of(*lie) / 4));
                PlannedItem { entry, encoder, lie, local_input }
            });
            let mut items_of: Vec<PlannedItem> = items_of.collect();
            let mut seen = Vec::new();
            items_of.retain(|item| {
                let is_new = !seen.contains(&item.entry);
                seen.push(item.entry);
                is_new
            });
            let aborted = random.chance(setup.rates.of(Fault::RequestAborted));
            let abort_after = aborted.then(|| random.skewed(1_000_000, 20_000_000_000));
            // The same from another encoder, at the same time.
            let twin = setup.rates.of(Fault::OtherEncoding) > 0 && random.chance(600);
            if let Some(other) = encoders
                .iter()
                .find(|it| items_of.iter().all(|item| item.encoder != **it))
                .filter(|_| twin)
            {
                let twins = items_of.iter().map(|item| PlannedItem { encoder: *other, ..*item });
                let twins = Planned::Request { consumer, items: twins.collect(), abort_after };
                items.push((at + random.below(1_000_000), twins));
            }
            items.push((at, Planned::Request { consumer, items: items_of, abort_after }));
        }
        let silent = setup.nodes.iter().position(|node| node.hostile).unwrap_or(0);
        let asks = (0..setup.short_waits).map(|number| {
            let entries = (0..ASKED_AT_ONCE).map(|at| (number + at) % setup.entries);
            let item =
                |entry| PlannedItem { entry, encoder: silent, lie: None, local_input: false };
            let consumer = consumers.last().copied().unwrap_or(0);
            let last = number + 1 == setup.short_waits;
            let abort_after = (!last).then_some(SHORT_WAIT);
            let at = setup.span / 4 + number as u64 * (SHORT_WAIT + SHORT_WAIT / 2);
            (at, Planned::Request { consumer, items: entries.map(item).collect(), abort_after })
        });
        items.extend(asks);
        for _ in 0..setup.churn {
            let node = random.pick(&encoders).copied().unwrap_or(0);
            let entry = setup.entries + random.index(setup.tenants());
            items.push((random.below(setup.span), Planned::Save { node, entry }));
        }
        for fault in TROUBLES {
            let rate = setup.rates.of(*fault);
            let times = if rate == 0 { 0 } else { 1 + random.below(u64::from(rate / 50 + 2)) };
            for _ in 0..times {
                let node = random.index(setup.nodes.len());
                let other = random.index(setup.nodes.len());
                let length = random.skewed(1_000_000, 30_000_000_000);
                let trouble = Planned::Trouble { fault: *fault, node, other, length };
                items.push((random.below(setup.span), trouble));
            }
        }
        items.sort_by_key(|(at, _)| *at);
        Self { items }
    }

    /// The same without these faults.
    pub(crate) fn without(mut self, faults: &[Fault]) -> Self {
        for (_, planned) in &mut self.items {
            if let Planned::Request { items, abort_after, .. } = planned {
                abort_after.take_if(|_| faults.contains(&Fault::RequestAborted));
                for item in items {
                    item.lie.take_if(|lie| faults.contains(lie));
                }
            }
        }
        self.items.retain(|(_, planned)| match planned {
            Planned::Trouble { fault, .. } => !faults.contains(fault),
            Planned::Request { .. } | Planned::Save { .. } => true,
        });
        self
    }

    /// The same without what is not in `keep`.
    pub(crate) fn only(mut self, keep: &[usize]) -> Self {
        let mut number = 0;
        self.items.retain(|_| {
            number += 1;
            keep.contains(&(number - 1))
        });
        self
    }
}

/// How often each entry is asked for: the n-th with weight `1 / n ^ exponent` (Zipf).
#[derive(Debug)]
pub(crate) struct Popularity {
    /// Sums of the weights, in millionths of the first.
    sums: Vec<u64>,
}

impl Popularity {
    pub(crate) fn new(entries: usize, exponent: f64) -> Self {
        let mut sum = 0;
        let weights = (1..=entries).map(|rank| {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a weight from 1 to a million"
            )]
            let weight = (1e6 / (rank as f64).powf(exponent)).max(1.0) as u64;
            sum += weight;
            sum
        });
        Self { sums: weights.collect() }
    }

    pub(crate) fn draw(&self, random: &mut Random) -> usize {
        let all = self.sums.last().copied().unwrap_or(1);
        let drawn = random.below(all);
        self.sums.partition_point(|sum| *sum <= drawn).min(self.sums.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popular_entries_are_drawn_more_often() {
        let draws = |exponent| {
            let (popularity, mut random) = (Popularity::new(10, exponent), Random::new(3));
            let mut counts = [0; 10];
            for _ in 0..10_000 {
                counts[popularity.draw(&mut random)] += 1;
            }
            counts
        };
        let (alike, steep) = (draws(0.0), draws(1.0));
        assert!(alike.iter().all(|count| (800..1200).contains(count)), "{alike:?}");
        assert!(steep[0] > 3 * steep[4] && steep[9] > 0, "{steep:?}");
    }
}
