//! The fake nixl plane: what NIXL and the helper processes around it were measured to do, between two
//! simulated memories. There is no NIXL in it, and it proves nothing about NIXL.
//!
//! What the node promises its core is modelled as the node does it: a helper loads a producer's agent
//! before it reads from it, a read that nobody wants any more is ended by killing its helper, and a read's
//! end is told when the helper cannot write any more, never before (S4). A helper is a process of its
//! own: it goes on while its node is stopped, and looks at no lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chiasm_core::consumer::{
    FailureReason, ReadEnd, ReadOrder, RemoteAgent, SuspectAgents, TransferId,
};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::plane::Plane;
use chiasm_core::producer::NixlAgent;
use chiasm_core::time::Nanos;
use chiasm_core::wire::Progression;

use crate::content::digest_of;
use crate::fault::Fault;
use crate::queue::Event;
use crate::violation::{Promise, Step, broken, ensure};
use crate::world::World;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// How long a read that nobody wants may take to end by itself, as at the node.
const ABORT_GRACE: u64 = 500 * MILLISECOND;

/// How long a helper takes until it is up, shortest and longest, as measured.
const START: (u64, u64) = (50 * MILLISECOND, 700 * MILLISECOND);

/// The agent through which others read a node's region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServeAgent {
    pub(crate) life: u64,
    base: u64,
}

/// What a helper tells its node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News {
    Loaded {
        agent: u64,
    },
    LoadFailed {
        agent: u64,
    },
    ReadDone {
        transfer: TransferId,
    },
    /// Nothing more lands; or something may, until the helper is gone.
    ReadFailed {
        transfer: TransferId,
        settled: bool,
        why: &'static str,
    },
    /// It has been reaped.
    Ended {
        loading: Option<u64>,
    },
}

/// A producer's agent in a helper.
#[derive(Debug)]
struct Peer {
    source: Endpoint,
    metadata: Arc<[u8]>,
    loaded: bool,
    waiting: Vec<TransferId>,
}

/// A process that reads for a node.
#[derive(Debug)]
pub(crate) struct ReadHelper {
    started: u64,
    up_at: u64,
    killed: bool,
    /// From then on it writes nothing.
    dead_at: u64,
    abort_at: u64,
    peers: BTreeMap<u64, Peer>,
    reads: BTreeSet<TransferId>,
    /// Reads in it that nobody wants, or that have failed and may still write.
    condemned: BTreeSet<TransferId>,
}

/// Where a read over nixl comes from.
#[derive(Debug)]
pub(crate) struct NixlRead {
    helper: u64,
    /// Node and agent that the metadata stands for.
    server: usize,
    agent: u64,
    /// What is read of it, block by block; `None` where no block of its region is.
    blocks: Vec<Option<u32>>,
    stuck: Option<Stuck>,
    failed: Option<&'static str>,
}

/// A read that hangs, and comes after all: it cannot be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stuck {
    /// Once nobody wants it.
    UntilAborted,
    /// Once its helper is being killed.
    UntilKilled,
}

/// What a node has of the nixl plane, for one life of it.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    pub(crate) serving: Option<ServeAgent>,
    serve_deaths: u32,
    read: BTreeMap<u64, ReadHelper>,
    next: u64,
    deaths: u32,
    rests_until: u64,
    suspects: SuspectAgents,
}

impl World {
    /// The helper through which others read is started: with its node, and after each death.
    pub(crate) fn start_serve_helper(&mut self, number: usize, rest: u64) {
        if !self.setup.planes.contains(Plane::Nixl) {
            return;
        }
        let at = self.life(number);
        let when = self.now + rest + self.random.between(START.0, START.1);
        self.push(when, Event::AgentUp { at });
    }

    /// It is up.
    pub(crate) fn agent_up(&mut self, number: usize) -> Step {
        let life = self.random.next().max(1);
        let block = self.setup.block_size_bytes;
        let base = 0x7000_0000_0000 + self.random.below(1 << 20) * 4096;
        let blocks = self.nodes[number].setup.blocks;
        let region = Progression::new(base, block, block, blocks, 0)
            .expect("a small region does not wrap around");
        let metadata = metadata_of(number, life).into();
        let node = &mut self.nodes[number];
        node.helpers.serving = Some(ServeAgent { life, base });
        node.instance.agent_up(NixlAgent { life, metadata, region });
        self.tally.count("nixl serve helper up");
        self.note("agent up", &[number as u64, life]);
        self.settle(number)
    }

