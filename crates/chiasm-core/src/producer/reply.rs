//! The producer's answers as bytes: one OK form, one NACK form.

use super::ProducerConfig;
use super::grants::Grant;
use crate::plane::Plane;
use crate::time::Nanos;
use crate::wire::{AckExtension, AckStatus, WIRE_REVISION, XferAck, XferReq};

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
            Self::NotReady | Self::Quota => AckStatus::NotReady,
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
        }
    }
}

/// The OK ack to a Chiasm peer: the entry as extents, its exact form, and the token for its stream.
pub(super) fn granted(
    config: &ProducerConfig,
    request: &XferReq<'_>,
    grant: &Grant,
    now: Nanos,
) -> Vec<u8> {
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
    };
    let ack = XferAck {
        session_id: request.session_id,
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
