//! The names of the metrics. They are an interface: docs/metrics.md explains each (a test compares),
//! dashboards and alerts read them, and released ones stay.

use std::collections::BTreeMap;

use chiasm_core::latency::LatencyHistogram;
use chiasm_core::plane::Plane;
use chiasm_core::wire::AckStatus;

use super::Metrics;

/// What kind of number a family has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from 0 at the node's start. `_total` is appended to the name where it is shown.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations in seconds, by steps.
    Histogram,
}

/// Metrics of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, with the unit last.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// What it is, in a phrase.
    pub help: &'static str,
    /// What its samples differ in, if there is more than one.
    pub label: Option<&'static str>,
    /// One sample, or one for each value of the label.
    pub samples: Vec<Sample>,
}

/// One number of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Value of the family's label; empty where it has none.
    pub label: &'static str,
    /// The number.
    pub value: Value,
}

/// A number, or many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A count.
    Count(u64),
    /// Durations.
    Latency(LatencyHistogram),
}

impl Metrics {
    /// All metrics, in the order in which they are shown.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        let mut all = self.holding();
        all.extend(self.serving());
        all.extend(self.reading());
        all.extend(self.dispatching());
        all
    }

    fn holding(&self) -> Vec<Family> {
        let usage = &self.usage;
        vec![
            gauge("chiasm_blocks", "Blocks of the region, by state; they add up to all")
                .by("state")
                .with("free", usage.free)
                .with("evictable", usage.evictable)
                .with("in_use", usage.live - usage.evictable)
                .with("quarantined", usage.quarantined),
            gauge("chiasm_blocks_reserved", "Blocks promised to reads that are not granted yet")
                .only(self.reserved_blocks),
            gauge("chiasm_entries", "Entries that are ready or being filled").only(usage.entries),
            gauge("chiasm_entries_pinned", "Entries that something keeps")
                .only(usage.pinned_entries),
            counter("chiasm_evictions", "Entries that went to make room").only(self.evictions),
            counter(
                "chiasm_lookups",
                "Items whose entry was there at once, or had to be waited for",
            )
            .by("result")
            .with("hit", self.lookups.hits)
            .with("miss", self.lookups.misses),
        ]
    }

    fn serving(&self) -> Vec<Family> {
        let counters = &self.producer;
        let nacks = AckStatus::ALL.into_iter().zip(counters.nacks);
        let nacks = nacks.filter(|(status, _)| !status.is_ok()).map(|(status, count)| Sample {
            label: crate::status::word(status),
            value: Value::Count(count),
        });
        vec![
            gauge("chiasm_grants", "Grants and data streams that are live").only(self.grants),
            gauge("chiasm_granted_blocks", "Blocks that live grants keep")
                .only(self.granted_blocks),
            gauge("chiasm_draining", "1 while the node refuses new requests because it stops")
                .only(u64::from(self.draining)),
            gauge("chiasm_serving_connections", "Control connections of consumers")
                .only(self.sockets.connections),
            gauge("chiasm_serving_streams", "Data streams of consumers")
                .only(self.sockets.serving_streams),
            counter("chiasm_granted", "Requests that were granted, renewals included")
                .only(counters.granted),
            counter("chiasm_grants_ended", "Grants that ended, by how")
                .by("how")
                .with("completed", counters.completed)
                .with("done", counters.done)
                .with("expired", counters.expired)
                .with("lost", counters.lost),
            counter("chiasm_nacks", "Requests that were refused, by status")
                .by("status")
                .all(nacks),
            counter("chiasm_over_quota", "Requests that were put off because of a quota")
                .only(counters.over_quota),
            counter("chiasm_malformed_requests", "Requests that could not be decoded")
                .only(counters.malformed),
            counter("chiasm_bad_tokens", "Data streams with a token that opens nothing")
                .only(counters.bad_tokens),
            counter("chiasm_stray_dones", "Messages that give back a grant which is not there")
                .only(counters.stray_dones),
            counter("chiasm_refused_connections", "Connections that were closed at once")
                .only(self.sockets.refused_connections),
        ]
    }

    fn reading(&self) -> Vec<Family> {
        let (counters, events) = (&self.consumer, &self.events);
        let bytes = Plane::ALL.map(|plane| Sample {
            label: plane.name(),
            value: Value::Count(counters.bytes.get(&plane).copied().unwrap_or(0)),
        });
        let reads = Plane::ALL.map(|plane| Sample {
            label: plane.name(),
            value: Value::Latency(counters.read_latency.get(&plane).copied().unwrap_or_default()),
        });
        vec![
            gauge("chiasm_requests", "Requests of the engine that are known").only(self.requests),
            gauge("chiasm_waiting_items", "Items that wait").only(self.waiting_items),
            gauge("chiasm_waiting_for_room", "Requests that wait for room in the region")
                .only(self.waiting_for_room),
            gauge("chiasm_transfers", "Attempts under way").only(self.transfers),
            gauge("chiasm_reading_streams", "Data streams to producers")
                .only(self.sockets.reading_streams),
            gauge("chiasm_links_up", "Control links to producers that are up")
                .only(self.sockets.links_up),
            gauge("chiasm_allowed_endpoints", "Endpoints on the allowlist")
                .only(self.allowed_endpoints),
            gauge(
                "chiasm_breakers",
                "Producers that are taken to be down, by what is done about it",
            )
            .by("state")
            .with("open", self.breakers_open)
            .with("probe_due", self.breakers_probing),
            counter("chiasm_asked", "Requests that were sent to producers").only(counters.requests),
            counter("chiasm_arrived", "Entries that have arrived").only(counters.arrived),
            counter("chiasm_arrived_bytes", "Bytes of entries that have arrived, by plane")
                .by("plane")
                .all(bytes),
            histogram("chiasm_ack_latency_seconds", "From a request to the producer's answer")
                .all([Sample { label: "", value: Value::Latency(counters.ack_latency) }]),
            histogram("chiasm_read_latency_seconds", "From an ack to the last byte, by plane")
                .by("plane")
                .all(reads),
            counter("chiasm_attempts_failed", "Attempts that failed, by reason")
                .by("reason")
                .all(by_word(&counters.failed)),
            counter("chiasm_retries", "Attempts that were not the first").only(self.retries),
            counter("chiasm_stray_acks", "Answers to nothing that was still asked")
                .only(counters.stray_acks),
            counter("chiasm_fallbacks", "Items that the engine had to encode, by reason")
                .by("reason")
                .all(by_word(&events.fallbacks)),
            counter("chiasm_unavailable", "Requests that failed, by reason")
                .by("reason")
                .all(by_word(&events.unavailable)),
            counter("chiasm_refused_endpoints", "Producers that the allowlist does not name")
                .only(events.refused_endpoints),
            counter("chiasm_ack_timeouts", "Attempts that got no ack in time")
                .only(events.ack_timeouts),
            counter("chiasm_wrong_bytes", "Reads that brought other bytes than were saved")
                .only(events.wrong_bytes),
            counter("chiasm_disagreements", "Entries of which two sources hold different bytes")
                .only(events.disagreements),
            counter("chiasm_breakers_opened", "Producers that were taken to be down")
                .only(events.breakers_opened),
            counter("chiasm_dropped_events", "Log lines that were dropped in a flood")
                .only(events.dropped),
        ]
    }

    fn dispatching(&self) -> Vec<Family> {
        let (out, counters) = (&self.outstanding, &self.dispatches);
        vec![
            gauge("chiasm_dispatches", "Orders to workers that are out, by kind")
                .by("kind")
                .with("save", out.saves)
                .with("load", out.loads)
                .with("lost_save", out.lost_saves),
            counter("chiasm_dispatch_events", "What became of orders to workers")
                .by("event")
                .with("save", counters.saves)
                .with("load", counters.loads)
                .with("saved", counters.saved)
                .with("loaded", counters.loaded)
                .with("failed_save", counters.failed_saves)
                .with("failed_load", counters.failed_loads)
                .with("lost_save", counters.lost_saves)
                .with("late_load", counters.late_loads)
                .with("late_report", counters.late_reports)
                .with("ignored_report", counters.ignored_reports),
        ]
    }
}

