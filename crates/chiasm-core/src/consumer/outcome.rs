//! How transfers end, one by one and in numbers.

use std::collections::BTreeMap;

use super::{Failure, TransferId};
use crate::cache::EntryKey;
use crate::endpoint::Endpoint;
use crate::latency::LatencyHistogram;
use crate::mm_hash::MmHash;
use crate::plane::Plane;

/// A transfer's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Which.
    pub transfer: TransferId,
    /// Its identifier.
    pub hash: MmHash,
    /// Its producer.
    pub source: Endpoint,
    /// A published entry, or why there is none.
    pub outcome: Result<Arrived, Failure>,
}

/// An entry that has arrived and is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The published entry: this transfer's, or the one that was published before.
    pub entry: EntryKey,
    /// Its exact length.
    pub bytes: u64,
    /// The plane that moved the bytes.
    pub plane: Plane,
    /// Set if the entry that was there already has another digest: two sources disagree.
    pub conflict: bool,
}

/// How often each end came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerCounters {
    /// Requests sent.
    pub requests: u64,
    /// Entries that arrived.
    pub arrived: u64,
    /// Bytes of them, by plane.
    pub bytes: BTreeMap<Plane, u64>,
    /// Transfers that failed, by reason.
    pub failed: BTreeMap<&'static str, u64>,
    /// Messages that answer nothing that is waited for.
    pub stray_acks: u64,
    /// From the sending of a request to its answer, whatever it says.
    pub ack_latency: LatencyHistogram,
    /// From an OK ack to the last byte, for entries that arrived, by plane.
    pub read_latency: BTreeMap<Plane, LatencyHistogram>,
}
