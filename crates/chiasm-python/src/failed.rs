//! Requests that were failed without the core: each id is reported once, until its request has ended.

use std::collections::{BTreeMap, VecDeque};

/// Ids that are remembered. Beyond it the oldest is forgotten, and reported again if it fails again.
const MAX_IDS: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct Failed {
    /// By id, whether it has been reported.
    ids: BTreeMap<String, bool>,
    order: VecDeque<String>,
}

impl Failed {
    /// The request fails.
    pub(crate) fn add(&mut self, id: &str) {
        if self.ids.contains_key(id) {
            return;
        }
        if self.order.len() >= MAX_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        self.ids.insert(id.to_owned(), false);
        self.order.push_back(id.to_owned());
    }

    /// Whether the request has failed.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.ids.contains_key(id)
    }

    /// Those that have not been reported.
    pub(crate) fn take(&mut self) -> Vec<String> {
        let new = self.ids.iter_mut().filter(|(_, reported)| !**reported);
        new.map(|(id, reported)| {
            *reported = true;
            id.clone()
        })
        .collect()
    }

    /// The request has ended: its id is free.
    pub(crate) fn forget(&mut self, id: &str) {
        if self.ids.remove(id).is_some() {
            self.order.retain(|known| known != id);
        }
    }
}