    /// It dies, and is started again.
    pub(crate) fn serve_helper_dies(&mut self, number: usize) -> Step {
        let node = &mut self.nodes[number];
        if node.helpers.serving.take().is_none() {
            return Ok(());
        }
        node.instance.agent_down();
        node.helpers.serve_deaths += 1;
        let rest = rest_after(node.helpers.serve_deaths);
        self.fired(Fault::ServeHelperDied);
        self.start_serve_helper(number, rest);
        self.settle(number)
    }

    /// One of the helpers that read dies by itself.
    pub(crate) fn read_helper_dies(&mut self, number: usize) {
        let helpers = self.nodes[number].helpers.read.iter();
        let alive = helpers.filter(|(_, it)| !it.killed && it.dead_at == u64::MAX);
        let alive: Vec<u64> = alive.map(|(id, _)| *id).collect();
        if let Some(helper) = self.random.pick(&alive).copied() {
            self.fired(Fault::ReadHelperDied);
            self.helper_ends(number, helper, 0, None);
        }
    }

    /// Nothing of a helper lands after `delay`; its node hears of it then, or when it goes on.
    fn helper_ends(&mut self, number: usize, helper: u64, delay: u64, loading: Option<u64>) {
        let (at, dead_at) = (self.life(number), self.now + delay);
        let Some(it) = self.nodes[number].helpers.read.get_mut(&helper) else { return };
        if it.dead_at != u64::MAX {
            return;
        }
        it.dead_at = dead_at;
        self.push(dead_at, Event::HelperNews { at, helper, news: News::Ended { loading } });
    }

    /// A read over nixl begins: at once if its agent is loaded, else when it is.
    pub(crate) fn start_nixl(&mut self, number: usize, order: &ReadOrder) -> Step {
        let transfer = order.transfer;
        match self.try_start_nixl(number, order) {
            Ok(None) => Ok(()),
            Ok(Some(helper)) => self.give(number, helper, transfer),
            Err(why) => {
                self.end_read(number, transfer, ReadEnd::Failed(why));
                Ok(())
            }
        }
    }

    /// The helper that can be told to read at once, if there is one.
    fn try_start_nixl(
        &mut self,
        number: usize,
        order: &ReadOrder,
    ) -> Result<Option<u64>, FailureReason> {
        let (transfer, now) = (order.transfer, self.now);
        let remote = order.nixl.clone().ok_or_else(|| plane("the ack names no agent"))?;
        let metadata = Arc::clone(&remote.metadata);
        let helpers = &mut self.nodes[number].helpers;
        let time = Nanos::from_nanos(now);
        if helpers.suspects.remaining(time, &order.source, &metadata).is_some() {
            self.tally.count("nixl metadata under suspicion");
            return Err(FailureReason::SuspectAgent("it has ended a helper".into()));
        }
        let rests = helpers.rests_until > now;
        let usable = |it: &&ReadHelper| !it.killed;
        let known = helpers.read.iter().find(|(_, it)| usable(it)).map(|(id, _)| *id);
        let helper = match known {
            Some(helper) => helper,
            None if rests => return Err(plane("the read helper rests before its next start")),
            None => self.start_read_helper(number),
        };
        let nixl = self.located(helper, &remote);
        let agent = nixl.agent;
        let at = self.life(number);
        if let Some(read) = self.nodes[number].reads.get_mut(&transfer) {
            read.nixl = Some(nixl);
        }
        let Some(it) = self.nodes[number].helpers.read.get_mut(&helper) else {
            return Err(plane("the read helper is gone"));
        };
        match it.peers.get_mut(&agent) {
            Some(peer) if peer.loaded => {
                it.reads.insert(transfer);
                return Ok(Some(helper));
            }
            Some(peer) => peer.waiting.push(transfer),
            None => {
                let (source, waiting) = (order.source.clone(), vec![transfer]);
                let up_at = it.up_at;
                it.peers.insert(agent, Peer { source, metadata, loaded: false, waiting });
                let when = up_at.max(now) + self.random.skewed(100_000, 90 * MILLISECOND);
                self.push(when, Event::HelperLoads { at, helper, agent });
            }
        }
        Ok(None)
    }

    fn start_read_helper(&mut self, number: usize) -> u64 {
        let up_at = self.now + self.random.between(START.0, START.1);
        self.tally.count("nixl read helper started");
        let helpers = &mut self.nodes[number].helpers;
        helpers.next += 1;
        let helper = ReadHelper {
            started: self.now,
            up_at,
            killed: false,
            dead_at: u64::MAX,
            abort_at: u64::MAX,
            peers: BTreeMap::new(),
            reads: BTreeSet::new(),
            condemned: BTreeSet::new(),
        };
        helpers.read.insert(helpers.next, helper);
        helpers.next
    }

