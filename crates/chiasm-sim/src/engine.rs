//! A simulated engine: a scheduler that admits, runs, preempts and aborts requests, in steps of any
//! length. It believes what admission tells it, and holds admission to that (S5, S6).

use chiasm_core::admission::{Decision, Item, Verdict};
use chiasm_core::dispatch::DispatchId;

use crate::fault::Fault;
use crate::queue::Event;
use crate::violation::{Promise, Step, broken, ensure};
use crate::workers::RANKS;
use crate::world::World;

/// One item of a request.
#[derive(Clone, Debug)]
pub(crate) struct JobItem {
    pub(crate) entry: usize,
    pub(crate) item: Item,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Asked about in each step.
    Waiting,
    /// Admitted, with so many loads on so many ranks to come.
    Running { loads: usize },
    /// Never tracked, because of a limit; its end is to be reported.
    Refused,
}

/// One request as its engine has it.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) request: usize,
    pub(crate) items: Vec<JobItem>,
    pub(crate) computed: u32,
    pub(crate) tokens: u32,
    pub(crate) phase: Phase,
    pub(crate) tracked: bool,
    /// It has been told to wait since it last ran.
    pub(crate) asked: bool,
    pub(crate) told_unavailable: bool,
    /// It may fail although it runs: it has outgrown a limit.
    pub(crate) outgrown: bool,
    /// Since when each item waits, in the order of the report.
    pub(crate) since: Vec<Option<u64>>,
    pub(crate) arrived: u64,
    pub(crate) probe: bool,
    /// Loads that it waits for, or has waited for.
    pub(crate) dispatches: Vec<DispatchId>,
}

/// The engine of one node.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    pub(crate) jobs: Vec<Job>,
    pub(crate) stepping: bool,
    /// A step is under way: its requests are not in `jobs`, and ends of loads wait for its end.
    in_step: bool,
    ended_loads: Vec<(String, DispatchId)>,
    /// Requests that a restart has swept away.
    pub(crate) lost: u64,
    /// Ids of ended requests.
    pub(crate) ended: Vec<String>,
    /// Requests of this step that were one too many.
    refused: usize,
}

impl Engine {
    /// What a new life knows of the one before: nothing but that there was one.
    pub(crate) fn carry_over(&mut self, before: &Self) {
        self.lost = before.lost + before.jobs.len() as u64;
    }

    /// A rank has loaded something for a request.
    pub(crate) fn loaded(&mut self, id: &str, dispatch: DispatchId) {
        if self.in_step {
            self.ended_loads.push((id.to_owned(), dispatch));
            return;
        }
        // The id may be another request's by now.
        let mine = |job: &&mut Job| job.id == id && job.dispatches.contains(&dispatch);
        if let Some(job) = self.jobs.iter_mut().find(mine)
            && let Phase::Running { loads } = &mut job.phase
        {
            *loads = loads.saturating_sub(1);
        }
    }
}

impl World {
    /// A request has reached its engine.
    pub(crate) fn add_job(&mut self, number: usize, mut job: Job) {
        let ended = std::mem::take(&mut self.nodes[number].engine.ended);
        let live = |id: &String| !self.nodes[number].engine.jobs.iter().any(|job| job.id == *id);
        if let Some(id) = ended.into_iter().find(live)
            && self.fires(Fault::IdReused)
        {
            job.id = id;
        }
        job.arrived = self.now;
        self.nodes[number].engine.jobs.push(job);
        self.wake_engine(number);
    }

    fn wake_engine(&mut self, number: usize) {
        if std::mem::replace(&mut self.nodes[number].engine.stepping, true) {
            return;
        }
        let at = self.life(number);
        let (low, high) = self.setup.step;
        let mut length = self.random.skewed(low, high);
        if self.fires(Fault::LongStep) {
            length = self.random.skewed(500_000_000, 5_000_000_000);
        }
        self.push(self.now + length, Event::EngineStep(at));
    }

    /// One step of an engine: asks about each request, runs what may run, fails what has failed.
    pub(crate) fn engine_step(&mut self, number: usize) -> Step {
        self.nodes[number].engine.stepping = false;
        self.nodes[number].engine.refused = 0;
        self.nodes[number].engine.in_step = true;
        let mut jobs = std::mem::take(&mut self.nodes[number].engine.jobs);
        let mut kept = Vec::with_capacity(jobs.len());
        let mut running =
            jobs.iter().filter(|job| matches!(job.phase, Phase::Running { .. })).count();
        for mut job in jobs.drain(..) {
            let over = match job.phase {
                Phase::Waiting => {
                    self.ask(number, &mut job, &mut running)?;
                    false
                }
                Phase::Running { loads } => self.run_on(number, &mut job, loads, &mut running)?,
                Phase::Refused => false,
            };
            if over {
                let engine = &mut self.nodes[number].engine;
                engine.ended.push(job.id);
            } else {
                kept.push(job);
            }
        }
        let engine = &mut self.nodes[number].engine;
        (engine.jobs, engine.in_step) = (kept, false);
        for (id, dispatch) in std::mem::take(&mut engine.ended_loads) {
            engine.loaded(&id, dispatch);
        }
        self.take_failed(number)?;
        self.settle(number)?;
        if !self.nodes[number].engine.jobs.is_empty() {
            self.wake_engine(number);
        }
        Ok(())
    }

