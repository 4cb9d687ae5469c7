//! Messages from JSON.
//!
//! Whatever is made here is decoded once before it is handed out: no command of ours makes a
//! message that a node of ours would refuse.

use anyhow::{Context as _, Result, anyhow, bail};
use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::excerpt::Excerpt;
use chiasm_core::extent::Extent;
use chiasm_core::host_hint::HostHint;
use chiasm_core::plane::Plane;
use chiasm_core::wire::{
    AckExtension, AckLimits, AckStatus, CONNECTOR_VERSION, DescriptorRow, Progression,
    ReqExtension, WIRE_REVISION, XferAck, XferDone, XferReq, encode_rows,
};
use serde::Deserialize;
use serde_json::Value;

use super::{hex, known_keys};

#[derive(Deserialize)]
struct Req {
    mm_hash: String,
    compatibility_hash: String,
    #[serde(default)]
    session_id: String,
    #[serde(default = "default_version")]
    connector_version: i128,
    chiasm: Option<ReqChiasm>,
}

#[derive(Deserialize)]
struct ReqChiasm {
    #[serde(default = "default_revision")]
    rev: u32,
    #[serde(default)]
    epoch: u64,
    #[serde(default)]
    planes: Vec<String>,
    #[serde(default)]
    attempt: u32,
    fingerprint: Option<String>,
    host: Option<Binary>,
    region: Option<String>,
    #[serde(default)]
    agent: u64,
}

#[derive(Deserialize)]
struct Done {
    mm_hash: String,
    session_id: String,
    attempt: u32,
}

#[derive(Deserialize)]
struct Ack {
    mm_hash: String,
    status: i64,
    #[serde(default)]
    session_id: String,
    #[serde(default)]
    src_block_indices: Vec<u64>,
    #[serde(default)]
    agent_metadata: Binary,
    #[serde(default)]
    mem_descriptor: Binary,
    chiasm: Option<AckChiasm>,
}

#[derive(Deserialize)]
struct AckChiasm {
    #[serde(default = "default_revision")]
    rev: u32,
    #[serde(default)]
    epoch: u64,
    #[serde(default)]
    attempt: u32,
    plane: Option<String>,
    token: Option<Binary>,
    region: Option<String>,
    #[serde(default)]
    extents: Vec<(u32, u32)>,
    dtype: Option<String>,
    shape: Option<(u32, u32)>,
    bytes: Option<u64>,
    block_size_bytes: Option<u64>,
    lease_ms: Option<u64>,
    digest: Option<Binary>,
    fingerprint: Option<String>,
    reason: Option<String>,
    #[serde(default)]
    agent: u64,
    #[serde(default)]
    base: u64,
    #[serde(default)]
    region_blocks: u32,
}

#[derive(Default, Deserialize)]
struct Binary {
    hex: String,
}

#[derive(Deserialize)]
struct Region {
    base: u64,
    block_bytes: u64,
    stride: Option<u64>,
    count: u32,
    #[serde(default)]
    device_id: u64,
}

const REQ_KEYS: &[&str] =
    &["mm_hash", "compatibility_hash", "session_id", "connector_version", "chiasm"];
const REQ_CHIASM_KEYS: &[&str] =
    &["rev", "epoch", "planes", "attempt", "fingerprint", "host", "region", "agent"];
const DONE_KEYS: &[&str] = &["mm_hash", "session_id", "attempt"];
const ACK_KEYS: &[&str] = &[
    "mm_hash",
    "status",
    "session_id",
    "src_block_indices",
    "agent_metadata",
    "mem_descriptor",
    "chiasm",
];
const ACK_CHIASM_KEYS: &[&str] = &[
    "rev",
    "epoch",
    "attempt",
    "plane",
    "token",
    "region",
    "extents",
    "dtype",
    "shape",
    "bytes",
    "block_size_bytes",
    "lease_ms",
    "digest",
    "fingerprint",
    "reason",
    "agent",
    "base",
    "region_blocks",
];
const REGION_KEYS: &[&str] = &["base", "block_bytes", "stride", "count", "device_id"];

