//! A small entry, from the wish to the last byte, while the producer's engine is in steps of some length.
//!
//! A step holds a thread of the producer's process, as an encoder's batch does; between two of them the
//! engine calls the node once. With busy cores every core has such a thread that spins.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_node::Node;
use serde_json::json;

use super::entries::{End, Pattern, Requests, Wanted, consumer_config, producer};
use super::stats::percentile_ms;
use super::{Effort, Rows};

const STEPS_MS: [u64; 4] = [0, 50, 500, 2000];
const REQUESTS: usize = 2000;
const REGION_BYTES: u64 = 64 << 20;

pub(super) fn measure(effort: Effort, rows: &mut Rows<'_>) -> anyhow::Result<()> {
    let producer = producer(REGION_BYTES)?;
    let endpoint = producer.endpoint().context("no endpoint")?.clone();
    let planes = PlaneList::from_iter([Plane::Shm, Plane::Tcp]);
    let reader = Node::start(&consumer_config(REGION_BYTES, &[endpoint], planes)?)?;
    Pattern::new().save(&producer, "small", 1)?;
    let offer = producer.announce("small").context("evicted")?;
    let wanted = Wanted { name: "small".into(), offer, local_input: false };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for busy in [false, true] {
        for step_ms in effort.choose(&STEPS_MS[..], &STEPS_MS[..], &STEPS_MS[..2]).iter().copied() {
            let over = AtomicBool::new(false);
            let step = Duration::from_millis(step_ms);
            let threads = if busy { cores } else { 1 };
            let times = thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| engine(&producer, step, busy, &over));
                }
                let times = ask(&reader, &wanted, effort.of(REQUESTS));
                over.store(true, Ordering::Relaxed);
                times
            })?;
            let case = json!({ "step_ms": step_ms, "busy_cores": busy });
            for (metric, percent) in
                [("to_ready_p50_ms", 50), ("to_ready_p99_ms", 99), ("to_ready_max_ms", 100)]
            {
                rows.add("chiasm", &case, metric, percentile_ms(&times, percent))?;
            }
        }
    }
    Ok(())
}

fn engine(node: &Node, step: Duration, spins: bool, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let end = Instant::now() + step.max(Duration::from_millis(1));
        while Instant::now() < end && !over.load(Ordering::Relaxed) {
            if spins {
                std::hint::spin_loop();
            } else {
                thread::sleep(Duration::from_millis(1).min(end - Instant::now().min(end)));
            }
        }
        let _ = node.take_unavailable_requests();
    }
}

fn ask(reader: &Node, wanted: &Wanted, count: usize) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(count);
    // The first finds the connection and the mapping missing.
    for at in 0..=count {
        let mut requests = Requests::new(reader);
        requests.start(wanted.clone())?;
        requests.wait(|_, wanted, end, took| {
            ensure!(end == End::Ready, "{}: {end:?}", wanted.name);
            if at > 0 {
                times.push(took);
            }
            Ok(())
        })?;
    }
    Ok(times)
}