    fn ask(&mut self, number: usize, job: &mut Job, running: &mut usize) -> Step {
        let now = self.time();
        if !job.tracked {
            // Failures are kept for an engine that never takes them, but not without bound.
            let engine = &self.nodes[number].engine;
            if engine.refused >= self.setup.max_requests || !self.track(number, job)? {
                return Ok(());
            }
        }
        if *running >= self.setup.running {
            return Ok(());
        }
        let node = &mut self.nodes[number];
        let decision = node.instance.ensure(now, &job.id, job.items.len(), job.computed);
        let Some(decision) = decision else {
            return Err(broken(Promise::S6, format!("node {number} has forgotten {}", job.id)));
        };
        self.note("ensure", &[number as u64, job.request as u64, decision as u64]);
        ensure(!job.told_unavailable || decision == Decision::Unavailable, Promise::S6, || {
            format!("node {number}: {} was failed, and is told {decision:?}", job.id)
        })?;
        match decision {
            Decision::Wait => {
                self.tally.count("decision wait");
                job.asked = true;
                let mut items = self.nodes[number].instance.report(now, &job.id);
                let waits = items.any(|item| item.verdict == Verdict::Waiting);
                drop(items);
                ensure(waits, Promise::S5, || {
                    format!("node {number}: {} is to wait, and none of its items does", job.id)
                })?;
            }
            Decision::Ready | Decision::Fallback => {
                self.tally.count(if decision == Decision::Ready {
                    "decision ready"
                } else {
                    "decision fallback"
                });
                ensure(!job.probe || decision == Decision::Ready, Promise::Liveness, || {
                    format!("node {number}: {} falls back although all is well again", job.id)
                })?;
                *running += 1;
                self.admit(number, job, decision)?;
            }
            Decision::Unavailable => {
                self.tally.count("decision unavailable");
                job.told_unavailable = true;
            }
        }
        Ok(())
    }

    fn track(&mut self, number: usize, job: &mut Job) -> Step<bool> {
        let now = self.time();
        let items: Vec<Item> = job.items.iter().map(|item| item.item.clone()).collect();
        job.tracked = true;
        let tracked = self.nodes[number].instance.track(now, &job.id, items);
        self.note("track", &[number as u64, job.request as u64, u64::from(tracked.is_ok())]);
        match tracked {
            Ok(()) => Ok(true),
            Err(untracked) => {
                self.fired(Fault::TooManyRequests);
                self.nodes[number].engine.refused += 1;
                let id = &job.id;
                ensure(!job.probe, Promise::Liveness, || format!("{id} is one too many"))?;
                if untracked.decision == Decision::Unavailable {
                    job.phase = Phase::Refused;
                } else {
                    // It encodes all of its items, and is nobody's business here any more.
                    job.phase = Phase::Running { loads: 0 };
                    job.computed = job.tokens;
                }
                Ok(false)
            }
        }
    }

    /// The request runs: what it was promised is loaded, what it was not is encoded.
    fn admit(&mut self, number: usize, job: &mut Job, decision: Decision) -> Step {
        let now = self.time();
        let node = &self.nodes[number];
        let mut loads = Vec::new();
        let mut encodes = Vec::new();
        let report: Vec<_> = node
            .instance
            .report(now, &job.id)
            .map(|item| (item.hash.clone(), item.verdict, item.attempts, item.waited))
            .collect();
        for (hash, verdict, attempts, waited) in report {
            let Some(mine) = job.items.iter().find(|mine| mine.item.hash == hash) else { continue };
            let fits = match verdict {
                Verdict::Computed => true,
                Verdict::Ready => {
                    loads.push(mine.entry);
                    true
                }
                Verdict::NotAnnounced => {
                    encodes.push(mine.entry);
                    mine.item.local_input
                }
                Verdict::Fallback => {
                    encodes.push(mine.entry);
                    mine.item.local_input && decision == Decision::Fallback
                }
                Verdict::Waiting | Verdict::Unavailable => false,
            };
            ensure(fits, Promise::S6, || {
                format!("node {number}: {} runs, but its {hash} is {verdict:?}", job.id)
            })?;
            self.stats.item(verdict, attempts, waited);
        }
        self.stats.admitted(decision, self.now - job.arrived);
        job.since.fill(None);
        job.asked = false;
        // Other requests of the same step may take room before the loads are dispatched (hazard A9).
        if self.nodes[number].setup.role.serves() {
            for entry in &encodes {
                self.save(number, *entry)?;
            }
        }
        let mut waits_for = 0;
        for entry in loads {
            if let Some(dispatch) = self.load(number, entry, &job.id)? {
                job.dispatches.push(dispatch);
                waits_for += usize::from(RANKS);
            }
        }
        job.phase = Phase::Running { loads: waits_for };
        Ok(())
    }

