//! Readers on this host that have got grants on shm: when one has died, nobody reads under them (S8).
//!
//! Looked at when its connection is lost, and from then on once a second while it has grants: a
//! process that ends may close its sockets before its locks. It must never take a lost connection for
//! a dead reader.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use chiasm_core::producer::{PeerId, ReaderRegion};
use chiasm_core::time::Nanos;
use chiasm_region::NodeLife;

use crate::shared::Shared;

/// Between two looks at readers whose connection is gone.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Readers {
    dir: PathBuf,
    /// By the connection that they had or have; one for each that has read over shm.
    lives: BTreeMap<PeerId, NodeLife>,
    /// Those of them whose connection is gone and that still have grants.
    gone: Vec<PeerId>,
    next_look: Nanos,
}

impl Readers {
    /// Regions are looked for in `dir`.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, lives: BTreeMap::new(), gone: Vec::new(), next_look: Nanos::NEVER }
    }

    /// A connection has its first grant on shm and says which region its node has.
    pub(super) fn add(&mut self, peer: PeerId, region: &ReaderRegion) {
        match NodeLife::watch(&self.dir, &region.name, region.epoch) {
            Ok(life) => {
                self.lives.insert(peer, life);
            }
            // Then its grants end as they do elsewhere: by its word or by their lease.
            Err(error) => tracing::debug!(%error, "a reader's life cannot be seen"),
        }
    }

    /// A connection is lost.
    pub(super) fn connection_gone(&mut self, now: Nanos, peer: PeerId, shared: &Shared) {
        if self.lives.contains_key(&peer) {
            self.gone.push(peer);
            self.look(now, shared);
        }
    }

    fn look(&mut self, now: Nanos, shared: &Shared) {
        self.next_look = Nanos::NEVER;
        for peer in std::mem::take(&mut self.gone) {
            if !shared.core().producer().holds(peer) {
                self.lives.remove(&peer);
                continue;
            }
            if self.lives.get(&peer).is_some_and(|life| life.is_over().unwrap_or(false)) {
                self.lives.remove(&peer);
                shared.core().reader_dead(now, peer);
                shared.notify();
                tracing::debug!("a reader on this host has died: its grants have ended");
                continue;
            }
            self.gone.push(peer);
            self.next_look = now.after(PAUSE);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Nanos, shared: &Shared) {
        if now >= self.next_look {
            self.look(now, shared);
        }
    }

    pub(super) fn poll_timeout(&self) -> Nanos {
        self.next_look
    }
}
