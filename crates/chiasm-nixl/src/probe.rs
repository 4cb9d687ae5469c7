//! Whether NIXL can be used here, found out in a helper process of its own.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::event::Event;
use crate::launch::Launch;
use crate::process::HelperProcess;
use crate::settings::Settings;
use crate::setup::Role;

/// NIXL as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The library that was loaded and has passed its test.
    pub library: String,
    /// The backend that was used.
    pub backend: String,
    /// What else the helper had to say.
    pub notes: Vec<String>,
}

/// Start a helper that tries NIXL out, and wait for what it says: 0.2 s where all is well, `limit` at
/// most. For commands, not for a node's thread. The error is a sentence.
pub fn probe(launch: &Launch, settings: &Settings, limit: Duration) -> Result<Probed, String> {
    let mut helper = HelperProcess::start(launch, settings, &Role::Probe, None)
        .map_err(|error| error.to_string())?;
    let end = Instant::now() + limit;
    let mut notes = Vec::new();
    loop {
        match helper.recv() {
            Some(Event::Ready(ready)) => {
                return Ok(Probed { library: ready.library, backend: ready.backend, notes });
            }
            Some(Event::Refused { reason }) => return Err(reason),
            Some(Event::Warning { text }) => notes.push(text),
            Some(Event::Ended(ended)) => {
                return Err(format!("the process that tried NIXL {ended}"));
            }
            Some(_) => {}
            None => {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(format!("NIXL did not answer within {} s", limit.as_secs_f64()));
                }
                let left = Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: i64::from(left.subsec_nanos()),
                };
                // A failure shows as a limit that is over.
                let _ = poll(&mut [PollFd::new(&helper, PollFlags::IN)], Some(&left));
            }
        }
    }
}
