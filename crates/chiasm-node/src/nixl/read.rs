//! The helpers through which this node reads others' regions.
//!
//! One is enough, until two producers come with one agent name (upstream's data-parallel ranks), which
//! NIXL cannot tell apart: then each gets its own. A helper is started when there is something to read,
//! and killed to abort a read that does not end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chiasm_core::consumer::{FailureReason, ReadEnd, ReadOrder, TransferId};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::plane::Plane;
use chiasm_core::time::Nanos;
use chiasm_nixl::{
    AgentMetadata, Command, Ended, Event, FailureKind, HelperProcess, MAX_PEERS, MAX_READS, PeerId,
    ReadId, Role,
};
use chiasm_region::{LandedDigest, Region};

use super::peer::{Job, Peer};
use super::rest::Rest;
use super::suspects::Suspects;
use super::{EVENTS_PER_TURN, NixlConfig};
use crate::clock;
use crate::poller::{Interest, Poller};
use crate::throttle::Throttle;
use crate::token::{Source, token};

/// Most read helpers at once, some 30 MB each: one for each rank of a usual data-parallel producer.
const MAX_HELPERS: usize = 16;

/// How long a read that nobody wants any more may take to end by itself, before its helper is killed
/// and all its other reads have to be tried again.
const ABORT_GRACE: Duration = Duration::from_millis(500);

/// How long a helper may take to be up.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How long a helper without work is kept.
const IDLE_LIMIT: Duration = Duration::from_mins(10);

/// Bytes that are hashed at once.
const SLICE_BYTES: u64 = 1 << 20;

/// A read in a helper.
#[derive(Debug)]
struct Read {
    order: ReadOrder,
    peer: u64,
    /// Nobody wants it any more.
    aborted: bool,
    /// It has failed, and something may still land: its end is the helper's.
    failed: Option<FailureReason>,
}

#[derive(Debug)]
struct ReadHelper {
    process: HelperProcess,
    started: Nanos,
    up: bool,
    peers: BTreeMap<u64, Peer>,
    reads: BTreeMap<TransferId, Read>,
    /// Why it has been killed.
    killed: Option<&'static str>,
    /// When it is killed, if reads that were aborted have not ended.
    abort_at: Nanos,
    /// Since when there has been no work.
    idle_since: Nanos,
}

impl ReadHelper {
    fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.peers.values().all(|peer| peer.waiting.is_empty())
    }

    fn kill(&mut self, why: &'static str) {
        if self.killed.is_none() {
            self.killed = Some(why);
            self.process.kill();
        }
    }

    fn poll_timeout(&self) -> Nanos {
        if self.killed.is_some() {
            return Nanos::NEVER;
        }
        let start = if self.up { Nanos::NEVER } else { self.started.after(START_LIMIT) };
        let idle = if self.is_idle() { self.idle_since.after(IDLE_LIMIT) } else { Nanos::NEVER };
        start.min(idle).min(self.abort_at)
    }
}

/// Bytes that have landed and are to be hashed.
#[derive(Debug)]
struct Hashing {
    order: ReadOrder,
    digest: LandedDigest,
    hashed: u64,
}

/// All read helpers of a node.
#[derive(Debug)]
pub(crate) struct ReadHelpers {
    config: Option<NixlConfig>,
    block_size_bytes: u64,
    helpers: BTreeMap<u64, ReadHelper>,
    next_helper: u64,
    next_peer: u64,
    rest: Rest,
    suspects: Suspects,
    /// Why NIXL cannot be used here.
    refused: Option<String>,
    hashing: Vec<Hashing>,
    ended: Vec<(TransferId, ReadEnd)>,
    deaths: u64,
    kills: u64,
    /// Helpers with events that have been read from their sockets and may not have been taken.
    more: BTreeSet<u64>,
    warnings: Throttle,
}

impl ReadHelpers {
    /// `config` is `None` where this node does not read over nixl.
    pub(crate) fn new(config: Option<NixlConfig>, block_size_bytes: u64) -> Self {
        Self {
            config,
            block_size_bytes,
            helpers: BTreeMap::new(),
            next_helper: super::serve::SERVE_ID + 1,
            next_peer: 0,
            rest: Rest::default(),
            suspects: Suspects::default(),
            refused: None,
            hashing: Vec::new(),
            ended: Vec::new(),
            deaths: 0,
            kills: 0,
            more: BTreeSet::new(),
            warnings: Throttle::default(),
        }
    }

