//! An order as a worker reads it.

use chiasm_core::dispatch::{self, OrderKind};
use pyo3::prelude::*;

use crate::error::{WorkerError, raising};

/// What a worker is told to do. See [`dispatch::Order`].
#[pyclass(frozen, module = "chiasm._native")]
#[derive(Debug)]
pub(crate) struct Order(pub(crate) dispatch::Order);

#[pymethods]
impl Order {
    #[new]
    fn new(data: &[u8]) -> PyResult<Self> {
        raising(WorkerError::new_err::<&str>, || {
            let order = dispatch::Order::from_bytes(data);
            order.map(Self).map_err(|error| WorkerError::new_err(error.to_string()))
        })
    }

    #[getter]
    fn is_save(&self) -> bool {
        self.0.kind == OrderKind::Save
    }

    #[getter]
    fn dispatch(&self) -> u64 {
        self.0.dispatch.as_u64()
    }

    #[getter]
    fn rows(&self) -> u32 {
        self.0.meta.rows
    }

    #[getter]
    fn width(&self) -> u32 {
        self.0.meta.width
    }

    #[getter]
    fn dtype(&self) -> Option<String> {
        self.0.meta.dtype.map(|dtype| format!("torch.{dtype}"))
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.meta.bytes
    }

    fn __repr__(&self) -> String {
        let kind = if self.is_save() { "save" } else { "load" };
        let [rows, width] = [self.rows(), self.width()];
        format!("<chiasm.Order {kind} {} [{rows}, {width}]>", self.dispatch())
    }
}
