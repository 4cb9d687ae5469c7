//! The producer's NIXL agent, and which grants a completion could mean.
//!
//! A completion is a text that any agent may send (hazard D7): it ends a grant only if it can mean no
//! other one (hazard B7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::grants::Grant;
use crate::limits::{MAX_LATE_COMPLETIONS, UPSTREAM_READ_LIMIT};
use crate::time::Nanos;
use crate::wire::Progression;

/// One life of the agent through which upstream and Chiasm consumers read over NIXL. What belongs to
/// one life is never mixed with another's: addresses and metadata go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NixlAgent {
    /// Names this life, on the wire too; never 0, and never used again by any node.
    pub life: u64,
    /// What a peer's NIXL loads; opaque here.
    pub metadata: Arc<[u8]>,
    /// Where the region lies in the agent's process.
    pub region: Progression,
}

/// What a completion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// No live grant has this text.
    None,
    /// The grant in this slot.
    One(usize),
    /// Several have it.
    Several,
}

/// Live grants of upstream consumers by the text that their completion will have.
#[derive(Debug, Default)]
pub(super) struct Completions {
    live: BTreeMap<String, Vec<usize>>,
    late: BTreeMap<String, Late>,
    /// The texts of `late`, the oldest deadline first.
    late_by_deadline: BTreeSet<(Nanos, String)>,
}

/// What a grant whose lease has run out leaves behind: its reader may still be at it, and its completion must
/// not be taken for that of the next grant with the same text (S8).
#[derive(Clone, Copy, Debug)]
struct Late {
    /// The agent's life through which it could be read.
    agent: u64,
    /// Answers that have not been completed.
    answers: u32,
    /// The end of its lease.
    deadline: Nanos,
}

impl Completions {
    /// A grant is given. Gives the completions that may still come for earlier ones with its text.
    pub(super) fn expect(&mut self, grant: &Grant, slot: usize) -> u32 {
        let text = text(&grant.session, grant.hash.as_str());
        let late = self.forget_late(&text).filter(|late| {
            // Both leases are as long, so this is the time between the two requests.
            let between = grant.deadline.since(late.deadline);
            late.agent == grant.agent && between < UPSTREAM_READ_LIMIT
        });
        self.live.entry(text).or_default().push(slot);
        late.map_or(0, |late| late.answers)
    }

    /// A grant's lease has run out, and so many answers of it have not been completed.
    pub(super) fn expired(&mut self, grant: &Grant, answers: u32) {
        let text = text(&grant.session, grant.hash.as_str());
        self.forget_late(&text);
        if self.late.len() >= MAX_LATE_COMPLETIONS
            && let Some((_, oldest)) = self.late_by_deadline.pop_first()
        {
            self.late.remove(&oldest);
        }
        let late = Late { agent: grant.agent, answers, deadline: grant.deadline };
        self.late_by_deadline.insert((late.deadline, text.clone()));
        self.late.insert(text, late);
    }

    /// A completion that no live grant has.
    pub(super) fn came_late(&mut self, text: &[u8]) {
        let Ok(text) = std::str::from_utf8(text) else { return };
        let Some(late) = self.late.get_mut(text) else { return };
        late.answers = late.answers.saturating_sub(1);
        if late.answers == 0 {
            self.forget_late(text);
        }
    }

    fn forget_late(&mut self, text: &str) -> Option<Late> {
        let (text, late) = self.late.remove_entry(text)?;
        self.late_by_deadline.remove(&(late.deadline, text));
        Some(late)
    }

    pub(super) fn forget(&mut self, session: &str, hash: &str, slot: usize) {
        let text = text(session, hash);
        if let Some(slots) = self.live.get_mut(&text) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.live.remove(&text);
            }
        }
    }

    pub(super) fn meant(&self, text: &[u8]) -> Meant {
        let slots = std::str::from_utf8(text).ok().and_then(|text| self.live.get(text));
        match slots.map(Vec::as_slice) {
            None | Some([]) => Meant::None,
            Some([slot]) => Meant::One(*slot),
            Some([_, _, ..]) => Meant::Several,
        }
    }
}

/// Upstream's form of a completion (PROTOCOL 60).
fn text(session: &str, hash: &str) -> String {
    format!("{session}:{hash}")
}
