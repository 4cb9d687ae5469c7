//! What a helper is told at its start: its role and its settings. Region descriptors come with it.

use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// Raised by every change of a command or an event: both ends come out of one build, but a package may
/// be replaced under a process that runs.
pub(crate) const PROTOCOL_REVISION: u32 = 2;

/// What a helper is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Lets peers read this node's region, and takes their notifications. Never loads a peer's bytes.
    Serve {
        /// The agent's name, `<engine_id>_dp<index>`: what peers know this node by.
        agent_name: String,
    },
    /// Reads peers' regions into this node's, under an agent name that is new at each start.
    Read,
    /// Says whether NIXL works here, and ends. Needs no region.
    Probe,
}

/// The first frame to a helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) protocol_revision: u32,
    pub(crate) role: Role,
    pub(crate) settings: Settings,
}
