//! NIXL's C interface: found, loaded, and wrapped so that the rest of this crate is safe code.
//!
//! It must never be used outside of a helper process. One thread has the agent: in NIXL's default mode
//! nothing is locked.

mod agent;
mod library;
mod notifications;
mod table;
mod transfer;

pub(crate) use self::agent::{Agent, Functions};
pub(crate) use self::library::find;
pub(crate) use self::transfer::{Local, Transfer, TransferState};
