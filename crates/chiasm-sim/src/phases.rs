//! The course of a run: what its plan says, then quiet, then probes that must succeed, then rest.

use std::time::Duration;

use chiasm_core::consumer::ConsumerCounters;
use chiasm_core::dispatch::{DispatchCounters, Rank};
use chiasm_core::producer::ProducerCounters;

use crate::clients::Request;
use crate::fault::Fault;
use crate::network::Deaf;
use crate::plan::{Planned, PlannedItem};
use crate::queue::{Event, Life, Phase};
use crate::setup::Setup;
use crate::violation::{Promise, Step, ensure};
use crate::workers::RANKS;
use crate::world::World;

const SECOND: u64 = 1_000_000_000;

/// What requests that are sent when all is well are given beside one wait for an ack, in nanoseconds:
/// longer than the longest pause of a breaker (10 s) and of a link (5 s) together.
const PROBE_TIME: u64 = 30 * SECOND;

/// When each phase of a run begins.
pub(crate) fn phases(setup: &Setup) -> Vec<(u64, Phase)> {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(0);
    let (lease, save) = (nanos(setup.lease), nanos(setup.save_timeout));
    let mut phases = vec![(setup.span, Phase::Quiet)];
    // By then everything that waited has had its budget, and everything that was lost its time.
    let items = setup.items as u64 + 2;
    let mut at = setup.span + nanos(setup.wait_budget) * items + lease.max(save) * 2 + 90 * SECOND;
    let consumers = (0..setup.nodes.len()).filter(|at| setup.nodes[*at].role.consumes());
    for number in consumers.filter(|_| setup.checks) {
        phases.push((at, Phase::Probe(number)));
        at += PROBE_TIME + nanos(setup.ack_timeout);
        phases.push((at, Phase::Judge(number)));
        at += 10 * SECOND;
    }
    phases.push((at + lease + save + 70 * SECOND, Phase::Rest));
    phases
}

impl World {
    pub(crate) fn enter(&mut self, phase: Phase) -> Step {
        match phase {
            Phase::Quiet => self.become_quiet(),
            Phase::Probe(number) => self.probe(number),
            Phase::Judge(number) => {
                let waiting = self.nodes[number].engine.jobs.iter().find(|job| job.probe);
                let waits = waiting.map(|job| job.id.clone());
                ensure(waits.is_none(), Promise::Liveness, || {
                    let id = waits.unwrap_or_default();
                    let now = self.time();
                    let report = self.nodes[number].instance.report(now, &id);
                    let report: Vec<String> =
                        report.map(|item| format!("{} {:?}", item.hash, item.verdict)).collect();
                    format!("node {number}: {id} waits although all is well: {report:?}")
                })
            }
            Phase::Rest => {
                for number in 0..self.nodes.len() {
                    self.settle(number)?;
                }
                if self.setup.checks {
                    self.check_rest()?;
                    self.check_hosts_at_rest()?;
                }
                Ok(())
            }
        }
    }

    /// The faults stop, and what they have left behind is put right.
    fn become_quiet(&mut self) -> Step {
        self.note("quiet", &[]);
        self.calm();
        let now = self.now;
        self.rivals_go();
        for node in &mut self.nodes {
            node.next_odd = None;
        }
        self.network.partitions.clear();
        self.network.deaf.clear();
        for which in 0..self.hostiles.len() {
            self.hostile_leaves(which);
        }
        for number in 0..self.nodes.len() {
            if self.nodes[number].up {
                self.nodes[number].paused_until = now;
                self.resume(number)?;
                self.reload_allowlist(number, true)?;
                let node = &self.nodes[number];
                if node.instance.producer().is_draining() || node.odd.is_some() {
                    let killed = self.random.chance(500);
                    self.stop(number, false, killed)?;
                    self.push(now + SECOND, Event::Start { node: number });
                }
                // Workers that do not report are found to be dead.
                for rank in (0..RANKS).filter_map(Rank::new) {
                    if self.nodes[number].workers.owes(rank) {
                        self.kill_worker(number, rank);
                    }
                }
            } else {
                self.push(now + SECOND, Event::Start { node: number });
            }
        }
        Ok(())
    }

