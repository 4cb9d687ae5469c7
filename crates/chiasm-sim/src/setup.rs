//! What a simulated fleet is made of: nodes, sizes, times, and how likely each fault is.

use std::time::Duration;

use chiasm_core::plane::{Plane, PlaneList};

use crate::fault::{Fault, Rates};
use crate::random::Random;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It encodes and serves.
    Encoder,
    /// It reads, and encodes only what it falls back for.
    Consumer,
    /// Both.
    Both,
}

impl Role {
    /// Whether others read from it.
    #[must_use]
    pub const fn serves(self) -> bool {
        matches!(self, Self::Encoder | Self::Both)
    }

    /// Whether it runs requests.
    #[must_use]
    pub const fn consumes(self) -> bool {
        matches!(self, Self::Consumer | Self::Both)
    }
}

/// One node of the fleet.
#[derive(Clone, Copy, Debug)]
pub struct NodeSetup {
    /// What it does.
    pub role: Role,
    /// The machine that it runs on: nodes of one host reach each other over shm.
    pub host: u64,
    /// Blocks of its region.
    pub blocks: u32,
    /// Whether it lies to its peers, although they have approved it.
    pub hostile: bool,
}

/// A fleet and what happens to it. Everything that is not here is a default of the product.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where all chance comes from.
    pub seed: u64,
    /// The nodes, encoders first.
    pub nodes: Vec<NodeSetup>,
    /// Consumers that belong to nobody and mean no good.
    pub hostile_consumers: usize,
    /// Bytes of one block.
    pub block_size_bytes: u64,
    /// Different encoder outputs that requests ask for.
    pub entries: usize,
    /// Smallest and largest of them, in blocks.
    pub entry_blocks: (u32, u32),
    /// Encoder outputs that are saved for nobody, each one of a few that are saved again and again.
    pub churn: usize,
    /// How much more often popular entries are asked for: 0 all alike, 1 as words in a text.
    pub popularity: f64,
    /// Planes in order of preference, for all nodes.
    pub planes: PlaneList,
    /// Whether entries have digests and readers look at them.
    pub digests: bool,
    /// `pin_lease_s`.
    pub lease: Duration,
    /// Part of a lease that a reader leaves unused.
    pub lease_margin: Duration,
    /// `consumer_ack_timeout_s`.
    pub ack_timeout: Duration,
    /// `read_timeout_s`.
    pub read_timeout: Duration,
    /// `wait_budget_s`.
    pub wait_budget: Duration,
    /// `save_timeout_s`.
    pub save_timeout: Duration,
    /// `quarantine_s`.
    pub quarantine: Duration,
    /// `connect_timeout_s`.
    pub connect_timeout: Duration,
    /// Requests that an engine may track; admission's own default is far above what is simulated.
    pub max_requests: usize,
    /// Transfers under way from one producer.
    pub max_transfers_per_source: usize,
    /// Grants that one peer may hold.
    pub max_grants_per_peer: usize,
    /// Bytes that may wait to be written on one control connection.
    pub max_output_bytes: usize,
    /// Requests that run at once on one node.
    pub running: usize,
    /// Shortest and longest engine step, in nanoseconds.
    pub step: (u64, u64),
    /// How long an encoder takes for a request, shortest and longest, in nanoseconds.
    pub encode: (u64, u64),
    /// Blocks that a worker or a plane moves at once.
    pub slice_blocks: usize,
    /// One way through the network, shortest and longest, in nanoseconds.
    pub latency: (u64, u64),
    /// Time per block on a worker or a plane, shortest and longest, in nanoseconds.
    pub block_time: (u64, u64),
    /// Requests in all.
    pub requests: usize,
    /// Further requests to a producer that lies, one after the other, each aborted within a moment but
    /// the last.
    pub short_waits: usize,
    /// Items of one request, at most.
    pub items: usize,
    /// Simulated time over which requests arrive and faults happen, in nanoseconds.
    pub span: u64,
    /// Requests in a thousand that have real input for their items.
    pub local_input: u32,
    /// How likely each fault is.
    pub rates: Rates,
    /// Whether promises are checked after every step.
    pub checks: bool,
}

/// Without digests nothing can tell these from what was meant: the network and approved producers are
/// trusted.
const UNPROVEN: &[Fault] = &[Fault::MessageCorrupted, Fault::DataCorrupted, Fault::OtherEncoding];

