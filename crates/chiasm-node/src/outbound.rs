//! The reading side of a node: for each approved producer a control link and a few data streams.
//!
//! Nothing here is opened for an endpoint that is not on the allowlist (S1), and data streams go to
//! the very address that the control link has reached, never to one that a peer sent.

mod link;
mod lists;
mod shm;
mod stream;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use chiasm_core::consumer::{ConsumerAction, FailureReason, ReadEnd, ReadOrder, ReceivedAck};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::plane::Plane;
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckLimits, MemDescError, Progression};
use chiasm_planes::tcp::ReadJob;

pub(crate) use self::shm::SharedMemory;

use self::link::ProducerLink;
use self::lists::{Lists, Message, Scanned};
use self::stream::Streams;
use crate::clock;
use crate::config::NodeConfig;
use crate::nixl::ReadHelpers;
use crate::poller::Poller;
use crate::resolver::Resolver;
use crate::shared::Shared;

/// How the control link to a producer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// It can carry requests.
    Up,
    /// A socket is being connected, or the handshake is under way.
    Connecting,
    /// Its name is being resolved, or it rests before the next attempt.
    Waiting,
    /// There is none: nothing has been asked for lately.
    None,
}

impl LinkState {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Connecting => "connecting",
            Self::Waiting => "waiting",
            Self::None => "none",
        }
    }
}

/// Messages of one link that are written at once. They are at most 2 KiB each, and a link may hold
/// 1 MiB.
const SENDS_PER_WRITE: usize = 64;

/// Everything that this node connects to.
#[derive(Debug)]
pub(crate) struct Outbound {
    links: BTreeMap<Endpoint, ProducerLink>,
    /// Which link a control socket belongs to.
    sockets: BTreeMap<u64, Endpoint>,
    /// Links with messages that have not been written yet, and how many.
    unwritten: BTreeMap<Endpoint, usize>,
    streams: Streams,
    shm: SharedMemory,
    nixl: ReadHelpers,
    /// Messages whose descriptor lists are being read, in slices.
    lists: Lists,
    connect_timeout: Duration,
    /// For tests: see `NodeConfig::hold_read`.
    hold_read: Option<PathBuf>,
    resolver: Resolver,
    next_id: u64,
    allowlist_version: u64,
    /// Spreads the links' retries.
    seed: u64,
}

impl Outbound {
    pub(crate) fn new(
        resolver: Resolver,
        shm: SharedMemory,
        nixl: ReadHelpers,
        config: &NodeConfig,
        seed: u64,
    ) -> Self {
        Self {
            links: BTreeMap::new(),
            sockets: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            streams: Streams::new(&config.limits),
            shm,
            nixl,
            lists: Lists::default(),
            hold_read: config.hold_read.clone(),
            connect_timeout: config.connect_timeout,
            resolver,
            next_id: 0,
            allowlist_version: 0,
            seed,
        }
    }

    /// Does what the core asks for.
    pub(crate) fn act(
        &mut self,
        now: Nanos,
        action: ConsumerAction,
        shared: &Shared,
        poller: &Poller,
    ) {
        match action {
            ConsumerAction::OpenLink(endpoint) => self.open_link(now, &endpoint, shared, poller),
            ConsumerAction::CloseLink(endpoint, reason) => {
                if let Some(link) = self.links.get_mut(&endpoint) {
                    link.close(now, reason);
                    self.pump_link(now, &endpoint, shared, poller);
                }
            }
            ConsumerAction::Send(endpoint, payload) => {
                if let Some(link) = self.links.get_mut(&endpoint) {
                    link.send(now, payload);
                    let queued = self.unwritten.entry(endpoint).or_default();
                    *queued += 1;
                    if *queued >= SENDS_PER_WRITE {
                        self.write(now, shared, poller);
                    }
                }
            }
            ConsumerAction::StartRead(order) => self.start_read(now, order, shared, poller),
            ConsumerAction::AbortRead(transfer) => {
                self.streams.abort(transfer);
                self.shm.abort(transfer);
                self.nixl.abort(now, transfer);
                self.report_ended(shared);
            }
        }
    }

    /// Writes what has been sent since the last call, many messages at once; whether there was any.
    pub(crate) fn write(&mut self, now: Nanos, shared: &Shared, poller: &Poller) -> bool {
        let endpoints = std::mem::take(&mut self.unwritten);
        for endpoint in endpoints.keys() {
            self.pump_link(now, endpoint, shared, poller);
        }
        self.streams.ask(now, poller);
        !endpoints.is_empty()
    }

