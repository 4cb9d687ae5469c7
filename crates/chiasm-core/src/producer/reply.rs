//! The producer's answers as bytes: one OK form, one NACK form.

use super::grants::Grant;
use super::{NixlAgent, ProducerConfig};
use crate::plane::Plane;
use crate::time::Nanos;
use crate::wire::{AckExtension, AckStatus, Message, WIRE_REVISION, XferAck, XferReq};

/// Why a request was not granted. Each has upstream's status; the word goes to Chiasm peers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalReason {
    /// Another connector version.
    Version,
    /// Another compatibility hash: model, dtype, block size or vLLM version differ.
    CompatHash,
    /// Same compatibility hash, but weights, quantisation or processor options differ.
    Fingerprint,
    /// No session id, or one that is too long to be kept.
    SessionId,
    /// Another live connection uses this session id.
    SessionInUse,
    /// No such entry: never saved, or evicted.
    Missing,
    /// The entry's bytes have not all landed yet.
    NotReady,
    /// The peer, or all peers together, hold as much as they may.
    Quota,
    /// The peer offers no plane that this producer serves.
    NoPlane,
    /// This producer is about to stop: what it has goes away with it.
    Draining,
    /// The only plane in common is nixl, and the agent that serves it is being started again.
    AgentDown,
}

impl RefusalReason {
    /// Upstream's status for it.
    #[must_use]
    pub const fn status(self) -> AckStatus {
        match self {
            Self::Version => AckStatus::Version,
            Self::CompatHash | Self::Fingerprint => AckStatus::Incompat,
            Self::SessionId | Self::SessionInUse | Self::NoPlane | Self::Draining => {
                AckStatus::Internal
            }
            Self::Missing => AckStatus::Missing,
            Self::NotReady | Self::Quota | Self::AgentDown => AckStatus::NotReady,
        }
    }

    /// The word that Chiasm peers are told.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::CompatHash => "compat_hash",
            Self::Fingerprint => "fingerprint",
            Self::SessionId => "session_id",
            Self::SessionInUse => "session_in_use",
            Self::Missing => "missing",
            Self::NotReady => "not_ready",
            Self::Quota => "quota",
            Self::NoPlane => "no_plane",
            Self::Draining => "draining",
            Self::AgentDown => "agent_down",
        }
    }
}

/// The OK ack to an upstream consumer, in upstream's form: the entry as block indices, the agent's
/// metadata, and, unless the consumer is known to have it, the list of all blocks of the region.
pub(super) fn granted_upstream(
    request: &XferReq<'_>,
    grant: &Grant,
    agent: &NixlAgent,
    has_list: bool,
) -> Message {
    let indices = grant.extents.iter().flat_map(|extent| extent.first()..extent.end());
    let ack = XferAck {
        session_id: request.session_id,
        src_block_indices: indices.map(u64::from).collect(),
        agent_metadata: &agent.metadata,
        ..XferAck::bare(request.mm_hash, AckStatus::Ok)
    };
    let with_list = if has_list { None } else { ack.encode_with_region(&agent.region) };
    with_list.unwrap_or_else(|| ack.encode().into())
}

/// The OK ack to a Chiasm peer: the entry as extents, its exact form, and what its plane needs: the
/// token of its stream, the name of the region, or the NIXL agent, whose metadata is left out if the
/// peer has it already.
pub(super) fn granted(
    config: &ProducerConfig,
    request: &XferReq<'_>,
    grant: &Grant,
    agent: Option<&NixlAgent>,
    now: Nanos,
) -> Vec<u8> {
    let known = request.chiasm.map_or(0, |extension| extension.agent);
    let metadata = agent.filter(|agent| agent.life != known).map(|agent| &*agent.metadata);
    let lease_ms = u64::try_from(grant.deadline.since(now).as_millis()).unwrap_or(u64::MAX);
    let region = config.shm.as_ref().filter(|_| grant.plane == Plane::Shm);
    let extension = AckExtension {
        rev: WIRE_REVISION,
        epoch: config.epoch,
        attempt: grant.attempt,
        plane: Some(grant.plane),
        token: (grant.plane == Plane::Tcp).then_some(grant.token.0),
        region: region.map(|region| region.name.as_str()),
        extents: grant.extents.clone(),
        dtype: grant.meta.dtype,
        shape: Some((grant.meta.rows, grant.meta.width)),
        bytes: Some(grant.meta.bytes),
        block_size_bytes: Some(config.block_size_bytes),
        lease_ms: Some(lease_ms),
        digest: grant.digest,
        fingerprint: config.fingerprint.as_deref(),
        reason: None,
        agent: agent.map_or(0, |agent| agent.life),
        base: agent.map_or(0, |agent| agent.region.base()),
        region_blocks: agent.map_or(0, |agent| agent.region.count()),
    };
    let ack = XferAck {
        session_id: request.session_id,
        agent_metadata: metadata.unwrap_or_default(),
        chiasm: Some(extension),
        ..XferAck::bare(request.mm_hash, AckStatus::Ok)
    };
    ack.encode()
}

/// A NACK: hash and status, as upstream's; a Chiasm peer also learns attempt, epoch and reason.
pub(super) fn refused(
    config: &ProducerConfig,
    request: &XferReq<'_>,
    reason: RefusalReason,
) -> Vec<u8> {
    let extension = request.chiasm.as_ref().map(|theirs| AckExtension {
        rev: WIRE_REVISION,
        epoch: config.epoch,
        attempt: theirs.attempt,
        reason: Some(reason.word()),
        ..AckExtension::default()
    });
    XferAck { chiasm: extension, ..XferAck::bare(request.mm_hash, reason.status()) }.encode()
}
