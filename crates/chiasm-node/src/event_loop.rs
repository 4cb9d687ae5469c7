//! The node's thread: waits for sockets, timers and wake-ups, and lets each part do its share.

use std::sync::Arc;
use std::time::Duration;

use chiasm_core::admission::Event;
use chiasm_core::allowlist::Allowlist;
use chiasm_core::consumer::ConsumerAction;
use chiasm_core::time::Nanos;

use crate::clock;
use crate::inbound::Inbound;
use crate::journal;
use crate::metrics::SocketCounts;
use crate::nixl::{SERVE_ID, ServeHelper};
use crate::outbound::{LinkState, Outbound};
use crate::poller::{Interest, Poller};
use crate::shared::Shared;
use crate::status::{Ask, Life, Parts, Report, Server};
use crate::token::{Source, split, token};
use crate::wake::WakeSocket;

/// Actions that are taken from the core while it is locked once: each is moved, none is acted upon.
const ACTIONS_PER_LOCK: usize = 64;

pub(crate) struct EventLoop {
    poller: Poller,
    shared: Arc<Shared>,
    inbound: Inbound,
    outbound: Outbound,
    serve: ServeHelper,
    status: Server,
    life: Life,
    wake: Option<WakeSocket>,
    /// Empty but while they are acted upon: its memory is kept.
    actions: Vec<ConsumerAction>,
}

impl EventLoop {
    pub(crate) fn new(
        shared: Arc<Shared>,
        inbound: Inbound,
        outbound: Outbound,
        serve: ServeHelper,
        status: Server,
        life: Life,
        wake: Option<WakeSocket>,
    ) -> std::io::Result<Self> {
        let poller = Poller::new()?;
        shared.waker.register(&poller, token(Source::Waker, 0))?;
        inbound.register(&poller)?;
        status.register(&poller)?;
        if let Some(wake) = &wake {
            poller.add(wake, token(Source::Worker, 0), Interest::READ)?;
        }
        Ok(Self {
            poller,
            shared,
            inbound,
            outbound,
            serve,
            status,
            life,
            wake,
            actions: Vec::new(),
        })
    }

