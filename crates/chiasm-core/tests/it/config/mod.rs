//! The configuration: what an operator may write, what is told when it is wrong, what comes out.

mod hostile;
mod keys;
mod names;
mod nixl;
mod page;
mod places;
mod side_channel;
mod together;

use chiasm_core::config::{Config, ConfigError, Facts};
use serde_json::{Value, json};

/// A host whose address the engine has found.
const FACTS: Facts<'_> = Facts { data_parallel_index: 0, host_address: Some("10.0.0.5") };

fn read_in(value: &Value, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    read_with(value, variables, &FACTS)
}

fn read_with(
    value: &Value,
    variables: &[(&str, &str)],
    facts: &Facts<'_>,
) -> Result<Config, ConfigError> {
    let environment = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Config::read(value, &environment, facts)
}

fn read(value: &Value) -> Result<Config, ConfigError> {
    read_in(value, &[])
}

/// The plug-in's dictionary with what must be there and one more setting.
fn with(key: &str, value: Value) -> Value {
    let mut extra = json!({"ec_cpu_bytes": "1GiB"});
    extra[key] = value;
    extra
}

/// The engine's whole object around a dictionary.
fn whole(role: &str, extra: &Value) -> Value {
    json!({
        "ec_connector": "ChiasmConnector",
        "ec_connector_module_path": "chiasm.vllm",
        "ec_role": role,
        "ec_connector_extra_config": extra,
    })
}

/// Every problem as the operator reads it.
fn problems(read: Result<Config, ConfigError>) -> Vec<String> {
    match read {
        Ok(_) => Vec::new(),
        Err(error) => error.problems.iter().map(ToString::to_string).collect(),
    }
}

/// Every warning as the operator reads it, of a configuration that can be used.
fn warnings(read: Result<Config, ConfigError>) -> Vec<String> {
    read.unwrap().warnings.iter().map(ToString::to_string).collect()
}
