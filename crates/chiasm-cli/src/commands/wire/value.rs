//! Messages as JSON values, in the form of `testdata/wire/manifest.json`.
//!
//! What can be large is summarised, so that the output of a 14 MB ack still fits a screen.

use chiasm_core::dtype::Dtype;
use chiasm_core::plane::Plane;
use chiasm_core::wire::{
    AckExtension, DecodeError, DescriptorRow, ReqExtension, Rows, XferAck, XferDone, XferReq,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::hex;

/// Lists up to this length are shown whole.
const SHOWN_WHOLE: usize = 64;

#[derive(Serialize)]
pub(super) struct Req<'a> {
    mm_hash: &'a str,
    compatibility_hash: &'a str,
    session_id: &'a str,
    connector_version: i128,
    #[serde(skip_serializing_if = "Option::is_none")]
    chiasm: Option<ReqChiasm<'a>>,
}

#[derive(Serialize)]
struct ReqChiasm<'a> {
    rev: u32,
    epoch: u64,
    planes: Vec<&'static str>,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
    #[serde(skip_serializing_if = "is_not_said")]
    agent: u64,
}

#[derive(Serialize)]
pub(super) struct Done<'a> {
    mm_hash: &'a str,
    session_id: &'a str,
    attempt: u32,
}

#[derive(Serialize)]
pub(super) struct Ack<'a> {
    mm_hash: &'a str,
    status: u8,
    session_id: &'a str,
    src_block_indices: Ints<'a>,
    agent_metadata: Summary,
    mem_descriptor: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    chiasm: Option<AckChiasm<'a>>,
}

#[derive(Serialize)]
struct AckChiasm<'a> {
    rev: u32,
    epoch: u64,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    plane: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extents: Vec<(u32, u32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dtype: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<(u32, u32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "is_not_said")]
    agent: u64,
    #[serde(skip_serializing_if = "is_not_said")]
    base: u64,
    #[serde(skip_serializing_if = "is_not_said")]
    region_blocks: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
fn is_not_said(number: &u64) -> bool {
    *number == 0
}

/// A byte string of any length.
#[derive(Serialize)]
struct Summary {
    bin_len: usize,
    bin_sha256: String,
}

/// A byte string that is short by definition.
#[derive(Serialize)]
struct Written {
    hex: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Ints<'a> {
    Whole(&'a [u64]),
    Summary { ints: usize, first: Option<u64>, last: Option<u64>, sum: u128 },
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Descriptors {
    Whole(Vec<[u64; 3]>),
    Summary { rows: usize, first: Option<[u64; 3]>, last: Option<[u64; 3]> },
}

/// A request.
pub(super) fn req<'a>(req: &XferReq<'a>) -> Req<'a> {
    Req {
        mm_hash: req.mm_hash,
        compatibility_hash: req.compatibility_hash,
        session_id: req.session_id,
        connector_version: req.connector_version,
        chiasm: req.chiasm.as_ref().map(req_chiasm),
    }
}

fn req_chiasm<'a>(chiasm: &ReqExtension<'a>) -> ReqChiasm<'a> {
    ReqChiasm {
        rev: chiasm.rev,
        epoch: chiasm.epoch,
        planes: chiasm.planes.iter().map(Plane::name).collect(),
        attempt: chiasm.attempt,
        fingerprint: chiasm.fingerprint,
        host: chiasm.host.map(|host| Written { hex: hex::encode(&host.0) }),
        region: chiasm.region,
        agent: chiasm.agent,
    }
}

/// The end of a grant.
pub(super) fn done<'a>(done: &XferDone<'a>) -> Done<'a> {
    Done { mm_hash: done.mm_hash, session_id: done.session_id, attempt: done.attempt }
}

/// An ack.
pub(super) fn ack<'a>(ack: &'a XferAck<'_>) -> Ack<'a> {
    Ack {
        mm_hash: ack.mm_hash,
        status: ack.status.code(),
        session_id: ack.session_id,
        src_block_indices: ints(&ack.src_block_indices),
        agent_metadata: summary(ack.agent_metadata),
        mem_descriptor: summary(ack.mem_descriptor),
        chiasm: ack.chiasm.as_ref().map(ack_chiasm),
    }
}

fn ack_chiasm<'a>(chiasm: &AckExtension<'a>) -> AckChiasm<'a> {
    let written = |bytes: [u8; 16]| Written { hex: hex::encode(&bytes) };
    AckChiasm {
        rev: chiasm.rev,
        epoch: chiasm.epoch,
        attempt: chiasm.attempt,
        plane: chiasm.plane.map(Plane::name),
        token: chiasm.token.map(written),
        region: chiasm.region,
        extents: chiasm.extents.iter().map(|extent| (extent.first(), extent.count())).collect(),
        dtype: chiasm.dtype.map(Dtype::name),
        shape: chiasm.shape,
        bytes: chiasm.bytes,
        block_size_bytes: chiasm.block_size_bytes,
        lease_ms: chiasm.lease_ms,
        digest: chiasm.digest.map(|digest| written(digest.0)),
        fingerprint: chiasm.fingerprint,
        reason: chiasm.reason,
        agent: chiasm.agent,
        base: chiasm.base,
        region_blocks: u64::from(chiasm.region_blocks),
    }
}

/// A descriptor list, read to its end without keeping more of it than is shown.
pub(super) fn rows(rows: Rows<'_>) -> Result<Descriptors, DecodeError> {
    let mut shown = Vec::new();
    let mut last = None;
    let mut count = 0;
    for row in rows {
        let DescriptorRow { addr, len, device_id } = row?;
        let row = [addr, len, device_id];
        if count < SHOWN_WHOLE {
            shown.push(row);
        }
        last = Some(row);
        count += 1;
    }
    if count <= SHOWN_WHOLE {
        return Ok(Descriptors::Whole(shown));
    }
    Ok(Descriptors::Summary { rows: count, first: shown.first().copied(), last })
}

fn ints(ints: &[u64]) -> Ints<'_> {
    if ints.len() <= SHOWN_WHOLE {
        return Ints::Whole(ints);
    }
    Ints::Summary {
        ints: ints.len(),
        first: ints.first().copied(),
        last: ints.last().copied(),
        sum: ints.iter().copied().map(u128::from).sum(),
    }
}

fn summary(bytes: &[u8]) -> Summary {
    Summary { bin_len: bytes.len(), bin_sha256: hex::encode(&Sha256::digest(bytes)) }
}
