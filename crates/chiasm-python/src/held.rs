//! The node behind Python's `Node`, and what is answered where it cannot be asked.
//!
//! The rules of every call: a panic stops the connector, never the engine (it is logged once, and nothing
//! is read from others or saved any more); after a shutdown, after such a panic for what it could have
//! broken, and in a forked child there is a careful answer instead.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use chiasm_core::allowlist::Allowlist;
use chiasm_node::Node;

use crate::process::Process;

#[derive(Debug)]
pub(crate) struct Held {
    /// `None` after the shutdown. Locked for writing for an instant only.
    node: RwLock<Option<Arc<Node>>>,
    process: Process,
    broken: AtomicBool,
}

impl Held {
    pub(crate) fn new(node: Node) -> Self {
        let node = RwLock::new(Some(Arc::new(node)));
        Self { node, process: Process::current(), broken: AtomicBool::new(false) }
    }

    /// Whether something inside has panicked.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Whether it does no work any more.
    pub(crate) fn is_stopped(&self) -> bool {
        let gone = || self.node.read().unwrap_or_else(PoisonError::into_inner).is_none();
        !self.process.is_here() || self.is_broken() || gone()
    }

    /// The answer of a node in order; `None` if there is none, or if it breaks.
    pub(crate) fn ask<T>(&self, call: impl FnOnce(&Node) -> T) -> Option<T> {
        if self.is_broken() { None } else { self.ask_anyhow(call) }
    }

    /// The same of a node that may be broken: for what an engine relies on already, and for the ends of
    /// what was begun.
    pub(crate) fn ask_anyhow<T>(&self, call: impl FnOnce(&Node) -> T) -> Option<T> {
        if !self.process.is_here() {
            return None;
        }
        let node = self.node.read().unwrap_or_else(PoisonError::into_inner);
        let node = node.as_deref()?;
        let answer = catch_unwind(AssertUnwindSafe(|| call(node)));
        if answer.is_err() {
            self.stop_reading(node);
        }
        answer.ok()
    }

    fn stop_reading(&self, node: &Node) {
        if self.broken.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::error!(
            "a bug in Chiasm: please report what was written before this line. Nothing is read from \
             others or saved any more; requests are encoded here, or fail"
        );
        // It may be the allowlist that is broken.
        let _ = catch_unwind(AssertUnwindSafe(|| node.set_allowlist(Allowlist::default())));
    }

    /// The node, for a call that takes long.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        if !self.process.is_here() {
            return None;
        }
        self.node.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets go of the node: it stops when nobody else has it. Whether it was there.
    pub(crate) fn let_go(&self) -> bool {
        if !self.process.is_here() {
            return false;
        }
        let node = self.node.write().unwrap_or_else(PoisonError::into_inner).take();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(node.is_some().then_some(node))));
        dropped.is_ok()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.process.is_here() {
            // Its thread is not in this process: it cannot be waited for.
            let node = self.node.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(node.take());
        }
    }
}