    /// Starts a read. Its end comes out of [`ReadHelpers::take_ended`], also if it cannot be started.
    pub(crate) fn start(
        &mut self,
        now: Nanos,
        mut order: ReadOrder,
        region: &Region,
        poller: &Poller,
    ) {
        let transfer = order.transfer;
        if let Err(reason) = self.try_start(now, &mut order, region, poller) {
            self.ended.push((transfer, ReadEnd::Failed(reason)));
        }
    }

    fn try_start(
        &mut self,
        now: Nanos,
        order: &mut ReadOrder,
        region: &Region,
        poller: &Poller,
    ) -> Result<(), FailureReason> {
        let remote = order.nixl.take().ok_or_else(|| failed("the ack names no agent"))?;
        if let Some(why) = &self.refused {
            return Err(FailureReason::PlaneAway { plane: Plane::Nixl, why: why.clone() });
        }
        let metadata = AgentMetadata::parse(&remote.metadata)
            .map_err(|error| FailureReason::BadAgent(error.to_string()))?;
        if self.suspects.contains(now, &order.source, &remote.metadata) {
            let why = "its metadata has ended the process that loaded it";
            return Err(FailureReason::BadAgent(why.into()));
        }
        let source = order.source.clone();
        let region_bytes = u64::from(region.blocks()) * self.block_size_bytes;
        let job = Job::new(order.clone(), &remote, self.block_size_bytes, region_bytes);
        let job = job.map_err(|(_, error)| FailureReason::BadAgent(error.to_string()))?;
        let known = self.helpers.iter().find_map(|(id, helper)| {
            let usable = helper.killed.is_none() && helper.reads.len() < MAX_READS;
            let peers = helper.peers.iter().filter(|_| usable);
            let mut same = peers.filter(|(_, peer)| peer.is(&source, &remote));
            same.next().map(|(peer, _)| (*id, *peer))
        });
        let (helper, peer) = if let Some(known) = known {
            known
        } else {
            let helper = self.helper_for(now, &source, metadata.agent_name(), region, poller)?;
            let name = metadata.agent_name().to_owned();
            (helper, self.load(helper, Peer::new(source, name, &remote))?)
        };
        self.give(now, helper, peer, job);
        Ok(())
    }

    /// A helper in which no other agent has this name; a new one if need be.
    fn helper_for(
        &mut self,
        now: Nanos,
        source: &Endpoint,
        name: &str,
        region: &Region,
        poller: &Poller,
    ) -> Result<u64, FailureReason> {
        // An earlier life of the same producer's agent is of no use any more.
        let outlived = |peer: &Peer| {
            peer.agent_name == name && peer.endpoint == *source && peer.is_idle() && peer.loaded
        };
        for (id, helper) in &mut self.helpers {
            if helper.killed.is_some() || helper.peers.len() >= MAX_PEERS {
                continue;
            }
            let same = helper.peers.iter().find(|(_, peer)| peer.agent_name == name);
            match same.map(|(peer, known)| (*peer, outlived(known))) {
                None => return Ok(*id),
                Some((peer, true)) => {
                    helper.peers.remove(&peer);
                    let forget = Command::ForgetPeer { peer: PeerId(peer) };
                    if helper.process.send(&forget).is_ok() {
                        return Ok(*id);
                    }
                }
                Some((_, false)) => {}
            }
        }
        self.start_helper(now, region, poller)
    }

    fn start_helper(
        &mut self,
        now: Nanos,
        region: &Region,
        poller: &Poller,
    ) -> Result<u64, FailureReason> {
        let Some(config) = &self.config else {
            return Err(FailureReason::Plane("there is no nixl plane here".into()));
        };
        if !self.rest.is_over(now) {
            return Err(failed("the NIXL read helper has died and rests before its next start"));
        }
        if self.helpers.len() >= MAX_HELPERS {
            // The one that has been idle for longest makes room for the next attempt.
            let going = self.helpers.values().any(|helper| helper.killed.is_some());
            let idle = self.helpers.values_mut().filter(|helper| !going && helper.is_idle());
            if let Some(helper) = idle.min_by_key(|helper| helper.idle_since) {
                helper.kill("was not needed");
            }
            return Err(FailureReason::Plane(format!(
                "{MAX_HELPERS} NIXL read helpers run already"
            )));
        }
        let id = self.next_helper;
        let role = Role::Read;
        let process = HelperProcess::start(&config.launch, &config.settings, &role, Some(region))
            .map_err(|error| error.to_string())
            .and_then(|process| {
                let added = poller.add(&process, token(Source::Nixl, id), Interest::READ);
                added.map(|()| process).map_err(|error| error.to_string())
            })
            .map_err(|error| {
                self.rest.died(now, now);
                tracing::warn!(%error, "no NIXL read helper");
                FailureReason::Plane(error)
            })?;
        tracing::debug!(process = process.id(), "NIXL read helper started");
        self.next_helper += 1;
        let helper = ReadHelper {
            process,
            started: now,
            up: false,
            peers: BTreeMap::new(),
            reads: BTreeMap::new(),
            killed: None,
            abort_at: Nanos::NEVER,
            idle_since: now,
        };
        self.helpers.insert(id, helper);
        Ok(id)
    }

