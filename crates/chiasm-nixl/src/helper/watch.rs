//! What ends a helper from outside: its socket, and nothing else but SIGKILL.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::limits::AFTER_NODE_LIMIT;

/// How long the main thread has to see by itself that the node is gone, where nothing is under way.
const MAIN_THREAD_LIMIT: Duration = Duration::from_secs(1);

/// Pause between two looks at whether it still has time.
const PAUSE: Duration = Duration::from_millis(10);

/// End this process after the socket's other end is gone, also while its main thread is inside NIXL. With
/// `unfinished` set it has [`AFTER_NODE_LIMIT`] until then.
pub(super) fn end_with(socket: OwnedFd, unfinished: Arc<AtomicBool>) -> io::Result<()> {
    thread::Builder::new()
        .name("chiasm-watch".into())
        .stack_size(64 * 1024)
        .spawn(move || {
            // Nothing is asked for: what is reported anyway is a hang-up or an error.
            while poll(&mut [PollFd::new(&socket, PollFlags::RDHUP)], None) != Ok(1) {}
            let gone = Instant::now();
            loop {
                let is_unfinished = unfinished.load(Ordering::Relaxed);
                let limit = if is_unfinished { AFTER_NODE_LIMIT } else { MAIN_THREAD_LIMIT };
                if gone.elapsed() >= limit {
                    exit_now(0);
                }
                thread::sleep(PAUSE);
            }
        })
        .map(drop)
}

/// End without anything else.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process without running anything of NIXL's or UCX's, whose threads and destructors
    // may be in any state.
    unsafe { libc::_exit(code) }
}

/// Signals that are meant for the node (a terminal's interrupt, a service manager's stop) come to its
/// helpers as well. The node drains, and needs them meanwhile; they end with it.
pub(super) fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        // SAFETY: no handler is installed, so nothing of ours runs in a signal's context.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Closes every descriptor but standard input, output and error. What the node's process has open without
/// "close on exec" (a driver's devices, other libraries' sockets and locks) is not for a helper to keep, nor
/// for what may take it over. Before Linux 5.9 they stay.
///
/// To be called first: what is opened afterwards stays.
pub(super) fn close_others() {
    // SAFETY: three numbers. Nothing in this process has opened a descriptor that it still uses.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
}
