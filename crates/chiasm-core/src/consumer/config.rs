//! What a consumer is told once.

use std::time::Duration;

use crate::host_hint::HostHint;
use crate::plane::PlaneList;

/// What a consumer is told once.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// The compatibility hash that its requests carry.
    pub compat_hash: String,
    /// What the compatibility hash leaves out, for Chiasm peers.
    pub fingerprint: Option<String>,
    /// Random number of this node's life.
    pub epoch: u64,
    /// Random text of this node's life that its session ids begin with. Each connection has a session
    /// of its own: a producer that has not yet noticed the loss of the old one would refuse to see
    /// its session on a second live connection.
    pub session: String,
    /// Bytes of one block.
    pub block_size_bytes: u64,
    /// Planes in the operator's order of preference.
    pub planes: PlaneList,
    /// Where this node looks for regions, so that a producer can tell whether shm makes sense.
    pub host: Option<HostHint>,
    /// File name of this node's own region, by whose lock a producer on this host sees whether it lives.
    pub region: Option<String>,
    /// Whether a producer's content digest is compared with that of the landed bytes (`ec_verify`).
    /// Without it the lease alone decides.
    pub verify: bool,
    /// One attempt's wait for its ack (`consumer_ack_timeout_s`).
    pub ack_timeout: Duration,
    /// One read's time (`read_timeout_s`).
    pub read_timeout: Duration,
    /// Part of the lease that is left unused.
    pub lease_margin: Duration,
}