    fn load(&mut self, helper: u64, peer: Peer) -> Result<u64, FailureReason> {
        let gone = || failed("the NIXL read helper is gone");
        let id = self.next_peer;
        let helper = self.helpers.get_mut(&helper).ok_or_else(gone)?;
        let command = Command::LoadPeer {
            peer: PeerId(id),
            agent_name: peer.agent_name.clone(),
            metadata: peer.metadata.to_vec(),
            span: peer.span,
        };
        helper.process.send(&command).map_err(|error| FailureReason::Plane(error.to_string()))?;
        self.next_peer += 1;
        helper.peers.insert(id, peer);
        Ok(id)
    }

    fn give(&mut self, now: Nanos, helper: u64, peer: u64, job: Job) {
        let Some(helper) = self.helpers.get_mut(&helper) else { return };
        let Some(known) = helper.peers.get_mut(&peer) else { return };
        if !known.loaded {
            known.waiting.push(job);
            return;
        }
        match helper.process.send(&job.command(peer)) {
            Ok(()) => {
                known.reads += 1;
                let (aborted, failed) = (false, None);
                let read = Read { order: job.order, peer, aborted, failed };
                helper.reads.insert(read.order.transfer, read);
            }
            Err(error) => {
                let end = ReadEnd::Failed(FailureReason::Plane(error.to_string()));
                self.ended.push((job.order.transfer, end));
            }
        }
        helper.idle_since = now;
    }

    /// Nobody wants this read any more. If it does not end by itself, its helper is ended.
    pub(crate) fn abort(&mut self, now: Nanos, transfer: TransferId) {
        if let Some(at) = self.hashing.iter().position(|it| it.order.transfer == transfer) {
            self.hashing.swap_remove(at);
            self.ended.push((transfer, ReadEnd::Failed(failed("aborted"))));
            return;
        }
        for helper in self.helpers.values_mut() {
            if let Some(read) = helper.reads.get_mut(&transfer) {
                read.aborted = true;
                helper.abort_at = helper.abort_at.min(now.after(ABORT_GRACE));
                return;
            }
            if helper.peers.values_mut().any(|peer| peer.unqueue(transfer).is_some()) {
                self.ended.push((transfer, ReadEnd::Failed(failed("aborted"))));
                return;
            }
        }
    }

