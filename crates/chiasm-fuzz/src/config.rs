//! A configuration of any JSON: it is read and holds its promises, or every problem is told.

use chiasm_core::config::{Config, Facts, KEYS, Key};
use serde_json::{Value, json};

use crate::input::Input;
use crate::json;

pub(crate) fn config(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.byte();
    let names: Vec<&str> = KEYS.iter().flat_map(Key::names).collect();
    let variable = (kind & 1 == 1).then(|| input.text(20));
    let address = (kind & 2 == 2).then(|| input.text(20));
    let index = u32::from(input.byte());
    let mut extra = json::object(&mut input, &names, 2);
    if kind & 4 == 4 {
        extra.insert("ec_cpu_bytes".into(), json!(1 << 20));
    }
    let whole = json!({
        "ec_connector": "ChiasmConnector",
        "ec_role": "ec_both",
        "ec_connector_extra_config": extra,
    });
    let value = if kind & 8 == 8 { whole } else { Value::Object(extra) };
    let facts = Facts { data_parallel_index: index, host_address: address.as_deref() };
    match Config::read(&value, &|_| variable.clone(), &facts) {
        Ok(config) => {
            assert!(config.effective().iter().all(|row| !row.text.is_empty()));
            assert!(config.lease.value > config.read_timeout.value);
            assert!(config.quarantine.value >= config.read_timeout.value);
            assert!(config.region_bytes.value.0 > 0);
            assert!(!config.planes.value.list().is_empty());
        }
        Err(error) => {
            assert!(!error.problems.is_empty());
            assert_eq!(error.to_string().lines().count(), error.problems.len() + 1);
        }
    }
}
