//! The helper through which others read this node's region. It is started with the node, never killed to
//! abort anything, and started again when it has died, which costs its readers a retry.

use std::time::Duration;

use chiasm_core::producer::NixlAgent;
use chiasm_core::time::Nanos;
use chiasm_core::wire::Progression;
use chiasm_nixl::{Command, Ended, Event, HelperProcess, Ready, Role, SendError};

use super::pulse::{Beat, Pulse};
use super::rest::Rest;
use super::{EVENTS_PER_TURN, NixlConfig};
use crate::clock;
use crate::poller::{Interest, Poller};
use crate::random;
use crate::shared::Shared;
use crate::throttle::Throttle;
use crate::token::{Source, token};

/// How long a helper may take to be up. It takes half a second at most where nothing is wrong.
const START_LIMIT: Duration = Duration::from_secs(30);

/// The number of the serve helper among the node's helpers.
pub(crate) const SERVE_ID: u64 = 0;

#[derive(Debug)]
struct Running {
    process: HelperProcess,
    started: Nanos,
    /// The life of its agent, once that is up.
    life: Option<u64>,
    /// What it was told last about live grants.
    live: bool,
    /// It has been killed, because it took too long to be up, or hangs.
    killed: bool,
    pulse: Pulse,
}

impl Running {
    /// When it is killed unless it is up.
    fn start_limit(&self) -> Nanos {
        let waits = self.life.is_none() && !self.killed;
        if waits { self.started.after(START_LIMIT) } else { Nanos::NEVER }
    }
}

/// How the helper stands, for the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServeState {
    /// This node does not serve over nixl.
    Off,
    Starting,
    Up,
    /// It has died and is started again soon.
    Resting,
    /// NIXL cannot be used here.
    Refused,
}

impl ServeState {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Resting => "resting",
            Self::Refused => "refused",
        }
    }
}

/// The serve helper of a node, if it has one.
#[derive(Debug)]
pub(crate) struct ServeHelper {
    config: Option<NixlConfig>,
    running: Option<Running>,
    rest: Rest,
    refused: bool,
    /// NIXL may be of use after all when a helper says that it is not: one has been up, or ports are few.
    refusals_pass: bool,
    deaths: u64,
    /// There may be events that have been read from its socket and not been taken.
    more: bool,
    lost: Throttle,
}

impl ServeHelper {
    /// `config` is `None` where this node does not serve over nixl.
    pub(crate) fn new(config: Option<NixlConfig>) -> Self {
        let refusals_pass = config.as_ref().is_some_and(NixlConfig::refusals_may_pass);
        Self {
            config,
            running: None,
            rest: Rest::default(),
            refused: false,
            refusals_pass,
            deaths: 0,
            more: false,
            lost: Throttle::default(),
        }
    }

    /// What peers know this node's agent by, if it serves over nixl.
    pub(crate) fn agent_name(&self) -> Option<&str> {
        self.config.as_ref().map(|config| config.agent_name.as_str())
    }

    /// Starts the helper if it should run and does not.
    fn start(&mut self, now: Nanos, shared: &Shared, poller: &Poller) {
        let Some(config) = &self.config else { return };
        if self.running.is_some() || self.refused || !self.rest.is_over(now) {
            return;
        }
        let role = Role::Serve { agent_name: config.agent_name.clone() };
        let region = Some(&shared.region);
        let started = HelperProcess::start(&config.launch, &config.settings, &role, region);
        let process = started.map_err(|error| error.to_string()).and_then(|process| {
            let source = token(Source::Nixl, SERVE_ID);
            let added = poller.add(&process, source, Interest::READ);
            added.map(|()| process).map_err(|error| error.to_string())
        });
        match process {
            Ok(process) => {
                tracing::debug!(process = process.id(), "NIXL serve helper started");
                self.running = Some(Running {
                    process,
                    started: now,
                    life: None,
                    live: false,
                    killed: false,
                    pulse: Pulse::default(),
                });
            }
            Err(error) => {
                tracing::warn!(%error, "no NIXL serve helper: it is tried again");
                self.rest.died(now, now);
            }
        }
    }

