//! The node as an engine or a command holds it: start, save, announce, fetch, stop.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use chiasm_core::admission::{AdmissionConfig, Decision, Item, ItemReport, Untracked};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::RemoteAnnouncement;
use chiasm_core::cache::{ReserveError, Usage};
use chiasm_core::consumer::{ConsumerConfig, ConsumerCounters};
use chiasm_core::endpoint::{Endpoint, ListenAddress};
use chiasm_core::entry::EntryMeta;
use chiasm_core::instance::{Instance, InstanceConfig};
use chiasm_core::limits;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::{ProducerConfig, ProducerCounters, ProducerLimits, SharedRegion};
use chiasm_region::{Region, RegionOptions, reclaim_stale};

use crate::clock;
use crate::config::{ConfigError, NodeConfig};
use crate::entry::{Loaded, Saving};
use crate::event_loop::EventLoop;
use crate::inbound::Inbound;
use crate::io_counts::IoCounts;
use crate::nixl::{ReadHelpers, ServeHelper};
use crate::outbound::{Outbound, SharedMemory};
use crate::planes;
use crate::poller::Waker;
use crate::random;
use crate::resolver::Resolver;
use crate::shared::Shared;
use crate::socket;
use crate::status::{Life, Server, StatusSocket};
use crate::wake::WakeSocket;

/// Why a node did not start. Nothing is left behind: no file, no socket, no thread.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The listening host has no address here.
    #[error("cannot listen on {address}: its host has no address ({error})")]
    Unresolved {
        /// What was to be bound.
        address: ListenAddress,
        /// What the resolver said.
        error: String,
    },
    /// The address cannot be bound: in use, not of this host, not permitted.
    #[error("cannot listen on {address}: {error}{}", remedy(.error))]
    Bind {
        /// What was to be bound.
        address: ListenAddress,
        /// What the system said.
        error: std::io::Error,
    },
    /// The region could not be made.
    #[error(transparent)]
    Region(#[from] chiasm_region::RegionError),
    /// A plane that the operator requires cannot be used here.
    #[error("the {plane} plane is required (ec_planes) and cannot be used: {why}")]
    NoPlane {
        /// The plane.
        plane: Plane,
        /// Why it cannot be used.
        why: String,
    },
    /// The system gave no thread, no epoll or no randomness.
    #[error("cannot start the node's thread: {0}")]
    System(#[from] std::io::Error),
}

fn remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "; another process listens there: choose another port, or port 0 to let the system choose"
        }
        std::io::ErrorKind::AddrNotAvailable => "; it is no address of this host",
        _ => "",
    }
}

/// One node: a region, a background thread, and the sockets that it owns. Stops when it is dropped.
#[derive(Debug)]
pub struct Node {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    endpoint: Option<Endpoint>,
    block_size_bytes: u64,
    verify: bool,
}

impl Node {
    /// Binds, makes the region and starts the thread.
    pub fn start(config: &NodeConfig) -> Result<Self, StartError> {
        let blocks = config.blocks()?;
        let mut ids = Ids::random()?;
        let (listener, bound) = match &config.listen {
            Some(address) => bind(address).map(|(socket, bound)| (Some(socket), Some(bound)))?,
            None => (None, None),
        };
        let endpoint = config.listen.as_ref().zip(bound).map(|(listen, bound)| {
            let endpoint = listen.endpoint(bound);
            match &config.advertise {
                Some(host) => Endpoint::new(host.clone(), bound),
                None => endpoint,
            }
        });
        let region = create_region(config, blocks, &ids)?;
        if let Some(endpoint) = &endpoint {
            region.note_serving(endpoint.mark());
        }
        // If a worker came first, it has drawn the epoch of this life.
        ids.epoch = region.epoch();
        let dir = region.path().parent().unwrap_or(&config.region_dir).to_owned();
        let asked = config.fault.map_or(config.planes, |fault| fault.planes(config.planes));
        let (planes, host) = planes::usable(asked, &dir, config.nixl.is_some());
        if let Some(plane) = config.required_planes.iter().find(|plane| !planes.contains(*plane)) {
            return Err(StartError::NoPlane { plane, why: planes::why(plane, &dir) });
        }
        let name = region.path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let shm = host.map(|host| SharedRegion { host, name: name.to_owned() });
        let instance = Instance::new(instance_config(config, blocks, &ids, planes, shm));
        let waker = Arc::new(Waker::new()?);
        let shared = Arc::new(Shared::new(instance, region, Arc::clone(&waker)));
        let nixl = config.nixl.clone().filter(|_| planes.contains(Plane::Nixl));
        let serve = ServeHelper::new(nixl.clone().filter(|_| listener.is_some()));
        let inbound = Inbound::new(listener, &config.limits, &dir, config.fault);
        let shm = SharedMemory::new(&dir, config.identity.block_size_bytes);
        let read = ReadHelpers::new(nixl, config.identity.block_size_bytes);
        let outbound = Outbound::new(Resolver::new(waker), shm, read, config, ids.jitter);
        let status = Server::new(config.status.then(|| status_beside(&shared.region)).flatten());
        let life = Life { endpoint: endpoint.clone(), started: clock::now() };
        let wake = WakeSocket::beside(&shared.region);
        let event_loop =
            EventLoop::new(Arc::clone(&shared), inbound, outbound, serve, status, life, wake)?;
        let thread =
            thread::Builder::new().name("chiasm-node".into()).spawn(move || event_loop.run())?;
        let block_size_bytes = config.identity.block_size_bytes;
        let verify = config.verify;
        Ok(Self { shared, thread: Some(thread), endpoint, block_size_bytes, verify })
    }

