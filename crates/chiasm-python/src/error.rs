//! The exceptions that Python sees, and what becomes one of them.

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};

create_exception!(
    chiasm._native,
    ConfigError,
    PyValueError,
    "The configuration cannot be used. The text has one line for each problem."
);
create_exception!(
    chiasm._native,
    StartError,
    PyRuntimeError,
    "A node or a worker could not start; nothing is left behind. The text names the remedy."
);
create_exception!(
    chiasm._native,
    WorkerError,
    PyRuntimeError,
    "A worker did not do what it was asked, or bytes are no order."
);

/// A bug of ours, where an exception may be raised.
pub(crate) const BUG: &str = "a bug in Chiasm: please report what was written before this line";

/// Runs what may raise. A panic becomes the exception `error`: none ever crosses into Python.
pub(crate) fn raising<T>(
    error: impl FnOnce(&'static str) -> PyErr,
    call: impl FnOnce() -> Result<T, PyErr>,
) -> Result<T, PyErr> {
    let call = std::panic::AssertUnwindSafe(call);
    std::panic::catch_unwind(call).unwrap_or_else(|_| Err(error(BUG)))
}
