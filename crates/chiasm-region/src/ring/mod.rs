//! The completion ring: records from one worker to the node, and nothing back but how far it has read.
//!
//! One producer (the process that holds the rank's lock), one consumer (the node), a fixed number of
//! slots. Each slot has a commit word: the record's number plus one, stored last with release and
//! loaded first with acquire, so a record is read whole or not at all, also where a producer was
//! killed half way, and on machines that reorder. Numbers count up for ever and start at zero, as the
//! memory does: a fresh file is an empty ring.
//!
//! It must never write over a record that the node has not taken (a full ring is an error), and never
//! trust what it reads: numbers wrap, records are judged by who takes them.

pub(crate) mod record;
pub(crate) mod words;

#[cfg(all(test, not(miri)))]
mod model;

use std::sync::atomic::Ordering;

use self::words::Words;

/// The node has not taken the records of all slots yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// Words before the first slot: how far the node has read, and the life of the producer, each on a
/// cache line (128 bytes hold a pair of them, which some machines fetch together).
const SLOTS_AT: usize = 16;
/// Number of records that the node has taken. Written by the node only.
const CONSUMED: usize = 0;
/// How many processes have been this ring's producer. Written by them only.
const LIFE: usize = 8;

/// A ring of `SLOTS` records of `WORDS` words each, over [`Ring::WORDS_IN_ALL`] words.
#[derive(Debug)]
pub(crate) struct Ring<W, const SLOTS: usize, const WORDS: usize>(pub(crate) W);

impl<W: Words, const SLOTS: usize, const WORDS: usize> Ring<W, SLOTS, WORDS> {
    /// Words that a ring needs.
    pub(crate) const WORDS_IN_ALL: usize = SLOTS_AT + SLOTS * (1 + WORDS);

    /// Where the commit word of record `number` lies; the record follows it.
    fn slot(number: u64) -> usize {
        let place = usize::try_from(number % (SLOTS as u64)).expect("below SLOTS");
        SLOTS_AT + place * (1 + WORDS)
    }

    /// Producer: append a record. `produced` is the number of records before it.
    pub(crate) fn push(&self, produced: &mut u64, record: [u64; WORDS]) -> Result<(), Full> {
        // Acquire: the node's reads of the slot come before our writes to it.
        let consumed = self.0.load(CONSUMED, Ordering::Acquire);
        if produced.wrapping_sub(consumed) >= SLOTS as u64 {
            return Err(Full);
        }
        let slot = Self::slot(*produced);
        for (word, value) in (slot + 1..).zip(record) {
            self.0.store(word, value, Ordering::Relaxed);
        }
        *produced = produced.wrapping_add(1);
        self.0.store(slot, *produced, Ordering::Release);
        Ok(())
    }

    /// Consumer: take the next record. `consumed` is the number of those taken before.
    pub(crate) fn pop(&self, consumed: &mut u64) -> Option<[u64; WORDS]> {
        if !self.has_record(*consumed) {
            return None;
        }
        let slot = Self::slot(*consumed);
        let mut record = [0; WORDS];
        for (word, value) in (slot + 1..).zip(&mut record) {
            *value = self.0.load(word, Ordering::Relaxed);
        }
        *consumed = consumed.wrapping_add(1);
        // Release: our reads of the slot come before the producer's next writes to it.
        self.0.store(CONSUMED, *consumed, Ordering::Release);
        Some(record)
    }

    /// Consumer: whether [`Ring::pop`] would take one.
    pub(crate) fn has_record(&self, consumed: u64) -> bool {
        self.0.load(Self::slot(consumed), Ordering::Acquire) == consumed.wrapping_add(1)
    }

    /// A new producer, in place of one that has ended at any point: the number of records that are
    /// committed. What was not committed is written over.
    pub(crate) fn take_over(&self) -> u64 {
        let life = self.0.load(LIFE, Ordering::Relaxed);
        self.0.store(LIFE, life.wrapping_add(1), Ordering::Release);
        let mut produced = self.0.load(CONSUMED, Ordering::Acquire);
        for _ in 0..SLOTS {
            if !self.has_record(produced) {
                break;
            }
            produced = produced.wrapping_add(1);
        }
        produced
    }

    /// How many producers there have been.
    pub(crate) fn life(&self) -> u64 {
        self.0.load(LIFE, Ordering::Acquire)
    }
}
