//! Whether an ack agrees with what was announced and asked for. Nothing is allocated before it does.

use std::time::Duration;

use super::agent::{Agents, RemoteEntry, upstream_entry};
use super::away::Away;
use super::{ConsumerConfig, FailureReason, ReceivedAck, Wanted};
use crate::digest::Digest;
use crate::entry::EntryMeta;
use crate::excerpt::Excerpt;
use crate::extent::blocks_in;
use crate::limits::UPSTREAM_LEASE;
use crate::plane::{Plane, PlaneList};
use crate::producer::GrantToken;
use crate::wire::AckExtension;

/// What a producer that is asked for shm and knows better does not say.
const SHM_REACHES: &str = " (shm reaches only a producer on the same host, of the same user, with the \
                           same directory for regions)";

/// What both sides agree to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgreedRead {
    pub(super) plane: Plane,
    pub(super) token: Option<GrantToken>,
    pub(super) meta: EntryMeta,
    pub(super) digest: Option<Digest>,
    /// The producer's life.
    pub(super) epoch: u64,
    /// What was left of the lease when the ack was made.
    pub(super) lease: Duration,
}

/// What an ack is checked against.
pub(super) struct Against<'a> {
    pub(super) wanted: &'a Wanted,
    pub(super) session: &'a str,
    pub(super) offered: PlaneList,
    pub(super) away: &'a Away,
    pub(super) config: &'a ConsumerConfig,
}

/// Checks everything that an OK ack says against the announcement (PROTOCOL 32); turns a NACK into its
/// reason. On nixl it also says where the entry lies.
pub(super) fn check(
    received: &ReceivedAck<'_>,
    against: &Against<'_>,
    agents: &mut Agents,
) -> Result<(AgreedRead, Option<RemoteEntry>), FailureReason> {
    let Against { wanted, session, offered, away, config } = *against;
    let ack = &received.ack;
    let extension = ack.chiasm.as_ref();
    let word = extension.and_then(|extension| extension.reason).map(printable);
    if let Some(reason) = FailureReason::of_nack(ack.status, &word.unwrap_or_default()) {
        return Err(match reason {
            FailureReason::NoPlane(why) => {
                let shm = if offered.contains(Plane::Shm) { SHM_REACHES } else { "" };
                let reasons = away.reasons(&wanted.source);
                FailureReason::NoPlane(format!("{why}, which are {offered}{shm}{reasons}"))
            }
            reason => reason,
        });
    }
    if ack.session_id != session {
        return Err(mismatch("it names another session".into()));
    }
    let Some(extension) = extension else {
        if !offered.contains(Plane::Nixl) {
            let reasons = away.reasons(&wanted.source);
            return Err(FailureReason::NoPlane(format!(
                "an upstream producer can be read over nixl only, and was offered {offered}{reasons}"
            )));
        }
        return upstream(wanted, received, config).map(|(read, entry)| (read, Some(entry)));
    };
    let plane = plane(extension, offered)?;
    let meta = meta(wanted, extension, config)?;
    let token = extension.token.map(GrantToken);
    if plane == Plane::Tcp && token.is_none() {
        return Err(mismatch("it opens a tcp stream without a token".into()));
    }
    if plane == Plane::Shm && extension.region.is_none() {
        return Err(mismatch("it chooses shm without a region".into()));
    }
    if blocks_in(&extension.extents) != u64::from(wanted.blocks) {
        return Err(mismatch(format!(
            "{} blocks granted, {} announced",
            blocks_in(&extension.extents),
            wanted.blocks
        )));
    }
    let lease_ms = extension.lease_ms.ok_or_else(|| mismatch("it gives no lease".into()))?;
    if let (Some(theirs), Some(ours)) = (extension.fingerprint, config.fingerprint.as_deref())
        && theirs != ours
    {
        return Err(mismatch("its fingerprint is not this node's".into()));
    }
    let lease = Duration::from_millis(lease_ms);
    let digest = extension.digest.filter(|_| config.verify);
    let entry = if plane == Plane::Nixl {
        Some(agents.entry(&wanted.source, ack, extension, config.block_size_bytes)?)
    } else {
        None
    };
    Ok((AgreedRead { plane, token, meta, digest, epoch: extension.epoch, lease }, entry))
}

