//! Where a producer binds its control socket, and under which name it announces it.
//!
//! What is bound is what is announced, so a wildcard is an error whoever came up with it, and the
//! port that is announced is read back from the socket (hazards C16 and C17).

use serde_json::Value;

use super::Facts;
use super::problem::{Fault, Problem, Reason};
use super::reader::Reader;
use super::setting::{Setting, Source};
use super::table::key;
use super::value::{self, Parsed};
use super::warning::Warning;
use crate::endpoint::{Host, ListenAddress};
use crate::excerpt::Excerpt;

const HOST: &str = "VLLM_EC_SIDE_CHANNEL_HOST";
const PORT: &str = "VLLM_EC_SIDE_CHANNEL_PORT";
const ENGINE_HOST: &str = "VLLM_HOST_IP";

/// The control socket of an instance that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideChannel {
    /// The host to bind; `None` only where [`Facts`] say nothing of this host's address and no
    /// variable does.
    pub host: Setting<Option<Host>>,
    /// The port to bind, this rank's share included; 0 is chosen by the system.
    pub port: Setting<u16>,
}

impl SideChannel {
    /// What to bind.
    #[must_use]
    pub fn listen(&self) -> Option<ListenAddress> {
        Some(ListenAddress::new(self.host.value.clone()?, self.port.value))
    }

    /// Reads the variables; `None` if something is wrong, which the reader keeps.
    pub(super) fn take(reader: &mut Reader<'_>, facts: &Facts<'_>) -> Option<Self> {
        let host = take_host(reader, facts);
        let port = take_port(reader, facts.data_parallel_index);
        Some(Self { host: host?, port: port? })
    }

    /// Looks at the variables of an instance that serves nobody.
    pub(super) fn check_unused(reader: &mut Reader<'_>) {
        let host = reader.fault_in_unused(key(HOST), bind_host).map(|given| (HOST, given));
        let port = reader.fault_in_unused(key(PORT), value::port).map(|given| (PORT, given));
        for (key, given) in host.into_iter().chain(port) {
            reader.warnings.push(Warning::WrongButUnused { key, given });
        }
    }
}

fn take_host(reader: &mut Reader<'_>, facts: &Facts<'_>) -> Option<Setting<Option<Host>>> {
    let host = reader.take_optional(key(HOST), bind_host)?;
    if host.value.is_some() {
        return Some(host);
    }
    // The engine takes its own variable for not set when it is empty.
    let not_empty = |value: &Value| match value.as_str() {
        Some("") => Ok(None),
        _ => bind_host(value).map(Some),
    };
    let host = reader.take_optional(key(ENGINE_HOST), not_empty)?;
    if let Some(Some(set)) = host.value {
        return Some(Setting { value: Some(set), source: host.source });
    }
    let Some(found) = facts.host_address else { return Some(Setting::default(None)) };
    let Ok(host) = Host::parse(found) else {
        reader.problems.push(Problem::new(HOST, Some(Excerpt::of(found)), Reason::Detected));
        return None;
    };
    if host.address().is_some_and(|address| address.is_loopback()) {
        reader.warnings.push(Warning::LoopbackFound { host: host.clone() });
    }
    Some(Setting { value: Some(host), source: Source::Engine })
}

fn take_port(reader: &mut Reader<'_>, data_parallel_index: u32) -> Option<Setting<u16>> {
    let base = reader.take(key(PORT), value::port)?;
    if base.value == 0 {
        return Some(base);
    }
    let port = u32::from(base.value).checked_add(data_parallel_index);
    let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else {
        let given = Excerpt::of(&base.value.to_string());
        let reason = Reason::PortOverflow { data_parallel_index };
        reader.wrong(key(PORT), PORT, Fault::new(given, reason));
        return None;
    };
    Some(base.map(|_| port))
}

/// As any host, with the remedy in the message where it is a wildcard.
fn bind_host(given: &Value) -> Parsed<Host> {
    use crate::endpoint::EndpointProblem::Wildcard;
    value::host(given).map_err(|mut faults| {
        for fault in &mut faults {
            if fault.reason == Reason::Host(Wildcard) {
                fault.reason = Reason::Wildcard;
            }
        }
        faults
    })
}
