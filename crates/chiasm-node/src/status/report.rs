//! The status as a value. Field names are an interface: docs/operations.md explains each, dashboards
//! read them, and released ones stay.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use chiasm_core::admission::Gate;
use chiasm_core::cache::Usage;
use chiasm_core::dispatch::{Dispatches, Outstanding};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::instance::Instance;
use chiasm_core::plane::Plane;
use chiasm_core::producer::ProducerCounters;
use chiasm_core::time::Nanos;
use chiasm_core::wire::AckStatus;
use serde::Serialize;

use crate::inbound::Inbound;
use crate::metrics::EventCounts;
use crate::nixl::ServeHelper;
use crate::outbound::{LinkState, Outbound};
use crate::shared::Shared;
use crate::status::nixl::Nixl;

/// Rows of each list; how many more there are is said beside it.
const MAX_ROWS: usize = 256;

/// Grows by one where a field changes its meaning or goes away; new fields change nothing.
const FORMAT: u32 = 1;

/// Everything that `chiasm status --json` shows of one node.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    format: u32,
    node: NodeReport,
    region: RegionReport<'a>,
    blocks: Blocks,
    entries: Entries,
    serving: Serving,
    reading: Reading,
    dispatch: Dispatch,
    nixl: Nixl,
}

/// The parts of a node that a report looks at.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) inbound: &'a Inbound,
    pub(crate) outbound: &'a Outbound,
    pub(crate) serve: &'a ServeHelper,
}

/// What is the same for the whole life of a node.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) started: Nanos,
}

#[derive(Debug, Serialize)]
struct NodeReport {
    version: &'static str,
    process: u32,
    epoch: String,
    uptime_s: f64,
    endpoint: Option<String>,
    draining: bool,
}

#[derive(Debug, Serialize)]
struct RegionReport<'a> {
    path: &'a Path,
    bytes: u64,
    block_size_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Blocks {
    total: u32,
    free: u32,
    live: u32,
    evictable: u32,
    quarantined: u32,
    reserved: u64,
}

#[derive(Debug, Serialize)]
struct Entries {
    total: usize,
    pinned: usize,
    evictions: u64,
}

#[derive(Debug, Serialize)]
struct Serving {
    grants: usize,
    pinned_blocks: u32,
    connections: usize,
    streams: usize,
    peers: Vec<Peer>,
    peers_left_out: usize,
    counters: ServingCounters,
}

#[derive(Debug, Serialize)]
struct Dispatch {
    saves: usize,
    loads: usize,
    lost_saves: usize,
    counters: DispatchReport,
}

#[derive(Debug, Serialize)]
struct DispatchReport {
    saves: u64,
    loads: u64,
    saved: u64,
    loaded: u64,
    failed_saves: u64,
    failed_loads: u64,
    lost_saves: u64,
    late_loads: u64,
    late_reports: u64,
    ignored_reports: u64,
}

#[derive(Debug, Serialize)]
struct Peer {
    address: IpAddr,
    connections: usize,
}

#[derive(Debug, Serialize)]
struct ServingCounters {
    granted: u64,
    completed: u64,
    done: u64,
    expired: u64,
    lost: u64,
    nacks: BTreeMap<&'static str, u64>,
    over_quota: u64,
    malformed: u64,
    bad_tokens: u64,
    stray_dones: u64,
    full_lists: u64,
    ambiguous_completions: u64,
    stray_completions: u64,
    refused_connections: u64,
}

#[derive(Debug, Serialize)]
struct Reading {
    allowed_endpoints: usize,
    requests: usize,
    waiting_items: usize,
    waiting_for_room: usize,
    reads: usize,
    transfers: usize,
    settling: usize,
    streams: usize,
    producers: Vec<Producer>,
    producers_left_out: usize,
    counters: ReadingCounters,
}

#[derive(Debug, Serialize)]
struct Producer {
    endpoint: String,
    link: &'static str,
    breaker: &'static str,
}