/// A request.
pub(super) fn req(text: &str) -> Result<Vec<u8>> {
    let value: Value = serde_json::from_str(text)?;
    known_keys::check(&value, "$", REQ_KEYS)?;
    known_keys::check(&value["chiasm"], "$.chiasm", REQ_CHIASM_KEYS)?;
    check_binary(&value["chiasm"]["host"], "$.chiasm.host")?;
    // From the text again: only there do serde's messages say line and column.
    let req: Req = serde_json::from_str(text)?;
    if i64::try_from(req.connector_version).is_err()
        && u64::try_from(req.connector_version).is_err()
    {
        bail!("$.connector_version: allowed are {} to {}", i64::MIN, u64::MAX);
    }
    let chiasm = req.chiasm.as_ref().map(ReqChiasm::extension).transpose()?;
    let bytes = XferReq {
        mm_hash: &req.mm_hash,
        compatibility_hash: &req.compatibility_hash,
        session_id: &req.session_id,
        connector_version: req.connector_version,
        chiasm,
    }
    .encode();
    XferReq::decode(&bytes)?;
    Ok(bytes)
}

/// The end of a grant.
pub(super) fn done(text: &str) -> Result<Vec<u8>> {
    let value: Value = serde_json::from_str(text)?;
    known_keys::check(&value, "$", DONE_KEYS)?;
    let Done { mm_hash, session_id, attempt } = serde_json::from_str(text)?;
    let bytes = XferDone { mm_hash: &mm_hash, session_id: &session_id, attempt }.encode();
    XferDone::decode(&bytes)?;
    Ok(bytes)
}

/// An ack.
pub(super) fn ack(text: &str) -> Result<Vec<u8>> {
    let value: Value = serde_json::from_str(text)?;
    known_keys::check(&value, "$", ACK_KEYS)?;
    known_keys::check(&value["chiasm"], "$.chiasm", ACK_CHIASM_KEYS)?;
    refuse_summary(&value["src_block_indices"], "$.src_block_indices", "list of integers")?;
    for key in ["agent_metadata", "mem_descriptor"] {
        check_binary(&value[key], &format!("$.{key}"))?;
    }
    for key in ["token", "digest"] {
        check_binary(&value["chiasm"][key], &format!("$.chiasm.{key}"))?;
    }
    let ack: Ack = serde_json::from_str(text)?;
    let status = AckStatus::from_code(i128::from(ack.status))
        .ok_or_else(|| anyhow!("$.status: {} is unknown, allowed: {}", ack.status, statuses()))?;
    let agent_metadata = ack.agent_metadata.decode("$.agent_metadata")?;
    let mem_descriptor = ack.mem_descriptor.decode("$.mem_descriptor")?;
    let chiasm = ack.chiasm.as_ref().map(AckChiasm::extension).transpose()?;
    let bytes = XferAck {
        mm_hash: &ack.mm_hash,
        status,
        session_id: &ack.session_id,
        src_block_indices: ack.src_block_indices,
        agent_metadata: &agent_metadata,
        mem_descriptor: &mem_descriptor,
        chiasm,
    }
    .encode();
    XferAck::decode(&bytes, &AckLimits::default())?;
    Ok(bytes)
}

/// A descriptor list, row by row or as a region.
pub(super) fn memdesc(text: &str) -> Result<Vec<u8>> {
    let value: Value = serde_json::from_str(text)?;
    if value.is_array() {
        let rows: Vec<[u64; 3]> = serde_json::from_str(text)?;
        let row = |[addr, len, device_id]: [u64; 3]| DescriptorRow { addr, len, device_id };
        return Ok(encode_rows(&rows.into_iter().map(row).collect::<Vec<_>>()));
    }
    refuse_summary(&value, "$", "list of rows, or as a region")?;
    known_keys::check(&value, "$", REGION_KEYS)?;
    let region: Region = serde_json::from_str(text)?;
    let stride = region.stride.unwrap_or(region.block_bytes);
    let Region { base, block_bytes, count, device_id, .. } = region;
    Ok(Progression::new(base, block_bytes, stride, count, device_id)?.encode())
}

