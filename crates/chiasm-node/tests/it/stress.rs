//! Worker processes that save and load side by side and are killed while they do: whatever they were
//! at, what is ready is whole, and in the end nothing is held. Bounded by counts.

use std::collections::BTreeMap;

use chiasm_core::dispatch::{Order, Rank, RankSet};
use chiasm_core::mm_hash::MmHash;
use chiasm_node::Node;
use chiasm_region::digest_of;

use crate::fixtures::{BLOCKS, decide, item_for_local_test, wait_until};
use crate::puppet::{Puppet, bytes_of, config};
use crate::workers::meta;

const NAME: &str = "chiasm-stress";
const WORKERS: u16 = 4;
const ROUNDS: u32 = 24;
/// Saves of each worker in one round.
const SAVES: u32 = 3;

/// Small numbers that depend on the seed alone. When a process is killed is the scheduler's choice.
struct Choices(u64);

impl Choices {
    fn below(&mut self, end: u16) -> u16 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u16::try_from(self.0 % u64::from(end)).expect("below a small number")
    }
}

fn rank(number: u16) -> Rank {
    Rank::new(number).unwrap()
}

struct Fleet<'a> {
    node: &'a Node,
    dir: &'a std::path::Path,
    workers: Vec<Puppet>,
    killed: u64,
}

impl Fleet<'_> {
    /// SIGKILL, whatever it is at, and another process takes its rank.
    fn replace(&mut self, number: u16) {
        let place = usize::from(number);
        self.workers.remove(place).kill();
        self.workers.insert(place, Puppet::worker(self.dir, NAME, number));
        self.killed += 1;
    }

    /// All save at once; one of them, if any, is killed meanwhile.
    fn saves(&mut self, round: u32, victim: Option<u16>) -> BTreeMap<String, Order> {
        let mut orders = BTreeMap::new();
        for number in 0..WORKERS {
            for save in 0..SAVES {
                let hash = format!("{round}.{number}.{save}");
                let named = MmHash::new(&hash).unwrap();
                let order = self.node.dispatch_save(&named, meta(), rank(number)).unwrap();
                self.workers[usize::from(number)].begins("save", &order);
                orders.insert(hash, order);
            }
        }
        if let Some(victim) = victim {
            self.replace(victim);
        }
        for number in (0..WORKERS).filter(|number| Some(*number) != victim) {
            for _ in 0..SAVES {
                assert_eq!(self.workers[usize::from(number)].hear(), "saved");
            }
        }
        wait_until(self.node, "every save is over or lost", || self.node.outstanding().saves == 0);
        orders
    }

    /// All load what is there; one of them, if any, is killed meanwhile.
    fn loads(&mut self, orders: &BTreeMap<String, Order>, victim: Option<u16>) -> usize {
        let ranks = RankSet::first(WORKERS).unwrap();
        let mut loads = Vec::new();
        for (hash, save) in orders {
            self.node.track(hash, vec![item_for_local_test(hash)]).unwrap();
            decide(self.node, hash, 1);
            // A save that was lost has left nothing under its name.
            let Ok(load) = self.node.dispatch_load(hash, ranks) else {
                self.node.finish(hash);
                continue;
            };
            self.node.finish(hash);
            for worker in &mut self.workers {
                worker.begins("load", &load);
            }
            loads.push(digest_of(&bytes_of(save)).to_string());
        }
        if let Some(victim) = victim {
            self.replace(victim);
        }
        for number in (0..WORKERS).filter(|number| Some(*number) != victim) {
            for expected in &loads {
                let worker = &mut self.workers[usize::from(number)];
                assert_eq!(worker.hear(), *expected, "torn or somebody else's bytes");
            }
        }
        wait_until(self.node, "every load is over", || self.node.outstanding().loads == 0);
        loads.len()
    }
}

#[test]
fn workers_that_are_killed_while_they_save_and_load_leave_whole_entries_and_nothing_held() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), NAME);
    config.quarantine = std::time::Duration::from_secs(5);
    let node = Node::start(&config).unwrap();
    let mut choices = Choices(0x5eed);
    let workers = (0..WORKERS).map(|number| Puppet::worker(dir.path(), NAME, number)).collect();
    let mut fleet = Fleet { node: &node, dir: dir.path(), workers, killed: 0 };
    let mut loaded = 0;
    for round in 0..ROUNDS {
        let victim = |choices: &mut Choices| Some(choices.below(2 * WORKERS));
        let mut chosen = || victim(&mut choices).filter(|number| *number < WORKERS);
        let orders = fleet.saves(round, chosen());
        loaded += fleet.loads(&orders, chosen());
        for hash in orders.keys() {
            let there = node.evict(hash);
            assert!(there || node.usage().quarantined > 0, "{hash} is neither there nor lost");
        }
    }
    let counters = node.dispatch_counters();
    let saves = u64::from(ROUNDS * u32::from(WORKERS) * SAVES);
    assert_eq!(counters.saves, saves);
    assert_eq!(counters.saved + counters.lost_saves, saves, "each save has one end");
    assert_eq!(counters.saved, loaded as u64, "what was saved was loaded");
    assert!(fleet.killed > u64::from(ROUNDS) / 2, "{} were killed", fleet.killed);
    wait_until(&node, "blocks of the dead are free", || node.usage().quarantined == 0);
    assert_eq!(node.usage().free, BLOCKS);
    for worker in fleet.workers {
        worker.end();
    }
}
