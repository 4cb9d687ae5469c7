//! The scheduler's side of one instance.
//!
//! It translates and decides nothing, but for the careful answers where the core cannot be asked. After
//! construction nothing here raises for what clients, peers or our own faults bring about.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chiasm_core::admission::limits::MAX_REQUEST_ID_BYTES;
use chiasm_core::admission::{Decision, Item, Offer};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::cache::ReserveError;
use chiasm_core::dispatch::{self, DispatchError, MAX_RANKS, Rank, RankSet};
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::entry::EntryMeta;
use chiasm_node::{NixlConfig, NodeConfig};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySequence, PyString};

use crate::asked::{self, Known, saturated};
use crate::error::{ConfigError, StartError, raising};
use crate::failed::Failed;
use crate::held::Held;
use crate::metrics;
use crate::model::Model;
use crate::names;
use crate::settings::Settings;

/// The decisions, as the stub names them.
pub(crate) const fn number(decision: Decision) -> u8 {
    match decision {
        Decision::Ready => 0,
        Decision::Wait => 1,
        Decision::Fallback => 2,
        Decision::Unavailable => 3,
    }
}

/// Longest time that a shutdown waits for peers: a day, as every time that can be set.
const LONGEST_DRAIN_S: f64 = 86_400.0;

/// A node, as the engine's scheduler holds it.
#[pyclass(frozen, module = "chiasm._native")]
#[derive(Debug)]
pub(crate) struct Node {
    held: Held,
    endpoint: Option<Endpoint>,
    known: Known,
    ranks: RankSet,
    reads: bool,
    failed: Mutex<Failed>,
}

