//! The nixl plane at a node: when its helper processes start, end, and start again, and who is to blame.
//!
//! NIXL itself is behind `chiasm_nixl`; what may be granted and read is the core's to say. Nothing here
//! may hold up the node's thread: a helper that hangs is killed by a timer, and the blocks that it
//! could write into are free when it has been reaped, not before (S4).

mod blame;
mod hashing;
mod peer;
mod pulse;
mod read;
mod read_helper;
mod rest;
mod serve;
#[cfg(test)]
mod tests;

pub(crate) use self::read::ReadHelpers;
pub(crate) use self::serve::{SERVE_ID, ServeHelper};

use chiasm_nixl::{Launch, Settings};

/// Events of one helper that are taken in one turn of the node's thread. A peer that sends completion after
/// completion, or a helper that has been taken over, must not keep the thread from everybody else.
const EVENTS_PER_TURN: usize = 256;

/// How a node uses NIXL.
#[derive(Clone, Debug)]
pub struct NixlConfig {
    /// The program that becomes a helper process.
    pub launch: Launch,
    /// Where NIXL is and how it is to be used.
    pub settings: Settings,
    /// What peers know this node's agent by: `<engine_id>_dp<index>`. No two producers that one consumer
    /// reads from should have the same.
    pub agent_name: String,
}

impl NixlConfig {
    /// Whether a helper that cannot use NIXL may find that it can after a while: where it has but a few
    /// ports, other processes may have them, and the system keeps those of one that has ended for a minute.
    fn refusals_may_pass(&self) -> bool {
        self.settings.ports.is_some()
    }
}
