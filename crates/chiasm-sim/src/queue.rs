//! What is going to happen, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use chiasm_core::consumer::TransferId;
use chiasm_core::dispatch::Rank;
use chiasm_core::producer::{PeerId, StreamId};

use crate::host::Pid;
use crate::nixl::News;

/// One life of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) node: usize,
    pub(crate) life: u32,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The faults stop.
    Quiet,
    /// A consumer is asked for something that must succeed.
    Probe(usize),
    /// It has had its time.
    Judge(usize),
    /// Nothing is under way any more.
    Rest,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The next thing of the plan.
    Plan(usize),
    /// A part of the run begins.
    Phase(Phase),
    /// A node looks at its timers.
    Wake(Life),
    /// An engine step.
    EngineStep(Life),
    /// A connect reaches its endpoint.
    Accept { connection: u64 },
    /// The answer to a connect reaches who made it.
    Connected { connection: u64, accepted: bool },
    /// The next chunk of a pipe is there.
    Deliver { connection: u64, to_server: bool },
    /// A request reaches the encoders of its items.
    Encode { request: usize },
    /// A request reaches its consumer.
    Arrive { request: usize },
    /// A request is aborted by its client.
    Abort { request: usize },
    /// A worker gets on with a task.
    Work { at: Life, task: u64 },
    /// A worker's report is taken out of its ring.
    Report { at: Life, task: u64 },
    /// A process of a host takes its next step.
    Process { pid: Pid },
    /// A process of a host ends.
    ProcessEnds { pid: Pid },
    /// The helpers of a process have seen it end.
    HelpersEnd { host: u64, of: Pid },
    /// A worker is found to be dead.
    WorkerGone { at: Life, rank: Rank },
    /// A data stream's first bytes reach the producer.
    StreamOpen { at: Life, reader: Life, transfer: TransferId },
    /// A producer sends more on a data stream.
    StreamSend { at: Life, stream: StreamId },
    /// A reader has closed its end of a data stream.
    StreamGone { at: Life, stream: StreamId },
    /// A producer sees by its lock that the region of a reader over shm has no owner any more.
    ReaderDead { at: Life, peer: PeerId },
    /// Blocks of a data stream arrive.
    Land { at: Life, transfer: TransferId, words: Vec<u64> },
    /// A data stream is lost, refused or let go.
    ReadOver { at: Life, transfer: TransferId, why: &'static str },
    /// A reader copies more from another's region.
    Copy { at: Life, transfer: TransferId },
    /// The helper through which a node serves over nixl is up.
    AgentUp { at: Life },
    /// A read helper loads a producer's agent.
    HelperLoads { at: Life, helper: u64, agent: u64 },
    /// A read helper moves more of a read.
    HelperReads { at: Life, helper: u64, transfer: TransferId },
    /// A read helper is killed, if there is still a reason to.
    HelperDue { at: Life, helper: u64 },
    /// A node takes what one of its read helpers has said.
    HelperNews { at: Life, helper: u64, news: News },
    /// A node that was down starts again.
    Start { node: usize },
    /// A node that was started with another configuration than the rest is started with theirs.
    SetRight { node: usize },
    /// A node that was paused goes on.
    Resume { node: usize },
    /// A hostile consumer does something.
    Hostile(usize),
    /// The allowlist of a node is whole again.
    AllowAll(Life),
}

impl Event {
    /// Whom it happens to, and in which life of it; `None` if it is nobody in particular.
    pub(crate) fn life(&self) -> Option<Life> {
        match self {
            Self::Wake(at)
            | Self::EngineStep(at)
            | Self::AllowAll(at)
            | Self::Work { at, .. }
            | Self::Report { at, .. }
            | Self::WorkerGone { at, .. }
            | Self::StreamOpen { at, .. }
            | Self::StreamSend { at, .. }
            | Self::StreamGone { at, .. }
            | Self::ReaderDead { at, .. }
            | Self::Land { at, .. }
            | Self::ReadOver { at, .. }
            | Self::AgentUp { at }
            | Self::HelperLoads { at, .. }
            | Self::HelperReads { at, .. }
            | Self::HelperDue { at, .. }
            | Self::HelperNews { at, .. }
            | Self::Copy { at, .. } => Some(*at),
            Self::Plan(_)
            | Self::Phase(_)
            | Self::Resume { .. }
            | Self::Accept { .. }
            | Self::Connected { .. }
            | Self::Deliver { .. }
            | Self::Encode { .. }
            | Self::Arrive { .. }
            | Self::Abort { .. }
            | Self::Start { .. }
            | Self::SetRight { .. }
            | Self::Process { .. }
            | Self::ProcessEnds { .. }
            | Self::HelpersEnd { .. }
            | Self::Hostile(_) => None,
        }
    }
}

#[derive(Debug)]
struct Due {
    at: u64,
    /// Decides among events of one instant. Drawn, so that every order of them is seen.
    tie: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.tie) == (other.at, other.tie)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.tie).cmp(&(other.at, other.tie))
    }
}

/// Everything that is due.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Due>>,
}

impl Queue {
    pub(crate) fn push(&mut self, at: u64, tie: u64, event: Event) {
        self.heap.push(Reverse(Due { at, tie, event }));
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(due)| (due.at, due.event))
    }
}
