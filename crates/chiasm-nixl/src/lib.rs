//! NIXL, in helper processes. Unsafe fence 2.
//!
//! NIXL moves bytes over RDMA where there is RDMA, and is the only way to read from, and be read by,
//! upstream's connectors. It is found and loaded at run time, and never in the node's own process: a
//! peer's metadata can abort whoever loads it, a read cannot be cancelled, and a reader's death can
//! abort whom it reads from. So there are two helper processes, each over the node's region:
//!
//! | role | agent name | region | loads peers' bytes | killed to abort |
//! |---|---|---|---|---|
//! | [`Role::Serve`] | given | read-only | never | never |
//! | [`Role::Read`] | fresh at each start | read-write | yes | yes |
//!
//! This crate starts them ([`HelperProcess`]), speaks with them ([`Command`], [`Event`]), is them
//! ([`helper_main`]), and checks what comes from peers before NIXL sees it ([`AgentMetadata`],
//! [`Piece`]). When to start one, how often again, and whom to blame is the node's business.
//!
//! # What this crate must never do
//!
//! Load NIXL into a process other than a helper; hand NIXL a number or a blob of a peer's that was not
//! checked; block the node's thread; form a slice over the region.

#[expect(unsafe_code, reason = "unsafe fence 2: calls into NIXL's library")]
mod capi;
mod child;
mod command;
mod event;
mod frame;
mod helper;
mod launch;
mod limits;
mod metadata;
mod piece;
mod probe;
mod process;
mod settings;
mod setup;

pub use command::{Command, PeerId, ReadId};
pub use event::{Ended, Event, FailureKind, Ready};
pub use helper::helper_main;
pub use launch::{HELPER_ARGUMENT, Launch};
pub use limits::{
    MAX_AGENT_NAME_BYTES, MAX_METADATA_BYTES, MAX_NOTIFICATION_BYTES, MAX_PEERS, MAX_PIECES,
    MAX_READS,
};
pub use metadata::{AgentMetadata, MetadataError};
pub use piece::{Piece, PieceError, Span, pieces};
pub use probe::{Probed, probe};
pub use process::{HelperProcess, SendError, StartError};
pub use settings::Settings;
pub use setup::Role;