#[derive(Debug, Serialize)]
struct ReadingCounters {
    asked: u64,
    arrived: u64,
    bytes: BTreeMap<&'static str, u64>,
    failed: BTreeMap<&'static str, u64>,
    retries: u64,
    stray_acks: u64,
    fallbacks: BTreeMap<&'static str, u64>,
    failures: BTreeMap<&'static str, u64>,
    refused_endpoints: u64,
    ack_timeouts: u64,
    wrong_bytes: u64,
    disagreements: u64,
    breakers_opened: u64,
    dropped_events: u64,
}

impl<'a> Report<'a> {
    /// The node as it is now. Holds the core's lock for microseconds: lists are cut.
    pub(crate) fn of(now: Nanos, life: &Life, shared: &'a Shared, parts: &Parts<'_>) -> Self {
        let Parts { inbound, outbound, serve } = *parts;
        let region = &shared.region;
        let events = shared.event_counts();
        let mut producers: BTreeMap<Endpoint, (LinkState, Gate)> =
            outbound.links().map(|(at, link)| (at.clone(), (link, Gate::Closed))).collect();
        let core = shared.core();
        for source in core.admission().troubled_sources() {
            let gate = core.admission().gate(now, source);
            match producers.get_mut(source) {
                Some(known) => known.1 = gate,
                None => {
                    producers.insert(source.clone(), (LinkState::None, gate));
                }
            }
        }
        let usage = core.usage();
        let (serving, reading) = (Serving::of(&core, inbound), Reading::of(&core, &events));
        let dispatch = Dispatch::of(core.dispatches());
        let evictions = core.cache().evictions();
        let reserved = core.admission().reserved_blocks();
        let draining = core.producer().is_draining();
        drop(core);
        Self {
            format: FORMAT,
            node: NodeReport {
                version: env!("CARGO_PKG_VERSION"),
                process: std::process::id(),
                epoch: format!("{:016x}", region.epoch()),
                uptime_s: now.since(life.started).as_secs_f64(),
                endpoint: life.endpoint.as_ref().map(ToString::to_string),
                draining,
            },
            region: RegionReport {
                path: region.path(),
                bytes: u64::from(region.blocks()) * region.block_size_bytes(),
                block_size_bytes: region.block_size_bytes(),
            },
            blocks: Blocks::of(&usage, reserved),
            entries: Entries { total: usage.entries, pinned: usage.pinned_entries, evictions },
            serving,
            reading: reading.with_producers(producers, outbound.streams()),
            dispatch,
            nixl: Nixl::of(serve, outbound.nixl()),
        }
    }

    /// As text.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|error| {
            // A region's path that is no UTF-8.
            serde_json::json!({ "error": error.to_string() }).to_string().into_bytes()
        })
    }
}

impl Blocks {
    fn of(usage: &Usage, reserved: u64) -> Self {
        let Usage { total, free, live, quarantined, evictable, .. } = *usage;
        Self { total, free, live, evictable, quarantined, reserved }
    }
}

impl Dispatch {
    fn of(dispatches: &Dispatches) -> Self {
        let Outstanding { saves, loads, lost_saves } = dispatches.outstanding();
        let c = dispatches.counters();
        Self {
            saves,
            loads,
            lost_saves,
            counters: DispatchReport {
                saves: c.saves,
                loads: c.loads,
                saved: c.saved,
                loaded: c.loaded,
                failed_saves: c.failed_saves,
                failed_loads: c.failed_loads,
                lost_saves: c.lost_saves,
                late_loads: c.late_loads,
                late_reports: c.late_reports,
                ignored_reports: c.ignored_reports,
            },
        }
    }
}

