//! One worker rank of an instance: copies in, copies out, and says so.
//!
//! It must never write blocks that no order names, nor two processes be one rank.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chiasm_core::digest::Digest;
use chiasm_core::dispatch::{Order, OrderKind, Outcome, Rank, Receipt, Report};

use crate::beside::wake_socket;
use crate::digest::LandedDigest;
use crate::error::RegionError;
use crate::geometry::RangeError;
use crate::header_area;
use crate::options::RegionOptions;
use crate::region::Region;
use crate::ring::record;
use crate::sleep;

/// How long [`Worker::complete`] waits for a slot of a full ring. A running node empties it within a
/// millisecond.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it looks meanwhile.
const PAUSE: Duration = Duration::from_micros(200);

/// One worker of an instance. While it lives, no other process can be this rank, and the node takes it
/// to be alive; both end with its process, however that ends.
///
/// Copies need only `&self` and may run on several threads; reports need `&mut self`: a ring has one
/// producer.
#[derive(Debug)]
pub struct Worker {
    region: Region,
    rank: Rank,
    /// Records in the ring before the next.
    produced: u64,
    /// `None` if the system gave none; then the node looks at its own pace.
    waker: Option<UnixDatagram>,
    wake_path: PathBuf,
}

/// Why a worker did not copy or report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// The order is for other ranks.
    #[error("the order is not for rank {rank}")]
    NotForUs {
        /// This worker.
        rank: Rank,
    },
    /// Bytes of a load were to be copied in, or those of a save out.
    #[error("the order is a {kind:?}")]
    Kind {
        /// What it is.
        kind: OrderKind,
    },
    /// Not exactly the bytes of the encoder output.
    #[error("{given} bytes for an encoder output of {ordered}")]
    Length {
        /// Bytes of the order.
        ordered: u64,
        /// Bytes of the caller's memory.
        given: u64,
    },
    /// The order's extents do not lie in the region, or do not hold its bytes.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The node has not taken the last 64 reports: it is stopped, or has ended. Report again later; if
    /// nobody does, the save counts as lost after `save_timeout_s`.
    #[error("the node does not take reports: its ring of {} is full", header_area::SLOTS)]
    Full,
}

impl Worker {
    /// Attaches to the region that `options` describe, or makes it if this process is the first of the
    /// instance, and becomes `rank`.
    ///
    /// Fails with [`RegionError::RankTaken`] while another process is that rank.
    pub fn attach(options: &RegionOptions, rank: Rank) -> Result<Self, RegionError> {
        Self::of(Region::create_or_attach(options)?, rank)
    }

    /// Becomes `rank` in a region that this process has for reading and writing.
    pub fn of(region: Region, rank: Rank) -> Result<Self, RegionError> {
        region.claim_rank(rank)?;
        let produced = header_area::ring(&region, rank).take_over();
        let waker = UnixDatagram::unbound()
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
            .ok();
        let wake_path = wake_socket(region.path());
        Ok(Self { region, rank, produced, waker, wake_path })
    }

    /// Its number.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Copies the whole encoder output of a save into its blocks; the digest of what has landed.
    pub fn copy_in(&self, order: &Order, bytes: &[u8]) -> Result<Digest, WorkerError> {
        self.check(order, OrderKind::Save, bytes.len())?;
        let mut digest = LandedDigest::new();
        self.region.copy_in_digested(&order.extents, 0, bytes, &mut digest)?;
        Ok(digest.finish())
    }

    /// Copies the whole encoder output of a load out of its blocks.
    pub fn copy_out(&self, order: &Order, bytes: &mut [u8]) -> Result<(), WorkerError> {
        self.check(order, OrderKind::Load, bytes.len())?;
        Ok(self.region.copy_out(&order.extents, 0, bytes)?)
    }

    /// The digest of an order's bytes as they are in the region now: for saves whose bytes a device
    /// copied.
    pub fn digest(&self, order: &Order) -> Result<Digest, WorkerError> {
        let bytes = order.meta.bytes;
        let len = usize::try_from(bytes)
            .map_err(|_| WorkerError::Length { ordered: bytes, given: usize::MAX as u64 })?;
        let mut digest = LandedDigest::new();
        digest.update(&self.region, &order.extents, 0, len)?;
        Ok(digest.finish())
    }

    /// Tells the node how an order ended on this rank, once: after it, this rank touches the order's
    /// blocks no more.
    ///
    /// Waits up to a second for a node that is behind, then [`WorkerError::Full`].
    pub fn complete(&mut self, receipt: Receipt, outcome: Outcome) -> Result<(), WorkerError> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.try_complete(receipt, outcome) {
                Err(WorkerError::Full) if Instant::now() < end => std::thread::sleep(PAUSE),
                result => return result,
            }
        }
    }

    /// As [`Worker::complete`], without waiting.
    pub fn try_complete(&mut self, receipt: Receipt, outcome: Outcome) -> Result<(), WorkerError> {
        let words = record::encode(&Report { rank: self.rank, receipt, outcome });
        let pushed = header_area::ring(&self.region, self.rank).push(&mut self.produced, words);
        if sleep::must_wake(&header_area::board(&self.region)) {
            self.wake();
        }
        pushed.map_err(|_| WorkerError::Full)
    }

    /// A failure is no loss: a full socket is a wake-up that is on its way, no socket is a node that is
    /// not there yet or not any more, and the node's own tick is the net under all others.
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            let _ = waker.send_to(&[1], &self.wake_path);
        }
    }

    fn check(&self, order: &Order, kind: OrderKind, given: usize) -> Result<(), WorkerError> {
        if order.kind != kind {
            return Err(WorkerError::Kind { kind: order.kind });
        }
        if !order.ranks.has(self.rank) {
            return Err(WorkerError::NotForUs { rank: self.rank });
        }
        let (ordered, given) = (order.meta.bytes, given as u64);
        if ordered == given { Ok(()) } else { Err(WorkerError::Length { ordered, given }) }
    }
}
