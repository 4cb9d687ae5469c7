//! What a node is told at its start.

use std::path::PathBuf;
use std::time::Duration;

use chiasm_core::admission;
use chiasm_core::allowlist::Allowlist;
use chiasm_core::dispatch;
use chiasm_core::endpoint::{Host, ListenAddress};
use chiasm_core::identity::Identity;
use chiasm_core::limits;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::ProducerLimits;
use chiasm_zmtp::LinkLimits;

use crate::fault::Fault;
use crate::limits::NodeLimits;
use crate::nixl::NixlConfig;

/// What a node is told at its start. [`NodeConfig::new`] gives the defaults: a region, no socket, and
/// nobody to read from.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Size of the region in bytes; what does not fill a block at its end is not used.
    pub region_bytes: u64,
    /// Directory of the region's file: `/dev/shm`.
    pub region_dir: PathBuf,
    /// File name of the region; `chiasm-` and 16 random hexadecimal digits if not given. Workers find
    /// the region by it, and may have made it before the node starts.
    pub region_name: Option<String>,
    /// Ask for huge pages for the region, if this node makes it: off. What came of it is logged.
    pub huge_pages: bool,
    /// NUMA node that the region's memory comes from, if this node makes it.
    pub numa_node: Option<u32>,
    /// What peers must agree on, the block size among it.
    pub identity: Identity,
    /// Where to serve, if at all.
    pub listen: Option<ListenAddress>,
    /// The host that is announced where it differs from the one that is bound.
    pub advertise: Option<Host>,
    /// Producers that may be read from. Nobody, by default.
    pub allowed: Allowlist,
    /// Planes to read and serve with, in order of preference: shm, tcp. One that is not there is
    /// passed over with a warning.
    pub planes: PlaneList,
    /// Planes without which the node does not start. None, by default.
    pub required_planes: PlaneList,
    /// How NIXL is used. Without it the nixl plane is not there.
    pub nixl: Option<NixlConfig>,
    /// Whether content digests are computed and compared (`ec_verify`): on. Without them the lease
    /// alone says whether bytes count.
    pub verify: bool,
    /// How long a grant lives whose reader does not come: 30 s (`pin_lease_s`).
    pub lease: Duration,
    /// How long a grant to an upstream consumer lives at least: 30 s, which it counts on whatever
    /// [`NodeConfig::lease`] is. Less is for tests: bytes may change under such a reader.
    pub upstream_lease: Duration,
    /// How long one attempt to connect may take, name resolution included: 3 s (`connect_timeout_s`).
    pub connect_timeout: Duration,
    /// How long one attempt waits for its ack: 30 s (`consumer_ack_timeout_s`).
    pub ack_timeout: Duration,
    /// How long one read may take: 20 s (`read_timeout_s`).
    pub read_timeout: Duration,
    /// How long a worker may take to report a save: 60 s (`save_timeout_s`).
    pub save_timeout: Duration,
    /// How long the blocks of a save rest whose worker has died: 60 s (`quarantine_s`). A device that
    /// still copies for it may write into them.
    pub quarantine: Duration,
    /// How long one (request, `mm_hash`) may wait in all: 60 s (`wait_budget_s`).
    pub wait_budget: Duration,
    /// Whether to answer `chiasm status` over a socket beside the region. Off by default.
    pub status: bool,
    /// What peers may hold of the region; [`ProducerLimits::for_region`] if not given, which keeps room
    /// for saves.
    pub producer_limits: Option<ProducerLimits>,
    /// A fault to make as a producer. FOR TESTS.
    pub fault: Option<Fault>,
    /// A named pipe at which the node's thread stops between an ack and its read, until somebody has
    /// opened it for writing and closed it again. It does not stop while there is none of that name.
    /// FOR TESTS.
    pub hold_read: Option<PathBuf>,
    /// Bounds of the node's sockets.
    pub limits: NodeLimits,
}

impl NodeConfig {
    /// The defaults with a region of `region_bytes` bytes.
    #[must_use]
    pub fn new(region_bytes: u64) -> Self {
        Self {
            region_bytes,
            region_dir: PathBuf::from("/dev/shm"),
            region_name: None,
            huge_pages: false,
            numa_node: None,
            identity: Identity::default(),
            listen: None,
            advertise: None,
            allowed: Allowlist::default(),
            planes: PlaneList::from_iter([Plane::Shm, Plane::Tcp]),
            required_planes: PlaneList::EMPTY,
            nixl: None,
            verify: true,
            lease: limits::UPSTREAM_LEASE,
            upstream_lease: limits::UPSTREAM_LEASE,
            connect_timeout: LinkLimits::default().connect_timeout,
            ack_timeout: limits::ACK_TIMEOUT,
            read_timeout: limits::READ_TIMEOUT,
            save_timeout: dispatch::SAVE_TIMEOUT,
            quarantine: dispatch::QUARANTINE,
            wait_budget: admission::limits::WAIT_BUDGET,
            status: false,
            producer_limits: None,
            fault: None,
            hold_read: None,
            limits: NodeLimits::default(),
        }
    }

    /// Blocks that fit the region.
    pub(crate) fn blocks(&self) -> Result<u32, ConfigError> {
        let block = self.identity.block_size_bytes;
        if block == 0 {
            return Err(ConfigError::ZeroBlockSize);
        }
        let blocks = self.region_bytes / block;
        if blocks == 0 {
            return Err(ConfigError::NoBlock { region_bytes: self.region_bytes, block });
        }
        u32::try_from(blocks).map_err(|_| ConfigError::TooManyBlocks { blocks, block })
    }
}

/// What is wrong with a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A block must hold something.
    #[error("the block size is 0 bytes, at least 1 is needed")]
    ZeroBlockSize,
    /// The region is smaller than one block.
    #[error("a region of {region_bytes} bytes holds no block of {block} bytes")]
    NoBlock {
        /// Size of the region.
        region_bytes: u64,
        /// Size of a block.
        block: u64,
    },
    /// Block numbers have 32 bits.
    #[error("{blocks} blocks of {block} bytes, more than {} fit no 32-bit number", u32::MAX)]
    TooManyBlocks {
        /// Number of blocks.
        blocks: u64,
        /// Size of a block.
        block: u64,
    },
}