impl Serving {
    fn of(core: &Instance, inbound: &Inbound) -> Self {
        let producer = core.producer();
        let peers = inbound.addresses();
        let rows = peers.clone().take(MAX_ROWS);
        Self {
            grants: producer.live_grants(),
            pinned_blocks: producer.pinned_blocks(),
            connections: inbound.connections(),
            streams: inbound.streams(),
            peers: rows.map(|(address, connections)| Peer { address, connections }).collect(),
            peers_left_out: peers.count().saturating_sub(MAX_ROWS),
            counters: ServingCounters::of(&producer.counters(), inbound.refused_connections()),
        }
    }
}

impl ServingCounters {
    fn of(counters: &ProducerCounters, refused_connections: u64) -> Self {
        let nacks = AckStatus::ALL.into_iter().zip(counters.nacks);
        let ProducerCounters { granted, completed, done, expired, lost, .. } = *counters;
        let ProducerCounters { over_quota, malformed, bad_tokens, stray_dones, .. } = *counters;
        let ProducerCounters { full_lists, ambiguous_completions, stray_completions, .. } =
            *counters;
        Self {
            granted,
            completed,
            done,
            expired,
            lost,
            nacks: nacks
                .filter(|(status, _)| !status.is_ok())
                .map(|(status, count)| (word(status), count))
                .collect(),
            over_quota,
            malformed,
            bad_tokens,
            stray_dones,
            full_lists,
            ambiguous_completions,
            stray_completions,
            refused_connections,
        }
    }
}

impl Reading {
    fn of(core: &Instance, events: &EventCounts) -> Self {
        let (admission, consumer) = (core.admission(), core.consumer());
        let counters = consumer.counters();
        let bytes = Plane::ALL.map(|plane| {
            let bytes = counters.bytes.get(&plane).copied();
            (plane.name(), bytes.unwrap_or(0))
        });
        Self {
            allowed_endpoints: admission.allowed_endpoints(),
            requests: admission.tracked_requests(),
            waiting_items: admission.waiting_items(),
            waiting_for_room: admission.waiting_for_room(),
            reads: admission.live_reads(),
            transfers: admission.live_transfers(),
            settling: consumer.live_transfers().saturating_sub(admission.live_transfers()),
            streams: 0,
            producers: Vec::new(),
            producers_left_out: 0,
            counters: ReadingCounters {
                asked: counters.requests,
                arrived: counters.arrived,
                bytes: bytes.into_iter().collect(),
                failed: counters.failed.clone(),
                retries: admission.retries(),
                stray_acks: counters.stray_acks,
                fallbacks: events.fallbacks.clone(),
                failures: events.unavailable.clone(),
                refused_endpoints: events.refused_endpoints,
                ack_timeouts: events.ack_timeouts,
                wrong_bytes: events.wrong_bytes,
                disagreements: events.disagreements,
                breakers_opened: events.breakers_opened,
                dropped_events: admission.dropped_events(),
            },
        }
    }

    fn with_producers(
        self,
        producers: BTreeMap<Endpoint, (LinkState, Gate)>,
        streams: usize,
    ) -> Self {
        let left_out = producers.len().saturating_sub(MAX_ROWS);
        let rows = producers.into_iter().take(MAX_ROWS);
        let producers = rows.map(|(endpoint, (link, gate))| Producer {
            endpoint: endpoint.to_string(),
            link: link.word(),
            breaker: breaker_word(gate),
        });
        Self { producers: producers.collect(), producers_left_out: left_out, streams, ..self }
    }
}

pub(crate) fn word(status: AckStatus) -> &'static str {
    match status {
        AckStatus::Ok => "ok",
        AckStatus::Missing => "missing",
        AckStatus::Incompat => "incompat",
        AckStatus::Version => "version",
        AckStatus::Internal => "internal",
        AckStatus::NotReady => "not_ready",
    }
}

fn breaker_word(gate: Gate) -> &'static str {
    match gate {
        Gate::Closed => "closed",
        Gate::ProbeDue => "probe_due",
        Gate::Open => "open",
    }
}
