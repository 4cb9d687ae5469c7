//! A simulated fleet: clock, chance, nodes, network, and what is going to happen next.

use std::collections::{BTreeMap, BTreeSet};

use chiasm_core::endpoint::Endpoint;
use chiasm_core::time::Nanos;

use crate::clients::Request;
use crate::content::Catalogue;
use crate::fault::{Fault, Rates};
use crate::host::{Host, Pid};
use crate::hostile_consumer::HostileConsumer;
use crate::memory::Memory;
use crate::network::Network;
use crate::node::{Node, endpoint_of};
use crate::phases::phases;
use crate::plan::Plan;
use crate::process::Process;
use crate::queue::{Event, Life, Queue};
use crate::random::Random;
use crate::run::Run;
use crate::setup::Setup;
use crate::stats::Stats;
use crate::tally::Tally;
use crate::trace::Trace;
use crate::violation::{Step, Violation};

/// Everything.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) setup: Setup,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    pub(crate) stats: Stats,
    pub(crate) catalogue: Catalogue,
    pub(crate) nodes: Vec<Node>,
    pub(crate) directory: BTreeMap<Endpoint, usize>,
    pub(crate) network: Network,
    pub(crate) hostiles: Vec<HostileConsumer>,
    pub(crate) requests: Vec<Request>,
    pub(crate) plan: Plan,
    /// Parts that the whole plan has.
    pub(crate) planned: usize,
    /// Faults have stopped.
    pub(crate) quiet: bool,
    /// Memory of lives that are over: mappings of it live on.
    pub(crate) graves: BTreeMap<(usize, u32), Memory>,
    /// Who has, of which entry, granted other blocks without a digest that could tell.
    pub(crate) forged: BTreeSet<(usize, usize)>,
    /// Who has said of which entry that it is missing.
    pub(crate) missing: BTreeSet<(usize, u64)>,
    /// Messages were corrupted: what a producer was asked for may be something else.
    pub(crate) spoilt: bool,
    pub(crate) junk_count: u64,
    /// Regions' files and the processes around them, by host.
    pub(crate) hosts: BTreeMap<u64, Host>,
    pub(crate) processes: BTreeMap<Pid, Process>,
    pub(crate) next_pid: Pid,
    queue: Queue,
}

impl World {
    /// The fleet of a run, before anything has happened.
    pub(crate) fn new(run: &Run) -> Self {
        let mut setup = run.setup.clone();
        let mut random = Random::new(setup.seed ^ 0x77_6f72_6c64);
        let mut catalogue = Catalogue::new(setup.block_size_bytes);
        let (smallest, largest) = setup.entry_blocks;
        for _ in 0..setup.entries + setup.tenants() {
            let blocks = random.between_u32(smallest, largest);
            catalogue.add_random(blocks, &mut random);
        }
        let mut plan = Plan::new(&setup, &mut random.fork());
        let planned = plan.items.len();
        if let Some(keep) = &run.keep {
            plan = plan.only(keep);
        }
        plan = plan.without(&run.without);
        for fault in &run.without {
            setup.rates.set(*fault, 0);
        }
        let nodes: Vec<Node> =
            (0..setup.nodes.len()).map(|number| Node::new(number, &setup, &mut random)).collect();
        let directory = (0..nodes.len()).map(|number| (endpoint_of(number), number)).collect();
        let serving: Vec<usize> =
            (0..nodes.len()).filter(|number| setup.nodes[*number].role.serves()).collect();
        let hostiles = (0..setup.hostile_consumers)
            .map(|_| HostileConsumer::new(random.pick(&serving).copied().unwrap_or(0)))
            .collect();
        Self {
            now: 0,
            random,
            trace: Trace::new(run.keeps_lines),
            tally: Tally::default(),
            stats: Stats::default(),
            catalogue,
            nodes,
            directory,
            network: Network::default(),
            hostiles,
            requests: Vec::new(),
            plan,
            planned,
            quiet: false,
            graves: BTreeMap::new(),
            forged: BTreeSet::new(),
            missing: BTreeSet::new(),
            spoilt: false,
            junk_count: 0,
            hosts: BTreeMap::new(),
            processes: BTreeMap::new(),
            next_pid: 0,
            queue: Queue::default(),
            setup,
        }
    }

