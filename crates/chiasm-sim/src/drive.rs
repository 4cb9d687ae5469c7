//! How a node is driven: the same inputs in the same order as the real node's event loop gives them.

use chiasm_core::consumer::{ConsumerAction, FailureReason};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::producer::{PeerId, ReaderRegion};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckLimits, Message, XferAck, XferDone};
use chiasm_zmtp::{CloseReason, ConnectionId, Event as RouterEvent, LinkEvent};

use crate::fault::Fault;
use crate::node::{OutLink, region_of};
use crate::queue::Event;
use crate::tally;
use crate::violation::{Promise, Step, ensure};
use crate::world::World;

impl World {
    /// Deadlines, and everything that the last inputs have brought about; then the promises.
    pub(crate) fn settle(&mut self, number: usize) -> Step {
        let now = self.time();
        if !self.nodes[number].up {
            return Ok(());
        }
        let node = &mut self.nodes[number];
        if node.instance.poll_timeout() <= now {
            let ended = node.instance.handle_timeout(now);
            node.grants.expire(now, &mut node.memory);
            for stream in ended {
                self.close_serve(number, stream, "the lease ran out");
            }
        }
        self.nodes[number].router.handle_timeout(now);
        self.pump_router(number);
        self.follow_allowlist(number)?;
        self.pump_links(number)?;
        while let Some(action) = self.nodes[number].instance.poll_action() {
            self.act(number, action)?;
        }
        self.flush_links(number);
        self.take_events(number);
        self.check(number)?;
        self.arm(number);
        Ok(())
    }

    /// Sets the event that wakes the node, if there is none that is as early.
    fn arm(&mut self, number: usize) {
        let node = &self.nodes[number];
        let links = node.links.values().map(|link| link.link.poll_timeout());
        let next = links
            .min()
            .unwrap_or(Nanos::NEVER)
            .min(node.instance.poll_timeout())
            .min(node.router.poll_timeout())
            .as_nanos();
        if next < node.wake_at {
            // A thread wakes when it is due, or later; now and then much later.
            let late = if self.random.chance(20) { self.random.skewed(1, 50_000_000) } else { 0 };
            let at = next.max(self.now).saturating_add(late);
            let life = self.life(number);
            self.nodes[number].wake_at = at;
            self.push(at, Event::Wake(life));
        }
    }

    fn pump_router(&mut self, number: usize) {
        loop {
            if let Some((peer, event)) = self.nodes[number].router.poll_event() {
                match event {
                    RouterEvent::Ready(_) => self.tally.count("router ready"),
                    RouterEvent::Message(payload) => self.answer(number, peer, &payload),
                    RouterEvent::Closed(reason) => self.peer_closed(number, peer, &reason),
                }
            } else if let Some(peer) = self.nodes[number].router.poll_output() {
                self.flush_server(number, peer);
            } else {
                break;
            }
        }
        let peers: Vec<ConnectionId> = self.nodes[number].peers.keys().copied().collect();
        for peer in peers {
            self.flush_server(number, peer);
        }
    }

    /// A message from a peer, and the producer's answer.
    fn answer(&mut self, number: usize, peer: ConnectionId, payload: &[u8]) {
        let now = self.time();
        let id = PeerId(peer.as_u64());
        let node = &mut self.nodes[number];
        let answer = node.instance.handle_request(now, id, payload).map(Message::into_bytes);
        if let Some((peer, region)) = node.instance.take_new_reader() {
            self.remember_reader(number, peer, &region);
        }
        let node = &mut self.nodes[number];
        let Some(answer) = answer else {
            if let Ok(done) = XferDone::decode(payload) {
                node.grants.done(id, &done, &mut node.memory);
            }
            return;
        };
        let granted = {
            let limits = AckLimits::default();
            let ack = XferAck::decode(&answer, &limits).ok();
            if let Some(ack) = ack.as_ref().filter(|ack| ack.status.is_ok()) {
                // What an upstream consumer gets, who is told of no lease.
                let lease = self.setup.lease.max(chiasm_core::limits::UPSTREAM_LEASE);
                node.grants.granted(now, id, ack, lease, &mut node.memory);
            }
            let extension = ack.as_ref().and_then(|ack| ack.chiasm.as_ref());
            if let Some(word) = extension.and_then(|extension| extension.reason) {
                self.tally.count(&format!("refusal {word}"));
            }
            let known =
                ack.and_then(|ack| Some((self.catalogue.number_of(ack.mm_hash)?, ack.status)));
            known.map_or((u64::MAX, 0), |(entry, status)| (entry as u64, u64::from(status.code())))
        };
        self.note("answer", &[number as u64, peer.as_u64(), granted.0, granted.1]);
        if granted.1 == 1 {
            self.missing.insert((number, granted.0));
        }
        if self.nodes[number].setup.hostile && !self.quiet {
            self.distort(number, peer, payload, answer);
        } else {
            self.reply(number, peer, answer);
        }
    }