/// An ack of upstream's form: what it does not say is taken from the announcement, or from upstream's
/// constants.
fn upstream(
    wanted: &Wanted,
    received: &ReceivedAck<'_>,
    config: &ConsumerConfig,
) -> Result<(AgreedRead, RemoteEntry), FailureReason> {
    let (rows, width) = (wanted.rows, wanted.width);
    let dtype = wanted.dtype.ok_or_else(|| {
        mismatch("an upstream producer does not say the dtype, which is not known here".into())
    })?;
    let meta = EntryMeta::new(rows, width, dtype)
        .ok_or_else(|| mismatch(format!("[{rows}, {width}] of {dtype} overflows")))?;
    if meta.blocks(config.block_size_bytes) != Some(wanted.blocks) {
        return Err(mismatch(format!(
            "[{rows}, {width}] of {dtype} does not fill the {} blocks announced",
            wanted.blocks
        )));
    }
    let entry = upstream_entry(received, config.block_size_bytes, wanted.blocks)?;
    let plane = Plane::Nixl;
    let read =
        AgreedRead { plane, token: None, meta, digest: None, epoch: 0, lease: UPSTREAM_LEASE };
    Ok((read, entry))
}

fn plane(extension: &AckExtension<'_>, offered: PlaneList) -> Result<Plane, FailureReason> {
    let plane =
        extension.plane.ok_or_else(|| mismatch("it chooses no plane that is known here".into()))?;
    if !offered.contains(plane) {
        return Err(mismatch(format!("it chooses {plane}, which was not offered")));
    }
    Ok(plane)
}

fn meta(
    wanted: &Wanted,
    extension: &AckExtension<'_>,
    config: &ConsumerConfig,
) -> Result<EntryMeta, FailureReason> {
    let (rows, width) = extension.shape.ok_or_else(|| mismatch("it gives no shape".into()))?;
    if (rows, width) != (wanted.rows, wanted.width) {
        return Err(mismatch(format!(
            "shape [{rows}, {width}] granted, [{}, {}] announced",
            wanted.rows, wanted.width
        )));
    }
    let dtype =
        extension.dtype.ok_or_else(|| mismatch("it gives no dtype that is known here".into()))?;
    if let Some(expected) = wanted.dtype
        && expected != dtype
    {
        return Err(mismatch(format!("dtype {dtype} granted, {expected} expected")));
    }
    let meta = EntryMeta::new(rows, width, dtype)
        .ok_or_else(|| mismatch(format!("[{rows}, {width}] of {dtype} overflows")))?;
    if extension.bytes != Some(meta.bytes) {
        return Err(mismatch(format!(
            "its length in bytes is {}, [{rows}, {width}] of {dtype} has {}",
            said(extension.bytes),
            meta.bytes
        )));
    }
    if extension.block_size_bytes != Some(config.block_size_bytes) {
        return Err(mismatch(format!(
            "its block size is {}, {} here",
            said(extension.block_size_bytes),
            config.block_size_bytes
        )));
    }
    if meta.blocks(config.block_size_bytes) != Some(wanted.blocks) {
        return Err(mismatch(format!(
            "{} bytes do not fill the {} blocks announced",
            meta.bytes, wanted.blocks
        )));
    }
    Ok(meta)
}

/// A number that the peer may have left out.
fn said(number: Option<u64>) -> String {
    number.map_or_else(|| "not said".into(), |number| number.to_string())
}

/// The peer's word as log lines can show it: a machine word as it is, anything else as an excerpt.
fn printable(word: &str) -> String {
    let is_word = word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_word { word.into() } else { Excerpt::of(word).to_string() }
}

pub(super) fn mismatch(what: String) -> FailureReason {
    FailureReason::AckMismatch(what)
}
