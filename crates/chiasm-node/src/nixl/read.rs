//! The helpers through which this node reads others' regions.
//!
//! One is enough, until two producers come with one agent name (upstream's data-parallel ranks), which
//! NIXL cannot tell apart: then each gets its own. A helper is started when there is something to read,
//! and killed to abort a read that does not end.

use std::collections::{BTreeMap, BTreeSet};

use chiasm_core::consumer::{FailureReason, ReadEnd, ReadOrder, SuspectAgents, TransferId};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::plane::Plane;
use chiasm_core::time::Nanos;
use chiasm_nixl::{
    AgentMetadata, Command, Ended, Event, FailureKind, HelperProcess, PeerId, ReadId, Role,
};
use chiasm_region::Region;

use super::blame::guilty;
use super::hashing::Hashing;
use super::peer::{Job, Peer};
use super::read_helper::{Overdue, Read, ReadHelper};
use super::rest::Rest;
use super::{EVENTS_PER_TURN, NixlConfig};
use crate::clock;
use crate::poller::{Interest, Poller};
use crate::throttle::Throttle;
use crate::token::{Source, token};

/// Most read helpers at once, some 30 MB each: one for each rank of a usual data-parallel producer.
const MAX_HELPERS: usize = 16;

/// All read helpers of a node.
#[derive(Debug)]
pub(crate) struct ReadHelpers {
    config: Option<NixlConfig>,
    block_size_bytes: u64,
    helpers: BTreeMap<u64, ReadHelper>,
    next_helper: u64,
    next_peer: u64,
    rest: Rest,
    suspects: SuspectAgents,
    /// NIXL may be of use after all when a helper says that it is not: one has been up, or ports are few.
    refusals_pass: bool,
    /// Why NIXL cannot be used here.
    refused: Option<String>,
    hashing: Hashing,
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
        let refusals_pass = config.as_ref().is_some_and(NixlConfig::refusals_may_pass);
        Self {
            config,
            block_size_bytes,
            helpers: BTreeMap::new(),
            next_helper: super::serve::SERVE_ID + 1,
            next_peer: 0,
            rest: Rest::default(),
            suspects: SuspectAgents::default(),
            refusals_pass,
            refused: None,
            hashing: Hashing::default(),
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
        if let Some(left) = self.suspects.remaining(now, &order.source, &remote.metadata) {
            return Err(FailureReason::SuspectAgent(format!(
                "its metadata has ended the process that loaded it, {} s are left",
                left.as_secs() + 1
            )));
        }
        let source = order.source.clone();
        let region_bytes = u64::from(region.blocks()) * self.block_size_bytes;
        let job = Job::new(order.clone(), &remote, self.block_size_bytes, region_bytes);
        let job = job.map_err(|(_, error)| FailureReason::BadAgent(error.to_string()))?;
        let known = self.helpers.iter().find_map(|(id, helper)| {
            let peers = helper.peers.iter().filter(|_| helper.takes_reads());
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
            if !helper.takes_peers() {
                continue;
            }
            let same = helper.peers.iter().find(|(_, peer)| peer.agent_name == name);
            match same.map(|(peer, known)| (*peer, outlived(known))) {
                None => return Ok(*id),
                Some((peer, true)) => {
                    let forget = Command::ForgetPeer { peer: PeerId(peer) };
                    // Until it has been told, the name is taken in it.
                    if helper.process.send(&forget).is_ok() {
                        helper.peers.remove(&peer);
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
            if let Some(helper) = idle.min_by_key(|helper| helper.idle_since()) {
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
        self.helpers.insert(id, ReadHelper::new(now, process));
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
            Ok(()) => helper.begun(now, Read::new(job.order, peer)),
            Err(error) => {
                let end = ReadEnd::Failed(FailureReason::Plane(error.to_string()));
                self.ended.push((job.order.transfer, end));
            }
        }
    }

    /// Nobody wants this read any more. If it does not end by itself, its helper is ended.
    pub(crate) fn abort(&mut self, now: Nanos, transfer: TransferId) {
        if self.hashing.abort(transfer) {
            self.ended.push((transfer, ReadEnd::Failed(failed("aborted"))));
            return;
        }
        for helper in self.helpers.values_mut() {
            if helper.abort(now, transfer) {
                return;
            }
            if helper.peers.values_mut().any(|peer| peer.unqueue(transfer).is_some()) {
                helper.settle(now);
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
                self.refusals_pass = true;
                tracing::info!(
                    agent = ready.agent_name,
                    backend = ready.backend,
                    library = ready.library,
                    process = helper.process.id(),
                    "reading over nixl"
                );
            }
            // Another life may fare better, perhaps when a port is free again; and one that has been up
            // may be a peer's, since it has loaded what peers sent.
            Event::Refused { reason } if self.refusals_pass => {
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
                helper.settle(now);
            }
            Event::ReadDone { read: ReadId(read) } => {
                let Some(read) = helper.over(now, TransferId(read)) else { return };
                if let Some(peer) = helper.peers.get_mut(&read.peer) {
                    peer.delivered = true;
                }
                self.landed(read);
            }
            Event::ReadFailed { read: ReadId(read), kind, settled, reason } => {
                let transfer = TransferId(read);
                let reason = FailureReason::Plane(format!("{reason} ({kind:?})"));
                if !settled {
                    // Its blocks are free when the helper has been reaped.
                    helper.failed(now, transfer, reason);
                } else if helper.over(now, transfer).is_some() {
                    self.ended.push((transfer, ReadEnd::Failed(reason)));
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
            self.hashing.push(read.order);
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
            // Before it is up nothing of any peer has been loaded.
            guilty(&helper.peers, ended).filter(|_| helper.up)
        } else {
            None
        };
        match (helper.killed, guilty.and_then(|peer| helper.peers.get(&peer))) {
            (Some(why), _) => tracing::debug!(process, why, "NIXL read helper ended"),
            (None, Some(peer)) => {
                let lasts = self.suspects.add(now, &peer.endpoint, &peer.metadata);
                tracing::warn!(
                    process,
                    peer = %peer.endpoint,
                    "the NIXL read helper {ended}, over what this producer says of its agent: that is \
                     not loaded again for {} s",
                    lasts.as_secs()
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
        self.ended.extend(self.hashing.progress(region));
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
        for helper in self.helpers.values_mut() {
            match helper.overdue(now) {
                None => {}
                Some(Overdue::Idle) => helper.kill("was not needed"),
                Some(Overdue::Stuck) => {
                    self.kills += 1;
                    helper.kill("was ended, because a read in it did not end");
                }
                Some(Overdue::Slow) => {
                    self.kills += 1;
                    self.rest.died(now, helper.started);
                    helper.kill("took too long to start");
                }
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
