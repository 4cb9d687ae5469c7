//! A fleet as an operator would set it up, without faults, and what it would do: for trying settings
//! before a roll-out.
//!
//! Times of copies, steps and networks are what the settings say; nothing here measures a machine.

pub mod limits;

use std::ops::RangeInclusive;
use std::time::Duration;

use chiasm_core::byte_size::ByteSize;
use chiasm_core::limits as core_limits;
use chiasm_core::plane::{Plane, PlaneList};
use serde_json::{Value, json};

use crate::fault::Rates;
use crate::run::Outcome;
use crate::setup::{NodeSetup, Role, Setup};

/// Bytes of one block of simulated memory. A model's rows are smaller; what matters here is how many
/// entries fit.
const BLOCK_BYTES: u64 = 64 << 10;

/// Smallest and largest region.
const REGION_BYTES: RangeInclusive<u64> = BLOCK_BYTES..=256 << 30;

/// What can be tried.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// Where chance comes from.
    pub seed: u64,
    /// Encoder instances.
    pub encoders: usize,
    /// Prefill or decode instances.
    pub consumers: usize,
    /// Whether all of them are on one host, and read over shm.
    pub one_host: bool,
    /// Region of each encoder, in bytes.
    pub encoder_bytes: u64,
    /// Region of each consumer, in bytes.
    pub consumer_bytes: u64,
    /// Smallest and largest encoder output, in bytes.
    pub entry_bytes: (u64, u64),
    /// Different items that requests ask for.
    pub entries: usize,
    /// How much more often popular items are asked for: 0 all alike, 1 as words in a text.
    pub popularity: f64,
    /// Requests per second, over all consumers.
    pub rate: f64,
    /// How long they arrive.
    pub duration: Duration,
    /// Items of one request, at most.
    pub items: usize,
    /// Share of requests that come with real input, in thousandths.
    pub local_input: u32,
    /// Requests that run at once on one consumer.
    pub running: usize,
    /// How long an engine step takes, shortest and longest.
    pub step: (Duration, Duration),
    /// How long an encoder takes for one request, shortest and longest.
    pub encode: (Duration, Duration),
    /// What one copy or stream moves, in bytes per second.
    pub bytes_per_second: u64,
    /// One way through the network, shortest and longest.
    pub latency: (Duration, Duration),
    /// `pin_lease_s`.
    pub lease: Duration,
    /// `wait_budget_s`.
    pub wait_budget: Duration,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self {
            seed: 1,
            encoders: 2,
            consumers: 4,
            one_host: false,
            encoder_bytes: 4 << 30,
            consumer_bytes: 4 << 30,
            entry_bytes: (1 << 20, 14 << 20),
            entries: 1000,
            popularity: 0.8,
            rate: 20.0,
            duration: Duration::from_mins(1),
            items: 2,
            local_input: 1000,
            running: 64,
            step: (Duration::from_millis(10), Duration::from_millis(60)),
            encode: (Duration::from_millis(50), Duration::from_millis(400)),
            bytes_per_second: 2_000_000_000,
            latency: (Duration::from_micros(50), Duration::from_micros(500)),
            lease: core_limits::UPSTREAM_LEASE,
            wait_budget: chiasm_core::admission::limits::WAIT_BUDGET,
        }
    }
}

/// Why settings cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FleetError {
    /// A setting that is too small, too large, or no number.
    #[error("{setting} is {value}: from {least} to {most} can be simulated")]
    Outside {
        /// Which.
        setting: &'static str,
        /// What it is.
        value: String,
        /// The least that it may be.
        least: String,
        /// The most that it may be.
        most: String,
    },
    /// More requests than make sense.
    #[error("rate times duration is {0} requests: from 1 to a million can be simulated")]
    Requests(u64),
}

/// Whether a setting is inside its limits.
fn within<T: PartialOrd + Copy>(
    setting: &'static str,
    value: T,
    limits: &RangeInclusive<T>,
    text: impl Fn(&T) -> String,
) -> Result<(), FleetError> {
    // Not inside: nothing that cannot be compared is.
    if limits.contains(&value) {
        return Ok(());
    }
    Err(FleetError::Outside {
        setting,
        value: text(&value),
        least: text(limits.start()),
        most: text(limits.end()),
    })
}

