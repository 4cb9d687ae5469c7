//! What a worker says about an order when it is done with it.

use super::order::DispatchId;
use super::rank::Rank;
use crate::cache::EntryKey;
use crate::digest::Digest;

/// What of an order its report repeats. Small and free of borrows, so that it can wait next to the
/// event of a device copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Which dispatch.
    pub dispatch: DispatchId,
    /// Which entry.
    pub key: EntryKey,
    /// Exact length of its encoder output.
    pub bytes: u64,
}

/// How an order ended on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes have landed. For a save with their digest, where it was computed.
    Done(Option<Digest>),
    /// They have not, and this rank will not touch the blocks again.
    Failed,
}

/// One rank's word on one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whose word it is.
    pub rank: Rank,
    /// On what.
    pub receipt: Receipt,
    /// Which.
    pub outcome: Outcome,
}