    fn open_link(&mut self, now: Nanos, endpoint: &Endpoint, shared: &Shared, poller: &Poller) {
        let (allowed, is_known) = {
            let core = shared.core();
            (core.is_allowed(endpoint), self.links.contains_key(endpoint))
        };
        // The last place before a name is resolved and a socket opened (S1).
        if !allowed {
            shared.core().link_down(now, endpoint, &not_allowed());
            shared.notify();
            return;
        }
        if is_known {
            if let Some(link) = self.links.get_mut(endpoint) {
                link.wake(now);
                if link.is_up() {
                    shared.core().link_up(now, endpoint);
                }
            }
        } else {
            self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            self.links
                .insert(endpoint.clone(), ProducerLink::new(now, self.seed, self.connect_timeout));
        }
        self.pump_link(now, endpoint, shared, poller);
    }

    fn start_read(&mut self, now: Nanos, order: ReadOrder, shared: &Shared, poller: &Poller) {
        if let Some(pipe) = &self.hold_read {
            // Opened when the test has come, read to the end when it has gone.
            let _ = std::fs::read(pipe);
        }
        let transfer = order.transfer;
        let address = self.links.get(&order.source).and_then(ProducerLink::address);
        let refusal = match (order.plane, order.token, address) {
            (Plane::Tcp, Some(token), Some(address)) => {
                let job = ReadJob {
                    transfer: order.transfer,
                    token,
                    local: order.local,
                    bytes: order.bytes,
                    digest: order.digest,
                };
                self.next_id += 1;
                self.streams.start(now, self.next_id, &order.source, address, job, poller);
                self.report_ended(shared);
                return;
            }
            (Plane::Tcp, ..) => FailureReason::Plane("the control link is gone".into()),
            (Plane::Shm, ..) => match self.shm.start(order) {
                Ok(()) => return,
                Err(reason) => reason,
            },
            (Plane::Nixl, ..) => {
                self.nixl.start(now, order, &shared.region, poller);
                return self.report_ended(shared);
            }
        };
        shared.core().read_ended(clock::now(), transfer, ReadEnd::Failed(refusal));
        shared.notify();
    }

    /// The descriptor of a NIXL read helper is ready.
    pub(crate) fn nixl_ready(&mut self, id: u64, shared: &Shared) {
        if self.nixl.ready(id) {
            shared.core().without_nixl();
        }
        self.report_ended(shared);
    }

    /// Copies one slice, if there is anything to copy; hashes one of what NIXL has brought, and reads one
    /// of a descriptor list.
    pub(crate) fn copy(&mut self, shared: &Shared) {
        if self.nixl.has_work() {
            for helper in self.nixl.unheard() {
                self.nixl_ready(helper, shared);
            }
            self.nixl.progress(&shared.region);
            self.report_ended(shared);
        }
        if let Some(Scanned { endpoint, messages }) = self.lists.progress() {
            for Message { payload, region } in messages {
                take(clock::now(), &endpoint, &payload, region, shared);
            }
            shared.notify();
        }
        if self.shm.has_work() {
            self.shm.progress(&shared.region);
            self.report_ended(shared);
        }
    }

    /// A control socket is ready.
    pub(crate) fn control_ready(&mut self, now: Nanos, id: u64, shared: &Shared, poller: &Poller) {
        let Some(endpoint) = self.sockets.get(&id).cloned() else { return };
        if let Some(link) = self.links.get_mut(&endpoint) {
            link.ready(now, id, poller);
        }
        self.pump_link(now, &endpoint, shared, poller);
    }

    /// A data stream is ready.
    pub(crate) fn stream_ready(&mut self, now: Nanos, id: u64, shared: &Shared, poller: &Poller) {
        self.streams.ready(now, id, &shared.region, poller);
        self.report_ended(shared);
    }

    /// Takes the names that have been resolved.
    pub(crate) fn take_resolved(&mut self, now: Nanos, shared: &Shared, poller: &Poller) {
        while let Some(resolved) = self.resolver.poll() {
            if let Some(link) = self.links.get_mut(&resolved.endpoint) {
                link.resolved(now, resolved.addresses);
                self.pump_link(now, &resolved.endpoint, shared, poller);
            }
        }
    }