impl FleetSettings {
    /// Everything that has limits, and they.
    fn check(&self) -> Result<(), FleetError> {
        let count = usize::to_string;
        within("encoders", self.encoders, &limits::NODES, count)?;
        within("consumers", self.consumers, &limits::NODES, count)?;
        within("items", self.entries, &limits::ITEMS, count)?;
        within("items per request", self.items, &limits::ITEMS_PER_REQUEST, count)?;
        within("running", self.running, &limits::RUNNING, count)?;
        let size = |bytes: &u64| ByteSize(*bytes).to_string();
        within("encoder region", self.encoder_bytes, &REGION_BYTES, size)?;
        within("consumer region", self.consumer_bytes, &REGION_BYTES, size)?;
        let (smallest, largest) = self.entry_bytes;
        within("largest", largest, &(1..=1 << 30), size)?;
        within("smallest", smallest, &(1..=largest), size)?;
        within("throughput", self.bytes_per_second, &(1 << 20..=1 << 40), size)?;
        within("popularity", self.popularity, &limits::POPULARITY, f64::to_string)?;
        within("rate", self.rate, &limits::RATE, f64::to_string)?;
        let seconds = |time: &Duration| format!("{} s", time.as_secs_f64());
        let day = Duration::from_hours(24);
        within("duration", self.duration, &(Duration::from_millis(1)..=day), seconds)?;
        within("lease", self.lease, &(Duration::from_secs(1)..=day), seconds)?;
        within("budget", self.wait_budget, &(Duration::from_millis(10)..=day), seconds)?;
        let engine = Duration::from_millis(1)..=Duration::from_hours(1);
        within("step", self.step.1, &engine, seconds)?;
        within("encode", self.encode.1, &engine, seconds)
    }

