//! One simulated node: the real instance, router and links, and around them simulated memory, workers
//! and an engine.

use std::collections::BTreeMap;

use chiasm_core::admission::AdmissionConfig;
use chiasm_core::allowlist::Allowlist;
use chiasm_core::cache::{Entry, EntryKey};
use chiasm_core::consumer::{ConsumerConfig, FailureReason, TransferId};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::host_hint::HostHint;
use chiasm_core::instance::{Instance, InstanceConfig};
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::{PeerId, ProducerConfig, ProducerLimits, SharedRegion, StreamId};
use chiasm_core::time::Nanos;
use chiasm_zmtp::{ConnectionId, Limits, Link, LinkLimits, Router, RouterLimits};

use crate::content::{Content, OTHER, word};
use crate::engine::Engine;
use crate::fault::Fault;
use crate::grants::GrantBook;
use crate::host::Pid;
use crate::memory::Memory;
use crate::nixl::Helpers;
use crate::planes::{Read, Serve};
use crate::queue::{Event, Life};
use crate::random::Random;
use crate::setup::{NodeSetup, Setup};
use crate::workers::Workers;

/// One approved producer as a node connects to it.
#[derive(Debug)]
pub(crate) struct OutLink {
    pub(crate) link: Link,
    /// The connection of the moment.
    pub(crate) connection: Option<u64>,
    /// Why it ended, where the transport's word says less.
    pub(crate) failure: Option<FailureReason>,
}

impl OutLink {
    pub(crate) fn new(setup: &Setup, seed: u64, now: Nanos) -> Self {
        let connection =
            Limits { max_output_bytes: setup.max_output_bytes, ..Limits::for_dealer() };
        let connect_timeout = setup.connect_timeout;
        let limits = LinkLimits { connection, connect_timeout, ..LinkLimits::default() };
        Self { link: Link::new(limits, seed, now), connection: None, failure: None }
    }
}

/// One node, through all of its lives.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) setup: NodeSetup,
    /// Counts its lives. Everything that was on its way to an earlier one is void.
    pub(crate) life: u32,
    pub(crate) epoch: u64,
    pub(crate) up: bool,
    /// Its host is without power: nobody answers for it, not even with a reset.
    pub(crate) dark: bool,
    pub(crate) paused_until: u64,
    /// How its configuration differs from everybody else's in this life, and in the next.
    pub(crate) odd: Option<Fault>,
    pub(crate) next_odd: Option<Fault>,
    /// When the event that wakes it is due; `u64::MAX` if there is none.
    pub(crate) wake_at: u64,
    pub(crate) instance: Instance,
    pub(crate) router: Router,
    /// Connections by the router's names for them.
    pub(crate) peers: BTreeMap<ConnectionId, u64>,
    pub(crate) links: BTreeMap<Endpoint, OutLink>,
    pub(crate) allowed: Allowlist,
    pub(crate) allowlist_version: u64,
    pub(crate) memory: Memory,
    /// What entries hold that were read without a digest and were, undetectably, not what their hash
    /// stands for.
    pub(crate) believed: BTreeMap<EntryKey, Vec<u64>>,
    pub(crate) grants: GrantBook,
    pub(crate) reads: BTreeMap<TransferId, Read>,
    pub(crate) serves: BTreeMap<StreamId, Serve>,
    /// Peers that read over shm, and the life that each of them says it is.
    pub(crate) readers: BTreeMap<PeerId, Life>,
    /// The fake nixl plane's.
    pub(crate) helpers: Helpers,
    pub(crate) workers: Workers,
    pub(crate) engine: Engine,
    /// The processes of its host that it and its worker are.
    pub(crate) processes: [Option<Pid>; 2],
    /// What has happened to it while it was paused.
    pub(crate) backlog: Vec<Event>,
}

/// The endpoint of a node: the same in all of its lives.
pub(crate) fn endpoint_of(number: usize) -> Endpoint {
    let (high, low) = (number / 250, number % 250 + 1);
    Endpoint::parse(&format!("10.0.{high}.{low}:5601")).expect("an address and a port")
}

/// The name of a node's region: the same in all of its lives.
pub(crate) fn region_of(number: usize) -> String {
    format!("chiasm-sim-{number}")
}

impl Node {
    pub(crate) fn new(number: usize, setup: &Setup, random: &mut Random) -> Self {
        Self::with(number, setup, None, random)
    }

    fn with(number: usize, setup: &Setup, odd: Option<Fault>, random: &mut Random) -> Self {
        let node = setup.nodes[number];
        let allowed = everybody(setup, number);
        let epoch = random.next().max(1);
        let instance = instance(number, epoch, setup, odd, allowed.clone(), random);
        Self {
            number,
            setup: node,
            life: 1,
            epoch,
            up: true,
            dark: false,
            paused_until: 0,
            odd,
            next_odd: None,
            wake_at: u64::MAX,
            instance,
            router: router(setup),
            peers: BTreeMap::new(),
            links: BTreeMap::new(),
            allowed,
            allowlist_version: 0,
            memory: Memory::new(node.blocks),
            believed: BTreeMap::new(),
            grants: GrantBook::default(),
            reads: BTreeMap::new(),
            serves: BTreeMap::new(),
            readers: BTreeMap::new(),
            helpers: Helpers::default(),
            workers: Workers::default(),
            engine: Engine::default(),
            processes: [None; 2],
            backlog: Vec::new(),
        }
    }