    /// Which blocks of whose region an ack's addresses are. Nothing is looked up that a helper could not
    /// know: where the agent's region begins is what the producer has said.
    fn located(&self, helper: u64, remote: &RemoteAgent) -> NixlRead {
        let block = self.setup.block_size_bytes;
        let sum = || {
            remote.metadata.iter().fold(0, |sum, byte| crate::random::mix(sum ^ u64::from(*byte)))
        };
        let (server, agent) = meant_by(&remote.metadata).unwrap_or_else(|| (usize::MAX, sum()));
        // Where the region really begins decides what an address means.
        let serving = self.nodes.get(server).and_then(|node| node.helpers.serving);
        let base = serving.filter(|it| it.life == agent).map_or(remote.region.0, |it| it.base);
        let mut blocks = Vec::new();
        for (address, bytes) in &remote.runs {
            for at in 0..bytes.div_ceil(block) {
                let offset = (address + at * block).checked_sub(base);
                let index = offset.filter(|offset| offset.is_multiple_of(block));
                blocks.push(index.and_then(|offset| u32::try_from(offset / block).ok()));
            }
        }
        NixlRead { helper, server, agent, blocks, stuck: None, failed: None }
    }

    /// A helper loads an agent, or dies of what it is told about it.
    pub(crate) fn helper_loads(&mut self, number: usize, helper: u64, agent: u64) {
        let now = self.now;
        let Some(it) = self.nodes[number].helpers.read.get(&helper) else { return };
        if it.dead_at <= now {
            return;
        }
        let Some(peer) = it.peers.get(&agent) else { return };
        let known = meant_by(&peer.metadata).is_some();
        let at = self.life(number);
        if known {
            self.push(now, Event::HelperNews { at, helper, news: News::Loaded { agent } });
        } else if self.random.chance(500) {
            self.tally.count("nixl metadata refused");
            self.push(now, Event::HelperNews { at, helper, news: News::LoadFailed { agent } });
        } else {
            self.tally.count("nixl helper ended by metadata");
            self.helper_ends(number, helper, 0, Some(agent));
        }
    }

    /// A helper is told to read.
    fn give(&mut self, number: usize, helper: u64, transfer: TransferId) -> Step {
        let node = &self.nodes[number];
        if let Some(read) = node.reads.get(&transfer) {
            let allowed = node.allowed.iter().any(|known| *known == read.order.source);
            ensure(allowed, Promise::S1, || {
                format!("node {number} reads from {} over nixl", read.order.source)
            })?;
        }
        let stuck = self.fires(Fault::NixlReadStuck).then(|| {
            if self.random.chance(300) { Stuck::UntilAborted } else { Stuck::UntilKilled }
        });
        let fails = stuck.is_none() && self.fires(Fault::NixlReadFailed);
        let settled = self.random.chance(500);
        let at = self.life(number);
        let when = self.now + 2 * self.latency() + self.block_time();
        let Some(read) = self.nodes[number].reads.get_mut(&transfer) else { return Ok(()) };
        if let Some(nixl) = &mut read.nixl {
            nixl.stuck = stuck;
        }
        if fails {
            let news = News::ReadFailed { transfer, settled, why: "its backend has failed" };
            self.push(when, Event::HelperNews { at, helper, news });
            if settled {
                return Ok(());
            }
        }
        self.push(when, Event::HelperReads { at, helper, transfer });
        Ok(())
    }