    /// A running request computes on. True if it has ended.
    fn run_on(
        &mut self,
        number: usize,
        job: &mut Job,
        loads: usize,
        running: &mut usize,
    ) -> Step<bool> {
        let now = self.time();
        if loads > 0 {
            return Ok(false);
        }
        if job.computed >= job.tokens {
            self.nodes[number].instance.finish(now, &job.id);
            *running -= 1;
            self.note("finish", &[number as u64, job.request as u64]);
            return Ok(true);
        }
        job.computed = job.tokens.min(job.computed + self.random.between_u32(1, job.tokens));
        if self.fires(Fault::RequestPreempted) {
            job.computed = self.random.between_u32(0, job.computed);
            Self::wait_again(job);
            *running -= 1;
            return Ok(false);
        }
        if job.tracked && self.fires(Fault::RequestExtended) {
            self.extend(number, job)?;
            Self::wait_again(job);
            *running -= 1;
            return Ok(false);
        }
        // The engine has its own copy of the first item, and gives the region's back.
        if self.random.chance(200)
            && let Some(first) = job.items.first()
        {
            let hash = first.item.hash.clone();
            self.nodes[number].instance.release(now, &job.id, hash.as_str());
        }
        Ok(false)
    }

    fn wait_again(job: &mut Job) {
        job.phase = Phase::Waiting;
        job.asked = false;
    }

    /// A streaming session adds an item to a live request.
    fn extend(&mut self, number: usize, job: &mut Job) -> Step {
        let entry = self.random.index(self.setup.entries);
        if job.items.iter().any(|item| item.entry == entry) {
            return Ok(());
        }
        let end = job.tokens + 16;
        let item = self.local_item(entry, end);
        job.items.push(JobItem { entry, item });
        job.since.push(None);
        job.tokens = end + 4;
        let before = job.phase;
        if !self.track(number, job)? {
            job.outgrown = true;
            job.phase = before;
        }
        Ok(())
    }

    /// Takes the requests that have failed, each exactly once.
    fn take_failed(&mut self, number: usize) -> Step {
        let now = self.time();
        for id in self.nodes[number].instance.take_unavailable_requests() {
            let engine = &mut self.nodes[number].engine;
            let Some(at) = engine.jobs.iter().position(|job| *job.id == *id) else {
                let what =
                    format!("node {number}: {id} is reported as failed, and is no live request");
                return Err(broken(Promise::S6, what));
            };
            let job = engine.jobs.remove(at);
            let runs = matches!(job.phase, Phase::Running { .. });
            ensure(!runs || job.outgrown, Promise::S6, || {
                format!("node {number}: {id} was admitted and is reported as failed")
            })?;
            ensure(!job.probe, Promise::Liveness, || {
                format!("node {number}: {id} fails although all is well again")
            })?;
            self.check_failure(number, &job)?;
            self.nodes[number].instance.finish(now, &job.id);
            self.stats.failed(self.now - job.arrived);
            self.note("failed", &[number as u64, job.request as u64]);
            self.nodes[number].engine.ended.push(job.id);
        }
        let unreported = self.nodes[number]
            .engine
            .jobs
            .iter()
            .find(|job| job.told_unavailable || job.phase == Phase::Refused);
        match unreported {
            None => Ok(()),
            Some(job) => {
                let what = format!("node {number}: {} has failed and is not reported", job.id);
                Err(broken(Promise::S6, what))
            }
        }
    }

    /// S6: nobody is charged with a refusal that their own source has not given.
    fn check_failure(&self, number: usize, job: &Job) -> Step {
        let now = self.time();
        for item in self.nodes[number].instance.report(now, &job.id) {
            let Some(reason) = item.reason.filter(|reason| reason.word() == "nack_missing") else {
                continue;
            };
            let source = item.source.and_then(|source| self.directory.get(source)).copied();
            let entry = self.catalogue.number_of(item.hash.as_str()).map(|entry| entry as u64);
            let Some((source, entry)) = source.zip(entry) else { continue };
            let gave = self.missing.contains(&(source, entry)) || self.spoilt;
            ensure(gave, Promise::S6, || {
                format!(
                    "node {number}: {} fails for {}: {reason}, which node {source} never said",
                    job.id, item.hash
                )
            })?;
        }
        Ok(())
    }

    /// A client gives up.
    pub(crate) fn abort(&mut self, request: usize) -> Step {
        let now = self.time();
        let Some(number) = self.requests.get(request).map(|request| request.consumer) else {
            return Ok(());
        };
        let engine = &mut self.nodes[number].engine;
        let found = engine.jobs.iter().position(|job| job.request == request);
        let Some(at) = found.filter(|_| self.nodes[number].up) else { return Ok(()) };
        let job = self.nodes[number].engine.jobs.remove(at);
        self.tally.count(match job.phase {
            Phase::Waiting => "aborted while waiting",
            Phase::Running { .. } => "aborted while running",
            Phase::Refused => "aborted after a limit",
        });
        self.fired(Fault::RequestAborted);
        self.stats.aborted += 1;
        self.nodes[number].instance.finish(now, &job.id);
        self.nodes[number].engine.ended.push(job.id);
        self.settle(number)
    }
}
