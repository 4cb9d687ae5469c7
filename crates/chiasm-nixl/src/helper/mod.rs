//! A helper process, from its start to its end.
//!
//! When the socket closes, its node is gone, and it ends. It must never go on after that for longer than
//! [`AFTER_NODE_LIMIT`](crate::limits::AFTER_NODE_LIMIT), and only with what peers have under way: UCX may
//! end a process that it leaves in the middle of a read, or that begins one just then. With vLLM's own
//! connector that process is an engine (hazard B3).

mod link;
mod peers;
mod probe;
mod read;
mod serve;
#[expect(unsafe_code, reason = "unsafe fence 2: signals, and an end without destructors")]
mod watch;

use std::os::fd::OwnedFd;

use chiasm_region::{Lending, LentRegion};

use self::link::{Closed, Link};
use crate::capi::{Agent, Functions, find};
use crate::event::Event;
use crate::settings::Settings;
use crate::setup::{PROTOCOL_REVISION, Role, Setup};

/// Why a helper does not go on.
enum Stop {
    /// The node has closed the socket.
    Closed,
    /// NIXL cannot be used, for this reason.
    Refused(String),
    /// NIXL has failed in the middle of its work, for this reason: another life may fare better.
    Failed(String),
}

impl From<Closed> for Stop {
    fn from(Closed: Closed) -> Self {
        Self::Closed
    }
}

/// Be a helper process: speak with the node over standard input until it closes, then exit. To be called
/// as the whole of a program's work, on its main thread.
///
/// The exit code is 0 if the node closed the socket, 1 if NIXL cannot be used (the node has been told
/// why), 2 if nobody set this process up as a helper, 3 if NIXL failed at work (the reason is on standard
/// error).
pub fn helper_main() -> ! {
    watch::exit_now(be_helper())
}

fn be_helper() -> i32 {
    watch::close_others();
    watch::ignore_signals();
    let (mut link, setup, lent) = match Link::accept() {
        Ok(accepted) => accepted,
        Err(error) => {
            eprintln!("this is a part of Chiasm that a node starts: {error}");
            return 2;
        }
    };
    if let Err(error) = link.watch() {
        eprintln!("cannot watch the node's socket: {error}");
        return 2;
    }
    let outcome = match setup {
        Some(setup) if setup.protocol_revision == PROTOCOL_REVISION => {
            run(&mut link, &setup, &lent)
        }
        _ => Err(Stop::Refused(
            "the helper process is of another version of Chiasm than its node: start the node anew"
                .into(),
        )),
    };
    match outcome {
        Err(Stop::Refused(reason)) => {
            // If this fails, the node is gone.
            let _ = link.send_all(&Event::Refused { reason });
            1
        }
        Err(Stop::Failed(reason)) => {
            eprintln!("{reason}");
            3
        }
        Ok(()) | Err(Stop::Closed) => 0,
    }
}

fn run(link: &mut Link, setup: &Setup, lent: &[OwnedFd]) -> Result<(), Stop> {
    let (functions, library) =
        find(&setup.settings).map_err(|error| Stop::Refused(error.to_string()))?;
    let settings = &setup.settings;
    match (&setup.role, lent) {
        (Role::Serve { agent_name }, [read_only, writable]) => {
            let agent = start(functions, &library, agent_name, settings)?;
            serve::run(link, agent, agent_name, settings, library, [read_only, writable])
        }
        (Role::Read, [writable]) => {
            let agent_name = fresh_name();
            let agent = start(functions, &library, &agent_name, settings)?;
            read::run(link, agent, &agent_name, settings, library, writable)
        }
        (Role::Probe, []) => probe::run(link, functions, settings, library),
        _ => Err(Stop::Refused("the helper process was not lent the region that it needs".into())),
    }
}

/// An agent that has proven that the library is what it is taken for.
fn start(
    functions: Functions,
    library: &str,
    agent_name: &str,
    settings: &Settings,
) -> Result<Agent, Stop> {
    let refused = |error: &dyn std::fmt::Display| Stop::Refused(format!("{library}: {error}"));
    let mut agent = Agent::new(functions, agent_name, settings).map_err(|error| {
        let what = format!("{error}, the backend is {}", settings.backend.name());
        refused(&what)
    })?;
    match agent.test() {
        Ok(true) => Ok(agent),
        // A starved machine: that passes, and a refusal would not.
        Ok(false) => Err(Stop::Failed(format!("{library}: its self test did not end in time"))),
        Err(error) => Err(refused(&format!("its self test failed: {error}"))),
    }
}

/// Two lives of a reader never share a name: a peer that has seen one would take the other for it.
fn fresh_name() -> String {
    let mut random = [0; 8];
    // Without it the name is that of the process, which is fresh enough on one host.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    format!("chiasm-read-{:016x}-{}", u64::from_le_bytes(random), std::process::id())
}

/// Bytes that are faulted in between two looks at the socket, while there is nothing else to do.
const POPULATE_BYTES: usize = 1 << 20;

/// Map what was lent and register its blocks. The mapping stays for as long as the process: NIXL has its
/// address.
fn register(
    agent: &Agent,
    lent: &OwnedFd,
    lending: Lending,
) -> Result<&'static LentRegion, String> {
    let region = LentRegion::map(lent, lending).map_err(|error| error.to_string())?;
    let region: &'static LentRegion = Box::leak(Box::new(region));
    agent.register(region).map_err(|error| error.to_string())?;
    Ok(region)
}