    /// A peer has its first grant on shm, and says which region is its own.
    fn remember_reader(&mut self, number: usize, peer: PeerId, region: &ReaderRegion) {
        let named = |other: &usize| {
            region_of(*other) == region.name
                && self.nodes[*other].epoch == region.epoch
                && self.nodes[*other].up
                && self.setup.share_host(number, *other)
        };
        if let Some(reader) = (0..self.nodes.len()).find(named) {
            let life = self.life(reader);
            self.nodes[number].readers.insert(peer, life);
        }
    }

    /// The producer sees that a reader over shm is dead.
    pub(crate) fn reader_dead(&mut self, number: usize, peer: PeerId) -> Step {
        let now = self.time();
        let node = &mut self.nodes[number];
        if node.readers.remove(&peer).is_some() {
            self.tally.count("reader over shm dead");
            node.instance.reader_dead(now, peer);
            node.grants.reader_dead(peer, &mut node.memory);
        }
        self.settle(number)
    }

    pub(crate) fn reply(&mut self, number: usize, peer: ConnectionId, answer: Vec<u8>) {
        let now = self.time();
        let router = &mut self.nodes[number].router;
        if let Err(error) = router.send(now, peer, answer) {
            router.close(peer, CloseReason::Refused { why: error.to_string() });
        }
    }

    fn peer_closed(&mut self, number: usize, peer: ConnectionId, reason: &CloseReason) {
        let now = self.time();
        self.tally.count(&format!("router closed: {}", reason.kind()));
        let id = PeerId(peer.as_u64());
        let node = &mut self.nodes[number];
        node.instance.peer_gone(now, id);
        node.grants.peer_gone(id, &mut node.memory);
        if let Some(connection) = node.peers.remove(&peer) {
            self.close_server(connection);
        }
    }

    fn pump_links(&mut self, number: usize) -> Step {
        let now = self.time();
        let endpoints: Vec<Endpoint> = self.nodes[number].links.keys().cloned().collect();
        for endpoint in endpoints {
            if let Some(link) = self.nodes[number].links.get_mut(&endpoint) {
                link.link.handle_timeout(now);
            }
            self.pump_link(number, &endpoint)?;
        }
        Ok(())
    }

