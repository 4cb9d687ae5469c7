//! Signals that ask a command to stop. It then unwinds normally, so that its region is removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::exit::Failure;

/// Whether SIGINT, SIGTERM or SIGHUP has come, and whether more than one: whoever sends a second one
/// does not want to wait. Both end the command in order. Terminals that close and service managers
/// send several in a row, so only a SIGINT after two signals ends the process where it stands: a
/// person is impatient. What that leaves behind is removed by the next start.
#[derive(Debug)]
pub(crate) struct StopSignal {
    came: Arc<AtomicBool>,
    again: Arc<AtomicBool>,
    receiver: Receiver<()>,
}

impl StopSignal {
    /// Takes the signals over. Call it before anything is made that has to be removed again.
    pub(crate) fn install() -> Result<Self, Failure> {
        let came = Arc::new(AtomicBool::new(false));
        let again = Arc::new(AtomicBool::new(false));
        flag::register_conditional_shutdown(SIGINT, 1, Arc::clone(&again))
            .map_err(Failure::work)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, Arc::clone(&came)).map_err(Failure::work)?;
        }
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Failure::work)?;
        let (sender, receiver) = channel();
        std::thread::Builder::new()
            .name("chiasm-signals".into())
            .spawn({
                let again = Arc::clone(&again);
                move || {
                    for (number, _) in signals.forever().enumerate() {
                        again.store(number > 0, Ordering::Relaxed);
                        let _ = sender.send(());
                    }
                }
            })
            .map_err(Failure::work)?;
        Ok(Self { came, again, receiver })
    }

    /// Whether to stop.
    pub(crate) fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }

    /// Whether to stop without waiting for anything.
    pub(crate) fn came_again(&self) -> bool {
        self.again.load(Ordering::Relaxed)
    }

    /// Waits for a signal, at most for `limit`.
    pub(crate) fn wait(&self, limit: Option<Duration>) {
        match limit {
            None => {
                let _ = self.receiver.recv();
            }
            Some(limit) => match self.receiver.recv_timeout(limit) {
                Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            },
        }
    }
}