    /// Its descriptor is ready.
    pub(crate) fn ready(&mut self, shared: &Shared) {
        self.more = true;
        for _ in 0..EVENTS_PER_TURN {
            let Some(running) = &mut self.running else { break };
            let Some(event) = running.process.recv() else {
                self.more = false;
                break;
            };
            let now = clock::now();
            match event {
                Event::Ready(ready) => self.up(&ready, shared),
                // Another life may fare better, perhaps when a port is free again.
                Event::Refused { reason } if self.refusals_pass => {
                    tracing::warn!("the NIXL serve helper gives up: {reason}");
                    running.killed = true;
                    running.process.kill();
                }
                Event::Refused { reason } => {
                    self.refused = true;
                    shared.core().without_nixl();
                    tracing::warn!("nothing is served over nixl: {reason}");
                }
                Event::Notification { agent_name, text } => {
                    let Some(life) = running.life else { continue };
                    tracing::trace!(agent = agent_name, bytes = text.len(), "NIXL completion");
                    shared.core().completed(now, life, &text);
                    shared.notify();
                }
                Event::NotificationLost { count } => {
                    if let Some(left_out) = self.lost.pass(now) {
                        let what = "NIXL completions were lost: their grants end by lease";
                        tracing::warn!(count, left_out, "{what}");
                    }
                }
                Event::Warning { text } => tracing::warn!("NIXL serve helper: {text}"),
                Event::Pong => running.pulse.answered(),
                Event::Ended(ended) => self.ended(now, &ended, shared),
                Event::Loaded { .. }
                | Event::LoadFailed { .. }
                | Event::ReadDone { .. }
                | Event::ReadFailed { .. } => {}
            }
        }
    }

    fn up(&mut self, ready: &Ready, shared: &Shared) {
        let Some(running) = &mut self.running else { return };
        let block = shared.region.block_size_bytes();
        let blocks = shared.region.blocks();
        let region = Progression::new(ready.base_address, block, block, blocks, 0);
        let life = random::word().map(|word| word.max(1));
        match (region, life) {
            (Ok(region), Ok(life)) => {
                running.life = Some(life);
                self.refusals_pass = true;
                let metadata = ready.agent_metadata.as_slice().into();
                tracing::info!(
                    agent = ready.agent_name,
                    backend = ready.backend,
                    library = ready.library,
                    process = running.process.id(),
                    read_only = ready.read_only,
                    "serving over nixl"
                );
                shared.core().agent_up(NixlAgent { life, metadata, region });
            }
            (Err(error), _) => {
                tracing::error!(%error, "the NIXL serve helper's region cannot be: it is ended");
                running.process.kill();
            }
            (_, Err(error)) => {
                tracing::error!(%error, "no randomness: the NIXL serve helper is ended");
                running.process.kill();
            }
        }
    }

    fn ended(&mut self, now: Nanos, ended: &Ended, shared: &Shared) {
        let Some(running) = self.running.take() else { return };
        self.more = false;
        shared.core().agent_down();
        if self.refused {
            return;
        }
        self.deaths += 1;
        self.rest.died(now, running.started);
        tracing::warn!(
            process = running.process.id(),
            "the NIXL serve helper {ended}; it is started again, readers ask again"
        );
    }

    /// Tells the helper whether grants are live: only then does it make progress.
    fn follow_grants(&mut self, shared: &Shared) {
        let Some(running) = self.running.as_mut().filter(|running| running.life.is_some()) else {
            return;
        };
        let live = shared.core().producer().nixl_grants() > 0;
        if live != running.live && running.process.send(&Command::Live(live)).is_ok() {
            running.live = live;
        }
    }

    /// A helper that hangs would cost every reader its time-out, and be offered to the next.
    fn feel_pulse(&mut self, now: Nanos) {
        let Some(running) = self.running.as_mut().filter(|it| it.life.is_some() && !it.killed)
        else {
            return;
        };
        let hangs = match running.pulse.settle(now, running.live) {
            Beat::Nothing => false,
            Beat::Ask => running.process.send(&Command::Ping) == Err(SendError::Full),
            Beat::Hangs => true,
        };
        if hangs {
            tracing::warn!(
                process = running.process.id(),
                "the NIXL serve helper hangs: it is ended, readers ask again"
            );
            running.killed = true;
            running.process.kill();
        }
    }

    /// Acts on deadlines, and on what has changed since the last call.
    pub(crate) fn settle(&mut self, now: Nanos, shared: &Shared, poller: &Poller) {
        if self.more {
            self.ready(shared);
        }
        if let Some(running) = self.running.as_mut().filter(|it| now >= it.start_limit()) {
            running.killed = true;
            running.process.kill();
        }
        self.start(now, shared, poller);
        self.follow_grants(shared);
        self.feel_pulse(now);
    }

    /// When [`ServeHelper::settle`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Nanos {
        match &self.running {
            Some(_) if self.more => Nanos::ZERO,
            Some(running) if running.killed => Nanos::NEVER,
            Some(running) => running.start_limit().min(running.pulse.poll_timeout()),
            None if self.config.is_none() || self.refused => Nanos::NEVER,
            None => self.rest.until().unwrap_or(Nanos::ZERO),
        }
    }

    pub(crate) fn state(&self) -> ServeState {
        match &self.running {
            Some(running) if running.life.is_some() => ServeState::Up,
            Some(_) => ServeState::Starting,
            None if self.config.is_none() => ServeState::Off,
            None if self.refused => ServeState::Refused,
            None => ServeState::Resting,
        }
    }

    /// Its process, if there is one.
    pub(crate) fn process(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.process.id())
    }

    /// How often it has died.
    pub(crate) fn deaths(&self) -> u64 {
        self.deaths
    }
}
