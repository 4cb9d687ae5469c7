//! What a helper tells the node.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::command::{PeerId, ReadId};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The helper is up: the first event, unless it is [`Event::Refused`].
    Ready(Ready),
    /// NIXL cannot be used, for this reason. The helper ends; starting it again the same way would give
    /// the same.
    Refused {
        /// A sentence with what was looked for and what to do.
        reason: String,
    },
    /// A peer is known and can be read from.
    Loaded {
        /// Which.
        peer: PeerId,
    },
    /// A peer cannot be read from.
    LoadFailed {
        /// Which. Its number is free.
        peer: PeerId,
        /// Whose fault.
        kind: FailureKind,
        /// Why.
        reason: String,
    },
    /// All bytes of a read have landed, and its notification is on its way.
    ReadDone {
        /// Which.
        read: ReadId,
    },
    /// A read has ended without all its bytes. Where `settled` is false, which it can be only for a read
    /// of several pieces, NIXL may still write into its blocks: they are free when this helper has
    /// [ended](Event::Ended).
    ReadFailed {
        /// Which.
        read: ReadId,
        /// Whose fault.
        kind: FailureKind,
        /// Whether nothing can land any more.
        settled: bool,
        /// Why.
        reason: String,
    },
    /// A notification has come to *serve*.
    Notification {
        /// The agent that sent it, as it says.
        agent_name: String,
        /// Its text.
        text: Vec<u8>,
    },
    /// A notification was too long, or there were more than could be kept; it is lost.
    NotificationLost {
        /// How many since the last of these events.
        count: u64,
    },
    /// Something that an operator should know; the helper goes on.
    Warning {
        /// A sentence.
        text: String,
    },
    /// To [`Command::Ping`](crate::Command::Ping): the helper is at work.
    Pong,
    /// The process has ended and has been reaped: nothing of it can touch the region any more. Always
    /// the last event. Never sent by a helper.
    #[serde(skip)]
    Ended(Ended),
}

/// What a helper that is up has to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The agent's name: that of *serve*, or the fresh one of *read*.
    pub agent_name: String,
    /// What peers load to read from this agent; empty for *read*. It belongs to this life of the helper,
    /// and so does `base_address`: the two are never to be mixed with another life's.
    pub agent_metadata: Vec<u8>,
    /// Address of block 0 in the helper: what peers' descriptors count from. Block `n` lies at
    /// `base_address + n * block_size_bytes`.
    pub base_address: u64,
    /// Bytes of all blocks together.
    pub blocks_bytes: u64,
    /// Whether the region is mapped read-only, so that no peer can write into it.
    pub read_only: bool,
    /// The backend in use.
    pub backend: String,
    /// The library that was loaded.
    pub library: String,
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// What the peer sent is wrong: it does not parse, or points outside of what it registered.
    Invalid,
    /// The peer is gone, or cannot be reached.
    Peer,
    /// This node asked for what cannot be: an unknown peer, a number in use, a limit.
    Local,
    /// NIXL failed for a reason that it does not tell.
    Backend,
}

/// How a helper ended.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Ended {
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal, if it died of one.
    pub signal: Option<i32>,
    /// What this side holds against it: it spoke out of turn, its socket failed.
    pub fault: Option<String>,
    /// The last it wrote to its standard error; not more than 2 KiB, printable.
    pub last_words: String,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.signal, self.code) {
            (Some(signal), _) => write!(f, "died of signal {signal}")?,
            (None, Some(code)) => write!(f, "ended with code {code}")?,
            (None, None) => f.write_str("ended")?,
        }
        if let Some(fault) = &self.fault {
            write!(f, " ({fault})")?;
        }
        match self.last_words.trim() {
            "" => Ok(()),
            words => write!(f, "; its last words: {words}"),
        }
    }
}
