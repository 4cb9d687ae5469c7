//! The producers whose region is, or turned out not to be, where this node looks for regions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chiasm_core::consumer::RemoteRegion;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::limits::MAX_LINKS;
use chiasm_region::PeerRegion;

/// Regions that are kept mapped. One that is still being read from is unmapped after that. A host has
/// a handful of producers, one per data-parallel rank.
pub const MAX_MAPPED: usize = 32;

/// Bytes of a region that are faulted in at once, ahead of their use: about 150 us.
const POPULATE_BYTES: usize = 1 << 20;

/// Why a producer's region cannot be read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotHere {
    /// It was just found out.
    New(String),
    /// It was found out before, for this life of the producer.
    Known,
}

#[derive(Debug)]
struct Neighbour {
    epoch: u64,
    name: String,
    region: Arc<PeerRegion>,
    last_use: u64,
}

/// The regions of producers on this host.
#[derive(Debug)]
pub struct Neighbours {
    dir: PathBuf,
    block_size_bytes: u64,
    mapped: BTreeMap<Endpoint, Neighbour>,
    /// The life of each producer for which its region is not here.
    away: BTreeMap<Endpoint, u64>,
    uses: u64,
}

impl Neighbours {
    /// Nobody is known yet. Regions are looked for in `dir` and nowhere else.
    #[must_use]
    pub fn new(dir: &Path, block_size_bytes: u64) -> Self {
        let (mapped, away) = (BTreeMap::new(), BTreeMap::new());
        Self { dir: dir.to_owned(), block_size_bytes, mapped, away, uses: 0 }
    }

    /// The mapped region that the approved producer at `endpoint` says is its own.
    pub fn region(
        &mut self,
        endpoint: &Endpoint,
        remote: &RemoteRegion,
    ) -> Result<Arc<PeerRegion>, NotHere> {
        if self.away.get(endpoint) == Some(&remote.epoch) {
            return Err(NotHere::Known);
        }
        self.uses += 1;
        if let Some(known) = self.mapped.get_mut(endpoint)
            && (known.epoch, &known.name) == (remote.epoch, &remote.name)
        {
            known.last_use = self.uses;
            return Ok(Arc::clone(&known.region));
        }
        self.leave(endpoint);
        let RemoteRegion { name, epoch, .. } = remote;
        match PeerRegion::attach(&self.dir, name, *epoch, self.block_size_bytes) {
            Ok(region) if !region.serves(endpoint.mark()) => {
                let why = format!("{name} belongs to a node that serves elsewhere");
                Err(self.not_here(endpoint, *epoch, why))
            }
            Ok(region) => {
                self.make_room();
                let region = Arc::new(region);
                let (epoch, name) = (*epoch, name.clone());
                let neighbour =
                    Neighbour { epoch, name, region: Arc::clone(&region), last_use: self.uses };
                self.mapped.insert(endpoint.clone(), neighbour);
                Ok(region)
            }
            Err(error) => Err(self.not_here(endpoint, remote.epoch, error.to_string())),
        }
    }

    /// The producer's region, in this life of it, is not to be read from.
    pub fn not_here(&mut self, endpoint: &Endpoint, epoch: u64, why: String) -> NotHere {
        self.leave(endpoint);
        if self.away.len() >= MAX_LINKS {
            self.away.pop_first();
        }
        self.away.insert(endpoint.clone(), epoch);
        NotHere::New(why)
    }

    /// One of those that nobody reads from, or else any, the one not used for longest.
    fn make_room(&mut self) {
        if self.mapped.len() < MAX_MAPPED {
            return;
        }
        let busy = |neighbour: &Neighbour| Arc::strong_count(&neighbour.region) > 1;
        let order =
            |(_, neighbour): &(&Endpoint, &Neighbour)| (busy(neighbour), neighbour.last_use);
        let oldest = self.mapped.iter().min_by_key(order).map(|(endpoint, _)| endpoint.clone());
        if let Some(endpoint) = oldest {
            self.mapped.remove(&endpoint);
        }
    }

    /// Unmaps a producer's region as soon as nobody reads from it: there is no connection to it any
    /// more, so that its memory, which lives as long as a mapping, may be garbage.
    pub fn leave(&mut self, endpoint: &Endpoint) {
        self.mapped.remove(endpoint);
    }

    /// Regions that are kept mapped.
    #[must_use]
    pub fn mapped(&self) -> usize {
        self.mapped.len()
    }

    /// Faults a little of what is mapped in; whether more is left to be done.
    pub fn populate(&mut self) -> bool {
        self.mapped.values().any(|neighbour| neighbour.region.populate(POPULATE_BYTES))
    }
}