    /// Runs to the end, or to the first promise that is broken. `progress` is told how much simulated
    /// time has passed, now and then.
    pub(crate) fn run(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), Violation> {
        for (number, (at, _)) in self.plan.items.clone().into_iter().enumerate() {
            self.push(at, Event::Plan(number));
        }
        for which in 0..self.hostiles.len() {
            self.push(1_000_000, Event::Hostile(which));
        }
        for (at, phase) in phases(&self.setup) {
            self.push(at, Event::Phase(phase));
        }
        let begun = self.launch_all();
        begun.map_err(|broken| Violation { promise: broken.promise, at: 0, what: broken.what })?;
        for number in 0..self.nodes.len() {
            self.start_serve_helper(number, 0);
        }
        let mut steps = 0_u64;
        while let Some((at, event)) = self.queue.pop() {
            self.now = self.now.max(at);
            steps += 1;
            if steps.is_multiple_of(4096) {
                progress(self.now);
            }
            let at = self.now;
            self.happen(event).map_err(|broken| Violation {
                promise: broken.promise,
                at,
                what: broken.what,
            })?;
        }
        for number in 0..self.nodes.len() {
            self.count_life(number);
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Step {
        if self.is_deferred(&event) {
            return Ok(());
        }
        if let Some(at) = event.life() {
            let node = &self.nodes[at.node];
            if !node.up || node.life != at.life {
                return Ok(());
            }
        }
        match event {
            Event::Plan(number) => self.follow_plan(number),
            Event::Phase(phase) => self.enter(phase),
            Event::Wake(at) => {
                self.nodes[at.node].wake_at = u64::MAX;
                self.settle(at.node)
            }
            Event::EngineStep(at) => self.engine_step(at.node),
            Event::Accept { connection } => self.accept(connection),
            Event::Connected { connection, accepted } => self.connected(connection, accepted),
            Event::Deliver { connection, to_server } => self.deliver(connection, to_server),
            Event::Encode { request } => self.encode(request),
            Event::Arrive { request } => {
                self.arrive(request);
                Ok(())
            }
            Event::Abort { request } => self.abort(request),
            Event::Work { at, task } => self.work(at.node, task),
            Event::Report { at, task } => self.report(at.node, task),
            Event::Process { pid } => self.process_step(pid),
            Event::ProcessEnds { pid } => self.process_is_over(pid),
            Event::HelpersEnd { host, of } => {
                if let Some(host) = self.hosts.get_mut(&host) {
                    host.end_helpers(of);
                }
                Ok(())
            }
            Event::WorkerGone { at, rank } => self.worker_gone(at.node, rank),
            Event::StreamOpen { at, reader, transfer } => {
                self.stream_open(at.node, reader, transfer)
            }
            Event::StreamSend { at, stream } => self.stream_send(at.node, stream),
            Event::StreamGone { at, stream } => self.stream_gone(at.node, stream),
            Event::ReaderDead { at, peer } => self.reader_dead(at.node, peer),
            Event::Land { at, transfer, words } => self.land(at.node, transfer, &words),
            Event::ReadOver { at, transfer, why } => self.read_over(at.node, transfer, why),
            Event::Copy { at, transfer } => self.copy(at.node, transfer),
            Event::AgentUp { at } => self.agent_up(at.node),
            Event::HelperLoads { at, helper, agent } => {
                self.helper_loads(at.node, helper, agent);
                Ok(())
            }
            Event::HelperReads { at, helper, transfer } => {
                self.helper_reads(at.node, helper, transfer)
            }
            Event::HelperDue { at, helper } => self.helper_due(at.node, helper),
            Event::HelperNews { at, helper, news } => self.helper_news(at.node, helper, news),
            Event::Start { node } => {
                self.start(node);
                Ok(())
            }
            Event::SetRight { node } => self.set_right(node),
            Event::Resume { node } => self.resume(node),
            Event::Hostile(which) => self.hostile_acts(which),
            Event::AllowAll(at) => self.reload_allowlist(at.node, true),
        }
    }

    /// What happens to a paused node waits until it goes on, in its order.
    fn is_deferred(&mut self, event: &Event) -> bool {
        let node = match event {
            Event::Deliver { connection, to_server } => {
                self.ends(*connection, *to_server).map(|(_, to)| to)
            }
            Event::Connected { connection, .. } => self.ends(*connection, false).map(|(_, to)| to),
            Event::Arrive { request } | Event::Abort { request } => {
                self.requests.get(*request).map(|request| request.consumer)
            }
            // Processes of their own, which go on.
            Event::HelperLoads { .. } | Event::HelperReads { .. } => None,
            other => other.life().map(|at| at.node),
        };
        let Some(node) = node.and_then(|number| self.nodes.get_mut(number)) else { return false };
        let paused = node.up && node.paused_until > self.now;
        if paused {
            node.backlog.push(event.clone());
        }
        paused
    }

    pub(crate) fn resume(&mut self, number: usize) -> Step {
        if self.nodes[number].paused_until > self.now {
            return Ok(());
        }
        // What has waited in sockets is there before the timers are looked at.
        for event in std::mem::take(&mut self.nodes[number].backlog) {
            self.happen(event)?;
        }
        self.settle(number)
    }

    pub(crate) fn push(&mut self, at: u64, event: Event) {
        let tie = self.random.next();
        self.queue.push(at.max(self.now), tie, event);
    }

    pub(crate) fn time(&self) -> Nanos {
        Nanos::from_nanos(self.now)
    }

    pub(crate) fn life(&self, node: usize) -> Life {
        Life { node, life: self.nodes[node].life }
    }

    pub(crate) fn note(&mut self, what: &'static str, numbers: &[u64]) {
        self.trace.note(self.now, what, numbers);
    }

    /// Whether a fault happens here and now; counts it if it does.
    pub(crate) fn fires(&mut self, fault: Fault) -> bool {
        let rate = self.setup.rates.of(fault);
        let fires = rate > 0 && !self.quiet && self.random.chance(rate);
        if fires {
            self.fired(fault);
            self.spoilt |= fault == Fault::MessageCorrupted;
        }
        fires
    }

    /// Counts a fault that has happened.
    pub(crate) fn fired(&mut self, fault: Fault) {
        self.tally.count(fault.name());
        self.note(fault.name(), &[]);
    }

    /// All is well from now on, and as fast as it should be.
    pub(crate) fn calm(&mut self) {
        self.quiet = true;
        self.setup.block_time = (10_000, 1_000_000);
        self.setup.rates = Rates::none();
    }
}
