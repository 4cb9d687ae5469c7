//! Bytes that a read helper has brought, hashed as they lie in the region: slice by slice, so that the node's
//! thread is never away for long.

use chiasm_core::consumer::{FailureReason, ReadEnd, ReadOrder, TransferId};
use chiasm_region::{LandedDigest, Region};

/// Bytes that are hashed at once.
const SLICE_BYTES: u64 = 1 << 20;

#[derive(Debug)]
struct Landed {
    order: ReadOrder,
    digest: LandedDigest,
    hashed: u64,
}

/// Reads that have landed and are being hashed, one after another. As many as there can be transfers.
#[derive(Debug, Default)]
pub(super) struct Hashing(Vec<Landed>);

impl Hashing {
    pub(super) fn push(&mut self, order: ReadOrder) {
        self.0.push(Landed { order, digest: LandedDigest::new(), hashed: 0 });
    }

    /// Takes a transfer out; whether it was there.
    pub(super) fn abort(&mut self, transfer: TransferId) -> bool {
        let at = self.0.iter().position(|landed| landed.order.transfer == transfer);
        at.map(|at| self.0.swap_remove(at)).is_some()
    }

    /// Hashes one slice; the end of a read whose last one it was.
    pub(super) fn progress(&mut self, region: &Region) -> Option<(TransferId, ReadEnd)> {
        let landed = self.0.first_mut()?;
        let bytes = landed.order.bytes;
        let slice = bytes.saturating_sub(landed.hashed).min(SLICE_BYTES);
        let length = usize::try_from(slice).unwrap_or(0);
        let extents = &landed.order.local;
        let taken = landed.digest.update(region, extents, landed.hashed, length);
        landed.hashed += slice;
        if taken.is_ok() && landed.hashed < bytes {
            return None;
        }
        let Landed { order, digest, .. } = self.0.remove(0);
        let end = match taken {
            Ok(()) => ReadEnd::Landed { bytes, digest: Some(digest.finish()) },
            Err(error) => ReadEnd::Failed(FailureReason::Plane(error.to_string())),
        };
        Some((order.transfer, end))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
