//! One worker rank, as the engine's worker process holds it.
//!
//! It must never touch memory but that of the region, and that which a caller names for the length of one
//! call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock};

use chiasm_core::dispatch::{MAX_RANKS, OrderKind, Outcome, Rank};
use chiasm_region::{RegionOptions, WorkerError as Refused};
use pyo3::prelude::*;

use crate::error::{BUG, ConfigError, StartError, WorkerError, raising};
use crate::model::Model;
use crate::order::Order;
use crate::process::Process;
use crate::settings::Settings;

/// A worker, as the engine's worker process holds it.
#[pyclass(frozen, module = "chiasm._native")]
#[derive(Debug)]
pub(crate) struct Worker {
    /// `None` after the shutdown. Copies share it, reports have it alone: a ring has one producer.
    attached: RwLock<Option<chiasm_region::Worker>>,
    process: Process,
    rank: Rank,
    address: usize,
    bytes: u64,
    verify: bool,
}

#[pymethods]
impl Worker {
    #[new]
    #[pyo3(signature = (settings, model, *, rank = 0))]
    fn new(py: Python<'_>, settings: &Settings, model: &Model, rank: u64) -> PyResult<Self> {
        let known = u16::try_from(rank).ok().and_then(Rank::new);
        let rank = known.ok_or_else(|| {
            ConfigError::new_err(format!("rank {rank}: Chiasm has ranks 0 to {}", MAX_RANKS - 1))
        })?;
        let block_size_bytes = model.identity.block_size_bytes;
        let blocks = settings.config.region_bytes.value.0 / block_size_bytes;
        let blocks = u32::try_from(blocks).map_err(|_| {
            ConfigError::new_err(format!("ec_cpu_bytes: {blocks} blocks, more than {}", u32::MAX))
        })?;
        let options = RegionOptions::new(settings.region_name(), blocks, block_size_bytes);
        let attach = || {
            let attached = chiasm_region::Worker::attach(&options, rank);
            attached.map_err(|error| StartError::new_err(error.to_string()))
        };
        let worker = py.detach(|| raising(StartError::new_err::<&str>, attach))?;
        let region = worker.region();
        let (address, bytes) = (region.blocks_address(), region.blocks_bytes());
        let verify = settings.config.verify.value;
        let attached = RwLock::new(Some(worker));
        Ok(Self { attached, process: Process::current(), rank, address, bytes, verify })
    }

    #[getter]
    fn rank(&self) -> u16 {
        self.rank.as_u16()
    }

    #[getter]
    fn region_address(&self) -> usize {
        self.address
    }

    #[getter]
    fn region_bytes(&self) -> u64 {
        self.bytes
    }

    fn extents(&self, order: &Order) -> PyResult<Vec<(u64, u64)>> {
        self.with(|worker| {
            let ranges = worker.region().ranges(&order.0.extents, order.0.meta.bytes);
            Ok(ranges.map_err(Refused::from)?)
        })
    }

    fn save(&self, py: Python<'_>, order: &Order, address: usize, nbytes: usize) -> PyResult<()> {
        py.detach(|| {
            let copied = self.with(|worker| {
                let bytes = Memory::new(address, nbytes)?;
                // SAFETY: the caller's promise, in the stub: `nbytes` bytes at `address` are its own and
                // stay as they are until this returns. They are no part of the region, since nothing
                // gives out a tensor over that; `Memory` has checked what can be.
                let bytes = unsafe { std::slice::from_raw_parts(bytes.start, nbytes) };
                Ok(Some(worker.copy_in(&order.0, bytes)?).filter(|_| self.verify))
            });
            self.report_copy(order, OrderKind::Save, copied)
        })
    }

    fn load(&self, py: Python<'_>, order: &Order, address: usize, nbytes: usize) -> PyResult<()> {
        py.detach(|| {
            let copied = self.with(|worker| {
                let bytes = Memory::new(address, nbytes)?;
                // SAFETY: as in `save`, and nobody else reads or writes them meanwhile.
                let bytes = unsafe { std::slice::from_raw_parts_mut(bytes.start, nbytes) };
                worker.copy_out(&order.0, bytes)?;
                Ok(None)
            });
            self.report_copy(order, OrderKind::Load, copied)
        })
    }