impl Setup {
    /// The fleet that a seed stands for. Each seed turns on some faults and leaves out others: where
    /// everything goes wrong at once, most of the states that lie behind a success are never seen.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut planes = PlaneList::EMPTY;
        for plane in *random
            .pick(&[
                &[Plane::Shm, Plane::Tcp] as &[Plane],
                &[Plane::Tcp],
                &[Plane::Tcp, Plane::Shm],
                &[Plane::Nixl, Plane::Tcp],
                &[Plane::Shm, Plane::Nixl, Plane::Tcp],
                &[Plane::Nixl, Plane::Shm, Plane::Tcp],
                &[Plane::Nixl],
                &[Plane::Nixl],
            ])
            .unwrap_or(&(&[Plane::Tcp] as &[Plane]))
        {
            planes.push(*plane);
        }
        let lease = Duration::from_nanos(random.between(2, 30) * SECOND);
        let short = random.chance(500);
        let span = if short { 20 } else { 90 } * SECOND;
        let mut setup = Self {
            seed,
            nodes: nodes(&mut random),
            hostile_consumers: if random.chance(300) { 1 + random.index(3) } else { 0 },
            block_size_bytes: 64,
            entries: usize::try_from(random.between(6, 24)).unwrap_or(6),
            entry_blocks: (1, random.between_u32(2, 8)),
            churn: usize::try_from(random.below(120)).unwrap_or(0),
            popularity: 0.6,
            planes,
            digests: random.chance(600),
            lease,
            lease_margin: Duration::from_millis(random.between(1, 1000)),
            ack_timeout: Duration::from_secs(random.between(1, 30)),
            read_timeout: lease.mul_f64(0.6),
            wait_budget: Duration::from_secs(random.between(16, 60)),
            save_timeout: Duration::from_secs(random.between(2, 60)),
            quarantine: Duration::from_secs(random.between(5, 60)),
            connect_timeout: Duration::from_secs(3),
            max_requests: 64,
            max_transfers_per_source: if random.chance(300) { 2 } else { 256 },
            max_grants_per_peer: if random.chance(200) { 3 } else { 384 },
            max_output_bytes: 16 << 10,
            running: usize::try_from(random.between(2, 6)).unwrap_or(2),
            step: (5 * MILLISECOND, random.skewed(20 * MILLISECOND, SECOND)),
            encode: (100_000, random.skewed(MILLISECOND, 300 * MILLISECOND)),
            slice_blocks: 3,
            latency: (50_000, random.skewed(MILLISECOND, 50 * MILLISECOND)),
            block_time: (10_000, random.skewed(100_000, 200 * MILLISECOND)),
            requests: usize::try_from(random.between(20, 90)).unwrap_or(20),
            short_waits: 0,
            items: usize::try_from(random.between(1, 4)).unwrap_or(1),
            span,
            local_input: *random.pick(&[0, 500, 1000]).unwrap_or(&0),
            rates: Rates::none(),
            checks: true,
        };
        if random.chance(100) {
            setup.max_requests = 4;
        }
        setup.draw_rates(&mut random);
        if random.chance(200) {
            setup.be_late(&mut random);
        }
        match random.below(1000) {
            0..25 => setup.be_impatient(),
            25..65 => setup.be_wrong(&mut random),
            _ => {}
        }
        // A link that is stuck is made anew after one wait for an ack: time for another attempt.
        setup.wait_budget = setup.wait_budget.max(setup.ack_timeout + Duration::from_secs(16));
        setup
    }

    /// A fleet in which reads take about as long as leases, and nothing but the lease says whether
    /// their bytes count.
    fn be_late(&mut self, random: &mut Random) {
        self.digests = false;
        for fault in UNPROVEN {
            self.rates.set(*fault, 0);
        }
        self.lease = Duration::from_secs(random.between(2, 4));
        self.lease_margin = Duration::from_millis(random.between(1, 20));
        self.read_timeout = self.lease.mul_f64(0.9);
        self.ack_timeout = self.lease * 2;
        self.block_time = (SECOND / 20, SECOND);
        self.slice_blocks = 1;
        self.churn = 200;
        self.rates.set(Fault::MessageDelayed, random.between_u32(20, 120));
    }

    /// A fleet with a producer whose agent or whose digests are wrong nearly always, and no other plane or
    /// answer to be had from it.
    fn be_wrong(&mut self, random: &mut Random) {
        for fault in [Fault::Silence, Fault::EndlessNotReady, Fault::RefusesForGood] {
            self.rates.set(fault, 0);
        }
        if random.chance(600) {
            self.planes = PlaneList::from_iter([Plane::Nixl]);
            self.rates.set(Fault::BadAgent, 900);
        } else {
            self.digests = true;
            self.rates.set(Fault::BadAgent, 0);
            self.rates.set(Fault::WrongDigest, 900);
        }
        for (number, node) in self.nodes.iter_mut().enumerate() {
            node.hostile = number == 0;
        }
    }

    /// A fleet with a producer that answers nothing, and a consumer whose clients wait so briefly that
    /// no request is given up for the producer's silence: it is left with too many that are unanswered.
    fn be_impatient(&mut self) {
        self.rates = Rates::none();
        self.rates.set(Fault::Silence, 1000);
        self.hostile_consumers = 0;
        for (number, node) in self.nodes.iter_mut().enumerate() {
            node.hostile = number == 0;
        }
        self.ack_timeout = Duration::from_secs(30);
        self.span = 90 * SECOND;
        (self.entries, self.entry_blocks, self.churn) = (24, (1, 1), 0);
        self.step = (5 * MILLISECOND, 20 * MILLISECOND);
        self.encode = (100_000, MILLISECOND);
        (self.max_requests, self.max_transfers_per_source) = (64, 256);
        self.requests = 0;
        self.local_input = 0;
        self.short_waits = 400;
    }

    /// How many different encoder outputs are saved for nobody.
    #[must_use]
    pub fn tenants(&self) -> usize {
        self.churn.min(16)
    }

    /// One world in eight is without faults; in the others each fault is there with one in three.
    fn draw_rates(&mut self, random: &mut Random) {
        let calm = random.chance(125);
        for fault in Fault::ALL {
            let (on, most) = (random.chance(330), most(*fault));
            let rate = match fault {
                // What they make worse is seldom by itself.
                Fault::SlowAbort
                | Fault::SlowReap
                | Fault::BadAgent
                | Fault::WrongDigest
                | Fault::WrongLength
                | Fault::Garbage
                | Fault::OtherEncoding
                | Fault::WorkerLingers => random.between(100, most),
                _ => random.skewed(1, most),
            };
            if on && !calm {
                self.rates.set(*fault, u32::try_from(rate).unwrap_or(0));
            }
        }
        if !self.digests {
            for fault in UNPROVEN {
                self.rates.set(*fault, 0);
            }
        }
        if calm {
            self.hostile_consumers = 0;
            for node in &mut self.nodes {
                node.hostile = false;
            }
        }
    }

    /// Whether the nodes of these numbers are on one host.
    #[must_use]
    pub fn share_host(&self, one: usize, other: usize) -> bool {
        let host = |number: usize| self.nodes.get(number).map(|node| node.host);
        host(one) == host(other)
    }
}

