//! Why a region cannot be made, attached to or removed, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use chiasm_core::dispatch::Rank;

use crate::header::HeaderError;

/// Why there is no region. Whatever the variant, nothing was left behind: no file, no descriptor, no
/// mapping.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// `blocks` is zero: `ec_cpu_bytes` is smaller than one block.
    #[error("a region needs at least one block: raise ec_cpu_bytes above the size of one block")]
    ZeroBlocks,
    /// `block_size_bytes` is zero.
    #[error("the block size must be at least one byte")]
    ZeroBlockSize,
    /// The product does not fit the address space.
    #[error("{blocks} blocks of {block_size_bytes} bytes are more than the address space holds")]
    TooLarge {
        /// Blocks asked for.
        blocks: u32,
        /// Bytes per block asked for.
        block_size_bytes: u64,
    },
    /// The name could not be a region's.
    #[error(
        "{name:?} is no name for a region: it must start with \"chiasm-\", go on with at least one \
         of A-Z a-z 0-9 . _ -, and be at most 200 bytes long"
    )]
    InvalidName {
        /// The name as given.
        name: String,
    },
    /// Another process uses the region of this name: two instances were given one name.
    #[error(
        "{path} is in use by a running process: give each instance a name of its own, or stop the \
         other one"
    )]
    Live {
        /// The file.
        path: PathBuf,
    },
    /// Joining: the region that is there has other blocks than this process was told. All processes of
    /// an instance must be started with the same `ec_cpu_bytes` and the same model.
    #[error(
        "{path} has {} blocks of {} bytes, not {} of {}: start all processes of the instance with the \
         same ec_cpu_bytes and model, or give each instance a name of its own",
        .found.0, .found.1, .wanted.0, .wanted.1
    )]
    OtherShape {
        /// The file.
        path: PathBuf,
        /// Its blocks and their size in bytes.
        found: (u32, u64),
        /// Those of this process.
        wanted: (u32, u64),
    },
    /// Another live process is this worker rank of the instance.
    #[error(
        "rank {rank} of {path} is a running process already: stop it, or give each instance a name \
         of its own"
    )]
    RankTaken {
        /// The file.
        path: PathBuf,
        /// The rank.
        rank: Rank,
    },
    /// Something else has this name. It was not touched.
    #[error(
        "{path} exists and is not a region of this user ({cause}): remove it or change the name"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What gave it away.
        cause: ForeignCause,
    },
    /// Attaching: no process uses the region any more, so what is in it means nothing.
    #[error("{path} was left behind by a process that died: start its creator again")]
    Stale {
        /// The file.
        path: PathBuf,
    },
    /// Attaching: the header is not one that this build can use.
    #[error("{path} is not a usable region: {source}")]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: HeaderError,
    },
    /// Attaching to a peer: the region belongs to another life of its node than the one that was meant.
    #[error("{path} belongs to another life of its node than the one that granted")]
    OtherLife {
        /// The file.
        path: PathBuf,
    },
    /// Attaching to a peer: blocks of another size.
    #[error("{path} has blocks of {found} bytes, this node's have {expected}")]
    BlockSize {
        /// The file.
        path: PathBuf,
        /// Bytes per block there.
        found: u64,
        /// Bytes per block here.
        expected: u64,
    },
    /// Attaching to a peer: not all of the file's memory is there, which a region's always is.
    #[error("{path} has holes: it is no region that Chiasm has made")]
    Holes {
        /// The file.
        path: PathBuf,
    },
    /// The file system is too small: 64 MB is Docker's default for `/dev/shm`.
    #[error(
        "{dir} has {free_bytes} bytes free, the region needs {needed_bytes}: enlarge it (docker run \
         --shm-size, an emptyDir with medium Memory in Kubernetes) or lower ec_cpu_bytes"
    )]
    NoSpace {
        /// The directory that was asked for.
        dir: PathBuf,
        /// Bytes of the whole file.
        needed_bytes: u64,
        /// Bytes free there after the attempt was taken back.
        free_bytes: u64,
    },
    /// The pages could not be faulted in: usually the memory limit of the container.
    #[error(
        "cannot fault in the {needed_bytes} bytes of the region in {dir}: {source}; is the memory \
         limit of this container below ec_cpu_bytes?"
    )]
    Populate {
        /// The directory that was asked for.
        dir: PathBuf,
        /// Bytes of the whole file.
        needed_bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The memory cannot be taken from the NUMA node that was asked for.
    #[error(
        "cannot place the region on NUMA node {node}: {source}; there are those that \
         /sys/devices/system/node/online lists, and a container needs CAP_SYS_NICE to choose"
    )]
    Numa {
        /// The node that was asked for.
        node: u32,
        /// What the system said.
        source: io::Error,
    },
    /// Any other failure of the system.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl RegionError {
    pub(crate) fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { operation, path: path.to_owned(), source: source.into() }
    }
}

/// What gives away that a file is none of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForeignCause {
    /// A symbolic link, directory, pipe, socket or device.
    #[error("not a regular file")]
    NotRegular,
    /// It belongs to another user.
    #[error("owned by user {uid}")]
    Owner {
        /// The owner.
        uid: u32,
    },
    /// Others may read or write it; regions are made with mode 0600.
    #[error("mode {mode:o}, not 600")]
    Mode {
        /// Permission bits.
        mode: u32,
    },
    /// Its content is not a region's, or one of an unknown version.
    #[error(transparent)]
    Content(HeaderError),
}