    /// Lets a link do what it can, and tells the instance what came of it. Deadlines are not looked at:
    /// a link that is being left must not begin to connect.
    fn pump_link(&mut self, number: usize, endpoint: &Endpoint) -> Step {
        let now = self.time();
        loop {
            let node = &mut self.nodes[number];
            let Some(link) = node.links.get_mut(endpoint) else { return Ok(()) };
            let Some(event) = link.link.poll_event() else { break };
            match event {
                LinkEvent::Connect => {
                    link.failure = None;
                    let connection = self.connect(number, endpoint)?;
                    if let Some(link) = self.nodes[number].links.get_mut(endpoint) {
                        link.connection = Some(connection);
                    }
                }
                LinkEvent::Up(_) => {
                    self.tally.count("link up");
                    node.instance.link_up(now, endpoint);
                }
                LinkEvent::Message(payload) => {
                    node.instance.receive(now, endpoint, &payload);
                }
                LinkEvent::Down(reason) => {
                    self.tally.count(&format!("link down: {}", reason.kind()));
                    let connection = link.connection.take();
                    let reason = link.failure.take().unwrap_or_else(|| told(&reason));
                    node.instance.link_down(now, endpoint, &reason);
                    if let Some(connection) = connection {
                        self.close_client(connection);
                    }
                }
                LinkEvent::Dormant => {
                    self.tally.count("link dormant");
                    node.links.remove(endpoint);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn flush_links(&mut self, number: usize) {
        let endpoints: Vec<Endpoint> = self.nodes[number].links.keys().cloned().collect();
        for endpoint in endpoints {
            self.flush_client(number, &endpoint);
        }
    }

    /// Does what the consumer asks for.
    fn act(&mut self, number: usize, action: ConsumerAction) -> Step {
        let now = self.time();
        match action {
            ConsumerAction::OpenLink(endpoint) => {
                let node = &mut self.nodes[number];
                let allowed = node.instance.is_allowed(&endpoint);
                if !allowed {
                    node.instance.link_down(now, &endpoint, &not_allowed());
                } else if let Some(link) = node.links.get_mut(&endpoint) {
                    link.link.wake(now);
                    if link.link.is_up() {
                        node.instance.link_up(now, &endpoint);
                    }
                } else {
                    let link = OutLink::new(&self.setup, self.random.next(), now);
                    node.links.insert(endpoint.clone(), link);
                }
                self.pump_link(number, &endpoint)
            }
            ConsumerAction::CloseLink(endpoint, reason) => {
                if let Some(link) = self.nodes[number].links.get_mut(&endpoint) {
                    let why = reason.to_string();
                    link.failure = Some(reason);
                    link.link.close(now, CloseReason::Refused { why });
                }
                self.pump_link(number, &endpoint)
            }
            ConsumerAction::Send(endpoint, payload) => {
                if let Some(link) = self.nodes[number].links.get_mut(&endpoint)
                    && let Err(error @ chiasm_zmtp::SendError::OutputFull { .. }) =
                        link.link.send(now, payload)
                {
                    let reason = FailureReason::Lost(error.to_string());
                    return self.act(number, ConsumerAction::CloseLink(endpoint, reason));
                }
                self.flush_client(number, &endpoint);
                Ok(())
            }
            ConsumerAction::StartRead(order) => {
                let node = &self.nodes[number];
                let allowed = node.allowed.iter().any(|known| *known == order.source);
                ensure(allowed, Promise::S1, || {
                    format!("node {number} reads from {}", order.source)
                })?;
                self.start_read(number, order)
            }
            ConsumerAction::AbortRead(transfer) => {
                self.abort_read(number, transfer);
                Ok(())
            }
        }
    }

    /// Leaves the producers that are not on the allowlist any more.
    fn follow_allowlist(&mut self, number: usize) -> Step {
        let now = self.time();
        let node = &mut self.nodes[number];
        let version = node.instance.allowlist_version();
        if version == std::mem::replace(&mut node.allowlist_version, version) {
            return Ok(());
        }
        let endpoints: Vec<Endpoint> = node.links.keys().cloned().collect();
        for endpoint in endpoints {
            if self.nodes[number].instance.is_allowed(&endpoint) {
                continue;
            }
            self.leave_producer(number, &endpoint);
            if let Some(link) = self.nodes[number].links.get_mut(&endpoint) {
                let reason = not_allowed();
                let why = reason.to_string();
                link.failure = Some(reason);
                link.link.close(now, CloseReason::Refused { why });
            }
            self.pump_link(number, &endpoint)?;
            if let Some(link) = self.nodes[number].links.remove(&endpoint)
                && let Some(connection) = link.connection
            {
                self.close_client(connection);
            }
        }
        Ok(())
    }

    /// What the real node writes into its log.
    fn take_events(&mut self, number: usize) {
        while let Some(event) = self.nodes[number].instance.poll_event() {
            let name = tally::of_admitted(&event);
            self.trace.absorb_bytes(name.as_bytes());
            self.tally.count(&name);
            self.trace.say(self.now, || format!("node {number}: {event:?}"));
        }
        while let Some(event) = self.nodes[number].instance.poll_dispatch_event() {
            self.tally.count(tally::of_dispatched(&event));
            self.trace.say(self.now, || format!("node {number}: {event:?}"));
        }
    }

    /// The allowlist of a node shrinks to every other producer for a while.
    pub(crate) fn reload_allowlist(&mut self, number: usize, whole: bool) -> Step {
        let all = crate::node::everybody(&self.setup, number);
        let kept: Vec<String> = all
            .iter()
            .enumerate()
            .filter(|(at, _)| whole || at % 2 == 1)
            .map(|(_, endpoint)| endpoint.to_string())
            .collect();
        let list = chiasm_core::allowlist::Allowlist::parse(kept.iter().map(String::as_str));
        let list = list.unwrap_or_default();
        let now = self.time();
        let node = &mut self.nodes[number];
        node.allowed = list.clone();
        node.instance.set_allowlist(now, list);
        if !whole {
            self.fired(Fault::AllowlistReloaded);
        }
        self.settle(number)
    }
}

fn not_allowed() -> FailureReason {
    FailureReason::Unreachable("not on the allowlist".into())
}

/// The transport's reason in the consumer's words, as the real node puts it.
fn told(reason: &CloseReason) -> FailureReason {
    match reason {
        CloseReason::ConnectFailed { .. } | CloseReason::ConnectTimeout { .. } => {
            FailureReason::Unreachable(reason.to_string())
        }
        CloseReason::NotZmtp { .. }
        | CloseReason::VersionTooOld { .. }
        | CloseReason::Mechanism { .. }
        | CloseReason::AsServer { .. }
        | CloseReason::SocketType { .. }
        | CloseReason::BadCommand { .. }
        | CloseReason::BadFlags { .. }
        | CloseReason::MessageBeforeReady
        | CloseReason::MessageTooLarge { .. }
        | CloseReason::CommandTooLarge { .. }
        | CloseReason::Envelope(_) => FailureReason::Garbage(reason.to_string()),
        CloseReason::ShutDown => FailureReason::ShutDown,
        _ => FailureReason::Lost(reason.to_string()),
    }
}
