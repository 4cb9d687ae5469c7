//! The shared memory of one instance: its file, its locks, its blocks. Unsafe fence 1.
//!
//! One file, made and mapped by the first process of an instance and mapped by its others, holds a
//! header and then the blocks that entries are laid over. This crate decides four things and
//! nothing else: how that file lives and dies ([`Region::create_or_attach`], [`Region::attach`],
//! [`reclaim_stale`]), which bytes of it an entry's extents mean, how bytes get in and out, and how
//! workers tell the node that they are done ([`Worker`], [`Completions`]).
//! Which blocks belong to whom, and when they may be touched, is the cache's business.
//!
//! # Life and death are decided by locks
//!
//! Every process that uses a region holds a shared `flock` on it for as long as it has it mapped; a
//! region is dead when an exclusive lock can be had. Not pids: a live creator looks dead from
//! another PID namespace. `flock` rather than open-file-description locks (`F_OFD_SETLK`): both
//! belong to the open file, need no pid, and are dropped by the kernel when the last descriptor
//! *and the last mapping* of it are gone, even after SIGKILL; `flock` covers the whole file
//! whatever its size, has one way of being asked for, and cannot be lost by a stray
//! `close` of another descriptor of the same file, as process-wide `fcntl` locks can. Nothing here
//! ever unlocks: a forked child shares the open file, and an explicit unlock would expose it.
//!
//! A file is written and locked before it gets its name, so whoever finds a region finds a whole
//! one. It is removed by its creator's drop, and by the next start after a SIGKILL. A file is never
//! truncated or overwritten: somebody's mapping of it would fault.
//!
//! # What this crate must never do
//!
//! Form a `&[u8]` or `&mut [u8]` over the mapping; touch memory at an offset that was not checked
//! against the geometry; remove, change or follow a file that is not a dead region of this user or what
//! is left of one; leave a file, a descriptor or a mapping behind when it fails.

mod beside;
#[expect(unsafe_code, reason = "unsafe fence 1: byte locks, which rustix does not have")]
mod claim;
mod completions;
#[expect(unsafe_code, reason = "unsafe fence 1: copies between two mappings")]
mod copy;
mod create;
mod digest;
mod error;
mod file;
mod geometry;
mod header;
mod header_area;
mod join;
mod lent;
#[expect(unsafe_code, reason = "unsafe fence 1: mapping shared memory and copying in and out")]
mod mapping;
#[expect(unsafe_code, reason = "unsafe fence 1: raw pointers into the region, checked copies")]
mod memory;
mod node_life;
mod options;
mod peer;
mod random;
mod reclaim;
mod region;
mod ring;
#[expect(unsafe_code, reason = "unsafe fence 1: atomics in shared memory")]
mod shared_words;
mod sleep;
#[expect(unsafe_code, reason = "unsafe fence 1: scattered socket IO straight on the mapping")]
mod socket;
mod worker;

pub use beside::{region_of_status_socket, status_socket, wake_socket};
pub use completions::{Completions, WorkerLife};
pub use digest::{LandedDigest, digest_of};
pub use error::{ForeignCause, RegionError};
pub use geometry::RangeError;
pub use header::HeaderError;
pub use lent::{Lending, LentRegion};
pub use node_life::NodeLife;
pub use options::RegionOptions;
pub use peer::PeerRegion;
pub use reclaim::reclaim_stale;
pub use region::Region;
pub use worker::{Worker, WorkerError};