    fn complete_saved(&self, py: Python<'_>, order: &Order) -> PyResult<()> {
        py.detach(|| {
            let digest = self.with(|worker| {
                self.verify.then(|| worker.digest(&order.0)).transpose().map_err(Trouble::from)
            });
            self.report_copy(order, OrderKind::Save, digest)
        })
    }

    fn complete(&self, py: Python<'_>, order: &Order, ok: bool) -> PyResult<()> {
        let outcome = if ok { Outcome::Done(None) } else { Outcome::Failed };
        py.detach(|| self.report(order, outcome))
    }

    fn shutdown(&self, py: Python<'_>) {
        if !self.process.is_here() {
            return;
        }
        py.detach(|| {
            let worker = self.attached.write().unwrap_or_else(PoisonError::into_inner).take();
            let _ = catch_unwind(AssertUnwindSafe(|| drop(worker)));
        });
    }

    fn __repr__(&self) -> String {
        format!("<chiasm.Worker {}>", self.rank)
    }
}

impl Worker {
    /// Lets `call` use the worker together with others that do not report.
    fn with<T>(
        &self,
        call: impl FnOnce(&chiasm_region::Worker) -> Result<T, Trouble>,
    ) -> PyResult<T> {
        self.here()?;
        let worker = self.attached.read().unwrap_or_else(PoisonError::into_inner);
        let worker = worker.as_ref().ok_or_else(shut_down)?;
        let answer = catch_unwind(AssertUnwindSafe(|| call(worker)));
        let answer = answer.map_err(|_| WorkerError::new_err(BUG))?;
        answer.map_err(|error| WorkerError::new_err(error.to_string()))
    }

    /// Reports how a copy ended. One that failed is reported as well, unless the order is none of ours.
    fn report_copy(
        &self,
        order: &Order,
        kind: OrderKind,
        copied: PyResult<Option<chiasm_core::digest::Digest>>,
    ) -> PyResult<()> {
        let ours = order.0.kind == kind && order.0.ranks.has(self.rank);
        match copied {
            Ok(digest) => self.report(order, Outcome::Done(digest)),
            Err(error) => {
                if ours && self.here().is_ok() {
                    // The copy's error says more than that of its report.
                    let _ = self.report(order, Outcome::Failed);
                }
                Err(error)
            }
        }
    }

    fn report(&self, order: &Order, outcome: Outcome) -> PyResult<()> {
        self.here()?;
        let mut worker = self.attached.write().unwrap_or_else(PoisonError::into_inner);
        let worker = worker.as_mut().ok_or_else(shut_down)?;
        let receipt = order.0.receipt();
        let reported = catch_unwind(AssertUnwindSafe(|| worker.complete(receipt, outcome)));
        let reported = reported.map_err(|_| WorkerError::new_err(BUG))?;
        reported.map_err(|error| WorkerError::new_err(error.to_string()))
    }

    fn here(&self) -> PyResult<()> {
        if self.process.is_here() {
            return Ok(());
        }
        let text = "this process was forked from the worker's: it is no worker";
        Err(WorkerError::new_err(text))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.process.is_here() {
            // The rank is the parent's; the mapping goes with this process.
            let worker = self.attached.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(worker.take());
        }
    }
}

fn shut_down() -> PyErr {
    WorkerError::new_err("the worker has been shut down")
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("{nbytes} bytes at address {address:#x} are no memory")]
    NoMemory { address: usize, nbytes: usize },
}

/// Memory that a caller names, as far as it can be checked: not at null, and inside the address space.
struct Memory {
    start: *mut u8,
}

impl Memory {
    fn new(address: usize, nbytes: usize) -> Result<Self, Trouble> {
        let fits = isize::try_from(nbytes).is_ok() && address.checked_add(nbytes).is_some();
        if address == 0 || !fits {
            return Err(Trouble::NoMemory { address, nbytes });
        }
        Ok(Self { start: std::ptr::with_exposed_provenance_mut(address) })
    }
}
