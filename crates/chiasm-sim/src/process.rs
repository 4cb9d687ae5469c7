//! Simulated processes: how a node and its worker start, fail half way, end and are killed, around the
//! region of one name. Each step is about one system call, and those of other processes come between.
//!
//! Whether a region lives and may be removed is decided by [`chiasm_core::reclaim`], as on a real machine;
//! the order of the steps around that follows `chiasm-region` and the node by hand.

use chiasm_core::plane::Plane;
use chiasm_core::reclaim::{Join, Reclaim};

use crate::fault::Fault;
use crate::host::{Inode, Pid};
use crate::node::region_of;
use crate::queue::Event;
use crate::violation::{Promise, Step, ensure};
use crate::world::World;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// Looks at a name that somebody is just removing, and rounds of finding and losing it, as at the region.
pub(crate) const BUSY_ATTEMPTS: u32 = 100;
const ATTEMPTS: u32 = 64;

/// Helpers of one node where it uses nixl.
pub(crate) const HELPERS: u8 = 2;

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The node of this number.
    Node(usize),
    /// A worker of that node: it shares the region, and is not its node.
    Worker(usize),
    /// The node of another instance that was given the same name.
    Rival,
    /// It only looks for what dead processes have left.
    Tidier,
}

/// Where a process is.
#[derive(Clone, Debug)]
pub(crate) enum At {
    Listing,
    Sweeping { left: Vec<String>, reclaim: Reclaim },
    Joining(Join),
    Clearing(Reclaim),
    Waiting,
    Drafting,
    LockingDraft,
    Reserving,
    Writing,
    Linking,
    Claiming,
    Binding(usize),
    Helping(u8),
    Up,
    Unbinding(usize),
    Undrafting,
    Unnaming,
    Closing,
    Leaving(Reclaim),
    Over,
}

/// One process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) host: u64,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) at: At,
    /// What a look has opened.
    pub(crate) opened: Option<Inode>,
    /// The region that it holds, or is making.
    pub(crate) file: Option<Inode>,
    pub(crate) draft: Option<String>,
    pub(crate) claimed: bool,
    pub(crate) failed: bool,
    pub(crate) rounds: u32,
    pub(crate) busy: u32,
}

impl Process {
    fn is_starting(&self) -> bool {
        !matches!(
            self.at,
            At::Up
                | At::Unbinding(_)
                | At::Undrafting
                | At::Unnaming
                | At::Closing
                | At::Leaving(_)
                | At::Over
        )
    }
}

impl World {
    /// Starts a process on a host.
    pub(crate) fn launch_process(&mut self, kind: Kind, host: u64, name: String) -> Pid {
        self.next_pid += 1;
        // Workers leave tidying up to the node.
        let worker = matches!(kind, Kind::Worker(_));
        let at = if worker { At::Joining(Join::new()) } else { At::Listing };
        let (opened, file, draft, claimed, failed) = (None, None, None, false, false);
        let (rounds, busy) = (ATTEMPTS, BUSY_ATTEMPTS);
        let process =
            Process { host, kind, name, at, opened, file, draft, claimed, failed, rounds, busy };
        self.processes.insert(self.next_pid, process);
        self.next_pid
    }

    /// The two processes of a node start, in whatever order.
    pub(crate) fn launch_node(&mut self, number: usize) {
        let host = self.setup.nodes[number].host;
        for kind in [Kind::Node(number), Kind::Worker(number)] {
            let pid = self.launch_process(kind, host, region_of(number));
            let place = usize::from(kind != Kind::Node(number));
            self.nodes[number].processes[place] = Some(pid);
            let when = self.now + self.random.skewed(1_000, 50 * MILLISECOND);
            self.push(when, Event::Process { pid });
        }
    }

    /// Before anything else, all nodes of all hosts start at once.
    pub(crate) fn launch_all(&mut self) -> Step {
        for number in 0..self.nodes.len() {
            let host = self.setup.nodes[number].host;
            let pid = self.launch_process(Kind::Node(number), host, region_of(number));
            let worker = self.launch_process(Kind::Worker(number), host, region_of(number));
            self.nodes[number].processes = [Some(pid), Some(worker)];
        }
        loop {
            let starting = self.processes.iter().filter(|(_, process)| process.is_starting());
            let starting: Vec<Pid> = starting.map(|(pid, _)| *pid).collect();
            let Some(pid) = self.random.pick(&starting).copied() else { return Ok(()) };
            self.advance(pid)?;
        }
    }

    /// One step of a process, and when the next one is.
    pub(crate) fn process_step(&mut self, pid: Pid) -> Step {
        let Some(process) = self.processes.get(&pid) else { return Ok(()) };
        if process.is_starting() && process.kind != Kind::Tidier {
            if self.fires(Fault::StartKilled) {
                return self.process_killed(pid);
            }
            if self.fires(Fault::StartFailed) {
                self.start_fails(pid);
            }
        }
        self.advance(pid)?;
        let Some(process) = self.processes.get(&pid) else { return Ok(()) };
        let delay = match process.at {
            At::Up => return Ok(()),
            At::Waiting => MILLISECOND,
            _ => self.random.skewed(1_000, 3 * MILLISECOND),
        };
        self.push(self.now + delay, Event::Process { pid });
        Ok(())
    }

