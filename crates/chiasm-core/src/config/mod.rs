//! What an operator has set, read and checked as a whole.
//!
//! It takes the engine's `--ec-transfer-config` object or the plug-in's part of it, the environment
//! as a function, and what the engine knows about its host; it gives typed values, each with its
//! source, or everything that is wrong at once. It never reads the process environment or a file
//! itself, never resolves a name, and passes over nothing in silence: what it does not know is a
//! problem if it could be a misspelt setting, and a warning if not.

mod checks;
mod effective;
mod engine_id;
mod findings;
mod key;
pub mod limits;
mod nearest;
mod nixl;
mod planes;
mod problem;
mod reader;
mod reference;
mod role;
mod setting;
mod side_channel;
mod table;
mod value;
mod warning;

use std::fmt;
use std::time::Duration;

use serde_json::Value;

pub use self::effective::Effective;
pub use self::engine_id::EngineId;
pub use self::findings::Findings;
pub use self::key::{Alias, Fallback, Key, Kind, Place};
pub use self::nixl::{Interfaces, NixlBackend, NixlConfig, PortRange};
pub use self::planes::{PlaneChoice, PlaneChoices};
pub use self::problem::{Problem, Reason};
use self::reader::Reader;
pub use self::reference::{CONSUMER_EXAMPLE, Example, PRODUCER_EXAMPLE, reference};
pub use self::role::Role;
pub use self::setting::{Setting, Source};
pub use self::side_channel::SideChannel;
pub use self::table::KEYS;
use self::table::key;
pub use self::warning::Warning;
use crate::allowlist::Allowlist;
use crate::byte_size::ByteSize;
use crate::endpoint::Host;

/// What the engine knows and no operator has to set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// This engine's number among the data-parallel ones, from 0.
    pub data_parallel_index: u32,
    /// This host's address as the engine has found it, also where that is a wildcard. `None` only
    /// where no engine is there to ask; an instance that serves then has no host to bind.
    pub host_address: Option<&'a str>,
}

/// The effective configuration of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `ec_role`; `None` where only the plug-in's dictionary was given.
    pub role: Setting<Option<Role>>,
    /// `engine_id`; `None` where the engine has to choose one at random.
    pub engine_id: Setting<Option<EngineId>>,
    /// `ec_cpu_bytes`: size of the region.
    pub region_bytes: Setting<ByteSize>,
    /// `ec_remote`: whether encoder outputs are served to and read from other instances.
    pub remote: Setting<bool>,
    /// `ec_allowed_peers`: producers that may be read from.
    pub allowed_peers: Setting<Allowlist>,
    /// `ec_planes`: ways of moving bytes, the preferred one first.
    pub planes: Setting<PlaneChoices>,
    /// `ec_nixl_*`: how the nixl plane is to be used, where it is.
    pub nixl: NixlConfig,
    /// Where to serve; `None` where this instance serves nobody.
    pub side_channel: Option<SideChannel>,
    /// `ec_advertise_host`: the host to announce; `None`: the one that is bound.
    pub advertise_host: Setting<Option<Host>>,
    /// `ec_verify`: whether digests are taken and checked.
    pub verify: Setting<bool>,
    /// `consumer_ack_timeout_s`: one attempt's wait for its answer.
    pub ack_timeout: Setting<Duration>,
    /// `pin_lease_s`: how long a grant lasts. More than [`Config::read_timeout`].
    pub lease: Setting<Duration>,
    /// `read_timeout_s`: how long one read may take.
    pub read_timeout: Setting<Duration>,
    /// `quarantine_s`: how long the blocks of a save rest whose worker has died. Not less than
    /// [`Config::read_timeout`].
    pub quarantine: Setting<Duration>,
    /// `wait_budget_s`: how long one item of one request may wait in all.
    pub wait_budget: Setting<Duration>,
    /// `connect_timeout_s`: how long a connection attempt may go unanswered.
    pub connect_timeout: Setting<Duration>,
    /// `save_timeout_s`: how long a worker may take to report a save.
    pub save_timeout: Setting<Duration>,
    /// What an operator should know. To be logged, once, at the start.
    pub warnings: Findings<Warning>,
}

