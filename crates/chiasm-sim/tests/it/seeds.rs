//! The seeds of CI: no promise breaks, and everything that can go wrong does so often enough.

use std::num::NonZeroUsize;
use std::process::Command;
use std::thread;

use chiasm_sim::Run;
use chiasm_sim::fault::Fault;
use chiasm_sim::shrink::shrink;
use chiasm_sim::tally::Tally;

/// So many, each time the same.
const SEEDS: u64 = 400;

/// What must have happened in these seeds, beside every fault, and how often at least.
const TRANSITIONS: &[(&str, u64)] = &[
    ("aborted while running", 10),
    ("aborted while waiting", 10),
    ("bad token", 20),
    ("breaker closed", 20),
    ("breaker opened", 20),
    ("bytes over nixl", 1000),
    ("bytes over shm", 1000),
    ("bytes over tcp", 1000),
    ("cache evicted", 500),
    ("clear: Busy", 5),
    ("clear: Live", 100),
    ("clear: Removed", 20),
    ("decision fallback", 100),
    ("decision ready", 1000),
    ("decision unavailable", 100),
    ("decision wait", 1000),
    ("draft taken for dead", 5),
    ("event ack timeout", 50),
    ("event load late", 20),
    ("event refused", 10),
    ("event save failed", 10),
    ("event save lost", 20),
    ("event worker gone", 20),
    ("event wrong bytes", 10),
    ("failed: ack_mismatch", 10),
    ("failed: budget", 10),
    ("failed: nack_internal", 10),
    ("failed: nack_missing", 10),
    ("failed: not_allowed", 10),
    ("failed: not_announced", 10),
    ("fell back: producer_down", 10),
    ("grant completed", 500),
    ("grant done", 100),
    ("grant expired", 50),
    ("grant lost", 50),
    ("last out: Live", 20),
    ("last out: Removed", 50),
    ("link dormant", 100),
    ("link down: connect_failed", 50),
    ("link down: connect_timeout", 20),
    ("link down: heartbeat_timeout", 50),
    ("link down: io", 50),
    ("link down: peer_closed", 50),
    ("link up", 500),
    ("load done", 1000),
    ("load late", 20),
    ("nack NACK_INTERNAL", 50),
    ("nack NACK_MISSING", 50),
    ("nack NACK_NOT_READY", 50),
    ("nixl agent loaded", 100),
    ("nixl helper ended by metadata", 3),
    ("nixl metadata refused", 3),
    ("nixl metadata under suspicion", 3),
    ("nixl read done", 500),
    ("nixl read failed", 10),
    ("nixl read failed and not settled", 10),
    ("nixl read helper ended", 50),
    ("nixl read helper killed", 50),
    ("nixl read helper started", 100),
    ("nixl serve helper up", 300),
    ("nixl write after the kill", 10),
    ("nixl write of a dead helper", 20),
    ("node started again", 50),
    ("order without a worker", 5),
    ("other bytes believed", 5),
    ("process killed", 100),
    ("read retried", 100),
    ("reader over shm dead", 5),
    ("region joined", 200),
    ("region made", 400),
    ("region's name taken meanwhile", 50),
    ("report ignored", 20),
    ("request malformed", 10),
    ("request over quota", 20),
    ("router closed: heartbeat_timeout", 20),
    ("router closed: not_zmtp", 20),
    ("save done", 1000),
    ("save full", 20),
    ("save lost", 20),
    ("save reported late", 10),
    ("start refused: another node has the region", 20),
    ("stray ack", 20),
    ("stray done", 20),
    ("stream refused", 10),
    ("sweep: Live", 200),
    ("sweep: Removed", 50),
    ("transfer failed: bad_agent", 10),
    ("transfer failed: digest", 10),
    ("transfer failed: garbage", 10),
    ("transfer failed: lease", 5),
    ("transfer failed: lost", 50),
    ("transfer failed: nack_incompat", 10),
    ("transfer failed: nack_version", 10),
    ("transfer failed: no_room", 5),
    ("transfer failed: not_ready", 50),
    ("transfer failed: plane", 20),
    ("transfer failed: refused", 20),
    ("transfer failed: timeout", 50),
    ("transfer failed: unreachable", 10),
    ("worker replaced before it was missed", 20),
];

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
    let wanted = faults.chain(TRANSITIONS.iter().copied());
    let seldom: Vec<String> = wanted
        .filter(|(name, least)| tally.of(name) < *least)
        .map(|(name, least)| format!("{name}: {}, at least {least}", tally.of(name)))
        .collect();
    assert!(seldom.is_empty(), "not seen often enough:\n{}", seldom.join("\n"));
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