    /// A helper's descriptor is ready. True if NIXL has turned out not to be of use here.
    pub(crate) fn ready(&mut self, id: u64) -> bool {
        let before = self.refused.is_some();
        self.more.insert(id);
        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = self.helpers.get_mut(&id).and_then(|it| it.process.recv()) else {
                self.more.remove(&id);
                break;
            };
            self.take(clock::now(), id, event);
        }
        !before && self.refused.is_some()
    }

    fn take(&mut self, now: Nanos, id: u64, event: Event) {
        let Some(helper) = self.helpers.get_mut(&id) else { return };
        match event {
            Event::Ready(ready) => {
                helper.up = true;
                tracing::info!(
                    agent = ready.agent_name,
                    backend = ready.backend,
                    library = ready.library,
                    process = helper.process.id(),
                    "reading over nixl"
                );
            }
            // One that has been up shows that NIXL can be used; and it has loaded what peers sent.
            Event::Refused { reason } if helper.up => {
                tracing::warn!("the NIXL read helper gives up: {reason}");
                helper.process.kill();
            }
            Event::Refused { reason } => {
                tracing::warn!("nothing is read over nixl: {reason}");
                self.refused = Some(reason);
            }
            Event::Loaded { peer: PeerId(peer) } => {
                let Some(known) = helper.peers.get_mut(&peer) else { return };
                known.loaded = true;
                for job in std::mem::take(&mut known.waiting) {
                    self.give(now, id, peer, job);
                }
            }
            Event::LoadFailed { peer: PeerId(peer), kind, reason } => {
                let Some(known) = helper.peers.remove(&peer) else { return };
                tracing::warn!(peer = %known.endpoint, "its NIXL agent cannot be loaded: {reason}");
                for job in known.waiting {
                    let end = ReadEnd::Failed(load_failure(kind, &reason));
                    self.ended.push((job.order.transfer, end));
                }
            }
            Event::ReadDone { read: ReadId(read) } => {
                let Some(read) = helper.reads.remove(&TransferId(read)) else { return };
                if let Some(peer) = helper.peers.get_mut(&read.peer) {
                    peer.reads -= 1;
                    peer.delivered = true;
                }
                helper.idle_since = now;
                helper.settle_aborts();
                self.landed(read);
            }
            Event::ReadFailed { read: ReadId(read), kind, settled, reason } => {
                let Some(read) = helper.reads.get_mut(&TransferId(read)) else { return };
                let transfer = read.order.transfer;
                let reason = FailureReason::Plane(format!("{reason} ({kind:?})"));
                if settled {
                    let peer = read.peer;
                    helper.reads.remove(&transfer);
                    if let Some(peer) = helper.peers.get_mut(&peer) {
                        peer.reads -= 1;
                    }
                    helper.idle_since = now;
                    helper.settle_aborts();
                    self.ended.push((transfer, ReadEnd::Failed(reason)));
                } else {
                    // Its blocks are free when the helper has been reaped.
                    read.failed = Some(reason);
                    helper.abort_at = helper.abort_at.min(now);
                }
            }
            Event::Warning { text } => {
                if let Some(left_out) = self.warnings.pass(now) {
                    tracing::warn!(left_out, "NIXL read helper: {text}");
                }
            }
            Event::Ended(ended) => self.helper_ended(now, id, &ended),
            Event::Notification { .. } | Event::NotificationLost { .. } | Event::Pong => {}
        }
    }

    fn landed(&mut self, read: Read) {
        let transfer = read.order.transfer;
        if read.aborted {
            self.ended.push((transfer, ReadEnd::Failed(failed("aborted"))));
        } else if read.order.digest {
            let (digest, hashed) = (LandedDigest::new(), 0);
            self.hashing.push(Hashing { order: read.order, digest, hashed });
        } else {
            let bytes = read.order.bytes;
            self.ended.push((transfer, ReadEnd::Landed { bytes, digest: None }));
        }
    }

    /// The helper has been reaped: nothing of it writes into any block any more.
    fn helper_ended(&mut self, now: Nanos, id: u64, ended: &Ended) {
        let Some(helper) = self.helpers.remove(&id) else { return };
        let process = helper.process.id();
        let guilty = if helper.killed.is_none() && self.refused.is_none() {
            self.deaths += 1;
            self.rest.died(now, helper.started);
            // Somebody's SIGKILL is nobody's metadata.
            guilty(&helper.peers).filter(|_| has_crashed(ended))
        } else {
            None
        };
        match (helper.killed, guilty.and_then(|peer| helper.peers.get(&peer))) {
            (Some(why), _) => tracing::debug!(process, why, "NIXL read helper ended"),
            (None, Some(peer)) => {
                self.suspects.add(now, &peer.endpoint, &peer.metadata);
                tracing::warn!(
                    process,
                    peer = %peer.endpoint,
                    "the NIXL read helper {ended}, over what this producer says of its agent"
                );
            }
            (None, None) => tracing::warn!(process, "the NIXL read helper {ended}"),
        }
        let reason = |peer: u64| match (helper.killed, &self.refused) {
            _ if guilty == Some(peer) => {
                FailureReason::BadAgent(format!("the process that loaded it {ended}"))
            }
            (_, Some(why)) => FailureReason::PlaneAway { plane: Plane::Nixl, why: why.clone() },
            (Some(why), None) => FailureReason::Plane(format!("the NIXL read helper {why}")),
            (None, None) => FailureReason::Plane(format!("the NIXL read helper {ended}")),
        };
        for (transfer, read) in helper.reads {
            let own = read.failed;
            let why = own.unwrap_or_else(|| reason(read.peer));
            self.ended.push((transfer, ReadEnd::Failed(why)));
        }
        for (id, peer) in helper.peers {
            for job in peer.waiting {
                self.ended.push((job.order.transfer, ReadEnd::Failed(reason(id))));
            }
        }
    }

    /// Hashes one slice of what has landed.
    pub(crate) fn progress(&mut self, region: &Region) {
        let Some(hashing) = self.hashing.first_mut() else { return };
        let bytes = hashing.order.bytes;
        let slice = bytes.saturating_sub(hashing.hashed).min(SLICE_BYTES);
        let length = usize::try_from(slice).unwrap_or(0);
        let extents = &hashing.order.local;
        let taken = hashing.digest.update(region, extents, hashing.hashed, length);
        hashing.hashed += slice;
        if taken.is_ok() && hashing.hashed < bytes {
            return;
        }
        let Hashing { order, digest, .. } = self.hashing.remove(0);
        let end = match taken {
            Ok(()) => ReadEnd::Landed { bytes, digest: Some(digest.finish()) },
            Err(error) => ReadEnd::Failed(FailureReason::Plane(error.to_string())),
        };
        self.ended.push((order.transfer, end));
    }

    /// The helpers whose events were too many for one turn: they are [ready](Self::ready) as before.
    pub(crate) fn unheard(&self) -> Vec<u64> {
        self.more.iter().copied().collect()
    }

    /// Whether [`ReadHelpers::progress`] has something to do, or some are [unheard](Self::unheard).
    pub(crate) fn has_work(&self) -> bool {
        !self.hashing.is_empty() || !self.more.is_empty()
    }

    pub(crate) fn take_ended(&mut self) -> Vec<(TransferId, ReadEnd)> {
        std::mem::take(&mut self.ended)
    }

    /// Acts on every deadline that has passed.
    pub(crate) fn handle_timeout(&mut self, now: Nanos) {
        for helper in self.helpers.values_mut().filter(|helper| helper.poll_timeout() <= now) {
            if helper.abort_at <= now {
                self.kills += 1;
                helper.kill("was ended, because a read in it did not end");
            } else if helper.up {
                helper.kill("was not needed");
            } else {
                self.kills += 1;
                self.rest.died(now, helper.started);
                helper.kill("took too long to start");
            }
        }
    }

    /// When [`ReadHelpers::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Nanos {
        let deadlines = self.helpers.values().map(ReadHelper::poll_timeout);
        deadlines.min().unwrap_or(Nanos::NEVER)
    }

    /// Process, peers and reads of each helper.
    pub(crate) fn helpers(&self) -> impl Iterator<Item = (u32, usize, usize)> {
        self.helpers.values().map(|it| (it.process.id(), it.peers.len(), it.reads.len()))
    }

    /// How many have died by themselves, and how many were killed.
    pub(crate) fn deaths(&self) -> (u64, u64) {
        (self.deaths, self.kills)
    }
}