    /// Two requests for entries that nobody has asked for before, together larger than the region:
    /// both must be admitted, one after the other if need be, and neither by falling back.
    fn probe(&mut self, number: usize) -> Step {
        for node in &self.nodes {
            let waits = node.engine.jobs.first().map(|job| job.id.clone());
            ensure(waits.is_none(), Promise::Liveness, || {
                format!("node {}: {waits:?} still waits long after all is well", node.number)
            })?;
        }
        let encoders: Vec<usize> = (0..self.nodes.len())
            .filter(|other| *other != number && self.setup.nodes[*other].role.serves())
            .collect();
        let share: u32 = encoders.iter().map(|at| self.setup.nodes[*at].blocks / 2).sum();
        let wanted = (self.setup.nodes[number].blocks * 6 / 10).min(share / 2).max(1);
        let largest = self.setup.entry_blocks.1;
        let mut room: Vec<(usize, u32)> =
            encoders.iter().map(|at| (*at, self.setup.nodes[*at].blocks / 2)).collect();
        for _ in 0..2 {
            let mut items = Vec::new();
            let mut left = wanted;
            while left > 0 && items.len() < 8 {
                let blocks = self.random.between_u32(1, largest.min(left));
                left -= blocks;
                let Some((encoder, free)) = room.iter_mut().find(|(_, free)| *free >= blocks)
                else {
                    break;
                };
                *free -= blocks;
                let encoder = *encoder;
                let entry = self.catalogue.add_random(blocks, &mut self.random);
                items.push(PlannedItem { entry, encoder, lie: None, local_input: false });
            }
            let (announcements, abort_after) = (Vec::new(), None);
            if !items.is_empty() {
                let consumer = number;
                let probe = true;
                self.send_request(Request { consumer, items, announcements, abort_after, probe });
            }
        }
        Ok(())
    }

    /// The plan's next thing.
    pub(crate) fn follow_plan(&mut self, number: usize) -> Step {
        let Some((_, planned)) = self.plan.items.get(number).cloned() else { return Ok(()) };
        self.note("plan", &[number as u64]);
        match planned {
            Planned::Request { consumer, items, abort_after } => {
                let (announcements, probe) = (Vec::new(), false);
                self.send_request(Request { consumer, items, announcements, abort_after, probe });
                Ok(())
            }
            Planned::Save { node, entry } => {
                if self.nodes[node].up && self.nodes[node].paused_until <= self.now {
                    self.save(node, entry)?;
                    self.settle(node)?;
                }
                Ok(())
            }
            Planned::Trouble { fault, node, other, length } => {
                self.trouble(fault, node, other, self.now + length)
            }
        }
    }

