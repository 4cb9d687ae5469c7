//! One helper through which others' regions are read: its peers, its reads, and when it has to end.
//!
//! It must never be ended for nothing while somebody still reads through it: each of its reads has to be
//! tried again then.

use std::collections::BTreeMap;
use std::time::Duration;

use chiasm_core::consumer::{FailureReason, ReadOrder, TransferId};
use chiasm_core::time::Nanos;
use chiasm_nixl::{HelperProcess, MAX_PEERS, MAX_READS};

use super::peer::Peer;

/// How long a read that nobody wants any more may take to end by itself.
const ABORT_GRACE: Duration = Duration::from_millis(500);

/// How long the reads of other peers may take after that, before the helper is killed and they have to be
/// tried again. Most reads take milliseconds; meanwhile the blocks of the one that hangs are of no use.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// How long a helper may take to be up.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How long a helper without work is kept.
const IDLE_LIMIT: Duration = Duration::from_mins(10);

/// A read in a helper.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) order: ReadOrder,
    pub(super) peer: u64,
    /// Nobody wants it any more.
    pub(super) aborted: bool,
    /// It has failed, and something may still land: its end is the helper's.
    pub(super) failed: Option<FailureReason>,
}

impl Read {
    pub(super) fn new(order: ReadOrder, peer: u64) -> Self {
        Self { order, peer, aborted: false, failed: None }
    }

    /// Whether nothing but the end of the helper can end it, or it has to end by itself soon.
    fn is_given_up(&self) -> bool {
        self.aborted || self.failed.is_some()
    }
}

/// Why a helper's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// A read in it does not end.
    Stuck,
    /// It does nothing, and has done nothing for long.
    Idle,
    /// It does not come up.
    Slow,
}

#[derive(Debug)]
pub(super) struct ReadHelper {
    pub(super) process: HelperProcess,
    pub(super) started: Nanos,
    pub(super) up: bool,
    pub(super) peers: BTreeMap<u64, Peer>,
    pub(super) reads: BTreeMap<TransferId, Read>,
    /// Why it has been killed.
    pub(super) killed: Option<&'static str>,
    /// When something is done about reads that were given up, if they have not ended.
    abort_at: Nanos,
    /// It has had its grace: nothing new is read through it, and it is killed when the others are through.
    leaves: bool,
    /// Since when there has been no work.
    idle_since: Nanos,
}

impl ReadHelper {
    pub(super) fn new(now: Nanos, process: HelperProcess) -> Self {
        Self {
            process,
            started: now,
            up: false,
            peers: BTreeMap::new(),
            reads: BTreeMap::new(),
            killed: None,
            abort_at: Nanos::NEVER,
            leaves: false,
            idle_since: now,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.peers.values().all(|peer| peer.waiting.is_empty())
    }

    /// Since when it has been idle, if it is.
    pub(super) fn idle_since(&self) -> Nanos {
        self.idle_since
    }

    /// Whether one more read may be given to it.
    pub(super) fn takes_reads(&self) -> bool {
        self.killed.is_none() && !self.leaves && self.reads.len() < MAX_READS
    }

    /// Whether one more peer may be loaded into it.
    pub(super) fn takes_peers(&self) -> bool {
        self.takes_reads() && self.peers.len() < MAX_PEERS
    }

    pub(super) fn kill(&mut self, why: &'static str) {
        if self.killed.is_none() {
            self.killed = Some(why);
            self.process.kill();
        }
    }

    /// A read has been given to it.
    pub(super) fn begun(&mut self, now: Nanos, read: Read) {
        if let Some(peer) = self.peers.get_mut(&read.peer) {
            peer.reads += 1;
        }
        self.reads.insert(read.order.transfer, read);
        self.idle_since = now;
    }

    /// A read has ended, and nothing of it can land any more.
    pub(super) fn over(&mut self, now: Nanos, transfer: TransferId) -> Option<Read> {
        let read = self.reads.remove(&transfer)?;
        if let Some(peer) = self.peers.get_mut(&read.peer) {
            peer.reads -= 1;
        }
        self.idle_since = now;
        self.settle(now);
        Some(read)
    }

    /// Nobody wants this read any more; whether it is here.
    pub(super) fn abort(&mut self, now: Nanos, transfer: TransferId) -> bool {
        let Some(read) = self.reads.get_mut(&transfer) else { return false };
        read.aborted = true;
        self.give_up_at(now, now.after(ABORT_GRACE));
        true
    }

    /// A read has failed, and only the end of the helper is its end.
    pub(super) fn failed(&mut self, now: Nanos, transfer: TransferId, reason: FailureReason) {
        if let Some(read) = self.reads.get_mut(&transfer) {
            read.failed = Some(reason);
            self.give_up_at(now, now);
        }
    }

    /// Something is done about reads that were given up at this time, or earlier. One that leaves already
    /// keeps its time: it is for the reads of other peers, which have nothing to do with one more.
    fn give_up_at(&mut self, now: Nanos, at: Nanos) {
        if self.leaves {
            self.settle(now);
        } else {
            self.abort_at = self.abort_at.min(at);
        }
    }

    /// Something in it has ended: perhaps there is nothing left to kill it for, or to wait for.
    pub(super) fn settle(&mut self, now: Nanos) {
        if !self.reads.values().any(Read::is_given_up) {
            self.abort_at = Nanos::NEVER;
            self.leaves = false;
        } else if self.leaves && !self.serves_others() {
            self.abort_at = now;
        }
    }

    /// Whether peers are read from, or about to be, of which no read has been given up.
    fn serves_others(&self) -> bool {
        let given_up = |peer: u64| {
            let mut reads = self.reads.values();
            reads.any(|read| read.peer == peer && read.is_given_up())
        };
        let mut peers = self.peers.iter().filter(|(_, peer)| !peer.is_idle());
        peers.any(|(id, _)| !given_up(*id))
    }

    /// Acts on deadlines. If its time is over, why.
    pub(super) fn overdue(&mut self, now: Nanos) -> Option<Overdue> {
        if now < self.poll_timeout() {
            return None;
        }
        if self.abort_at <= now {
            if !self.leaves && self.serves_others() {
                self.leaves = true;
                self.abort_at = now.after(LEAVE_LIMIT);
                return None;
            }
            return Some(Overdue::Stuck);
        }
        Some(if self.up { Overdue::Idle } else { Overdue::Slow })
    }

    /// When [`ReadHelper::overdue`] has something to do.
    pub(super) fn poll_timeout(&self) -> Nanos {
        if self.killed.is_some() {
            return Nanos::NEVER;
        }
        let start = if self.up { Nanos::NEVER } else { self.started.after(START_LIMIT) };
        let idle = if self.is_idle() { self.idle_since.after(IDLE_LIMIT) } else { Nanos::NEVER };
        start.min(idle).min(self.abort_at)
    }
}