    /// The fleet of these settings.
    pub fn setup(&self) -> Result<Setup, FleetError> {
        self.check()?;
        let blocks = |bytes: u64| u32::try_from(bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
        let (smallest, largest) = self.entry_bytes;
        let in_blocks = |bytes: u64| u32::try_from(bytes.div_ceil(BLOCK_BYTES)).unwrap_or(u32::MAX);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let requests = (self.rate * self.duration.as_secs_f64()) as u64;
        if !(1..=1_000_000).contains(&requests) {
            return Err(FleetError::Requests(requests));
        }
        let mut nodes = Vec::new();
        let kinds = [
            (Role::Encoder, self.encoders, blocks(self.encoder_bytes)),
            (Role::Consumer, self.consumers, blocks(self.consumer_bytes)),
        ];
        for (role, count, blocks) in kinds {
            for _ in 0..count {
                let host = if self.one_host { 0 } else { nodes.len() as u64 };
                nodes.push(NodeSetup { role, host, blocks, hostile: false });
            }
        }
        let mut planes = PlaneList::EMPTY;
        planes.push(Plane::Shm);
        planes.push(Plane::Tcp);
        let block_time = BLOCK_BYTES.saturating_mul(1_000_000_000) / self.bytes_per_second.max(1);
        Ok(Setup {
            seed: self.seed,
            nodes,
            hostile_consumers: 0,
            block_size_bytes: BLOCK_BYTES,
            entries: self.entries,
            entry_blocks: (in_blocks(smallest), in_blocks(largest)),
            churn: 0,
            popularity: self.popularity,
            planes,
            digests: true,
            lease: self.lease,
            lease_margin: core_limits::LEASE_MARGIN,
            ack_timeout: core_limits::ACK_TIMEOUT,
            read_timeout: core_limits::READ_TIMEOUT,
            wait_budget: self.wait_budget,
            save_timeout: chiasm_core::dispatch::SAVE_TIMEOUT,
            quarantine: chiasm_core::dispatch::QUARANTINE,
            connect_timeout: Duration::from_secs(3),
            max_requests: chiasm_core::admission::limits::MAX_REQUESTS,
            max_transfers_per_source: chiasm_core::admission::limits::MAX_TRANSFERS_PER_SOURCE,
            max_grants_per_peer: core_limits::MAX_GRANTS_PER_PEER,
            max_output_bytes: 1 << 20,
            running: self.running.max(1),
            step: (nanos(self.step.0), nanos(self.step.1)),
            encode: (nanos(self.encode.0), nanos(self.encode.1)),
            latency: (nanos(self.latency.0), nanos(self.latency.1)),
            block_time: (block_time, block_time),
            slice_blocks: 64,
            requests: usize::try_from(requests).unwrap_or(1),
            short_waits: 0,
            items: self.items,
            span: nanos(self.duration),
            local_input: self.local_input,
            rates: Rates::none(),
            checks: false,
        })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What a fleet did, as `chiasm sim fleet --json` prints it. Times are in milliseconds.
#[must_use]
pub fn report(outcome: &Outcome) -> Value {
    let (stats, tally) = (&outcome.stats, &outcome.tally);
    let items = stats.local_hits + stats.remote_hits + stats.encoded;
    let share = |part: u64| part_of(part, items);
    let millis = |nanos: u64| part_of(nanos, 1_000_000);
    json!({
        "requests": {
            "arrived": stats.requests,
            "ready": stats.ready,
            "fallback": stats.fallback,
            "failed": stats.failed,
        },
        "items": {
            "local_hits": stats.local_hits,
            "read": stats.remote_hits,
            "encoded_again": stats.encoded,
            "hit_rate": share(stats.local_hits + stats.remote_hits),
            "local_hit_rate": share(stats.local_hits),
        },
        "wait_ms": {
            "p50": millis(stats.wait_quantile(500)),
            "p90": millis(stats.wait_quantile(900)),
            "p99": millis(stats.wait_quantile(990)),
            "longest": millis(stats.wait_quantile(1000)),
        },
        "bytes": { "shm": tally.of("bytes over shm"), "tcp": tally.of("bytes over tcp") },
        "producers": {
            "saved": tally.of("save done"),
            "not_saved_for_room": tally.of("save full"),
            "grants": tally.of("grant given"),
            "missing": tally.of("nack NACK_MISSING"),
            "not_ready": tally.of("nack NACK_NOT_READY"),
        },
        "evictions": tally.of("cache evicted"),
        "retries": tally.of("read retried"),
        "simulated_s": part_of(outcome.simulated, 1_000_000_000),
    })
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn part_of(part: u64, whole: u64) -> f64 {
    let exact = part as f64 / whole.max(1) as f64;
    (exact * 10_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Run;

    fn outcome(settings: &FleetSettings) -> Outcome {
        Run::of(settings.setup().unwrap()).outcome()
    }

    #[test]
    fn a_small_fleet_serves_what_it_is_asked_for() {
        let settings = FleetSettings {
            rate: 5.0,
            duration: Duration::from_secs(20),
            entries: 30,
            ..FleetSettings::default()
        };
        let outcome = outcome(&settings);
        assert_eq!(outcome.violation, None);
        let report = report(&outcome);
        assert_eq!(report["requests"]["arrived"], 100);
        assert_eq!(report["requests"]["ready"], 100, "{report:#}");
        assert!(report["items"]["local_hit_rate"].as_f64().unwrap() > 0.3, "{report:#}");
        assert!(report["bytes"]["tcp"].as_u64().unwrap() > 0, "{report:#}");
    }

    #[test]
    fn a_larger_region_hits_more_often() {
        let hits = |consumer_bytes| {
            let settings = FleetSettings {
                rate: 10.0,
                duration: Duration::from_secs(30),
                entries: 60,
                consumer_bytes,
                consumers: 2,
                ..FleetSettings::default()
            };
            outcome(&settings).stats.local_hits
        };
        let (small, large) = (hits(64 << 20), hits(1 << 30));
        assert!(large > small + small / 4, "{small} hits in 64 MiB, {large} in 1 GiB");
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_name() {
        let refused = |settings: FleetSettings| settings.setup().map(|_| ()).unwrap_err();
        let default = FleetSettings::default;
        let outside = |settings| match refused(settings) {
            FleetError::Outside { setting, .. } => setting,
            FleetError::Requests(_) => "requests",
        };
        assert_eq!(outside(FleetSettings { encoders: 0, ..default() }), "encoders");
        assert_eq!(outside(FleetSettings { consumer_bytes: 1, ..default() }), "consumer region");
        assert_eq!(outside(FleetSettings { entry_bytes: (5, 4), ..default() }), "smallest");
        assert_eq!(outside(FleetSettings { popularity: f64::NAN, ..default() }), "popularity");
        let few = FleetSettings { rate: 0.001, ..default() };
        assert_eq!(refused(few), FleetError::Requests(0));
        let error = refused(FleetSettings { lease: Duration::ZERO, ..default() }).to_string();
        assert_eq!(error, "lease is 0 s: from 1 s to 86400 s can be simulated");
    }
}
