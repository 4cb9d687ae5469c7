//! The producer's NIXL agent, and which grants a completion could mean.
//!
//! A completion is a text that any agent may send (hazard D7): it ends a grant only if it can mean no
//! other one (hazard B7).

use std::collections::BTreeMap;
use std::sync::Arc;

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
pub(super) struct Completions(BTreeMap<String, Vec<usize>>);

impl Completions {
    pub(super) fn expect(&mut self, session: &str, hash: &str, slot: usize) {
        self.0.entry(text(session, hash)).or_default().push(slot);
    }

    pub(super) fn forget(&mut self, session: &str, hash: &str, slot: usize) {
        let text = text(session, hash);
        if let Some(slots) = self.0.get_mut(&text) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.0.remove(&text);
            }
        }
    }

    pub(super) fn meant(&self, text: &[u8]) -> Meant {
        let slots = std::str::from_utf8(text).ok().and_then(|text| self.0.get(text));
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