    /// One step of a process; then everybody's promises on that host.
    fn advance(&mut self, pid: Pid) -> Step {
        let Some(mut process) = self.processes.remove(&pid) else { return Ok(()) };
        let before = process.kind;
        let host = process.host;
        let stepped = self.step_of(pid, &mut process);
        let (up, over) = (matches!(process.at, At::Up), matches!(process.at, At::Over));
        let failed = process.failed;
        if over {
            let it = self.hosts.entry(host).or_default();
            it.check_ended(pid)?;
            it.reap(pid);
            if failed {
                it.end_helpers(pid);
                it.check_failed(pid)?;
            }
        } else {
            self.processes.insert(pid, process);
        }
        stepped?;
        self.check_host(host)?;
        match before {
            Kind::Node(number) if up => self.come_up(number),
            Kind::Node(number) if over && failed => {
                self.start_again_later(number);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// S9, of every node that runs on a host.
    fn check_host(&self, host: u64) -> Step {
        let Some(it) = self.hosts.get(&host).filter(|_| self.setup.checks) else { return Ok(()) };
        for (pid, process) in self.processes.iter().filter(|(_, other)| other.host == host) {
            if let (At::Up, true, Some(file)) = (&process.at, process.claimed, process.file) {
                it.check_node(*pid, &process.name, file)?;
            }
        }
        Ok(())
    }

    /// A start ends with an error: what it has done is undone, in its order.
    fn start_fails(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        (process.failed, process.at) = (true, At::Unbinding(0));
        let mut process = process.clone();
        self.let_go_of_look(pid, &mut process);
        self.processes.insert(pid, process);
    }

    /// A process ends by itself.
    pub(crate) fn process_ends(&mut self, pid: Pid) {
        let starting = self.processes.get(&pid).is_some_and(Process::is_starting);
        if starting {
            self.start_fails(pid);
            return;
        }
        if let Some(process) = self.processes.get_mut(&pid).filter(|it| matches!(it.at, At::Up)) {
            process.at = At::Unbinding(0);
            self.end_helpers_of(pid);
            self.push(self.now, Event::Process { pid });
        }
    }

    /// A process is killed: its descriptors go, what it has named stays.
    pub(crate) fn process_killed(&mut self, pid: Pid) -> Step {
        let Some(process) = self.processes.remove(&pid) else { return Ok(()) };
        self.tally.count("process killed");
        self.end_helpers_of_dead(&process, pid);
        self.hosts.entry(process.host).or_default().reap(pid);
        if let (Kind::Node(number), true) = (process.kind, process.is_starting()) {
            self.start_again_later(number);
        }
        self.check_host(process.host)
    }

    fn end_helpers_of(&mut self, pid: Pid) {
        if let Some(process) = self.processes.get(&pid).cloned() {
            self.end_helpers_of_dead(&process, pid);
        }
    }

    /// Helpers see that their socket is closed, sooner or later.
    fn end_helpers_of_dead(&mut self, process: &Process, pid: Pid) {
        let when = self.now + self.random.skewed(MILLISECOND, 2 * SECOND);
        self.push(when, Event::HelpersEnd { host: process.host, of: pid });
    }

    /// The supervisor tries again, with a new worker too.
    fn start_again_later(&mut self, number: usize) {
        if let Some(worker) = self.nodes[number].processes[1].take() {
            self.process_ends(worker);
        }
        self.nodes[number].processes[0] = None;
        self.push(self.now + SECOND, Event::Start { node: number });
    }

    /// A node's processes end with its life; its worker may take a while.
    pub(crate) fn end_processes(&mut self, number: usize, killed: bool) -> Step {
        let [node, worker] = std::mem::take(&mut self.nodes[number].processes);
        if let Some(worker) = worker {
            let lingers = self.fires(Fault::WorkerLingers);
            let longest = if lingers { 5 * SECOND } else { 20 * MILLISECOND };
            let when = self.now + self.random.skewed(100_000, longest);
            self.push(when, Event::ProcessEnds { pid: worker });
        }
        match node {
            Some(node) if killed => self.process_killed(node),
            Some(node) => {
                self.process_ends(node);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Another instance starts under a node's name, and stays until then if it may.
    pub(crate) fn rival_starts(&mut self, number: usize, until: u64) {
        self.fired(Fault::NameTaken);
        let pid =
            self.launch_process(Kind::Rival, self.setup.nodes[number].host, region_of(number));
        self.push(self.now, Event::Process { pid });
        self.push(until, Event::ProcessEnds { pid });
    }

    /// Who has taken somebody's name goes.
    pub(crate) fn rivals_go(&mut self) {
        let rivals = self.processes.iter().filter(|(_, it)| it.kind == Kind::Rival);
        let rivals: Vec<Pid> = rivals.map(|(pid, _)| *pid).collect();
        for pid in rivals {
            self.process_ends(pid);
        }
    }

    /// It ends by itself, or is killed.
    pub(crate) fn process_is_over(&mut self, pid: Pid) -> Step {
        if self.random.chance(500) {
            return self.process_killed(pid);
        }
        self.process_ends(pid);
        Ok(())
    }

    /// One more start on each host; then nothing is left of any dead process (S9).
    pub(crate) fn check_hosts_at_rest(&mut self) -> Step {
        for host in self.hosts.keys().copied().collect::<Vec<_>>() {
            let tidier = self.launch_process(Kind::Tidier, host, String::new());
            while self.processes.contains_key(&tidier) {
                self.advance(tidier)?;
            }
            let Some(it) = self.hosts.get(&host) else { continue };
            it.check_rest()?;
            let of_it = self.processes.values().filter(|other| other.host == host);
            let nodes = of_it.filter(|other| other.claimed && matches!(other.at, At::Up)).count();
            let nixl = self.setup.planes.contains(Plane::Nixl);
            let expected = if nixl { nodes * usize::from(HELPERS) } else { 0 };
            ensure(it.helpers() == expected, Promise::S9, || {
                format!("host {host} has {} helpers when all is over, not {expected}", it.helpers())
            })?;
        }
        Ok(())
    }
}