/// How this node's NIXL helper processes are started, if it comes to that: by the interpreter that runs,
/// which is also where NIXL is looked for.
fn nixl(py: Python<'_>, settings: &Settings) -> PyResult<NixlConfig> {
    let sys = py.import("sys")?;
    let executable: PathBuf = sys.getattr("executable")?.extract()?;
    let prefix: PathBuf = sys.getattr("prefix")?.extract()?;
    let mut nixl = chiasm_nixl::Settings::from(&settings.config.nixl);
    nixl.python_prefixes = vec![prefix];
    let agent_name = settings.engine_id.agent_name(settings.data_parallel_index);
    Ok(NixlConfig { launch: chiasm_nixl::Launch::python(executable), settings: nixl, agent_name })
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(signature = (settings, model, *, ranks = 1))]
    fn new(py: Python<'_>, settings: &Settings, model: &Model, ranks: u64) -> PyResult<Self> {
        let first = u16::try_from(ranks).ok().and_then(RankSet::first);
        let ranks = first.ok_or_else(|| {
            ConfigError::new_err(format!("{ranks} ranks: Chiasm has 1 to {MAX_RANKS}, on one host"))
        })?;
        let identity = model.identity.clone();
        let mut config =
            NodeConfig::of_operator(&settings.config, identity, &settings.region_name());
        config.nixl = Some(nixl(py, settings)?);
        let block_size_bytes = model.identity.block_size_bytes;
        let region_blocks = saturated(config.region_bytes / block_size_bytes);
        let start = || {
            chiasm_node::Node::start(&config)
                .map_err(|error| StartError::new_err(error.to_string()))
        };
        let node = py.detach(|| raising(StartError::new_err::<&str>, start))?;
        let endpoint = node.endpoint().cloned();
        let known = Known { dtype: model.dtype, block_size_bytes, region_blocks };
        let (reads, failed) = (settings.reads(), Mutex::default());
        Ok(Self { held: Held::new(node), endpoint, known, ranks, reads, failed })
    }

    #[getter]
    fn endpoint(&self) -> Option<String> {
        self.endpoint.as_ref().map(ToString::to_string)
    }

    #[getter]
    fn host(&self) -> Option<String> {
        self.endpoint.as_ref().map(|endpoint| endpoint.host().to_string())
    }

    #[getter]
    fn port(&self) -> Option<u16> {
        self.endpoint.as_ref().map(Endpoint::port)
    }

    #[getter]
    fn absent_ranks(&self) -> Vec<u16> {
        let absent = |node: &chiasm_node::Node| {
            self.ranks.iter().filter(|rank| !node.has_worker(*rank)).map(Rank::as_u16).collect()
        };
        self.held.ask(absent).unwrap_or_default()
    }

    fn ensure(
        &self,
        request_id: &Bound<'_, PyString>,
        n_items: usize,
        num_computed_tokens: u64,
    ) -> Option<u8> {
        let (id, computed) = (names::text(request_id), saturated(num_computed_tokens));
        let decision = self.held.ask(|node| node.ensure(&id, n_items, computed)).flatten();
        decision.map(number)
    }

    fn track(
        &self,
        request_id: &Bound<'_, PyString>,
        items: &Bound<'_, PySequence>,
        params: &Bound<'_, PyAny>,
        num_computed_tokens: u64,
    ) -> PyResult<u8> {
        let (id, computed) = (names::text(request_id), saturated(num_computed_tokens));
        let items = asked::items(items, params, &self.known)?;
        // Small, and needed only where the core cannot be asked.
        let bare: Vec<Bare> = items.iter().map(Bare::of).collect();
        let decision = self.held.ask(|node| {
            let given = items.len();
            match node.track(&id, items) {
                Ok(()) => node.ensure(&id, given, computed).unwrap_or(Decision::Unavailable),
                Err(untracked) => untracked.decision,
            }
        });
        // The core does not report an id that is too long to be kept there.
        if decision == Some(Decision::Unavailable) && id.len() > MAX_REQUEST_ID_BYTES {
            self.failed().add(&id);
        }
        Ok(number(decision.unwrap_or_else(|| self.decide_alone(&id, &bare, computed))))
    }

    fn fallbacks<'py>(
        &self,
        py: Python<'py>,
        request_id: &Bound<'_, PyString>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let id = names::text(request_id);
        let hashes = self.held.ask_anyhow(|node| node.fell_back(&id)).unwrap_or_default();
        hashes.iter().map(|hash| names::to_python(py, hash.as_str())).collect()
    }

    fn has_promised(&self, identifier: &Bound<'_, PyString>) -> bool {
        self.promises(names::mm_hash(identifier).as_str())
    }

    fn has_entry(&self, identifier: &Bound<'_, PyString>) -> bool {
        let hash = names::mm_hash(identifier);
        self.held.ask_anyhow(|node| node.has_entry(hash.as_str())).unwrap_or(false)
    }

    #[pyo3(signature = (identifier, rows, width, dtype = None))]
    fn dispatch_save<'py>(
        &self,
        py: Python<'py>,
        identifier: &Bound<'_, PyString>,
        rows: u64,
        width: u64,
        dtype: Option<&str>,
    ) -> Option<Bound<'py, PyBytes>> {
        let hash = names::mm_hash(identifier);
        let Some(meta) = self.meta(rows, width, dtype) else {
            let (hash, dtype) = (hash.short(), dtype.unwrap_or("the model's"));
            tracing::warn!(
                mm_hash = hash,
                rows,
                width,
                dtype,
                "not saved: nothing of this form can be"
            );
            return None;
        };
        let order = self.held.ask(|node| node.dispatch_save(&hash, meta, Rank::ZERO))?;
        match order {
            Ok(order) => Some(PyBytes::new(py, &order.to_bytes())),
            Err(error) => {
                say_not_saved(hash.short(), &error);
                None
            }
        }
    }

    fn dispatch_load<'py>(
        &self,
        py: Python<'py>,
        identifier: &Bound<'_, PyString>,
    ) -> Option<Bound<'py, PyBytes>> {
        let hash = names::mm_hash(identifier);
        let ranks = self.ranks;
        let order = self.held.ask_anyhow(|node| node.dispatch_load(hash.as_str(), ranks))?;
        match order {
            Ok(order) => Some(PyBytes::new(py, &order.to_bytes())),
            Err(error) => {
                tracing::warn!(mm_hash = hash.short(), "not loaded: {error}");
                None
            }
        }
    }

    fn discard(&self, order: &[u8]) {
        self.end(order, chiasm_node::Node::discard);
    }

    fn withdraw(&self, order: &[u8]) {
        self.end(order, chiasm_node::Node::withdraw);
    }

    fn announce<'py>(
        &self,
        py: Python<'py>,
        identifier: &Bound<'_, PyString>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let hash = names::mm_hash(identifier);
        // Under another name than its own nobody could ask for it.
        if names::text(identifier) != hash.as_str() {
            return Ok(None);
        }
        let remote = self.held.ask(|node| node.announce(hash.as_str())).flatten();
        let Some(remote) = remote else { return Ok(None) };
        let fields = PyDict::new(py);
        fields.set_item("peer_host", remote.source.host().to_string())?;
        fields.set_item("peer_port", remote.source.port())?;
        fields.set_item("size_bytes", remote.size_bytes)?;
        fields.set_item("shape", [remote.rows, remote.width])?;
        Ok(Some(fields))
    }

    fn release(&self, request_id: &Bound<'_, PyString>, identifier: &Bound<'_, PyString>) {
        let (id, hash) = (names::text(request_id), names::mm_hash(identifier));
        self.held.ask_anyhow(|node| node.release(&id, hash.as_str()));
    }

    fn finish(&self, request_id: &Bound<'_, PyString>) {
        let id = names::text(request_id);
        self.held.ask_anyhow(|node| node.finish(&id));
        self.failed().forget(&id);
    }

    fn take_unavailable_requests<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let ids = self.held.ask_anyhow(chiasm_node::Node::take_unavailable_requests);
        let mut ids: Vec<String> =
            ids.unwrap_or_default().iter().map(|id| id.as_ref().to_owned()).collect();
        for id in self.failed().take() {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids.iter().map(|id| names::to_python(py, id)).collect()
    }

    #[getter]
    fn outstanding(&self) -> usize {
        let out = self.held.ask_anyhow(chiasm_node::Node::outstanding).unwrap_or_default();
        out.saves + out.loads
    }

    #[expect(clippy::needless_pass_by_value, reason = "what comes from Python is a copy")]
    fn set_allowed_peers(&self, peers: Vec<String>) -> PyResult<()> {
        let allowed = Allowlist::parse(peers.iter().map(String::as_str)).map_err(|problems| {
            let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
            ConfigError::new_err(lines.join("\n"))
        })?;
        if self.reads {
            self.held.ask(|node| node.set_allowlist(allowed));
        } else {
            tracing::warn!(
                "ec_allowed_peers has no effect: this instance does not read from others"
            );
        }
        Ok(())
    }

    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let values = PyDict::new(py);
        for (name, value) in self.held.ask_anyhow(metrics::of).unwrap_or_default() {
            values.set_item(name, value)?;
        }
        Ok(values)
    }

    #[getter]
    fn news(&self) -> u64 {
        self.held.ask_anyhow(chiasm_node::Node::news).unwrap_or_default()
    }

    fn wait(&self, py: Python<'_>, seen: u64, limit_s: f64) {
        if let Some(node) = self.held.node() {
            py.detach(|| node.wait(seen, seconds(limit_s)));
        }
    }

    #[getter]
    fn is_stopped(&self) -> bool {
        self.held.is_stopped()
    }

    #[pyo3(signature = (limit_s = 0.0))]
    fn shutdown(&self, py: Python<'_>, limit_s: f64) {
        py.detach(|| {
            if let Some(node) = self.held.node() {
                let limit = seconds(limit_s);
                let drain = std::panic::AssertUnwindSafe(|| node.drain(limit, || true));
                // What is left is said in the log; a panic ends in the same way as its end.
                let _ = std::panic::catch_unwind(drain);
            }
            self.held.let_go();
        });
    }

    /// Breaks the node as a bug of ours would. FOR TESTS.
    fn break_for_test(&self) {
        self.held.ask_anyhow(|_| panic!("broken for a test"));
    }

    fn __repr__(&self) -> String {
        let endpoint = self.endpoint().unwrap_or_else(|| "no socket".into());
        let stopped = if self.is_stopped() { ", stopped" } else { "" };
        format!("<chiasm.Node {endpoint}{stopped}>")
    }
}