/// The highest rate of a fault, in thousandths of the times where it could happen.
const fn most(fault: Fault) -> u64 {
    match fault {
        Fault::MessageLost
        | Fault::MessageDuplicated
        | Fault::MessagesReordered
        | Fault::MessageDelayed
        | Fault::MessageTruncated
        | Fault::MessageCorrupted
        | Fault::ConnectionReset
        | Fault::HalfOpen => 30,
        Fault::JustBefore | Fault::JustAt | Fault::JustAfter | Fault::LongStep => 60,
        Fault::SlowAbort
        | Fault::ReadStuck
        | Fault::RegionAway
        | Fault::NixlReadStuck
        | Fault::NixlReadFailed
        | Fault::SlowReap
        | Fault::BadAgent
        | Fault::WrongDigest
        | Fault::WrongLength
        | Fault::Garbage
        | Fault::OtherEncoding
        | Fault::WorkerLingers => 900,
        _ => 250,
    }
}

fn nodes(random: &mut Random) -> Vec<NodeSetup> {
    let (encoders, both, consumers) =
        (random.between(1, 3), u64::from(random.chance(300)), random.between(1, 3));
    let hosts = random.between(1, 3);
    let hostile = random.chance(350).then(|| random.below(encoders));
    let mut nodes = Vec::new();
    for (role, count, most) in
        [(Role::Encoder, encoders, 48), (Role::Both, both, 48), (Role::Consumer, consumers, 32)]
    {
        for at in 0..count {
            nodes.push(NodeSetup {
                role,
                host: random.below(hosts),
                blocks: random.between_u32(12, most),
                hostile: role == Role::Encoder && hostile == Some(at),
            });
        }
    }
    nodes
}
