//! One producer's agent in one read helper, and the reads that wait until it is loaded.

use std::sync::Arc;

use chiasm_core::consumer::{ReadOrder, RemoteAgent, TransferId};
use chiasm_core::endpoint::Endpoint;
use chiasm_nixl::{Command, Piece, PieceError, ReadId, Span, pieces};

/// What is read once the peer is known.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) order: ReadOrder,
    pub(super) pieces: Vec<Piece>,
    pub(super) completion: String,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) endpoint: Endpoint,
    pub(super) agent_name: String,
    pub(super) metadata: Arc<[u8]>,
    pub(super) span: Span,
    pub(super) loaded: bool,
    /// It has delivered something: whatever ends the helper now is not what it was loaded from.
    pub(super) delivered: bool,
    pub(super) waiting: Vec<Job>,
    /// Reads in the helper.
    pub(super) reads: usize,
}

impl Peer {
    pub(super) fn new(endpoint: Endpoint, agent_name: String, remote: &RemoteAgent) -> Self {
        Self {
            endpoint,
            agent_name,
            metadata: Arc::clone(&remote.metadata),
            span: span(remote),
            loaded: false,
            delivered: false,
            waiting: Vec::new(),
            reads: 0,
        }
    }

    /// Whether it is this agent in this life, as that producer has described it.
    pub(super) fn is(&self, endpoint: &Endpoint, remote: &RemoteAgent) -> bool {
        self.endpoint == *endpoint
            && self.span == span(remote)
            && (Arc::ptr_eq(&self.metadata, &remote.metadata) || self.metadata == remote.metadata)
    }

    /// Whether nobody reads from it or is about to.
    pub(super) fn is_idle(&self) -> bool {
        self.reads == 0 && self.waiting.is_empty()
    }

    /// Takes the job of this transfer out of those that wait.
    pub(super) fn unqueue(&mut self, transfer: TransferId) -> Option<Job> {
        let at = self.waiting.iter().position(|job| job.order.transfer == transfer)?;
        Some(self.waiting.remove(at))
    }
}

fn span(remote: &RemoteAgent) -> Span {
    let (address, bytes) = remote.region;
    Span { address, bytes }
}

impl Job {
    /// What of a read goes where. `region_bytes` is the length of this node's blocks.
    pub(super) fn new(
        order: ReadOrder,
        remote: &RemoteAgent,
        block_size_bytes: u64,
        region_bytes: u64,
    ) -> Result<Self, (TransferId, PieceError)> {
        let mut left = order.bytes;
        let local: Vec<(u64, u64)> = order
            .local
            .iter()
            .map(|extent| {
                let offset = u64::from(extent.first()).saturating_mul(block_size_bytes);
                let bytes = u64::from(extent.count()).saturating_mul(block_size_bytes).min(left);
                left = left.saturating_sub(bytes);
                (offset, bytes)
            })
            .collect();
        let pieces = pieces(local, remote.runs.iter().copied(), span(remote), region_bytes)
            .map_err(|error| (order.transfer, error))?;
        Ok(Self { order, pieces, completion: remote.completion.clone() })
    }

    pub(super) fn command(&self, peer: u64) -> Command {
        Command::Read {
            read: ReadId(self.order.transfer.0),
            peer: chiasm_nixl::PeerId(peer),
            pieces: self.pieces.clone(),
            notification: self.completion.clone().into_bytes(),
        }
    }
}