    fn trouble(&mut self, fault: Fault, node: usize, other: usize, until: u64) -> Step {
        if self.quiet {
            return Ok(());
        }
        match fault {
            Fault::Partition if node != other => {
                self.part(node, other, until);
                self.part(other, node, until);
                self.fired(fault);
            }
            Fault::PartitionOneWay if node != other => {
                self.part(node, other, until);
                self.fired(fault);
            }
            Fault::ConnectRefused | Fault::ConnectBlackHole => {
                let refuses = fault == Fault::ConnectRefused;
                self.network.deaf.push(Deaf { node, refuses, until });
            }
            Fault::NodePaused if self.nodes[node].up => {
                self.nodes[node].paused_until = self.nodes[node].paused_until.max(until);
                self.fired(fault);
                self.push(self.nodes[node].paused_until, Event::Resume { node });
            }
            Fault::NodeKilled | Fault::PowerLost if self.nodes[node].up => {
                self.fired(fault);
                self.stop(node, fault == Fault::PowerLost, true)?;
                self.push(until, Event::Start { node });
            }
            Fault::NodeDrained if self.nodes[node].up => {
                self.fired(fault);
                self.nodes[node].instance.drain();
                self.settle(node)?;
            }
            Fault::AllowlistReloaded if self.nodes[node].up => {
                self.reload_allowlist(node, false)?;
                let at = self.life(node);
                self.push(until, Event::AllowAll(at));
            }
            Fault::OtherModel | Fault::OtherPlanes if self.runs(node) => {
                self.fired(fault);
                self.stop(node, false, false)?;
                self.nodes[node].next_odd = Some(fault);
                self.push(self.now + SECOND, Event::Start { node });
                self.push(until + 5 * SECOND, Event::SetRight { node });
            }
            Fault::NameTaken => self.rival_starts(node, until),
            Fault::ServeHelperDied if self.runs(node) => self.serve_helper_dies(node)?,
            Fault::ReadHelperDied if self.nodes[node].up => self.read_helper_dies(node),
            Fault::WorkerDied if self.nodes[node].up => {
                self.fired(fault);
                let rank = Rank::new(u16::try_from(other).unwrap_or(0) % RANKS);
                self.kill_worker(node, rank.unwrap_or(Rank::ZERO));
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a node is up and not stopped.
    fn runs(&self, number: usize) -> bool {
        self.nodes[number].up && self.nodes[number].paused_until <= self.now
    }

    /// A node that was started with another configuration than the rest is started with theirs.
    pub(crate) fn set_right(&mut self, number: usize) -> Step {
        self.nodes[number].next_odd = None;
        if self.runs(number) && self.nodes[number].odd.is_some() {
            self.stop(number, false, false)?;
            self.push(self.now + SECOND, Event::Start { node: number });
        }
        Ok(())
    }

    /// A node's life ends at once, with all that it had.
    fn stop(&mut self, number: usize, dark: bool, killed: bool) -> Step {
        self.note("stop", &[number as u64, u64::from(dark)]);
        let at = self.life(number);
        self.count_life(number);
        let node = &mut self.nodes[number];
        node.up = false;
        node.dark = dark;
        node.backlog.clear();
        self.graves.insert((number, at.life), node.memory.clone());
        let serves: Vec<_> = std::mem::take(&mut node.serves)
            .into_values()
            .map(|it| (it.reader, it.transfer))
            .collect();
        let reads = std::mem::take(&mut node.reads);
        // Where the host is dark, nobody is told: a stream on which nothing moves is closed in the end.
        let told_after = if dark { 10 * SECOND } else { 0 };
        for (reader, transfer) in serves.into_iter().filter(|_| !dark) {
            let when = self.now + self.latency();
            self.push(when, Event::ReadOver { at: reader, transfer, why: "reset" });
        }
        for read in reads.into_values() {
            if let Some(stream) = read.stream {
                let when = self.now + self.latency() + told_after;
                self.push(when, Event::StreamGone { at: read.producer, stream });
            }
        }
        // Its region's lock is free. Who reads from memory is on its host, and sees that.
        let nodes = self.nodes.iter().filter(|node| node.up && node.number != number);
        let theirs = nodes.flat_map(|node| {
            let mine = node.readers.iter().filter(|(_, reader)| **reader == at);
            mine.map(|(peer, _)| (Life { node: node.number, life: node.life }, *peer))
        });
        for (producer, peer) in theirs.collect::<Vec<_>>() {
            let when = self.now + self.random.below(SECOND);
            self.push(when, Event::ReaderDead { at: producer, peer });
        }
        self.drop_connections(at, dark);
        self.end_processes(number, killed)
    }

    /// A node that was down is started again.
    pub(crate) fn start(&mut self, number: usize) {
        if !self.nodes[number].up && self.nodes[number].processes[0].is_none() {
            self.launch_node(number);
        }
    }

    /// Its start has succeeded: it is there at the same endpoint, as somebody new.
    pub(crate) fn come_up(&mut self, number: usize) -> Step {
        if self.nodes[number].up {
            return Ok(());
        }
        let mut random = self.random.fork();
        self.nodes[number].start_again(&self.setup, &mut random);
        self.note("start", &[number as u64]);
        self.tally.count("node started again");
        self.start_serve_helper(number, 0);
        self.settle(number)
    }

    /// What a life has counted goes into the tally.
    pub(crate) fn count_life(&mut self, number: usize) {
        let node = &self.nodes[number];
        if !node.up {
            return;
        }
        let tally = &mut self.tally;
        // Each of them, so that a new one has to be named here.
        let ProducerCounters {
            granted,
            nacks,
            malformed,
            over_quota,
            completed,
            done,
            stray_dones,
            expired,
            lost,
            bad_tokens,
            full_lists,
            ambiguous_completions,
            stray_completions,
        } = node.instance.producer().counters();
        for (status, count) in chiasm_core::wire::AckStatus::ALL.iter().zip(nacks).skip(1) {
            tally.add(&format!("nack {}", status.name()), count);
        }
        let consumer = node.instance.consumer().counters();
        let ConsumerCounters {
            requests,
            arrived,
            bytes,
            failed,
            stray_acks,
            ack_latency: _,
            read_latency: _,
        } = consumer;
        for (plane, bytes) in bytes {
            tally.add(&format!("bytes over {plane}"), *bytes);
        }
        for (word, count) in failed {
            tally.add(&format!("transfer failed: {word}"), *count);
        }
        let DispatchCounters {
            saves,
            loads,
            saved,
            loaded,
            failed_saves,
            failed_loads,
            lost_saves,
            late_loads,
            late_reports,
            ignored_reports,
        } = node.instance.dispatches().counters();
        for (name, count) in [
            ("grant given", granted),
            ("request malformed", malformed),
            ("request over quota", over_quota),
            ("grant completed", completed),
            ("grant done", done),
            ("stray done", stray_dones),
            ("grant expired", expired),
            ("grant lost", lost),
            ("bad token", bad_tokens),
            ("list of all blocks given", full_lists),
            ("ambiguous completion", ambiguous_completions),
            ("stray completion", stray_completions),
            ("transfer asked", *requests),
            ("transfer arrived", *arrived),
            ("stray ack", *stray_acks),
            ("read retried", node.instance.admission().retries()),
            ("cache evicted", node.instance.cache().evictions()),
            ("save dispatched", saves),
            ("save done", saved),
            ("save failed", failed_saves),
            ("save lost", lost_saves),
            ("save reported late", late_reports),
            ("load dispatched", loads),
            ("load done", loaded),
            ("load failed", failed_loads),
            ("load late", late_loads),
            ("report ignored", ignored_reports),
        ] {
            tally.add(name, count);
        }
        self.stats.lost += node.engine.jobs.len() as u64;
    }
}