    /// What is announced and what consumers must allow: the bound port, and the advertised host or
    /// else the bound one. `None` if this node does not serve.
    #[must_use]
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref()
    }

    /// The region's file.
    #[must_use]
    pub fn region_path(&self) -> &Path {
        self.shared.region.path()
    }

    /// Bytes of one block.
    #[must_use]
    pub fn block_size_bytes(&self) -> u64 {
        self.block_size_bytes
    }

    /// Who has the blocks now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.shared.core().usage()
    }

    /// System calls of this node's thread, for measuring.
    #[must_use]
    pub fn io_counts(&self) -> IoCounts {
        self.shared.io_counts()
    }

    /// What this node's peers asked for and were answered.
    #[must_use]
    pub fn producer_counters(&self) -> ProducerCounters {
        self.shared.core().producer().counters()
    }

    /// Grants and streams that are live now.
    #[must_use]
    pub fn live_grants(&self) -> usize {
        self.shared.core().producer().live_grants()
    }

    /// What this node asked for and got.
    #[must_use]
    pub fn consumer_counters(&self) -> ConsumerCounters {
        self.shared.core().consumer().counters().clone()
    }

    /// Takes room for an encoder output. Peers that ask for it are told `NOT_READY` until
    /// [`Saving::finish`]; a `Saving` that is dropped before gives the room back.
    pub fn reserve(&self, hash: &MmHash, meta: EntryMeta) -> Result<Saving<'_>, ReserveError> {
        let blocks = meta.blocks(self.block_size_bytes).unwrap_or(u32::MAX);
        let mut core = self.shared.core();
        let key = core.reserve(hash, meta, blocks)?;
        let extents = core.cache().entry(key).map(|entry| entry.extents().to_vec());
        drop(core);
        Ok(Saving::new(&self.shared, key, extents.unwrap_or_default(), meta.bytes, self.verify))
    }

    /// Forgets an entry. False if there is none, or if it is in use: not ready, granted to a peer, or
    /// promised to a request.
    #[must_use]
    pub fn evict(&self, hash: &str) -> bool {
        self.shared.core().evict(hash)
    }

    /// The announcement of an entry that this node has, ready or not. `None` if it has none or does
    /// not serve.
    #[must_use]
    pub fn announce(&self, hash: &str) -> Option<RemoteAnnouncement> {
        let source = self.endpoint.clone()?;
        let core = self.shared.core();
        let (_, entry) = core.cache().find(hash)?;
        RemoteAnnouncement::of_entry(source, entry.meta(), self.block_size_bytes)
    }

    /// Whether the region has an entry of this hash, ready or not.
    #[must_use]
    pub fn has_entry(&self, hash: &str) -> bool {
        self.shared.core().cache().find(hash).is_some()
    }

    /// Whether the engine may load this hash; see [`Admission::promised`].
    ///
    /// [`Admission::promised`]: chiasm_core::admission::Admission::promised
    #[must_use]
    pub fn has_promised(&self, hash: &str) -> bool {
        self.shared.core().promised(hash).is_some()
    }

    /// Items of the request that were announced and that the engine has to encode; see
    /// [`Admission::fell_back`].
    ///
    /// [`Admission::fell_back`]: chiasm_core::admission::Admission::fell_back
    #[must_use]
    pub fn fell_back(&self, id: &str) -> Vec<MmHash> {
        self.shared.core().admission().fell_back(id).cloned().collect()
    }

    /// Makes a request known with its items; see [`Admission::track`].
    ///
    /// [`Admission::track`]: chiasm_core::admission::Admission::track
    pub fn track(&self, id: &str, items: Vec<Item>) -> Result<(), Untracked> {
        self.shared.act(|core, now| core.track(now, id, items))
    }

    /// What to do with a request in this step; see [`Admission::ensure`].
    ///
    /// [`Admission::ensure`]: chiasm_core::admission::Admission::ensure
    #[must_use]
    pub fn ensure(&self, id: &str, items: usize, computed: u32) -> Option<Decision> {
        self.shared.act(|core, now| core.ensure(now, id, items, computed))
    }

    /// The engine has its own copy of an item of the request; see [`Admission::release`].
    ///
    /// [`Admission::release`]: chiasm_core::admission::Admission::release
    pub fn release(&self, id: &str, hash: &str) {
        self.shared.act(|core, now| core.release(now, id, hash));
    }

    /// The request has ended, however.
    pub fn finish(&self, id: &str) {
        self.shared.act(|core, now| core.finish(now, id));
        self.shared.notify();
    }

    /// Requests that have failed since the last call, each exactly once.
    #[must_use]
    pub fn take_unavailable_requests(&self) -> Vec<Arc<str>> {
        self.shared.act(|core, _| core.take_unavailable_requests())
    }

    /// Replaces the list of producers that may be read from. What waits for one that is not on it any
    /// more is refused.
    pub fn set_allowlist(&self, allowed: Allowlist) {
        self.shared.act(|core, now| core.set_allowlist(now, allowed));
        self.shared.waker.wake();
    }

    /// How each item of the request stands, as `look` wants it.
    pub fn report<T>(&self, id: &str, look: impl FnMut(ItemReport<'_>) -> T) -> Vec<T> {
        self.shared.core().report(clock::now(), id).map(look).collect()
    }

    /// The entry that the engine may load for `hash`, pinned for as long as the value lives. `None` if
    /// none was promised; see [`Admission::promised`].
    ///
    /// [`Admission::promised`]: chiasm_core::admission::Admission::promised
    #[must_use]
    pub fn load(&self, hash: &str) -> Option<Loaded<'_>> {
        let mut core = self.shared.core();
        let key = core.promised(hash)?;
        core.pin(key).ok()?;
        let entry = core.cache().entry(key)?;
        let (meta, extents) = (*entry.meta(), entry.extents().to_vec());
        drop(core);
        Some(Loaded::new(&self.shared, key, meta, extents))
    }

    /// How much news there has been. Read it before looking at requests, and hand it to
    /// [`Node::wait`] afterwards: then nothing that happens in between is slept through.
    #[must_use]
    pub fn news(&self) -> u64 {
        self.shared.news()
    }

    /// Waits until there is more news than `seen` that a waiting request could be interested in, at
    /// most for `limit`.
    pub fn wait(&self, seen: u64, limit: Duration) {
        self.shared.wait(seen, limit);
    }

    /// Every endpoint whose name was resolved or to which a socket was opened, at most 4096.
    #[must_use]
    pub fn contacted(&self) -> Vec<Endpoint> {
        self.shared.all_contacted()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the node's thread had panicked");
        }
    }
}