impl Node {
    fn failed(&self) -> MutexGuard<'_, Failed> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn promises(&self, hash: &str) -> bool {
        self.held.ask_anyhow(|node| node.has_promised(hash)).unwrap_or(false)
    }

    /// Without the core: what is computed, promised, or can be encoded here is; the rest fails.
    fn decide_alone(&self, id: &str, items: &[Bare], computed: u32) -> Decision {
        let mut decision = Decision::Ready;
        let mut failed = self.failed();
        for item in items {
            if item.end <= computed || self.promises(&item.hash) {
                continue;
            }
            if !item.local_input || failed.has(id) {
                failed.add(id);
                return Decision::Unavailable;
            }
            if item.announced {
                decision = Decision::Fallback;
            }
        }
        decision
    }

    fn meta(&self, rows: u64, width: u64, dtype: Option<&str>) -> Option<EntryMeta> {
        let dtype = dtype.map_or(Some(self.known.dtype), Dtype::from_name)?;
        let (rows, width) = (u32::try_from(rows).ok()?, u32::try_from(width).ok()?);
        EntryMeta::new(rows, width, dtype).filter(|meta| meta.bytes > 0)
    }

    fn end(&self, order: &[u8], end: impl FnOnce(&chiasm_node::Node, dispatch::DispatchId)) {
        match dispatch::Order::from_bytes(order) {
            Ok(order) => {
                self.held.ask_anyhow(|node| end(node, order.dispatch));
            }
            Err(error) => tracing::error!("not given up: {error}"),
        }
    }
}

/// What of an item is needed to decide without the core.
#[derive(Debug)]
struct Bare {
    hash: String,
    end: u32,
    local_input: bool,
    announced: bool,
}

impl Bare {
    fn of(item: &Item) -> Self {
        Self {
            hash: item.hash.as_str().to_owned(),
            end: item.end,
            local_input: item.local_input,
            announced: item.offer != Offer::None,
        }
    }
}

fn say_not_saved(mm_hash: &str, error: &DispatchError) {
    match error {
        DispatchError::Reserve(ReserveError::Duplicate { .. }) => {}
        DispatchError::Reserve(ReserveError::Full { .. }) => {
            tracing::info!(mm_hash, "not saved: {error}");
        }
        _ => tracing::warn!(mm_hash, "not saved: {error}"),
    }
}

/// A time from Python, which has no bad ones: what is no time is none.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.min(LONGEST_DRAIN_S)).unwrap_or_default()
}
