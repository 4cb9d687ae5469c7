//! Everything that a node counts, as one typed snapshot, and the same as metric families with names.
//!
//! The snapshot is taken under the core's lock in microseconds and formatted outside of it. It must
//! never make the node's thread wait for whoever asks.

mod families;
mod text;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use chiasm_core::admission::{Gate, Lookups};
use chiasm_core::cache::Usage;
use chiasm_core::consumer::ConsumerCounters;
use chiasm_core::dispatch::{DispatchCounters, Outstanding};
use chiasm_core::producer::ProducerCounters;

pub use self::families::{Family, Kind, Sample, Value};
pub use self::text::CONTENT_TYPE;

use crate::clock;
use crate::node::Node;
use crate::shared::Shared;

/// What a node holds, waits for and has counted since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Who has the blocks.
    pub usage: Usage,
    /// Blocks that are promised to reads whose producer has not agreed yet.
    pub reserved_blocks: u64,
    /// Entries that went to make room.
    pub evictions: u64,
    /// Grants and streams that are live.
    pub grants: usize,
    /// Blocks that those keep, each counted once.
    pub granted_blocks: u32,
    /// Whether the node is about to stop.
    pub draining: bool,
    /// What its peers asked for and were answered.
    pub producer: ProducerCounters,
    /// What it asked for and got.
    pub consumer: ConsumerCounters,
    /// Items whose entry was there at once, and those that had to wait.
    pub lookups: Lookups,
    /// Requests of the engine that are known.
    pub requests: usize,
    /// Items of these that wait.
    pub waiting_items: usize,
    /// Requests that could start reading if the region had room.
    pub waiting_for_room: usize,
    /// Attempts under way.
    pub transfers: usize,
    /// Attempts that were not the first of their read.
    pub retries: u64,
    /// Endpoints on the allowlist.
    pub allowed_endpoints: usize,
    /// Producers that are taken to be down and not asked.
    pub breakers_open: usize,
    /// Producers of which one attempt may see whether they are back.
    pub breakers_probing: usize,
    /// Orders to workers since the start.
    pub dispatches: DispatchCounters,
    /// Orders that are out now.
    pub outstanding: Outstanding,
    /// What has been logged, by kind.
    pub events: EventCounts,
    /// Sockets that are open.
    pub sockets: SocketCounts,
}

/// How often each event was logged since the start. Events that were dropped in a flood are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Items that the engine had to encode, by reason.
    pub fallbacks: BTreeMap<&'static str, u64>,
    /// Requests that failed, by reason.
    pub unavailable: BTreeMap<&'static str, u64>,
    /// Producers that the allowlist does not name, each once.
    pub refused_endpoints: u64,
    /// Attempts that got no ack in time.
    pub ack_timeouts: u64,
    /// Reads whose bytes were not those that the producer had saved.
    pub wrong_bytes: u64,
    /// Entries for which two sources held different bytes.
    pub disagreements: u64,
    /// Producers that were taken to be down.
    pub breakers_opened: u64,
    /// Events that were dropped in a flood.
    pub dropped: u64,
}

/// Sockets of a node, as its thread last saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounts {
    /// Control connections of consumers.
    pub connections: usize,
    /// Data streams of consumers.
    pub serving_streams: usize,
    /// Data streams to producers.
    pub reading_streams: usize,
    /// Control links to producers that are up.
    pub links_up: usize,
    /// Connections that were closed as soon as they were accepted, since the start.
    pub refused_connections: u64,
}

impl Metrics {
    fn of(shared: &Shared) -> Self {
        let events = shared.event_counts();
        let sockets = shared.socket_counts();
        let now = clock::now();
        let core = shared.core();
        let (producer, admission) = (core.producer(), core.admission());
        let gates = |wanted: Gate| {
            admission.troubled_sources().filter(|at| admission.gate(now, at) == wanted).count()
        };
        Self {
            usage: core.usage(),
            reserved_blocks: admission.reserved_blocks(),
            evictions: core.cache().evictions(),
            grants: producer.live_grants(),
            granted_blocks: producer.pinned_blocks(),
            draining: producer.is_draining(),
            producer: producer.counters(),
            consumer: core.consumer().counters().clone(),
            lookups: admission.lookups(),
            requests: admission.tracked_requests(),
            waiting_items: admission.waiting_items(),
            waiting_for_room: admission.waiting_for_room(),
            transfers: admission.live_transfers(),
            retries: admission.retries(),
            allowed_endpoints: admission.allowed_endpoints(),
            breakers_open: gates(Gate::Open),
            breakers_probing: gates(Gate::ProbeDue),
            dispatches: core.dispatches().counters(),
            outstanding: core.dispatches().outstanding(),
            events: EventCounts { dropped: admission.dropped_events(), ..events },
            sockets,
        }
    }
}

impl Node {
    /// Everything that this node counts.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.shared)
    }

    /// For a thread that serves metrics and must not keep the node.
    #[must_use]
    pub fn metrics_source(&self) -> MetricsSource {
        MetricsSource(Arc::downgrade(&self.shared))
    }
}

/// Where the metrics of a node are to be had for as long as it lives.
#[derive(Clone, Debug)]
pub struct MetricsSource(Weak<Shared>);

impl MetricsSource {
    /// Everything that the node counts; `None` if it has ended. Whoever drops the node has to see to it
    /// that no such call is under way: the region goes with the last of the two.
    #[must_use]
    pub fn metrics(&self) -> Option<Metrics> {
        self.0.upgrade().map(|shared| Metrics::of(&shared))
    }
}
