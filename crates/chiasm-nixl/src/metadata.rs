//! An agent's metadata, read as hostile input.
//!
//! NIXL trusts what it loads: a changed byte can abort the process, a forged length can end the peer's, a
//! truncated blob can block an agent's name for good. So the blob is walked here first, to its end, and
//! only a whole one goes on. What is opaque in it (addresses and keys of the backend) stays so: it can
//! still kill the helper that loads it, and nothing else.
//!
//! A blob is the text `nixlSerDes|` and then fields without names of their own: a tag that the reader
//! has to know, the length of the value in 8 bytes, little-endian, the value, and `|`. As made by NIXL
//! 1.5.1:
//!
//! | tag | value |
//! |---|---|
//! | `Agent` | name |
//! | `Conns` | number of connections, 8 bytes |
//! | `t`, `c` | for each: backend; its address, opaque |
//! | none | `MemSection` |
//! | `nixlSecElms` | number of sections, 8 bytes |
//! | `bknd` | for each: backend |
//! | `nixlDList` | `nixlSDList` |
//! | `t`, `n` | kind of memory, 4 bytes (0 is host memory); number of ranges, 8 bytes |
//! | none | for each: address, length, device, 8 bytes each; its key, opaque |

use crate::limits::{MAX_AGENT_NAME_BYTES, MAX_METADATA_BYTES, MAX_METADATA_PARTS};
use crate::piece::Span;

/// A blob of metadata that is whole. Its opaque parts are as the peer sent them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentMetadata {
    agent_name: String,
    backends: Vec<String>,
    ranges: Vec<Span>,
}

/// Why a blob is not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// More than [`MAX_METADATA_BYTES`].
    #[error("{bytes} bytes, at most {MAX_METADATA_BYTES}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It does not start as a NIXL agent's metadata does, or ends early, or goes on behind its end.
    #[error("{what} is not where NIXL's metadata has it, at byte {at}")]
    Malformed {
        /// What was looked for.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// More parts than any agent has.
    #[error("{count} {what}, at most {MAX_METADATA_PARTS}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: u64,
    },
    /// The agent's name is empty, too long, or not printable ASCII.
    #[error(
        "the agent's name is empty, longer than {MAX_AGENT_NAME_BYTES} bytes, or not printable"
    )]
    Name,
    /// A range wraps around the end of the address space.
    #[error("the range of {bytes} bytes at {address:#x} wraps around")]
    Wraps {
        /// Its first address.
        address: u64,
        /// Its length.
        bytes: u64,
    },
}

impl AgentMetadata {
    /// Walk a blob.
    pub fn parse(blob: &[u8]) -> Result<Self, MetadataError> {
        if blob.len() > MAX_METADATA_BYTES {
            return Err(MetadataError::TooLong { bytes: blob.len() });
        }
        let mut fields = Fields { all: blob.len(), rest: blob };
        fields.literal(INTRODUCTION, "its introduction")?;
        let agent_name = name(fields.value(b"Agent", "the agent's name")?)?;
        let mut backends = Vec::new();
        for _ in 0..fields.count(b"Conns", "connections")? {
            let backend = fields.text(b"t", "a backend's name")?;
            fields.value(b"c", "a backend's address")?;
            backends.push(backend);
        }
        fields.word(b"", b"MemSection", "the memory section")?;
        let mut ranges = Vec::new();
        for _ in 0..fields.count(b"nixlSecElms", "sections")? {
            fields.text(b"bknd", "a section's backend")?;
            fields.word(b"nixlDList", b"nixlSDList", "a list of ranges")?;
            let kind = fields.fixed::<4>(b"t", "a kind of memory")?;
            for _ in 0..fields.count(b"n", "ranges")? {
                let span = range(fields.value(b"", "a range")?, fields.at())?;
                if u32::from_le_bytes(kind) == HOST_MEMORY {
                    ranges.push(span);
                }
            }
        }
        if !fields.rest.is_empty() {
            return Err(MetadataError::Malformed { what: "its end", at: fields.at() });
        }
        Ok(Self { agent_name, backends, ranges })
    }