fn by_word(counts: &BTreeMap<&'static str, u64>) -> impl Iterator<Item = Sample> {
    counts.iter().map(|(label, count)| Sample { label, value: Value::Count(*count) })
}

fn family(name: &'static str, kind: Kind, help: &'static str) -> Family {
    Family { name, kind, help, label: None, samples: Vec::new() }
}

fn counter(name: &'static str, help: &'static str) -> Family {
    family(name, Kind::Counter, help)
}

fn gauge(name: &'static str, help: &'static str) -> Family {
    family(name, Kind::Gauge, help)
}

fn histogram(name: &'static str, help: &'static str) -> Family {
    family(name, Kind::Histogram, help)
}

/// What a node counts fits 64 bits.
trait Count {
    fn count(self) -> u64;
}

impl Count for u64 {
    fn count(self) -> u64 {
        self
    }
}

impl Count for u32 {
    fn count(self) -> u64 {
        self.into()
    }
}

impl Count for usize {
    fn count(self) -> u64 {
        u64::try_from(self).unwrap_or(u64::MAX)
    }
}

impl Family {
    fn by(self, label: &'static str) -> Self {
        Self { label: Some(label), ..self }
    }

    fn with(mut self, label: &'static str, count: impl Count) -> Self {
        self.samples.push(Sample { label, value: Value::Count(count.count()) });
        self
    }

    fn only(self, count: impl Count) -> Self {
        self.with("", count)
    }

    fn all(mut self, samples: impl IntoIterator<Item = Sample>) -> Self {
        self.samples.extend(samples);
        self
    }
}