impl Config {
    /// Reads a configuration.
    ///
    /// `value` is the whole object of `--ec-transfer-config` if it has any of that object's keys,
    /// else the content of `ec_connector_extra_config`. `environment` gives the value of a variable
    /// of the process environment, if it is set; bytes that are no UTF-8 should be replaced, not
    /// dropped. A setting whose role is not known is checked as that of an instance that does both.
    pub fn read(
        value: &Value,
        environment: &dyn Fn(&str) -> Option<String>,
        facts: &Facts<'_>,
    ) -> Result<Self, ConfigError> {
        let mut reader = Reader::new(value, environment);
        let draft = Self::draft(&mut reader, facts);
        let Reader { problems, mut warnings, .. } = reader;
        match draft {
            Some(mut config) if problems.is_empty() => {
                for warning in checks::warnings(&config) {
                    warnings.push(warning);
                }
                config.warnings = warnings;
                Ok(config)
            }
            _ => Err(ConfigError { problems, warnings }),
        }
    }

    /// Takes every setting before it gives up, so that all problems are found.
    fn draft(reader: &mut Reader<'_>, facts: &Facts<'_>) -> Option<Self> {
        checks::connector(reader);
        let role = if reader.is_whole() {
            reader.take(key("ec_role"), value::role).map(|role| role.map(Some))
        } else {
            Some(Setting::default(None))
        };
        let engine_id = reader.take_optional(key("engine_id"), value::engine_id);
        let region_bytes = reader.take(key("ec_cpu_bytes"), value::size);
        let remote = reader.take(key("ec_remote"), value::switch);
        let allowed_peers = reader.take(key("ec_allowed_peers"), value::peers);
        let planes = reader.take(key("ec_planes"), value::planes);
        let nixl_library = reader.take_optional(key("ec_nixl_library"), value::path);
        let nixl_backend = reader.take(key("ec_nixl_backend"), value::nixl_backend);
        let nixl_interfaces = reader.take_optional(key("ec_nixl_interfaces"), value::interfaces);
        let nixl_ports = reader.take_optional(key("ec_nixl_ports"), value::port_range);
        let advertise_host = reader.take_optional(key("ec_advertise_host"), value::host);
        let verify = reader.take(key("ec_verify"), value::switch);
        let mut seconds = |name| reader.take(key(name), value::seconds);
        let ack_timeout = seconds("consumer_ack_timeout_s");
        let lease = seconds("pin_lease_s");
        let read_timeout = seconds("read_timeout_s");
        let quarantine = seconds("quarantine_s");
        let wait_budget = seconds("wait_budget_s");
        let connect_timeout = seconds("connect_timeout_s");
        let save_timeout = seconds("save_timeout_s");
        checks::order_of_times(reader, lease.as_ref(), quarantine.as_ref(), read_timeout.as_ref());

        // Where one of the two is wrong, the rest is checked as if it were on.
        let produces = role.as_ref().and_then(|role| role.value).is_none_or(Role::produces);
        let serves = produces && remote.as_ref().is_none_or(|remote| remote.value);
        let side_channel = if serves {
            SideChannel::take(reader, facts).map(Some)
        } else {
            SideChannel::check_unused(reader);
            Some(None)
        };
        Some(Self {
            role: role?,
            engine_id: engine_id?.map(Option::flatten),
            region_bytes: region_bytes?,
            remote: remote?,
            allowed_peers: allowed_peers?,
            planes: planes?,
            nixl: NixlConfig {
                library: nixl_library?,
                backend: nixl_backend?,
                interfaces: nixl_interfaces?,
                ports: nixl_ports?,
            },
            side_channel: side_channel?,
            advertise_host: advertise_host?,
            verify: verify?,
            ack_timeout: ack_timeout?,
            lease: lease?,
            read_timeout: read_timeout?,
            quarantine: quarantine?,
            wait_budget: wait_budget?,
            connect_timeout: connect_timeout?,
            save_timeout: save_timeout?,
            warnings: Findings::default(),
        })
    }

    /// Whether this instance reads from others.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.remote.value && self.role.value.is_none_or(Role::consumes)
    }
}

/// A configuration that cannot be used: everything that is wrong with it. Its text has one line for
/// each problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// What must be changed. Never empty.
    pub problems: Findings<Problem>,
    /// What was odd besides.
    pub warnings: Findings<Warning>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.len() {
            1 => f.write_str("the configuration has 1 problem")?,
            count => write!(f, "the configuration has {count} problems")?,
        }
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        match self.problems.omitted() {
            0 => Ok(()),
            omitted => write!(f, "\n  and {omitted} more"),
        }
    }
}

impl std::error::Error for ConfigError {}