    /// The hash of an entry.
    pub(crate) fn hash_of(&self, key: EntryKey) -> Option<&str> {
        self.instance.cache().entry(key).map(|entry| entry.hash().as_str())
    }

    /// The word that a block of an entry must hold: the network and approved producers are trusted, so
    /// what they have spoilt without leaving a trace is what this node has, exactly.
    pub(crate) fn expected(&self, key: EntryKey, content: &Content, at: usize) -> u64 {
        match self.believed.get(&key) {
            Some(words) => words.get(at).copied().unwrap_or(u64::MAX),
            None if self.is_other(key, content) => word(content.number + OTHER, at),
            None => word(content.number, at),
        }
    }

    /// Whether an entry is what another encoder has made of its hash: its digest says so.
    fn is_other(&self, key: EntryKey, content: &Content) -> bool {
        let digest = self.instance.cache().entry(key).and_then(Entry::digest);
        digest == Some(content.other)
    }

    /// All words of an entry, if they are not those that its hash stands for.
    pub(crate) fn other_words(&self, key: EntryKey, content: &Content) -> Option<Vec<u64>> {
        let other = self.believed.contains_key(&key) || self.is_other(key, content);
        let words = (0..content.blocks as usize).map(|at| self.expected(key, content, at));
        other.then(|| words.collect())
    }

    /// A new life at the same endpoint, with nothing left of the one before.
    pub(crate) fn start_again(&mut self, setup: &Setup, random: &mut Random) {
        let (life, engine) = (self.life + 1, std::mem::take(&mut self.engine));
        let (processes, odd) = (self.processes, self.next_odd);
        *self = Self::with(self.number, setup, odd, random);
        (self.life, self.processes) = (life, processes);
        self.engine.carry_over(&engine);
    }
}

/// Every serving node but this one.
pub(crate) fn everybody(setup: &Setup, but: usize) -> Allowlist {
    let serving = setup.nodes.iter().enumerate();
    let serving = serving.filter(|(number, node)| node.role.serves() && *number != but);
    let entries: Vec<String> = serving.map(|(number, _)| endpoint_of(number).to_string()).collect();
    Allowlist::parse(entries.iter().map(String::as_str)).expect("endpoints are entries")
}

/// What may wait to be written on all control connections of one node: less than the sum of what each
/// may have, so that it bites.
pub(crate) fn output_bytes(setup: &Setup) -> usize {
    setup.max_output_bytes * 3 / 2
}

fn router(setup: &Setup) -> Router {
    let connection = Limits { max_output_bytes: setup.max_output_bytes, ..Limits::for_router() };
    let max_output_bytes = output_bytes(setup);
    Router::new(RouterLimits { connection, max_output_bytes, ..RouterLimits::default() })
}

fn instance(
    number: usize,
    epoch: u64,
    setup: &Setup,
    odd: Option<Fault>,
    allowed: Allowlist,
    random: &mut Random,
) -> Instance {
    let node = setup.nodes[number];
    let host = HostHint([u8::try_from(node.host % 256).unwrap_or(0); 16]);
    let planes = match odd {
        Some(Fault::OtherPlanes) => PlaneList::from_iter([Plane::Shm]),
        _ => setup.planes,
    };
    let has_shm = planes.contains(Plane::Shm);
    let mut seed = [0; 32];
    for byte in &mut seed {
        *byte = u8::try_from(random.below(256)).unwrap_or(0);
    }
    let (mut compat_hash, mut fingerprint) =
        ("the same everywhere".to_owned(), "and the weights".to_owned());
    if odd == Some(Fault::OtherModel) {
        let differs = if random.chance(500) { &mut compat_hash } else { &mut fingerprint };
        "another".clone_into(differs);
    }
    Instance::new(InstanceConfig {
        blocks: node.blocks,
        producer: ProducerConfig {
            compat_hash: compat_hash.clone(),
            fingerprint: Some(fingerprint.clone()),
            epoch,
            block_size_bytes: setup.block_size_bytes,
            lease: setup.lease,
            upstream_lease: chiasm_core::limits::UPSTREAM_LEASE,
            planes,
            shm: has_shm.then(|| SharedRegion { host, name: region_of(number) }),
            limits: ProducerLimits {
                max_grants_per_peer: setup.max_grants_per_peer,
                ..ProducerLimits::for_region(node.blocks)
            },
        },
        consumer: ConsumerConfig {
            compat_hash,
            fingerprint: Some(fingerprint),
            epoch,
            session: format!("{:016x}", random.next()),
            block_size_bytes: setup.block_size_bytes,
            planes,
            host: has_shm.then_some(host),
            region: has_shm.then(|| region_of(number)),
            verify: setup.digests,
            ack_timeout: setup.ack_timeout,
            read_timeout: setup.read_timeout,
            lease_margin: setup.lease_margin,
        },
        admission: AdmissionConfig {
            wait_budget: setup.wait_budget,
            max_requests: setup.max_requests,
            max_transfers_per_source: setup.max_transfers_per_source,
            ..AdmissionConfig::default()
        },
        save_timeout: setup.save_timeout,
        quarantine: setup.quarantine,
        allowed,
        seed,
    })
}
