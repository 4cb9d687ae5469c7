//! What one request costs the producer's allocator: it is answered under the lock that the engine's
//! scheduler shares. A binary of its own, because it counts what the global allocator hands out.

mod counting;

use std::time::Duration;

use chiasm_core::cache::{Cache, EvictionPolicy};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::{PeerId, Producer, ProducerConfig, ProducerLimits};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{ReqExtension, XferReq};

use counting::counted;

struct World {
    producer: Producer,
    cache: Cache,
}

impl World {
    /// 200 entries, of which 100 are granted: the tables have their size.
    fn new() -> Self {
        let planes: PlaneList = [Plane::Tcp].into_iter().collect();
        let config = ProducerConfig {
            compat_hash: "same".into(),
            fingerprint: None,
            epoch: 1,
            block_size_bytes: 64,
            lease: Duration::from_secs(30),
            upstream_lease: Duration::from_secs(30),
            planes,
            shm: None,
            limits: ProducerLimits::for_region(1000),
        };
        let cache = Cache::new(1000, EvictionPolicy::Fifo);
        let mut world = Self { producer: Producer::new(config, [0; 32]), cache };
        for n in 0..200 {
            let hash = MmHash::new(&format!("{n:064}")).unwrap();
            let meta = EntryMeta::new(1, 16, Dtype::Float32).unwrap();
            let key = world.cache.reserve(&hash, meta, 1).unwrap();
            world.cache.mark_ready(key, None).unwrap();
        }
        for n in 0..100 {
            world.ask(n);
        }
        world
    }

    /// The allocations of the answer to a request for entry `n`, and whether it was granted.
    fn ask(&mut self, n: usize) -> (usize, bool) {
        let hash = format!("{n:064}");
        let planes: PlaneList = [Plane::Tcp].into_iter().collect();
        let request = XferReq {
            mm_hash: &hash,
            compatibility_hash: "same",
            session_id: "0123456789abcdef.1",
            connector_version: 2,
            chiasm: Some(ReqExtension { planes, attempt: 1, ..ReqExtension::default() }),
        };
        let payload = request.encode();
        let before = self.producer.counters().granted;
        let ((), cost, _) = counted(|| {
            let Self { producer, cache } = self;
            producer.handle_request(Nanos::ZERO, PeerId(1), &payload, cache);
        });
        (cost, self.producer.counters().granted > before)
    }
}

#[test]
fn an_answer_costs_a_handful_of_allocations() {
    let mut world = World::new();
    let costs: Vec<(usize, bool)> = (100..200).map(|n| world.ask(n)).collect();
    assert!(costs.iter().all(|(_, granted)| *granted));
    let usual = costs.iter().map(|(cost, _)| *cost).min();
    let most = costs.iter().map(|(cost, _)| *cost).max();
    let renewal = world.ask(7);
    let refusal = world.ask(1000);
    // The ack, and the extents as the grant holds them, as they are handed on and as they are sent.
    assert_eq!((usual, renewal), (Some(4), (4, true)));
    // Now and then nodes of the tables' trees come on top.
    assert!(most <= Some(12), "{most:?}");
    assert_eq!(refusal, (1, false));
}
