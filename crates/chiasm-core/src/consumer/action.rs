//! What the consumer asks of the owner of sockets and planes, and what a plane reports back.

use std::sync::Arc;

use super::{FailureReason, TransferId};
use crate::digest::Digest;
use crate::endpoint::Endpoint;
use crate::extent::Extent;
use crate::plane::Plane;
use crate::producer::GrantToken;

/// What the owner of sockets and planes is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerAction {
    /// Connect to the endpoint, then report [`Consumer::link_up`](super::Consumer::link_up) or
    /// [`Consumer::link_down`](super::Consumer::link_down).
    OpenLink(Endpoint),
    /// Close the connection, for this reason, then report
    /// [`Consumer::link_down`](super::Consumer::link_down). Nothing is sent on it or taken from it
    /// any more.
    CloseLink(Endpoint, FailureReason),
    /// Send one message on the endpoint's connection.
    Send(Endpoint, Vec<u8>),
    /// Read the bytes, then report [`Consumer::read_ended`](super::Consumer::read_ended), in every
    /// case exactly once.
    StartRead(ReadOrder),
    /// Stop that read as fast as its plane can; its end is still reported.
    AbortRead(TransferId),
}

/// One read for a plane to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOrder {
    /// The transfer that it is for.
    pub transfer: TransferId,
    /// The approved producer.
    pub source: Endpoint,
    /// The plane that the producer chose out of those offered.
    pub plane: Plane,
    /// Opens the stream, on tcp.
    pub token: Option<GrantToken>,
    /// Where the producer's region is, on shm.
    pub shm: Option<RemoteRegion>,
    /// Whom to read from and where, on nixl.
    pub nixl: Option<RemoteAgent>,
    /// Where the bytes go, in order.
    pub local: Vec<Extent>,
    /// Exact length.
    pub bytes: u64,
    /// Whether the digest of the landed bytes is wanted.
    pub digest: bool,
}

/// An entry in the region of a producer on this host, as the producer has said it. Nothing of it has
/// been checked against that region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Name of its file.
    pub name: String,
    /// The life of the node that it belongs to.
    pub epoch: u64,
    /// Where the entry lies in it, in order.
    pub extents: Vec<Extent>,
}

/// An entry in the region of a producer's NIXL agent. The numbers have been checked against each other;
/// the metadata is as the producer sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteAgent {
    /// What NIXL loads to know the agent; equal for equal lives of it.
    pub metadata: Arc<[u8]>,
    /// Address and length of the agent's whole region. Does not wrap around.
    pub region: (u64, u64),
    /// Address and length of each run of adjacent blocks, in order; together as long as the read.
    pub runs: Vec<(u64, u64)>,
    /// What an upstream producer is told when all bytes have been read; empty between Chiasm nodes,
    /// which say it themselves.
    pub completion: String,
}

/// How a read ended. Once reported, the plane writes nothing more into the blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// All bytes have landed.
    Landed {
        /// How many.
        bytes: u64,
        /// Of the bytes as they landed, if it was wanted.
        digest: Option<Digest>,
    },
    /// The plane could not do it, or was told to stop.
    Failed(FailureReason),
}