    /// Lets a link do what it can, and tells the core what came of it.
    fn pump_link(&mut self, now: Nanos, endpoint: &Endpoint, shared: &Shared, poller: &Poller) {
        let Some(link) = self.links.get_mut(endpoint) else { return };
        let mut changed = false;
        while let Some(event) = link.poll(now, &mut self.next_id, poller) {
            match event {
                link::LinkNews::Socket { old, new } => {
                    old.map(|id| self.sockets.remove(&id));
                    new.map(|id| self.sockets.insert(id, endpoint.clone()));
                }
                link::LinkNews::Resolve => {
                    shared.contacted(endpoint);
                    self.resolver.resolve(endpoint);
                }
                link::LinkNews::Up => {
                    shared.core().link_up(now, endpoint);
                    changed = true;
                }
                link::LinkNews::Message(payload) => {
                    if let Some(payload) = self.lists.put_off(endpoint, payload, ack_limits(shared))
                    {
                        take(now, endpoint, &payload, None, shared);
                        changed = true;
                    }
                }
                link::LinkNews::Down(reason) => {
                    tracing::debug!(%endpoint, %reason, "link down");
                    self.lists.leave(endpoint);
                    self.shm.leave(endpoint);
                    shared.core().link_down(now, endpoint, &reason);
                    changed = true;
                }
                link::LinkNews::Dormant => {
                    self.links.remove(endpoint);
                    self.shm.leave(endpoint);
                    break;
                }
            }
        }
        if changed {
            shared.notify();
        }
    }

    fn report_ended(&mut self, shared: &Shared) {
        let ended = [self.streams.take_ended(), self.shm.take_ended(), self.nixl.take_ended()];
        if ended.iter().all(Vec::is_empty) {
            return;
        }
        // Taken after the last byte has landed, and never before: whatever stopped this thread in
        // between, a lease that has run out has run out (S2).
        let now = clock::now();
        let mut core = shared.core();
        for (transfer, end) in ended.into_iter().flatten() {
            core.read_ended(now, transfer, end);
        }
        drop(core);
        shared.notify();
    }

    /// Leaves the producers that are not on the allowlist any more, if it has changed.
    pub(crate) fn follow_allowlist(&mut self, now: Nanos, shared: &Shared, poller: &Poller) {
        let version = shared.core().allowlist_version();
        if version == std::mem::replace(&mut self.allowlist_version, version) {
            return;
        }
        let endpoints: Vec<Endpoint> = self.links.keys().cloned().collect();
        for endpoint in endpoints {
            if shared.core().is_allowed(&endpoint) {
                continue;
            }
            self.streams.leave(&endpoint);
            self.shm.leave(&endpoint);
            self.report_ended(shared);
            if let Some(link) = self.links.get_mut(&endpoint) {
                link.close(now, not_allowed());
            }
            self.pump_link(now, &endpoint, shared, poller);
            self.links.remove(&endpoint);
        }
    }

    /// Acts on every deadline that has passed.
    pub(crate) fn handle_timeout(&mut self, now: Nanos, shared: &Shared, poller: &Poller) {
        let due = |(endpoint, link): (&Endpoint, &ProducerLink)| {
            (link.poll_timeout() <= now).then(|| endpoint.clone())
        };
        let due: Vec<Endpoint> = self.links.iter().filter_map(due).collect();
        for endpoint in due {
            if let Some(link) = self.links.get_mut(&endpoint) {
                link.handle_timeout(now);
            }
            self.pump_link(now, &endpoint, shared, poller);
        }
        self.streams.handle_timeout(now);
        self.nixl.handle_timeout(now);
        self.report_ended(shared);
    }

    /// Every producer with a control link, and how that stands.
    pub(crate) fn links(&self) -> impl Iterator<Item = (&Endpoint, LinkState)> {
        self.links.iter().map(|(endpoint, link)| (endpoint, link.state()))
    }

    /// The NIXL read helpers.
    pub(crate) fn nixl(&self) -> &ReadHelpers {
        &self.nixl
    }

    /// Data streams to producers.
    pub(crate) fn streams(&self) -> usize {
        self.streams.open()
    }

    /// When [`Outbound::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Nanos {
        if self.shm.has_work() || self.nixl.has_work() || self.lists.has_work() {
            return Nanos::ZERO;
        }
        let links = self.links.values().map(ProducerLink::poll_timeout).min();
        let links = links.unwrap_or(Nanos::NEVER);
        links.min(self.streams.poll_timeout()).min(self.nixl.poll_timeout())
    }
}

/// Hands a message to the core, which is not locked while it is decoded, nor while its lists are dropped.
fn take(
    now: Nanos,
    endpoint: &Endpoint,
    payload: &[u8],
    region: Option<Result<Progression, MemDescError>>,
    shared: &Shared,
) {
    let limits = ack_limits(shared);
    let message = match region {
        None => ReceivedAck::decode(payload, &limits),
        Some(region) => ReceivedAck::scanned(payload, &limits, region),
    };
    shared.core().receive_ack(now, endpoint, &message);
}

/// No entry has more blocks than this node's region.
fn ack_limits(shared: &Shared) -> AckLimits {
    AckLimits { max_blocks: shared.region.blocks() as usize }
}

fn not_allowed() -> FailureReason {
    FailureReason::Unreachable("not on the allowlist".into())
}
