//! *serve*: peers read this node's region, and say when they are done.
//!
//! It must never load a byte of a peer's, and never make progress while no grant over nixl is live. What
//! was granted it serves on when its node is gone: nobody is left to change those blocks.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use chiasm_region::{Lending, LentRegion};

use super::link::Link;
use super::{POPULATE_BYTES, Stop, register};
use crate::capi::Agent;
use crate::command::Command;
use crate::event::{Event, Ready};
use crate::limits::{AFTER_NODE_LIMIT, MAX_NOTIFICATION_BYTES};
use crate::settings::Settings;

/// Pause between two looks at NIXL while a grant is live: connections are made, and over tcp bytes are
/// moved, in these looks only.
const PAUSE: Duration = Duration::from_micros(50);

/// Pause when nothing has been heard for [`LIVELY`]: 3 % of a core instead of 12, and over tcp the
/// socket's buffers hold more than is sent meanwhile.
const LONG_PAUSE: Duration = Duration::from_micros(250);

/// How long looks are close together after a grant or a notification.
const LIVELY: Duration = Duration::from_millis(50);

pub(super) fn run(
    link: &mut Link,
    mut agent: Agent,
    agent_name: &str,
    settings: &Settings,
    library: String,
    [read_only, writable]: [&OwnedFd; 2],
) -> Result<(), Stop> {
    let (region, is_read_only) = match register(&agent, read_only, Lending::ReadOnly) {
        Ok(region) => (region, true),
        Err(refusal) => {
            let region = register(&agent, writable, Lending::ReadWrite)
                .map_err(|error| Stop::Refused(format!("{library}: {error}")))?;
            let text = format!(
                "NIXL does not register the region read-only ({refusal}): it is registered for \
                 writing too, and any peer that is granted a read can also write into it"
            );
            link.send_all(&Event::Warning { text })?;
            (region, false)
        }
    };
    let agent_metadata =
        agent.metadata().map_err(|error| Stop::Refused(format!("{library}: {error}")))?;
    link.send_all(&Event::Ready(Ready {
        agent_name: agent_name.into(),
        agent_metadata,
        base_address: region.blocks_address() as u64,
        blocks_bytes: region.blocks_bytes() as u64,
        read_only: is_read_only,
        backend: settings.backend.name().into(),
        library,
    }))?;

    let mut live = false;
    let Err(stop) = serve(link, &mut agent, &mut live, region);
    if live && matches!(stop, Stop::Closed) {
        finish(&mut agent, read_only);
    }
    Err(stop)
}

/// Until the node is gone or NIXL fails. `live`: whether a grant over nixl is.
fn serve(
    link: &mut Link,
    agent: &mut Agent,
    live: &mut bool,
    region: &LentRegion,
) -> Result<Infallible, Stop> {
    let mut lost = 0;
    let mut pinged = false;
    let mut last_news = Instant::now();
    loop {
        while let Some(command) = link.receive()? {
            match command {
                Command::Live(now) => {
                    *live = now;
                    link.set_unfinished(now);
                    last_news = Instant::now();
                }
                Command::Ping => pinged = true,
                Command::LoadPeer { .. } | Command::ForgetPeer { .. } | Command::Read { .. } => {
                    let text = "a serving helper process reads from nobody".into();
                    link.send_all(&Event::Warning { text })?;
                }
            }
        }
        if *live && !link.is_full() {
            let mut heard = false;
            let progressed = agent.progress(|name, text| {
                heard = true;
                let told = text.len() <= MAX_NOTIFICATION_BYTES
                    && link
                        .push(&Event::Notification { agent_name: name.into(), text: text.into() });
                lost += u64::from(!told);
            });
            if let Err(error) = progressed {
                // A peer's doing, perhaps: no reason to serve nobody from here on.
                return Err(Stop::Failed(error.to_string()));
            }
            if heard {
                last_news = Instant::now();
            }
        }
        let pause = if last_news.elapsed() < LIVELY { PAUSE } else { LONG_PAUSE };
        if lost > 0 && link.push(&Event::NotificationLost { count: lost }) {
            lost = 0;
        }
        if pinged && link.push(&Event::Pong) {
            pinged = false;
        }
        link.flush()?;
        if !*live && region.populate(POPULATE_BYTES) {
            continue;
        }
        link.wait((*live && !link.is_full()).then_some(pause))?;
    }
}

/// The node is gone while something was granted: a peer may be about to read it. Until the time is over,
/// or the next life of the node has taken the region's name and needs the memory.
fn finish(agent: &mut Agent, region: &OwnedFd) {
    let gone = Instant::now();
    let has_name = || rustix::fs::fstat(region).is_ok_and(|stat| stat.st_nlink > 0);
    while gone.elapsed() < AFTER_NODE_LIMIT && has_name() && agent.progress(|_, _| {}).is_ok() {
        thread::sleep(LONG_PAUSE);
    }
}
