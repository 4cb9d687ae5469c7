//! What only several settings together can get wrong.

use std::time::Duration;

use super::problem::{Fault, Reason};
use super::reader::Reader;
use super::setting::Setting;
use super::table::key;
use super::value::in_seconds;
use super::warning::{CONNECTOR, MODULE, Warning};
use super::{Config, Role};
use crate::excerpt::Excerpt;

/// Whether the engine will load the connector that these settings are for. The plug-in's dictionary
/// alone does not say.
pub(super) fn connector(reader: &mut Reader<'_>) {
    if !reader.is_whole() {
        return;
    }
    // A null is what the engine takes for "not set".
    let given = |name| reader.said(key(name)).filter(|value| !value.is_null());
    let (connector, module) = (given("ec_connector"), given("ec_connector_module_path"));
    let warning = match (connector, module) {
        (None, _) => Warning::NoConnector,
        (Some(name), _) if name != CONNECTOR => {
            Warning::OtherConnector { given: Excerpt::of_json(name) }
        }
        (Some(_), None) => Warning::NoModule,
        (Some(_), Some(module)) if module != MODULE => {
            Warning::OtherModule { given: Excerpt::of_json(module) }
        }
        (Some(_), Some(_)) => return,
    };
    reader.warnings.push(warning);
}

/// Times that must stand in an order. One that is wrong by itself is not compared.
pub(super) fn order_of_times(
    reader: &mut Reader<'_>,
    lease: Option<&Setting<Duration>>,
    quarantine: Option<&Setting<Duration>>,
    read_timeout: Option<&Setting<Duration>>,
) {
    let Some(read_timeout) = read_timeout.map(|setting| setting.value) else { return };
    let shown = |time: Duration| Excerpt::of_json(&in_seconds(time));
    if let Some(lease) = lease.filter(|lease| lease.value <= read_timeout) {
        let reason = Reason::LeaseTooShort { read_timeout };
        reader.wrong(key("pin_lease_s"), "pin_lease_s", Fault::new(shown(lease.value), reason));
    }
    if let Some(rest) = quarantine.filter(|rest| rest.value < read_timeout) {
        let reason = Reason::QuarantineTooShort { read_timeout };
        reader.wrong(key("quarantine_s"), "quarantine_s", Fault::new(shown(rest.value), reason));
    }
}

/// What an operator should know about a configuration without problems.
pub(super) fn warnings(config: &Config) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let peers = &config.allowed_peers.value;
    if !config.remote.value {
        warnings.extend((!peers.is_empty()).then_some(Warning::AllowlistWithoutRemote));
        return warnings;
    }
    if config.role.value == Some(Role::Producer) {
        warnings.extend((!peers.is_empty()).then_some(Warning::AllowlistOfProducer));
    }
    if config.reads() {
        warnings.extend(peers.is_empty().then_some(Warning::NothingToRead));
        let budget = config.wait_budget.value;
        for (key, step) in [
            ("connect_timeout_s", &config.connect_timeout),
            ("consumer_ack_timeout_s", &config.ack_timeout),
            ("read_timeout_s", &config.read_timeout),
        ] {
            let value = step.value;
            warnings.extend((value >= budget).then_some(Warning::NoTimeToRetry {
                key,
                value,
                budget,
            }));
        }
    }
    let chosen_by_system = |port: &Setting<u16>| port.value == 0;
    if config.side_channel.as_ref().is_some_and(|channel| chosen_by_system(&channel.port)) {
        warnings.push(Warning::PortChanges);
    }
    warnings
}