impl ReadHelper {
    /// With no aborted read left there is nothing to kill it for.
    fn settle_aborts(&mut self) {
        if !self.reads.values().any(|read| read.aborted || read.failed.is_some()) {
            self.abort_at = Nanos::NEVER;
        }
    }
}

/// Whose bytes have ended the helper: those that were being loaded, in order; else those of the one peer
/// that was being read from and has delivered nothing yet, since its addresses are used first then.
fn guilty(peers: &BTreeMap<u64, Peer>) -> Option<u64> {
    let loading = peers.iter().find(|(_, peer)| !peer.loaded).map(|(id, _)| *id);
    let mut read = peers.iter().filter(|(_, peer)| peer.reads > 0);
    let alone = match (read.next(), read.next()) {
        (Some((id, peer)), None) if !peer.delivered => Some(*id),
        _ => None,
    };
    loading.or(alone)
}

/// Whether the process has ended by its own doing.
fn has_crashed(ended: &Ended) -> bool {
    use rustix::process::Signal;
    let crashes = [Signal::ILL, Signal::ABORT, Signal::BUS, Signal::FPE, Signal::SEGV];
    let by_signal = |signal| crashes.iter().any(|crash| crash.as_raw() == signal);
    ended.signal.is_some_and(by_signal) || ended.code.is_some_and(|code| code != 0)
}

fn load_failure(kind: FailureKind, reason: &str) -> FailureReason {
    match kind {
        FailureKind::Invalid => FailureReason::BadAgent(reason.into()),
        FailureKind::Peer | FailureKind::Local | FailureKind::Backend => {
            FailureReason::Plane(reason.into())
        }
    }
}

fn failed(why: &str) -> FailureReason {
    FailureReason::Plane(why.into())
}
