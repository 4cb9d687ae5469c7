//! A producer's ack, decoded where nobody waits: a list of blocks or of descriptors can be long, and the
//! machine is shared with the engine's thread.
//!
//! It must never judge an ack against a transfer, nor hold more than the limits of the message allow.

use std::sync::Arc;

use super::FailureReason;
use super::ack_check::mismatch;
use crate::extent::Extent;
use crate::limits::MAX_RUNS;
use crate::wire::{AckLimits, DecodeError, MemDescError, Progression, XferAck, decode_progression};

/// An ack whose lists have been read. Everything else of it is looked at by the consumer.
#[derive(Clone, Debug)]
pub struct ReceivedAck<'a> {
    pub(super) ack: XferAck<'a>,
    /// What an upstream producer's descriptor list was found to be, if there is one.
    pub(super) region: Option<Result<Progression, MemDescError>>,
    /// An upstream producer's block indices, adjacent ones together. There can be many, so they are
    /// shared, and copied by nobody.
    pub(super) runs: Result<Arc<[Extent]>, RunsError>,
}

/// Why a list of indices describes no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunsError {
    /// An index that no region has.
    Outside(u64),
    /// More than [`MAX_RUNS`].
    Scattered,
}

impl<'a> ReceivedAck<'a> {
    /// Decodes a message; its descriptor list is read row by row. Use [`ReceivedAck::scanned`] for one
    /// that is longer than [`MAX_BYTES_SCANNED_INLINE`](crate::limits::MAX_BYTES_SCANNED_INLINE).
    ///
    /// Takes 2 to 5 ns for each index and 5 ns for each row.
    pub fn decode(payload: &'a [u8], limits: &AckLimits) -> Result<Self, DecodeError> {
        Self::new(payload, *limits, |list| decode_progression(list, u32::MAX))
    }

    /// Decodes a message whose descriptor list has been read before, in slices, by
    /// [`ProgressionScan`](crate::wire::ProgressionScan): `region` is what was found.
    pub fn scanned(
        payload: &'a [u8],
        limits: &AckLimits,
        region: Result<Progression, MemDescError>,
    ) -> Result<Self, DecodeError> {
        Self::new(payload, *limits, |_| region)
    }

    fn new(
        payload: &'a [u8],
        limits: AckLimits,
        scan: impl FnOnce(&[u8]) -> Result<Progression, MemDescError>,
    ) -> Result<Self, DecodeError> {
        let ack = XferAck::decode(payload, &limits)?;
        // Between Chiasm nodes neither list means anything.
        let upstream = ack.chiasm.is_none();
        let list = Some(ack.mem_descriptor).filter(|list| upstream && !list.is_empty());
        let region = list.map(scan);
        let runs =
            if upstream { runs(&ack.src_block_indices).map(Arc::from) } else { Ok(Arc::default()) };
        Ok(Self { ack, region, runs })
    }

    /// Where an upstream producer's entry lies in its region of so many blocks.
    pub(super) fn extents(&self, blocks: u32) -> Result<Arc<[Extent]>, FailureReason> {
        let outside = |index: u64| {
            mismatch(format!("block {index} is outside its region of {blocks} blocks"))
        };
        let runs = self.runs.as_ref().map_err(|error| match error {
            RunsError::Outside(index) => outside(*index),
            RunsError::Scattered => {
                mismatch(format!("its entry is in more than {MAX_RUNS} places"))
            }
        })?;
        match runs.iter().find(|run| run.end() > blocks) {
            Some(run) => Err(outside(u64::from(run.first().max(blocks)))),
            None => Ok(Arc::clone(runs)),
        }
    }
}

/// Adjacent indices as extents, in their order.
fn runs(indices: &[u64]) -> Result<Vec<Extent>, RunsError> {
    let mut runs: Vec<Extent> = Vec::new();
    for index in indices {
        // The last number of 32 bits is no block's: the extent that has it would have no end.
        let block = u32::try_from(*index).ok().filter(|block| *block < u32::MAX);
        let block = block.ok_or(RunsError::Outside(*index))?;
        let (first, count) = match runs.last() {
            Some(last) if last.end() == block => (last.first(), last.count().saturating_add(1)),
            _ => (block, 1),
        };
        if count > 1 {
            runs.pop();
        } else if runs.len() >= MAX_RUNS {
            return Err(RunsError::Scattered);
        }
        runs.extend(Extent::new(first, count));
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::AckStatus;

    fn extent(first: u32, count: u32) -> Extent {
        Extent::new(first, count).unwrap()
    }

    #[test]
    fn adjacent_indices_are_one_run_and_their_order_is_kept() {
        let found = runs(&[7, 8, 9, 3, 2, 5, 6]).unwrap();
        assert_eq!(found, [extent(7, 3), extent(3, 1), extent(2, 1), extent(5, 2)]);
        assert_eq!(runs(&[]), Ok(vec![]));
        for index in [u64::MAX, 1 << 32, u64::from(u32::MAX)] {
            assert_eq!(runs(&[index]), Err(RunsError::Outside(index)));
        }
    }

    #[test]
    fn what_is_outside_the_region_is_named() {
        let received = |indices: &[u64]| {
            let src_block_indices = indices.to_vec();
            let ack = XferAck { src_block_indices, ..XferAck::bare("h", AckStatus::Ok) };
            let bytes = ack.encode();
            let received = ReceivedAck::decode(&bytes, &AckLimits::default()).unwrap();
            received.extents(10).map_err(|error| error.to_string())
        };
        assert_eq!(*received(&[8, 9]).unwrap(), [extent(8, 2)]);
        assert!(received(&[8, 9, 10, 11]).unwrap_err().contains("block 10 is outside"));
        assert!(received(&[3, 12]).unwrap_err().contains("block 12 is outside"));
    }

    #[test]
    fn an_entry_in_more_places_than_the_limit_is_refused() {
        let every_other = |count: usize| (0..count as u64).map(|at| 2 * at).collect::<Vec<_>>();
        assert_eq!(runs(&every_other(MAX_RUNS)).unwrap().len(), MAX_RUNS);
        assert_eq!(runs(&every_other(MAX_RUNS + 1)), Err(RunsError::Scattered));
    }
}
