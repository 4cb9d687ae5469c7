//! What is odd about a configuration that can be used all the same.

use std::time::Duration;

use super::key::Place;
use crate::endpoint::Host;
use crate::excerpt::Excerpt;

/// Name of the plug-in's class, as the engine is told it.
pub(super) const CONNECTOR: &str = "ChiasmConnector";
/// Module that has it.
pub(super) const MODULE: &str = "chiasm.vllm";

/// One thing that an operator should know. Its text is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// A key that nobody here knows. Others may keep settings in the same object.
    #[error("{key}: Chiasm has no such key in {place} and ignores it")]
    Foreign {
        /// The key, or a bounded part of it.
        key: Box<str>,
        /// Where it stands.
        place: Place,
    },
    /// A name that goes with the next minor release.
    #[error("{key}: deprecated since {since} and gone in the next minor release; write {instead}")]
    Deprecated {
        /// The name.
        key: &'static str,
        /// The name to use.
        instead: &'static str,
        /// The release that began to warn.
        since: &'static str,
    },
    /// A setting of the engine that other connectors read.
    #[error("{key}: is for other connectors, and Chiasm does not read it")]
    NotRead {
        /// The key.
        key: &'static str,
    },
    /// The engine is told of no connector.
    #[error("ec_connector: is not set, so vLLM loads no connector at all")]
    NoConnector,
    /// The engine is told of another connector: what was checked here is not in force.
    #[error(
        "ec_connector, {given}: is not Chiasm's, so none of this is in force, the allowlist \
         included; write \"{CONNECTOR}\""
    )]
    OtherConnector {
        /// Its name.
        given: Excerpt,
    },
    /// The engine is not told where Chiasm's connector is.
    #[error(
        "ec_connector_module_path: is not set, so vLLM looks for {CONNECTOR} among its own \
         connectors and does not find it; write \"{MODULE}\""
    )]
    NoModule,
    /// The engine is told of another module.
    #[error(
        "ec_connector_module_path, {given}: is not Chiasm's; unless a module of yours has \
         {CONNECTOR}, write \"{MODULE}\""
    )]
    OtherModule {
        /// Its name.
        given: Excerpt,
    },
    /// A variable that is wrong, in an instance that has no use for it.
    #[error("{key}, {given}: not allowed; no harm done, because this instance serves nobody")]
    WrongButUnused {
        /// The variable.
        key: &'static str,
        /// What it says.
        given: Excerpt,
    },
    /// Producers are approved, and remote reads are off.
    #[error("ec_allowed_peers: has no effect while ec_remote (ec_enable_nixl) is false")]
    AllowlistWithoutRemote,
    /// Remote reads are on, and no producer is approved.
    #[error(
        "ec_allowed_peers: is empty, so this instance reads from nobody; add the endpoints of the \
         producers that you trust"
    )]
    NothingToRead,
    /// An instance that never reads has an allowlist.
    #[error(
        "ec_allowed_peers: has no effect on an ec_producer; it names producers to read from and \
         does not limit who may read from this one"
    )]
    AllowlistOfProducer,
    /// The announced port is another one after each start.
    #[error(
        "VLLM_EC_SIDE_CHANNEL_PORT: is 0, so the port is another one after each start and no \
         ec_allowed_peers can name it for long; set it, for example to 5601"
    )]
    PortChanges,
    /// The engine has found a loopback address, which nobody has asked for.
    #[error(
        "VLLM_EC_SIDE_CHANNEL_HOST: is not set, and the engine found {host}, which other hosts \
         cannot reach"
    )]
    LoopbackFound {
        /// The address.
        host: Host,
    },
    /// One step of one attempt may take all the time there is.
    #[error(
        "{key}: {value:?} is not less than wait_budget_s, {budget:?}: one silent peer uses up the \
         budget, and no retry follows"
    )]
    NoTimeToRetry {
        /// The step's limit.
        key: &'static str,
        /// Its value.
        value: Duration,
        /// The budget.
        budget: Duration,
    },
}

impl Warning {
    /// Whether the engine loads no connector with this, or another than Chiasm's: then nothing of the
    /// configuration is in force. A class that is built on Chiasm's may be meant.
    #[must_use]
    pub const fn is_of_another_connector(&self) -> bool {
        matches!(self, Self::NoConnector | Self::OtherConnector { .. } | Self::NoModule)
    }
}
