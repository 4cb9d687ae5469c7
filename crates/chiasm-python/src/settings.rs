//! What an operator has set, as scheduler and workers need it.

use chiasm_core::config::{Config, EngineId, Facts, Role};
use pyo3::prelude::*;
use serde_json::Value;

use crate::error::{ConfigError, raising};

/// One instance's configuration: read, checked, and whole.
#[pyclass(frozen, module = "chiasm._native")]
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    role: Role,
    pub(crate) engine_id: EngineId,
    pub(crate) data_parallel_index: u32,
}

#[pymethods]
impl Settings {
    #[new]
    #[pyo3(signature = (transfer_config_json, *, data_parallel_index = 0, host_address = None))]
    fn new(
        transfer_config_json: &str,
        data_parallel_index: u32,
        host_address: Option<&str>,
    ) -> PyResult<Self> {
        raising(ConfigError::new_err::<&str>, || {
            Self::read(transfer_config_json, data_parallel_index, host_address)
                .map_err(ConfigError::new_err)
        })
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        let warnings = &self.config.warnings;
        let mut lines: Vec<_> = warnings.into_iter().map(ToString::to_string).collect();
        if warnings.omitted() > 0 {
            lines.push(format!("and {} more", warnings.omitted()));
        }
        lines
    }

    #[getter]
    fn effective(&self) -> Vec<(&'static str, String, String)> {
        let rows = self.config.effective().into_iter();
        rows.map(|row| (row.name, row.text, row.source.to_string())).collect()
    }

    #[getter]
    fn engine_id(&self) -> &str {
        self.engine_id.as_str()
    }

    #[getter]
    fn data_parallel_index(&self) -> u32 {
        self.data_parallel_index
    }

    /// An engine id has at most 128 plain characters, so this is always the name of a region, and two
    /// instances that have one name are one instance.
    #[getter]
    pub(crate) fn region_name(&self) -> String {
        format!("chiasm-{}", self.engine_id.agent_name(self.data_parallel_index))
    }

    #[getter]
    fn role(&self) -> &'static str {
        self.role.name()
    }

    #[getter]
    fn produces(&self) -> bool {
        self.role.produces()
    }

    #[getter]
    fn consumes(&self) -> bool {
        self.role.consumes()
    }

    #[getter]
    fn remote(&self) -> bool {
        self.config.remote.value
    }

    #[getter]
    fn serves(&self) -> bool {
        self.config.side_channel.is_some()
    }

    #[getter]
    pub(crate) fn reads(&self) -> bool {
        self.config.reads()
    }

    #[getter]
    fn region_bytes(&self) -> u64 {
        self.config.region_bytes.value.0
    }

    #[getter]
    fn allowed_peers(&self) -> Vec<String> {
        self.config.allowed_peers.value.iter().map(ToString::to_string).collect()
    }

    #[getter]
    fn wait_budget_s(&self) -> f64 {
        self.config.wait_budget.value.as_secs_f64()
    }

    #[getter]
    fn save_timeout_s(&self) -> f64 {
        self.config.save_timeout.value.as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!("<chiasm.Settings {} {}>", self.region_name(), self.role)
    }
}

impl Settings {
    fn read(
        text: &str,
        data_parallel_index: u32,
        host_address: Option<&str>,
    ) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| format!("--ec-transfer-config is not JSON: {error}"))?;
        let environment = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
        let facts = Facts { data_parallel_index, host_address };
        let config =
            Config::read(&value, &environment, &facts).map_err(|error| error.to_string())?;
        let Some(role) = config.role.value else {
            return Err(
                "ec_role is missing: the whole --ec-transfer-config object is needed".into()
            );
        };
        let Some(engine_id) = config.engine_id.value.clone() else {
            return Err(
                "engine_id is missing: every process of an instance must have the same, so \
                        the engine has to choose it"
                    .into(),
            );
        };
        if let Some(channel) = &config.side_channel
            && channel.listen().is_none()
        {
            return Err("this host's address is not known, and neither VLLM_EC_SIDE_CHANNEL_HOST \
                        nor VLLM_HOST_IP names it: set VLLM_EC_SIDE_CHANNEL_HOST"
                .into());
        }
        Ok(Self { config, role, engine_id, data_parallel_index })
    }
}
