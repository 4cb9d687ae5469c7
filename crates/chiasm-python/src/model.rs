//! What both sides of a transfer must have in common.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use chiasm_core::dtype::Dtype;
use chiasm_core::identity::Identity;
use pyo3::prelude::*;
use sha2::{Digest as _, Sha256};

use crate::error::{ConfigError, raising};

/// The engine's model, as far as encoder outputs depend on it.
#[pyclass(frozen, module = "chiasm._native")]
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) identity: Identity,
    pub(crate) dtype: Dtype,
}

#[pymethods]
impl Model {
    #[new]
    #[pyo3(signature = (*, vllm_version, model, dtype, row_elements, fingerprint = None))]
    fn new(
        vllm_version: &str,
        model: &str,
        dtype: &str,
        row_elements: u64,
        fingerprint: Option<BTreeMap<String, Option<String>>>,
    ) -> PyResult<Self> {
        raising(ConfigError::new_err::<&str>, || {
            let found = Dtype::from_name(dtype).ok_or_else(|| {
                ConfigError::new_err(format!("Chiasm does not know the element type {dtype}"))
            })?;
            let block = row_elements.checked_mul(found.bits() / 8).filter(|bytes| *bytes > 0);
            let block = block.ok_or_else(|| {
                ConfigError::new_err(format!("a row of {row_elements} elements is no block"))
            })?;
            let identity = Identity::new(vllm_version, model, dtype, block);
            let identity = match fingerprint {
                Some(parts) => identity.with_fingerprint(&digest_of(&parts)),
                None => identity,
            };
            Ok(Self { identity, dtype: found })
        })
    }

    #[getter]
    fn block_size_bytes(&self) -> u64 {
        self.identity.block_size_bytes
    }

    #[getter]
    fn compat_hash(&self) -> &str {
        &self.identity.compat_hash
    }

    #[getter]
    fn fingerprint(&self) -> Option<&str> {
        self.identity.fingerprint.as_deref()
    }
}

/// SHA-256 over the parts, sorted by name: equal exactly where all parts are.
fn digest_of(parts: &BTreeMap<String, Option<String>>) -> String {
    let text = serde_json::json!(parts).to_string();
    let mut hash = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a String cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}
