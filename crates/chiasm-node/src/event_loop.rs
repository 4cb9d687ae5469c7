//! The node's thread: waits for sockets, timers and wake-ups, and lets each part do its share.

use std::sync::Arc;
use std::time::Duration;

use chiasm_core::admission::Event;
use chiasm_core::time::Nanos;

use crate::clock;
use crate::inbound::Inbound;
use crate::journal;
use crate::outbound::Outbound;
use crate::poller::{Interest, Poller};
use crate::shared::Shared;
use crate::token::{Source, split, token};

pub(crate) struct EventLoop {
    poller: Poller,
    shared: Arc<Shared>,
    inbound: Inbound,
    outbound: Outbound,
}

impl EventLoop {
    pub(crate) fn new(
        shared: Arc<Shared>,
        inbound: Inbound,
        outbound: Outbound,
    ) -> std::io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&*shared.waker, token(Source::Waker, 0), Interest::READ)?;
        inbound.register(&poller)?;
        Ok(Self { poller, shared, inbound, outbound })
    }

    /// Runs until the node is stopped.
    pub(crate) fn run(mut self) {
        while !self.shared.is_stopping() {
            let timeout = self.timeout();
            let ready = match self.poller.wait(timeout) {
                Ok(ready) => ready,
                Err(error) => {
                    // Only a broken descriptor of ours can do that. The connector stops; the engine
                    // goes on (blueprint section 10).
                    tracing::error!(%error, "epoll failed: this node serves and reads no more");
                    return;
                }
            };
            let now = clock::now();
            for source in ready {
                self.dispatch(now, source);
            }
            self.settle();
        }
    }

    fn dispatch(&mut self, now: Nanos, source: u64) {
        let Some((source, id)) = split(source) else { return };
        match source {
            Source::Waker => self.shared.waker.drain(),
            Source::Listener => self.inbound.accept(now, &self.poller),
            Source::Inbound => self.inbound.ready(now, id, &self.shared, &self.poller),
            Source::Control => self.outbound.control_ready(now, id, &self.shared, &self.poller),
            Source::Stream => self.outbound.stream_ready(now, id, &self.shared, &self.poller),
        }
    }

    /// Deadlines, and everything that the last inputs have brought about.
    fn settle(&mut self) {
        let now = clock::now();
        let ended = {
            let mut core = self.shared.core();
            if core.poll_timeout() <= now { core.handle_timeout(now) } else { Vec::new() }
        };
        self.inbound.close_streams(now, &ended, &self.shared);
        self.inbound.handle_timeout(now, &self.shared, &self.poller);
        self.inbound.pump(now, &self.shared, &self.poller);
        self.outbound.handle_timeout(now, &self.shared, &self.poller);
        loop {
            self.outbound.take_resolved(now, &self.shared, &self.poller);
            let action = self.shared.core().poll_action();
            let Some(action) = action else { break };
            self.outbound.act(now, action, &self.shared, &self.poller);
        }
        self.outbound.take_resolved(now, &self.shared, &self.poller);
        let events: Vec<Event> = {
            let mut core = self.shared.core();
            std::iter::from_fn(|| core.poll_event()).collect()
        };
        for event in events {
            journal::log(&event);
        }
        self.shared.changed.notify_all();
    }

    fn timeout(&self) -> Option<Duration> {
        let core = self.shared.core().poll_timeout();
        let next = core.min(self.inbound.poll_timeout()).min(self.outbound.poll_timeout());
        (next != Nanos::NEVER).then(|| next.since(clock::now()))
    }
}