fn bind(address: &ListenAddress) -> Result<(OwnedFd, NonZeroU16), StartError> {
    let sockets = match (address.host().address(), address.host().name()) {
        (Some(ip), _) => vec![SocketAddr::new(ip, address.port())],
        (None, name) => {
            let name = name.map_or("", |name| name.as_str());
            let found = (name, address.port()).to_socket_addrs();
            let found = found.map_err(|error| StartError::Unresolved {
                address: address.clone(),
                error: error.to_string(),
            })?;
            found.collect()
        }
    };
    let mut last = std::io::Error::other("its host has no address");
    for candidate in sockets {
        match socket::listen_on(candidate) {
            Ok((socket, bound)) => {
                if let Some(port) = NonZeroU16::new(bound.port()) {
                    return Ok((socket, port));
                }
            }
            Err(error) => last = error,
        }
    }
    Err(StartError::Bind { address: address.clone(), error: last })
}

fn create_region(config: &NodeConfig, blocks: u32, ids: &Ids) -> Result<Region, StartError> {
    match reclaim_stale(&config.region_dir) {
        Ok(removed) => {
            for path in removed {
                tracing::info!(path = %path.display(), "removed what a dead process left");
            }
        }
        Err(error) => tracing::warn!(%error, "cannot look for regions that dead processes left"),
    }
    let name = config.region_name.clone();
    let name = name.unwrap_or_else(|| format!("chiasm-{:016x}", ids.name));
    let mut options = RegionOptions::new(name, blocks, config.identity.block_size_bytes);
    options.dir.clone_from(&config.region_dir);
    options.epoch = ids.epoch;
    options.huge_pages = config.huge_pages;
    options.numa_node = config.numa_node;
    let mut region = Region::create_or_attach(&options)?;
    region.claim_node()?;
    if config.huge_pages {
        match region.huge_page_bytes() {
            Ok(0) | Err(_) => tracing::warn!(
                path = %region.path().display(),
                "the region has no huge pages: the mount has to allow them (mount -o \
                 remount,huge=advise) and the memory has to have them free"
            ),
            Ok(bytes) => tracing::info!(bytes, "part of the region is in huge pages"),
        }
    }
    Ok(region)
}

