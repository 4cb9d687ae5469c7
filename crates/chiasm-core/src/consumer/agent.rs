//! Where an entry lies in a producer's NIXL agent, as the producer has said it: by its own list of
//! blocks (upstream), or by extents of a region that has been described once (Chiasm).
//!
//! Nothing of it reaches a plane before every number has been checked against every other: NIXL takes
//! ranges that wrap around, and lists that point anywhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::FailureReason;
use super::ack_check::mismatch;
use super::received::ReceivedAck;
use crate::endpoint::Endpoint;
use crate::extent::Extent;
use crate::limits::{MAX_AGENT_METADATA_BYTES, MAX_LINKS};
use crate::wire::{AckExtension, Progression, XferAck};

/// What is known of a Chiasm producer's agent.
#[derive(Clone, Debug)]
struct Known {
    agent: u64,
    metadata: Arc<[u8]>,
}

/// The agents of the producers that have described theirs. Forgetting one costs its metadata in one more
/// ack, so the table is bounded without harm.
#[derive(Debug, Default)]
pub(super) struct Agents(BTreeMap<Endpoint, Known>);

/// Where an entry lies.
#[derive(Clone, Debug)]
pub(super) struct RemoteEntry {
    pub(super) metadata: Arc<[u8]>,
    pub(super) region: Progression,
    pub(super) extents: Arc<[Extent]>,
}

impl Agents {
    /// The agent that the producer need not describe again; 0 if there is none.
    pub(super) fn known(&self, endpoint: &Endpoint) -> u64 {
        self.0.get(endpoint).map_or(0, |known| known.agent)
    }

    /// The producer describes its agent again.
    pub(super) fn forget(&mut self, endpoint: &Endpoint) {
        self.0.remove(endpoint);
    }

    /// What a Chiasm producer says of its agent. Takes its metadata down if it is there.
    pub(super) fn entry(
        &mut self,
        endpoint: &Endpoint,
        ack: &XferAck<'_>,
        extension: &AckExtension<'_>,
        block_size_bytes: u64,
    ) -> Result<RemoteEntry, FailureReason> {
        let agent = extension.agent;
        if agent == 0 {
            return Err(mismatch("it chooses nixl without an agent".into()));
        }
        if !ack.agent_metadata.is_empty() {
            let metadata = checked_metadata(ack.agent_metadata)?;
            if !self.0.contains_key(endpoint) && self.0.len() >= MAX_LINKS {
                self.0.pop_first();
            }
            self.0.insert(endpoint.clone(), Known { agent, metadata });
        }
        let known = self.0.get(endpoint).filter(|known| known.agent == agent);
        let Some(known) = known else {
            return Err(FailureReason::Plane("its NIXL agent has not been described".into()));
        };
        let (base, blocks) = (extension.base, extension.region_blocks);
        let region = Progression::new(base, block_size_bytes, block_size_bytes, blocks, 0)
            .map_err(|error| mismatch(format!("its region cannot be: {error}")))?;
        if let Some(outside) = extension.extents.iter().find(|extent| extent.end() > blocks) {
            return Err(mismatch(format!("{outside:?} is outside its region of {blocks} blocks")));
        }
        let (metadata, extents) =
            (Arc::clone(&known.metadata), extension.extents.as_slice().into());
        Ok(RemoteEntry { metadata, region, extents })
    }
}

/// What an upstream producer says of its agent.
pub(super) fn upstream_entry(
    received: &ReceivedAck<'_>,
    block_size_bytes: u64,
    blocks: u32,
) -> Result<RemoteEntry, FailureReason> {
    let ack = &received.ack;
    if ack.src_block_indices.len() as u64 != u64::from(blocks) {
        return Err(mismatch(format!(
            "{} blocks granted, {blocks} announced",
            ack.src_block_indices.len()
        )));
    }
    let metadata = checked_metadata(ack.agent_metadata)?;
    let region =
        received.region.clone().ok_or_else(|| mismatch("it describes no region".into()))?;
    let region = region.map_err(|error| mismatch(format!("its region cannot be: {error}")))?;
    if region.block_bytes() != block_size_bytes || region.stride() != block_size_bytes {
        return Err(mismatch(format!(
            "its blocks are {} bytes long and {} apart, {block_size_bytes} here",
            region.block_bytes(),
            region.stride()
        )));
    }
    if region.device_id() != 0 {
        return Err(mismatch(format!("its region is on device {}", region.device_id())));
    }
    let extents = received.extents(region.count())?;
    Ok(RemoteEntry { metadata, region, extents })
}

fn checked_metadata(metadata: &[u8]) -> Result<Arc<[u8]>, FailureReason> {
    match metadata.len() {
        0 => Err(mismatch("it has no agent metadata".into())),
        1..=MAX_AGENT_METADATA_BYTES => Ok(metadata.into()),
        more => Err(mismatch(format!(
            "{more} bytes of agent metadata, {MAX_AGENT_METADATA_BYTES} may be"
        ))),
    }
}

impl RemoteEntry {
    /// Address and length of the whole region.
    pub(super) fn region(&self) -> (u64, u64) {
        let bytes = u64::from(self.region.count()).saturating_mul(self.region.stride());
        (self.region.base(), bytes)
    }

    /// Address and length of each run, `bytes` together: what the last block has beyond the entry is
    /// not read.
    pub(super) fn runs(&self, bytes: u64) -> Vec<(u64, u64)> {
        let mut left = bytes;
        let mut runs = Vec::with_capacity(self.extents.len());
        for extent in self.extents.iter() {
            let Some(address) = self.region.addr(extent.first()) else { continue };
            let length = u64::from(extent.count()).saturating_mul(self.region.stride()).min(left);
            left = left.saturating_sub(length);
            if length > 0 {
                runs.push((address, length));
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(first: u32, count: u32) -> Extent {
        Extent::new(first, count).unwrap()
    }

    #[test]
    fn the_last_run_ends_with_the_entry() {
        let region = Progression::new(0x1000, 64, 64, 10, 0).unwrap();
        let extents = vec![extent(7, 3), extent(2, 1)];
        let entry = RemoteEntry { metadata: Arc::from([1]), region, extents: extents.into() };
        assert_eq!(entry.runs(4 * 64 - 10), [(0x1000 + 7 * 64, 192), (0x1000 + 2 * 64, 54)]);
        assert_eq!(entry.runs(100), [(0x1000 + 7 * 64, 100)]);
        assert_eq!(entry.region(), (0x1000, 640));
    }
}