    /// A helper moves a slice, whatever its node has come to want meanwhile.
    pub(crate) fn helper_reads(
        &mut self,
        number: usize,
        helper: u64,
        transfer: TransferId,
    ) -> Step {
        let (at, now) = (self.life(number), self.now);
        let Some(it) = self.nodes[number].helpers.read.get(&helper).filter(|it| it.dead_at > now)
        else {
            self.tally.count("nixl write of a dead helper");
            return Ok(());
        };
        let killed = it.killed;
        let read = self.nodes[number].reads.get(&transfer);
        let Some((read, nixl)) = read.and_then(|read| Some((read, read.nixl.as_ref()?))) else {
            let what = format!(
                "node {number}: transfer {} was over while its helper could still write",
                transfer.0
            );
            return Err(broken(Promise::S4, what));
        };
        let (server, agent, from, stuck) = (nixl.server, nixl.agent, read.landed.len(), nixl.stuck);
        let theirs: Vec<Option<u32>> =
            nixl.blocks.iter().skip(from).take(self.setup.slice_blocks).copied().collect();
        let hangs = match stuck {
            None => false,
            Some(Stuck::UntilAborted) => !read.aborted,
            Some(Stuck::UntilKilled) => !killed,
        };
        if hangs {
            let again = now + self.random.between(MILLISECOND, 50 * MILLISECOND);
            self.push(again, Event::HelperReads { at, helper, transfer });
            return Ok(());
        }
        let cut = self.network.blocked(now, number, server);
        let dark = self.nodes.get(server).is_none_or(|node| node.dark && !node.up);
        if dark || cut.is_some() {
            // In progress for ever, as far as NIXL is concerned.
            let again = cut.unwrap_or(0).max(now + SECOND);
            self.push(again, Event::HelperReads { at, helper, transfer });
            return Ok(());
        }
        let node = &self.nodes[server];
        let lives = node.up && node.helpers.serving.is_some_and(|it| it.life == agent);
        let outside = theirs.iter().any(|it| it.is_none_or(|block| block >= node.setup.blocks));
        if !lives || outside || theirs.is_empty() {
            let why = if lives { "an address of no region" } else { "its agent is gone" };
            let news = News::ReadFailed { transfer, settled: true, why };
            self.push(now, Event::HelperNews { at, helper, news });
            return Ok(());
        }
        let mut words: Vec<u64> =
            theirs.iter().flatten().map(|block| node.memory.read(*block)).collect();
        if self.fires(Fault::DataCorrupted) {
            self.corrupt(at, transfer, &mut words);
        }
        if killed {
            self.tally.count("nixl write after the kill");
        }
        self.write_landed(number, transfer, &words)?;
        let read = &self.nodes[number].reads[&transfer];
        if read.landed.len() >= read.blocks.len() {
            let news = News::ReadDone { transfer };
            let when = now + self.random.skewed(1_000, MILLISECOND);
            self.push(when, Event::HelperNews { at, helper, news });
            return Ok(());
        }
        let mut next = now + self.block_time() * words.len() as u64;
        next = self.around_a_deadline(next, self.nodes[number].instance.poll_timeout());
        self.push(next, Event::HelperReads { at, helper, transfer });
        Ok(())
    }

    /// Nobody wants a read any more. What has not been given to a helper ends at once, what has been by
    /// itself soon, or by its helper's end.
    pub(crate) fn abort_nixl(&mut self, number: usize, transfer: TransferId) {
        let (at, now) = (self.life(number), self.now);
        let Some(read) = self.nodes[number].reads.get_mut(&transfer) else { return };
        read.aborted = true;
        let Some(helper) = read.nixl.as_ref().map(|nixl| nixl.helper) else { return };
        let Some(it) = self.nodes[number].helpers.read.get_mut(&helper) else { return };
        if it.reads.contains(&transfer) {
            it.condemned.insert(transfer);
            it.abort_at = it.abort_at.min(now + ABORT_GRACE);
            let due = it.abort_at;
            self.push(due, Event::HelperDue { at, helper });
            return;
        }
        for peer in it.peers.values_mut() {
            peer.waiting.retain(|other| *other != transfer);
        }
        self.end_read(number, transfer, ReadEnd::Failed(plane("aborted")));
    }

    /// A helper is killed if a read in it should have ended and has not.
    pub(crate) fn helper_due(&mut self, number: usize, helper: u64) -> Step {
        let now = self.now;
        let Some(it) = self.nodes[number].helpers.read.get_mut(&helper) else { return Ok(()) };
        if it.killed || it.abort_at > now {
            return Ok(());
        }
        it.killed = true;
        self.tally.count("nixl read helper killed");
        // It is gone when it has been reaped; until then it may write.
        let slow = self.fires(Fault::SlowReap);
        let longest = if slow { SECOND } else { 20 * MILLISECOND };
        let delay = self.random.skewed(100_000, longest);
        self.helper_ends(number, helper, delay, None);
        self.settle(number)
    }

