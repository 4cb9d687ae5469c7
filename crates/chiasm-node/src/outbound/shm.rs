//! Reads from regions of producers on this host.

use std::path::Path;

use chiasm_core::consumer::{FailureReason, ReadEnd, ReadOrder, TransferId};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::plane::Plane;
use chiasm_planes::shm::{Copier, CopyJob, Neighbours, NotHere};
use chiasm_region::Region;

/// The shm plane's reading side.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    neighbours: Neighbours,
    copier: Copier,
    /// Something of a mapping is still to be faulted in.
    populating: bool,
}

impl SharedMemory {
    /// Regions are looked for in `dir`.
    pub(crate) fn new(dir: &Path, block_size_bytes: u64) -> Self {
        let neighbours = Neighbours::new(dir, block_size_bytes);
        Self { neighbours, copier: Copier::new(), populating: false }
    }

    /// Starts to copy; where the region is not what was said, the plane falls away with one line.
    pub(super) fn start(&mut self, order: ReadOrder) -> Result<(), FailureReason> {
        let (source, bytes) = (order.source, order.bytes);
        let Some(remote) = order.shm else {
            return Err(FailureReason::Plane("the ack names no region".into()));
        };
        let started = self.neighbours.region(&source, &remote).and_then(|peer| {
            let job = CopyJob {
                transfer: order.transfer,
                peer,
                remote: remote.extents,
                local: order.local,
                bytes,
                digest: order.digest,
            };
            self.copier
                .start(job)
                .map_err(|error| self.neighbours.not_here(&source, remote.epoch, error.to_string()))
        });
        match started {
            Ok(()) => {
                self.populating = true;
                Ok(())
            }
            Err(not_here) => {
                let why = match not_here {
                    NotHere::New(why) => {
                        tracing::info!(peer = %source, "no shm to this producer: {why}");
                        why
                    }
                    NotHere::Known => "found out before".into(),
                };
                Err(FailureReason::PlaneAway { plane: Plane::Shm, why })
            }
        }
    }

    pub(super) fn abort(&mut self, transfer: TransferId) {
        self.copier.abort(transfer);
    }

    /// There is no connection to the producer any more.
    pub(super) fn leave(&mut self, endpoint: &Endpoint) {
        self.neighbours.leave(endpoint);
    }

    /// One slice: of copies if there are any, else of faulting in what will be copied later.
    pub(super) fn progress(&mut self, region: &Region) {
        if self.copier.is_idle() {
            self.populating = self.populating && self.neighbours.populate();
        } else {
            self.copier.progress(region);
        }
    }

    /// Whether [`SharedMemory::progress`] has something to do.
    pub(super) fn has_work(&self) -> bool {
        self.populating || !self.copier.is_idle()
    }

    pub(super) fn take_ended(&mut self) -> Vec<(TransferId, ReadEnd)> {
        self.copier.take_ended()
    }
}
