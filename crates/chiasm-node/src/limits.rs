//! Bounds of a node's sockets; those of messages and grants are the protocol crates'.

use std::time::Duration;

/// What a node keeps open and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// Control connections that others make to this node: 1024.
    pub max_connections: usize,
    /// Connections of both kinds from one address: 256, so that no single host takes all.
    pub max_connections_per_address: usize,
    /// Data streams that others make to this node: 512.
    pub max_streams: usize,
    /// Data streams that this node makes to one producer: 2. One fills a loopback or a 10 Gb/s link;
    /// the second lets small entries pass a large one.
    pub streams_per_peer: usize,
    /// How long a data stream may stand without work: 60 s.
    pub stream_idle: Duration,
    /// How long a data stream with work may move nothing: 10 s, half of the read time-out, so that a
    /// retry on a new stream still fits.
    pub stream_stall: Duration,
    /// How long accepting rests when the process is out of descriptors: 1 s.
    pub accept_pause: Duration,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_connections_per_address: 256,
            max_streams: 512,
            streams_per_peer: 2,
            stream_idle: Duration::from_mins(1),
            stream_stall: Duration::from_secs(10),
            accept_pause: Duration::from_secs(1),
        }
    }
}
