//! The copies under way: from producers' mappings into this node's blocks, hashed as they land.

use std::collections::VecDeque;
use std::sync::Arc;

use chiasm_core::consumer::{FailureReason, ReadEnd, TransferId};
use chiasm_core::extent::Extent;
use chiasm_region::{LandedDigest, PeerRegion, RangeError, Region};

/// Most bytes that one slice of work copies, so that a node's thread is never away for long: about
/// 150 us.
pub const SLICE_BYTES: usize = 1 << 20;

/// Bytes that one read copies before the next has its turn: a small one does not wait for a large one.
const TURN_BYTES: usize = 256 << 10;

/// One entry to be copied.
#[derive(Debug)]
pub struct CopyJob {
    /// The transfer that it is for.
    pub transfer: TransferId,
    /// The producer's region.
    pub peer: Arc<PeerRegion>,
    /// Where the entry lies there, in order.
    pub remote: Vec<Extent>,
    /// Where the bytes go, in order.
    pub local: Vec<Extent>,
    /// Exactly how many.
    pub bytes: u64,
    /// Whether to compute the digest of the landed bytes.
    pub digest: bool,
}

#[derive(Debug)]
struct Running {
    job: CopyJob,
    offset: u64,
    digest: Option<LandedDigest>,
}

/// All copies of this node.
#[derive(Debug, Default)]
pub struct Copier {
    /// The next to have its turn in front. Bounded by the transfers that the core starts.
    running: VecDeque<Running>,
    ended: Vec<(TransferId, ReadEnd)>,
    /// Digests that are done with theirs. Making a new one costs as much as copying 16 KiB.
    spare: Vec<LandedDigest>,
}

/// Digests that are kept for later.
const SPARE_DIGESTS: usize = 16;

impl Copier {
    /// No copies.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a job, unless its extents do not lie in the producer's region.
    pub fn start(&mut self, job: CopyJob) -> Result<(), RangeError> {
        job.peer.check(&job.remote, job.bytes)?;
        let digest = job.digest.then(|| self.spare.pop().unwrap_or_default());
        self.running.push_back(Running { job, offset: 0, digest });
        Ok(())
    }

    /// Ends a job at once: from now on nothing of it is written into the region.
    pub fn abort(&mut self, transfer: TransferId) {
        let at = self.running.iter().position(|running| running.job.transfer == transfer);
        if at.and_then(|at| self.running.remove(at)).is_some() {
            let end = ReadEnd::Failed(FailureReason::Plane("aborted".into()));
            self.ended.push((transfer, end));
        }
    }

    /// Whether there is nothing to copy.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Copies one slice. Whoever reports what has ended must take the time after it, never before:
    /// bytes that are judged by their lease must have landed inside it (S2).
    pub fn progress(&mut self, region: &Region) {
        let mut slice = SLICE_BYTES;
        while slice > 0 {
            let Some(mut running) = self.running.pop_front() else { return };
            let left = usize::try_from(running.job.bytes - running.offset).unwrap_or(usize::MAX);
            let length = left.min(TURN_BYTES).min(slice);
            let CopyJob { peer, remote, local, .. } = &running.job;
            let digest = running.digest.as_mut();
            match region.copy_from_peer(peer, remote, local, running.offset, length, digest) {
                Ok(()) => running.offset += length as u64,
                Err(error) => {
                    let end = ReadEnd::Failed(FailureReason::Plane(error.to_string()));
                    self.ended.push((running.job.transfer, end));
                    continue;
                }
            }
            slice -= length;
            if running.offset == running.job.bytes {
                let digest = running.digest.map(|mut digest| {
                    let landed = digest.finish_one();
                    if self.spare.len() < SPARE_DIGESTS {
                        self.spare.push(digest);
                    }
                    landed
                });
                let end = ReadEnd::Landed { bytes: running.job.bytes, digest };
                self.ended.push((running.job.transfer, end));
            } else {
                self.running.push_back(running);
            }
        }
    }

    /// The jobs that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<(TransferId, ReadEnd)> {
        std::mem::take(&mut self.ended)
    }
}