impl ReqChiasm {
    fn extension(&self) -> Result<ReqExtension<'_>> {
        let planes =
            self.planes.iter().map(|name| plane(name, "$.chiasm.planes")).collect::<Result<_>>()?;
        Ok(ReqExtension {
            rev: self.rev,
            epoch: self.epoch,
            planes,
            attempt: self.attempt,
            fingerprint: self.fingerprint.as_deref(),
            host: self
                .host
                .as_ref()
                .map(|host| host.sixteen("$.chiasm.host").map(HostHint))
                .transpose()?,
            region: self.region.as_deref(),
            agent: self.agent,
        })
    }
}

impl AckChiasm {
    fn extension(&self) -> Result<AckExtension<'_>> {
        let sixteen = |binary: &Option<Binary>, path: &str| {
            binary.as_ref().map(|binary| binary.sixteen(path)).transpose()
        };
        let extents = self.extents.iter().map(|&(first, count)| extent(first, count));
        Ok(AckExtension {
            rev: self.rev,
            epoch: self.epoch,
            attempt: self.attempt,
            plane: self.plane.as_deref().map(|name| plane(name, "$.chiasm.plane")).transpose()?,
            token: sixteen(&self.token, "$.chiasm.token")?,
            region: self.region.as_deref(),
            extents: extents.collect::<Result<_>>()?,
            dtype: self.dtype.as_deref().map(dtype).transpose()?,
            shape: self.shape,
            bytes: self.bytes,
            block_size_bytes: self.block_size_bytes,
            lease_ms: self.lease_ms,
            digest: sixteen(&self.digest, "$.chiasm.digest")?.map(Digest),
            fingerprint: self.fingerprint.as_deref(),
            reason: self.reason.as_deref(),
            agent: self.agent,
            base: self.base,
            region_blocks: self.region_blocks,
        })
    }
}

impl Binary {
    fn decode(&self, path: &str) -> Result<Vec<u8>> {
        hex::decode(self.hex.as_bytes()).with_context(|| format!("{path}.hex"))
    }

    fn sixteen(&self, path: &str) -> Result<[u8; 16]> {
        let bytes = self.decode(path)?;
        let found = bytes.len();
        bytes.try_into().map_err(|_| anyhow!("{path}: {found} bytes, allowed: exactly 16"))
    }
}

fn plane(name: &str, path: &str) -> Result<Plane> {
    Plane::from_name(name).ok_or_else(|| {
        anyhow!("{path}: {} is unknown, allowed: {}", Excerpt::of(name), Plane::NAMES)
    })
}

fn dtype(name: &str) -> Result<Dtype> {
    Dtype::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
        anyhow!("$.chiasm.dtype: {} is unknown, allowed: {}", Excerpt::of(name), names.join(", "))
    })
}

fn extent(first: u32, count: u32) -> Result<Extent> {
    Extent::new(first, count).ok_or_else(|| {
        anyhow!("$.chiasm.extents: [{first}, {count}] is empty or ends past 2^32 - 1")
    })
}

fn statuses() -> String {
    let names = AckStatus::ALL.map(|status| format!("{} {status}", status.code()));
    names.join(", ")
}

fn check_binary(value: &Value, path: &str) -> Result<()> {
    refuse_summary(value, path, "byte string, as {\"hex\": \"00ff\"}")?;
    known_keys::check(value, path, &["hex"])
}

/// What `decode` shows of large values cannot be turned back into them.
fn refuse_summary(value: &Value, path: &str, wanted: &str) -> Result<()> {
    for key in ["bin_len", "ints", "rows"] {
        if value.get(key).is_some() {
            bail!("{path}: this is a summary; give the whole {wanted}");
        }
    }
    Ok(())
}

fn default_version() -> i128 {
    i128::from(CONNECTOR_VERSION)
}

fn default_revision() -> u32 {
    WIRE_REVISION
}
