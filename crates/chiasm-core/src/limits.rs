//! Every bound of the core, by name, with the reason for its value.
//!
//! A limit that an operator could need to change is a field of the configuration that defaults to
//! the constant here; the rest are what keeps a hostile peer's cost bounded.

use std::time::Duration;

/// Longest `mm_hash` in bytes. vLLM's are 64 hexadecimal digits; clients may send a uuid of their own.
pub const MAX_MM_HASH_BYTES: usize = 1024;

/// Longest session id that a grant may be keyed by, in bytes. Upstream sends a 36 character uuid.
pub const MAX_SESSION_ID_BYTES: usize = 256;

/// Most extents of one entry. More would make acks grow and reads scatter; the cache evicts further
/// rather than exceed it.
pub const MAX_EXTENTS: usize = 64;

/// Deepest nesting that the wire decoder skips inside unknown fields (upstream's recursion error
/// ends its engine at 100,000).
pub const MAX_NESTING: usize = 64;

/// Most plane names that a request may offer. There are three; the rest is room for later ones.
pub const MAX_PLANES_OFFERED: usize = 16;

/// Longest fingerprint in a `chiasm` map, in bytes: twice a sha256 in hexadecimal digits.
pub const MAX_FINGERPRINT_BYTES: usize = 128;

/// Longest reason word in a `chiasm` map, in bytes. It is a word for machines, not a message.
pub const MAX_REASON_BYTES: usize = 64;

/// Longest name of a region's file in bytes. `NAME_MAX` is 255; the rest is room for the decoration of
/// a file that is being made.
pub const MAX_REGION_NAME_BYTES: usize = 200;

/// Most bytes of a NIXL agent's metadata. One region and one backend take 456 to 469 bytes without
/// RDMA; each RDMA device adds some dozens.
pub const MAX_AGENT_METADATA_BYTES: usize = 64 << 10;

/// Longest message in bytes whose descriptor list is scanned in one go: 4,000 rows, some 20 us. That of a
/// larger one is scanned in slices.
pub const MAX_BYTES_SCANNED_INLINE: usize = 64 << 10;

/// Most runs of adjacent blocks in one entry of an upstream producer, whose blocks may lie anywhere: 50 MB of
/// the narrowest rows in use (1.5 KB) are 34,000 rows. A read over NIXL has as many pieces at most.
pub const MAX_RUNS: usize = 65_536;

/// Hashes asked for on one link under one session id, until the peer has shown that it numbers attempts.
pub const MAX_HASHES_PER_SESSION: usize = 1024;

/// How much of an upstream lease must be left for a read to be started: less, and the producer is asked
/// again first. 64 MB in the smallest blocks take 0.2 s over one host and some seconds over a slow
/// network.
pub const MIN_UPSTREAM_LEASE_LEFT: Duration = Duration::from_secs(5);

/// How long an upstream grant lives: `PRODUCER_PIN_LEASE_S` of vLLM 0.33.
pub const UPSTREAM_LEASE: Duration = Duration::from_secs(30);

/// Live grants and streams of one producer. Each costs about 300 bytes.
pub const MAX_GRANTS: usize = 4096;

/// Live grants and streams of one peer: four times the 96 transfers that the fleet benchmark keeps
/// outstanding.
pub const MAX_GRANTS_PER_PEER: usize = 384;

/// Sessions on one control connection. Upstream and Chiasm use one.
pub const MAX_SESSIONS_PER_PEER: usize = 16;

/// Requests of one link that may wait for an answer, those included whose transfer has been given
/// up: what is left of a silent producer is bounded. Further ones wait; if all were given up, the
/// producer is taken for silent and the link is closed.
pub const MAX_UNANSWERED_PER_LINK: usize = 1024;

/// How long after its request an upstream consumer may still be reading under the ack: 30 s for the ack, 20 s
/// for the read, 60 s in which it waits for a read that it has given up.
pub const UPSTREAM_READ_LIMIT: Duration = Duration::from_secs(110);

/// Grants whose leases have run out and whose completions may still come: as many as can be live at once.
/// Forgetting one costs at worst the end of the next grant of that text before its time.
pub const MAX_LATE_COMPLETIONS: usize = MAX_GRANTS;

/// Endpoints that one consumer keeps a link to.
pub const MAX_LINKS: usize = 1024;

/// How long a consumer waits for an ack: `consumer_ack_timeout_s` of vLLM 0.33.
pub const ACK_TIMEOUT: Duration = Duration::from_secs(30);

/// How long one read may take: `_CONSUMER_READ_TIMEOUT_S` of vLLM 0.33.
pub const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// How much of a lease is left unused, for clock error and the last message's way.
pub const LEASE_MARGIN: Duration = Duration::from_secs(1);

/// Most characters of untrusted text that an error message repeats.
pub const MAX_EXCERPT_CHARS: usize = 64;

/// Longest host name in bytes, without a trailing dot (RFC 1035, 255 octets on the wire).
pub const MAX_HOST_NAME_BYTES: usize = 253;

/// Longest part of a host name between two dots, in bytes (RFC 1035).
pub const MAX_HOST_LABEL_BYTES: usize = 63;

/// Most ports that one `host:first-last` of the allowlist stands for. One port per data-parallel
/// rank: more on one host than any engine runs.
pub const MAX_ALLOWED_PORT_RANGE: u32 = 1024;

/// Most endpoints on an allowlist after its ranges are expanded: a thousand hosts of 64 ranks. A
/// few megabytes at most.
pub const MAX_ALLOWED_ENDPOINTS: usize = 65_536;

/// Most items of one `ec_transfer_params`. A request of more media items than this fits no context.
pub const MAX_PARAMS_ITEMS: usize = 4096;

/// Longest text of one `ec_transfer_params` in bytes: 1 KiB for each of [`MAX_PARAMS_ITEMS`].
pub const MAX_PARAMS_BYTES: usize = 4 << 20;