    /// A helper's node takes what it has said.
    pub(crate) fn helper_news(&mut self, number: usize, helper: u64, news: News) -> Step {
        let Some(it) = self.nodes[number].helpers.read.get_mut(&helper) else { return Ok(()) };
        match news {
            News::Loaded { agent } => {
                let Some(peer) = it.peers.get_mut(&agent) else { return Ok(()) };
                peer.loaded = true;
                let waiting = std::mem::take(&mut peer.waiting);
                it.reads.extend(&waiting);
                self.tally.count("nixl agent loaded");
                for transfer in waiting {
                    self.give(number, helper, transfer)?;
                }
            }
            News::LoadFailed { agent } => {
                let Some(peer) = it.peers.remove(&agent) else { return Ok(()) };
                for transfer in peer.waiting {
                    let why = FailureReason::BadAgent("it cannot be loaded".into());
                    self.end_read(number, transfer, ReadEnd::Failed(why));
                }
            }
            News::ReadDone { transfer } => {
                if !it.forget(transfer) {
                    return Ok(());
                }
                let Some(read) = self.nodes[number].reads.get(&transfer) else { return Ok(()) };
                let digest = read.order.digest.then(|| digest_of(read.landed.iter().copied()));
                let end = if read.aborted {
                    ReadEnd::Failed(plane("aborted"))
                } else {
                    ReadEnd::Landed { bytes: read.order.bytes, digest }
                };
                self.tally.count("nixl read done");
                self.end_read(number, transfer, end);
            }
            News::ReadFailed { transfer, settled: true, why } => {
                if it.forget(transfer) {
                    self.tally.count("nixl read failed");
                    self.end_read(number, transfer, ReadEnd::Failed(plane(why)));
                }
            }
            News::ReadFailed { transfer, settled: false, why } => {
                if it.reads.contains(&transfer) {
                    self.tally.count("nixl read failed and not settled");
                    it.condemned.insert(transfer);
                    it.abort_at = self.now;
                    let read = self.nodes[number].reads.get_mut(&transfer);
                    if let Some(nixl) = read.and_then(|read| read.nixl.as_mut()) {
                        nixl.failed = Some(why);
                    }
                    return self.helper_due(number, helper);
                }
            }
            News::Ended { loading } => return self.helper_ended(number, helper, loading),
        }
        self.settle(number)
    }

    /// A helper has been reaped: every read in it is over, and its blocks are free.
    fn helper_ended(&mut self, number: usize, helper: u64, loading: Option<u64>) -> Step {
        let now = self.now;
        let helpers = &mut self.nodes[number].helpers;
        let Some(it) = helpers.read.remove(&helper) else { return Ok(()) };
        ensure(it.dead_at <= now, Promise::S4, || {
            format!("node {number} takes a read helper for dead that still writes")
        })?;
        self.tally.count("nixl read helper ended");
        if !it.killed {
            let settled = now - it.started >= 60 * SECOND;
            helpers.deaths = if settled { 1 } else { helpers.deaths + 1 };
            helpers.rests_until = now + rest_after(helpers.deaths);
        }
        if let Some(peer) = loading.and_then(|agent| it.peers.get(&agent)) {
            helpers.suspects.add(Nanos::from_nanos(now), &peer.source, &peer.metadata);
        }
        let mut over: Vec<(TransferId, bool)> = it.reads.iter().map(|it| (*it, false)).collect();
        for (agent, peer) in &it.peers {
            let guilty = loading == Some(*agent);
            over.extend(peer.waiting.iter().map(|transfer| (*transfer, guilty)));
        }
        for (transfer, guilty) in over {
            let read = self.nodes[number].reads.get(&transfer);
            let failed = read.and_then(|read| read.nixl.as_ref()).and_then(|nixl| nixl.failed);
            let why = if guilty {
                FailureReason::BadAgent("the process that loaded it has died".into())
            } else {
                plane(failed.unwrap_or("the read helper has ended"))
            };
            self.end_read(number, transfer, ReadEnd::Failed(why));
        }
        self.settle(number)
    }
}

impl ReadHelper {
    /// A read in it has ended. False if it had before.
    fn forget(&mut self, transfer: TransferId) -> bool {
        self.condemned.remove(&transfer);
        if self.condemned.is_empty() && !self.killed {
            self.abort_at = u64::MAX;
        }
        self.reads.remove(&transfer)
    }
}

/// How long a helper rests after so many deaths, as at the node.
fn rest_after(deaths: u32) -> u64 {
    ((200 * MILLISECOND) << deaths.saturating_sub(1).min(16)).min(30 * SECOND)
}

/// An agent's metadata, with a sum over all of it: one wrong byte must not make it another agent's.
fn metadata_of(number: usize, life: u64) -> Vec<u8> {
    let mut bytes = (number as u64).to_le_bytes().to_vec();
    bytes.extend(life.to_le_bytes());
    let sum = crate::random::mix(crate::random::mix(number as u64) ^ life);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// The node and the agent that metadata stands for; `None` if it is no agent's.
fn meant_by(metadata: &[u8]) -> Option<(usize, u64)> {
    let word = |at: usize| Some(u64::from_le_bytes(metadata.get(at..at + 8)?.try_into().ok()?));
    let (number, life) = (usize::try_from(word(0)?).ok()?, word(8)?);
    (metadata_of(number, life) == metadata).then_some((number, life))
}

fn plane(why: &str) -> FailureReason {
    FailureReason::Plane(why.into())
}
