//! `chiasm._native`: what Python calls. The one crate that knows Python.
//!
//! It translates between Python and the node, and decides nothing. It must never let a panic into Python,
//! call Python from a thread that is not Python's, or hold the GIL while it copies or waits. What it
//! offers is written down in `python/chiasm/_native.pyi`.

mod announced;
mod asked;
mod error;
mod failed;
mod held;
mod logs;
mod metrics;
mod model;
mod names;
mod node;
mod order;
#[expect(unsafe_code, reason = "a fork has to be seen, and only the system sees it")]
mod process;
mod settings;
#[expect(unsafe_code, reason = "device tensors are addresses to us")]
mod worker;

use chiasm_core::admission::Decision;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The native part of Chiasm: what an engine's scheduler and its workers call.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    process::watch_forks();
    logs::collect();
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    for (name, decision) in [
        ("READY", Decision::Ready),
        ("WAIT", Decision::Wait),
        ("FALLBACK", Decision::Fallback),
        ("UNAVAILABLE", Decision::Unavailable),
    ] {
        module.add(name, node::number(decision))?;
    }
    let metrics = PyDict::new(py);
    for (name, kind, label, meaning) in metrics::table() {
        metrics.set_item(name, (kind, label, meaning))?;
    }
    module.add("METRICS", metrics)?;
    module.add("ConfigError", py.get_type::<error::ConfigError>())?;
    module.add("StartError", py.get_type::<error::StartError>())?;
    module.add("WorkerError", py.get_type::<error::WorkerError>())?;
    module.add_class::<settings::Settings>()?;
    module.add_class::<model::Model>()?;
    module.add_class::<order::Order>()?;
    module.add_class::<node::Node>()?;
    module.add_class::<worker::Worker>()?;
    module.add_function(wrap_pyfunction!(drain_logs, module)?)?;
    module.add_function(wrap_pyfunction!(nixl_helper, module)?)
}

/// Be a NIXL helper process. Never returns.
#[pyfunction]
fn nixl_helper(py: Python<'_>) {
    py.detach(|| chiasm_nixl::helper_main());
}

/// What Chiasm has logged in this process since the last call.
#[pyfunction]
fn drain_logs() -> Vec<logs::Line> {
    logs::drain()
}