    /// The name of the agent, printable ASCII. NIXL knows the peer by it.
    #[must_use]
    pub fn agent_name(&self) -> &str {
        &self.agent_name
    }

    /// The backends that the agent can be reached by.
    #[must_use]
    pub fn backends(&self) -> &[String] {
        &self.backends
    }

    /// The ranges of host memory that the agent has registered; none of them wraps around. Whether they
    /// are what they say is for the peer's own process to suffer from.
    #[must_use]
    pub fn ranges(&self) -> &[Span] {
        &self.ranges
    }

    /// Whether one of the ranges holds all of `span`.
    #[must_use]
    pub fn holds(&self, span: Span) -> bool {
        self.ranges.iter().any(|range| range.holds(span))
    }
}

const INTRODUCTION: &[u8] = b"nixlSerDes|";

/// NIXL's number of host memory among kinds of memory.
const HOST_MEMORY: u32 = 0;

fn name(bytes: &[u8]) -> Result<String, MetadataError> {
    let fits = (1..=MAX_AGENT_NAME_BYTES).contains(&bytes.len())
        && bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
    let name = if fits { std::str::from_utf8(bytes).ok() } else { None };
    name.map(str::to_owned).ok_or(MetadataError::Name)
}

fn range(value: &[u8], at: usize) -> Result<Span, MetadataError> {
    let short = MetadataError::Malformed { what: "a range", at };
    let (address, rest) = value.split_first_chunk().ok_or(short.clone())?;
    let (bytes, rest) = rest.split_first_chunk().ok_or(short.clone())?;
    let (_device, _key) = rest.split_first_chunk::<8>().ok_or(short)?;
    let (address, bytes) = (u64::from_le_bytes(*address), u64::from_le_bytes(*bytes));
    let span = Span { address, bytes };
    span.end().map(|_| span).ok_or(MetadataError::Wraps { address, bytes })
}

/// What is left of a blob.
struct Fields<'a> {
    all: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn at(&self) -> usize {
        self.all.saturating_sub(self.rest.len())
    }

    fn malformed(&self, what: &'static str) -> MetadataError {
        MetadataError::Malformed { what, at: self.at() }
    }

    fn literal(&mut self, text: &[u8], what: &'static str) -> Result<(), MetadataError> {
        self.rest = self.rest.strip_prefix(text).ok_or(self.malformed(what))?;
        Ok(())
    }

    fn value(&mut self, tag: &[u8], what: &'static str) -> Result<&'a [u8], MetadataError> {
        self.literal(tag, what)?;
        let (len, rest) = self.rest.split_first_chunk().ok_or(self.malformed(what))?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| self.malformed(what))?;
        let (value, rest) = rest.split_at_checked(len).ok_or(self.malformed(what))?;
        self.rest = rest;
        self.literal(b"|", what)?;
        Ok(value)
    }

    fn fixed<const N: usize>(
        &mut self,
        tag: &[u8],
        what: &'static str,
    ) -> Result<[u8; N], MetadataError> {
        let value = self.value(tag, what)?;
        value.try_into().map_err(|_| self.malformed(what))
    }

    fn count(&mut self, tag: &[u8], what: &'static str) -> Result<u64, MetadataError> {
        let count = u64::from_le_bytes(self.fixed(tag, what)?);
        if count > MAX_METADATA_PARTS {
            return Err(MetadataError::TooMany { what, count });
        }
        Ok(count)
    }

    fn text(&mut self, tag: &[u8], what: &'static str) -> Result<String, MetadataError> {
        let value = self.value(tag, what)?;
        name(value).map_err(|_| self.malformed(what))
    }

    fn word(&mut self, tag: &[u8], word: &[u8], what: &'static str) -> Result<(), MetadataError> {
        if self.value(tag, what)? == word { Ok(()) } else { Err(self.malformed(what)) }
    }
}