/// The status is for people who look after the node: a node works without it.
fn status_beside(region: &Region) -> Option<StatusSocket> {
    let socket = StatusSocket::beside(region);
    if let Err(error) = &socket {
        tracing::warn!(%error, region = %region.path().display(), "no status socket beside the region");
    }
    socket.ok()
}

fn instance_config(
    config: &NodeConfig,
    blocks: u32,
    ids: &Ids,
    planes: PlaneList,
    shm: Option<SharedRegion>,
) -> InstanceConfig {
    let identity = &config.identity;
    let epoch = ids.epoch;
    let host = shm.as_ref().map(|shm| shm.host);
    let region = shm.as_ref().map(|shm| shm.name.clone());
    InstanceConfig {
        blocks,
        producer: ProducerConfig {
            compat_hash: identity.compat_hash.clone(),
            fingerprint: identity.fingerprint.clone(),
            epoch,
            block_size_bytes: identity.block_size_bytes,
            lease: config.lease,
            upstream_lease: config.upstream_lease,
            planes,
            shm,
            limits: config.producer_limits.unwrap_or_else(|| ProducerLimits::for_region(blocks)),
        },
        consumer: ConsumerConfig {
            compat_hash: identity.compat_hash.clone(),
            fingerprint: identity.fingerprint.clone(),
            epoch,
            session: format!("{:016x}", ids.session),
            block_size_bytes: identity.block_size_bytes,
            planes,
            host,
            region,
            verify: config.verify,
            ack_timeout: config.ack_timeout,
            read_timeout: config.read_timeout,
            lease_margin: limits::LEASE_MARGIN,
        },
        admission: AdmissionConfig {
            wait_budget: config.wait_budget,
            ..AdmissionConfig::default()
        },
        save_timeout: config.save_timeout,
        quarantine: config.quarantine,
        allowed: config.allowed.clone(),
        seed: ids.seed,
    }
}

/// The core of a node of this configuration, without the node.
#[cfg(test)]
pub(crate) fn instance_for_test(config: &NodeConfig, blocks: u32) -> Instance {
    let ids = Ids::random().expect("the system has randomness");
    Instance::new(instance_config(config, blocks, &ids, config.planes, None))
}

/// The random numbers of one node's life. The seed makes the grant tokens and is shown to nobody; the
/// others are names that everybody may see, so they are drawn apart from it.
struct Ids {
    seed: [u8; 32],
    name: u64,
    epoch: u64,
    session: u64,
    jitter: u64,
}

impl Ids {
    fn random() -> std::io::Result<Self> {
        let mut seed = [0; 32];
        random::fill(&mut seed)?;
        let (name, epoch) = (random::word()?, random::word()?.max(1));
        Ok(Self { seed, name, epoch, session: random::word()?, jitter: random::word()? })
    }
}
