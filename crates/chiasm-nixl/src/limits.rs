//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Most bytes of an agent's metadata. One region and one backend take 456 to 469 bytes over shared
/// memory and tcp; each RDMA device adds some dozens, each registered range about a hundred.
pub const MAX_METADATA_BYTES: usize = 64 * 1024;

/// Most bytes of an agent's name: an engine id and `_dp<index>`.
pub const MAX_AGENT_NAME_BYTES: usize = 1024;

/// Most bytes of a notification: a session id, a colon and an `mm_hash` of at most 1024 bytes.
pub const MAX_NOTIFICATION_BYTES: usize = 4096;

/// Most pieces of one read. Upstream's entries have one piece a row where nothing is adjacent; 50 MB of
/// the narrowest rows in use (1.5 KB) are 34,000.
pub const MAX_PIECES: usize = 65_536;

/// Most reads in flight in one helper; one more is refused.
pub const MAX_READS: usize = 1024;

/// Most peers that one helper knows; one more is refused.
pub const MAX_PEERS: usize = 256;

/// Most sections (memory kinds and backends), and ranges within one, of an agent's metadata.
pub(crate) const MAX_METADATA_PARTS: u64 = 64;

/// Most bytes of one frame: a read of [`MAX_PIECES`] pieces, each three numbers of at most ten bytes,
/// and its notification.
pub(crate) const MAX_FRAME_BYTES: usize = MAX_PIECES * 30 + MAX_NOTIFICATION_BYTES + 64;

/// Most bytes that wait to be written, on either side, beyond one frame: then
/// [`SendError::Full`](crate::SendError::Full), or the helper stops taking notifications.
pub(crate) const MAX_QUEUED_BYTES: usize = 4 << 20;

/// Most bytes that are kept of what a helper last wrote to its standard error.
pub(crate) const MAX_LAST_WORDS_BYTES: usize = 2048;

/// How long a helper whose node is gone goes on with what peers have under way through it. Longer than
/// the steps of an engine, whose next one begins the read that was granted; shorter than an engine takes to
/// start, which needs the memory.
pub(crate) const AFTER_NODE_LIMIT: Duration = Duration::from_secs(10);
