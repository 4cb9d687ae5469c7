//! Whether this is still the process that something was made in.
//!
//! A forked child has a copy of everything but the threads: a node without its thread, and locks that
//! somebody holds who is not there. So nothing of a parent's is ever used in a child.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks that lie between the process in which the module was loaded and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, as far as it is told apart from the children that it forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This one.
    pub(crate) fn current() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is still it. Costs a load, not a system call.
    pub(crate) fn is_here(self) -> bool {
        self == Self::current()
    }
}

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Counts forks from here on. Called once when the module is loaded.
pub(crate) fn watch_forks() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: `count_fork` is a function of this module, which Python never unloads; it touches an
        // atomic only, which is allowed in a forked child. A failure (no memory for the table) leaves
        // forks uncounted, and then a child that uses its parent's node may hang, as any library's.
        unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
    });
}
