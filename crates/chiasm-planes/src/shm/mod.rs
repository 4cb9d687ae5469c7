//! The shm plane: the consumer maps the region of a producer on its own host, read-only, and copies.
//!
//! Nothing that the producer says is believed: its region is looked for in this node's own directory
//! and checked as a stranger's file would be. It must never stand still for long: copies are cut into
//! slices, and several reads take turns.

mod copier;
mod neighbours;

pub use self::copier::{Copier, CopyJob, SLICE_BYTES};
pub use self::neighbours::{MAX_MAPPED, Neighbours, NotHere};
