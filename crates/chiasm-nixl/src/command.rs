//! What the node tells a helper.

use serde::{Deserialize, Serialize};

use crate::piece::{Piece, Span};

/// A peer of a read helper, by a number of the node's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PeerId(pub u64);

/// A read in flight, by a number of the node's choice. It may be used again when the read has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReadId(pub u64);

/// One command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// To *serve*: whether a grant over nixl is live. Only then does the helper make progress, take
    /// notifications, and use CPU. It starts with `false`.
    Live(bool),
    /// To *read*: get to know a peer. Answered by [`Event::Loaded`](crate::Event::Loaded) or
    /// [`Event::LoadFailed`](crate::Event::LoadFailed), in the order of the commands; or the helper
    /// dies of it: then this peer is the suspect.
    ///
    /// One agent name is one peer: a second under a name that is known already fails, since NIXL cannot
    /// tell them apart. Read it through another helper.
    LoadPeer {
        /// The peer's number, not in use.
        peer: PeerId,
        /// The name that the metadata has to carry.
        agent_name: String,
        /// The peer's agent metadata. Checked by [`AgentMetadata`](crate::AgentMetadata) once more.
        metadata: Vec<u8>,
        /// The peer's blocks, as its descriptors say. Reads stay inside it; it has to lie in one range
        /// of the metadata.
        span: Span,
    },
    /// To *read*: forget a peer, so that its number and its agent name are free. While reads from it are
    /// in flight it starts no more, and is forgotten when the last of them has ended. Not answered.
    ForgetPeer {
        /// A peer that was loaded.
        peer: PeerId,
    },
    /// To *read*: fill blocks from a peer's. Answered by [`Event::ReadDone`](crate::Event::ReadDone) or
    /// [`Event::ReadFailed`](crate::Event::ReadFailed), in any order, or never: a peer that hangs
    /// leaves a read in flight for ever. Only the end of the helper ends it then
    /// ([`HelperProcess::kill`](crate::HelperProcess::kill)).
    Read {
        /// The read's number, not in use.
        read: ReadId,
        /// A peer that was loaded.
        peer: PeerId,
        /// What goes where, as [`pieces`](crate::pieces) makes it: 1 to
        /// [`MAX_PIECES`](crate::MAX_PIECES).
        pieces: Vec<Piece>,
        /// Sent to the peer when all bytes have been read; empty: none is. At most
        /// [`MAX_NOTIFICATION_BYTES`](crate::MAX_NOTIFICATION_BYTES).
        notification: Vec<u8>,
    },
    /// To *serve*: say that you are at work. Answered by [`Event::Pong`](crate::Event::Pong) after the
    /// next look at NIXL, so that a helper which hangs in it does not answer.
    Ping,
}