    /// Runs until the node is stopped. If it cannot go on, because of the system or of a broken
    /// invariant of ours, this node neither serves nor reads any more, and everything that waits is
    /// told so; the engine and its local cache go on.
    pub(crate) fn run(self) {
        let shared = Arc::clone(&self.shared);
        let run = std::panic::AssertUnwindSafe(|| self.turn());
        let error = match std::panic::catch_unwind(run) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a bug in Chiasm: please report what was written before this line".into(),
        };
        tracing::error!(error, "the node's thread has ended: no remote reads from here on");
        shared.core().set_allowlist(clock::now(), Allowlist::default());
        shared.notify();
    }

    fn turn(mut self) -> std::io::Result<()> {
        let mut ready = Vec::new();
        while !self.shared.is_stopping() {
            self.poller.wait(self.sleep(), &mut ready)?;
            self.shared.waker.awake();
            let now = clock::now();
            self.shared.workers.take_reports(now, &self.shared);
            for source in ready.drain(..) {
                self.dispatch(now, source);
            }
            self.outbound.copy(&self.shared);
            self.settle();
        }
        self.write_journal();
        Ok(())
    }

    fn dispatch(&mut self, now: Nanos, source: u64) {
        let Some((source, id)) = split(source) else { return };
        match source {
            Source::Waker => {}
            Source::Worker => {
                if let Some(wake) = &self.wake {
                    wake.drain();
                }
            }
            Source::Listener => self.inbound.accept(now, &self.shared, &self.poller),
            Source::Inbound => self.inbound.ready(now, id, &self.shared, &self.poller),
            Source::Control => self.outbound.control_ready(now, id, &self.shared, &self.poller),
            Source::Stream => self.outbound.stream_ready(now, id, &self.shared, &self.poller),
            Source::Nixl if id == SERVE_ID => self.serve.ready(&self.shared),
            Source::Nixl => self.outbound.nixl_ready(id, &self.shared),
            Source::Status => self.status.accept(now, &self.poller),
            Source::StatusClient => {
                if let Some(ask) = self.status.ready(id, &self.poller) {
                    self.tell_status(now, ask);
                }
            }
        }
    }

    fn tell_status(&mut self, now: Nanos, ask: Ask) {
        let parts = Parts { inbound: &self.inbound, outbound: &self.outbound, serve: &self.serve };
        let report = Report::of(now, &self.life, &self.shared, &parts);
        self.status.answer(ask, report.to_json(), &self.poller);
    }

    /// Deadlines, and everything that the last inputs have brought about.
    fn settle(&mut self) {
        // What has been changed up to here is looked at here.
        self.shared.waker.awake();
        let now = clock::now();
        let due = self.shared.core().poll_timeout() <= now;
        let ended = if due { self.shared.core().handle_timeout(now) } else { Vec::new() };
        self.shared.workers.handle_timeout(now, &self.shared);
        self.inbound.end_streams(now, &ended, &self.shared);
        self.inbound.handle_timeout(now, &self.shared, &self.poller);
        self.inbound.pump(now, &self.shared, &self.poller);
        // Before the links' own deadlines: one that is due must not connect to who has just been taken
        // off the list (S1).
        self.outbound.follow_allowlist(now, &self.shared, &self.poller);
        self.outbound.handle_timeout(now, &self.shared, &self.poller);
        self.status.handle_timeout(now, &self.poller);
        let mut actions = std::mem::take(&mut self.actions);
        loop {
            self.outbound.take_resolved(now, &self.shared, &self.poller);
            self.take_actions(&mut actions);
            if actions.is_empty() && !self.outbound.write(now, &self.shared, &self.poller) {
                break;
            }
            for action in actions.drain(..) {
                self.outbound.act(now, action, &self.shared, &self.poller);
            }
        }
        self.actions = actions;
        self.outbound.take_resolved(now, &self.shared, &self.poller);
        self.serve.settle(now, &self.shared, &self.poller);
        self.write_journal();
        if due {
            self.shared.notify();
        }
        let sockets = SocketCounts {
            connections: self.inbound.connections(),
            serving_streams: self.inbound.streams(),
            reading_streams: self.outbound.streams(),
            links_up: self.outbound.links().filter(|(_, state)| *state == LinkState::Up).count(),
            refused_connections: self.inbound.refused_connections(),
        };
        self.shared.note_sockets(sockets, self.poller.counts());
    }

    /// The next actions, as many as are taken while the core is locked once.
    fn take_actions(&self, actions: &mut Vec<ConsumerAction>) {
        let mut core = self.shared.core();
        actions.extend(std::iter::from_fn(|| core.poll_action()).take(ACTIONS_PER_LOCK));
    }

    /// Says what has happened.
    fn write_journal(&self) {
        let events: Vec<Event> = {
            let mut core = self.shared.core();
            std::iter::from_fn(|| core.poll_event()).collect()
        };
        for event in &events {
            journal::log(event);
        }
        if !events.is_empty() {
            self.shared.count_events(|counts| {
                for event in &events {
                    journal::count(event, counts);
                }
            });
        }
        loop {
            let event = self.shared.core().poll_dispatch_event();
            let Some(event) = event else { break };
            journal::log_dispatch(&event);
        }
    }

    /// How long this thread may sleep now. Nobody wakes it while there is something to do: it does not
    /// say that it sleeps.
    fn sleep(&self) -> Option<Duration> {
        let timeout = self.timeout();
        let may_sleep = timeout != Some(Duration::ZERO)
            && self.shared.workers.may_sleep(&self.shared.region)
            && self.shared.waker.may_sleep();
        if may_sleep { timeout } else { Some(Duration::ZERO) }
    }

    fn timeout(&self) -> Option<Duration> {
        let core = self.shared.core().poll_timeout();
        let core = core.min(self.shared.workers.poll_timeout(&self.shared));
        let sockets = self.inbound.poll_timeout().min(self.outbound.poll_timeout());
        let next = core.min(sockets).min(self.status.poll_timeout());
        let next = next.min(self.serve.poll_timeout());
        (next != Nanos::NEVER).then(|| next.since(clock::now()))
    }
}
