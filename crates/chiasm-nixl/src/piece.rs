//! What goes where in one read, in numbers that cannot be wrong.
//!
//! This is the one place that turns a peer's addresses into something that NIXL is handed. It must
//! never let through a range that wraps around or leaves its span.

use serde::{Deserialize, Serialize};

use crate::limits::MAX_PIECES;

/// A range of a peer's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// First address.
    pub address: u64,
    /// Bytes from there on.
    pub bytes: u64,
}

impl Span {
    /// The address after the last, if there is one: a range that wraps around is none.
    #[must_use]
    pub fn end(self) -> Option<u64> {
        self.address.checked_add(self.bytes)
    }

    /// Whether all of `other` lies in here. A range that wraps around lies nowhere and holds nothing.
    #[must_use]
    pub fn holds(self, other: Self) -> bool {
        match (self.end(), other.end()) {
            (Some(end), Some(other_end)) => other.address >= self.address && other_end <= end,
            _ => false,
        }
    }
}

/// A run of bytes of a read, adjacent on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Where it goes, counted from block 0 of this node's region.
    pub local_offset: u64,
    /// Where it is in the peer.
    pub remote_address: u64,
    /// How long it is, at least one byte.
    pub bytes: u64,
}

impl Piece {
    pub(crate) fn remote(self) -> Span {
        Span { address: self.remote_address, bytes: self.bytes }
    }
}

/// Why a read cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PieceError {
    /// The two sides have not as many bytes.
    #[error("{local_bytes} bytes here, {remote_bytes} there")]
    Length {
        /// Bytes of all local runs.
        local_bytes: u64,
        /// Bytes of all remote runs.
        remote_bytes: u64,
    },
    /// Nothing is to be read.
    #[error("a read of no bytes")]
    Empty,
    /// A remote run does not lie in the peer's span, or wraps around.
    #[error("bytes {address:#x}+{bytes} are not inside the peer's blocks, {span:?}")]
    Remote {
        /// Its first address.
        address: u64,
        /// Its length.
        bytes: u64,
        /// The peer's blocks.
        span: Span,
    },
    /// A local run does not lie in the region, or wraps around.
    #[error(
        "bytes {offset}+{bytes} are not inside the {region_bytes} bytes of the region's blocks"
    )]
    Local {
        /// Its first byte.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Bytes of all blocks.
        region_bytes: u64,
    },
    /// More pieces than one read may have.
    #[error("more than {MAX_PIECES} pieces")]
    TooMany,
}

/// Lay remote runs `(address, bytes)` over local runs `(offset, bytes)`, in order: one piece for as far
/// as both sides are adjacent, so that contiguous entries are one piece. Runs of no bytes are passed over.
///
/// Everything is checked: lengths in all, wrap-around, that each remote run lies in `span` and each
/// local one in the first `region_bytes`.
pub fn pieces(
    local: impl IntoIterator<Item = (u64, u64)>,
    remote: impl IntoIterator<Item = (u64, u64)>,
    span: Span,
    region_bytes: u64,
) -> Result<Vec<Piece>, PieceError> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut local = local.into_iter().filter(|&(_, bytes)| bytes > 0);
    let mut remote = remote.into_iter().filter(|&(_, bytes)| bytes > 0);
    let (mut here, mut there) = (local.next(), remote.next());
    let mut moved_bytes: u64 = 0;
    while let (Some((offset, local_bytes)), Some((address, remote_bytes))) = (here, there) {
        let bytes = local_bytes.min(remote_bytes);
        let piece = Piece { local_offset: offset, remote_address: address, bytes };
        check(piece, span, region_bytes)?;
        moved_bytes = moved_bytes.checked_add(bytes).ok_or(PieceError::TooMany)?;
        let full = pieces.len() == MAX_PIECES;
        match pieces.last_mut() {
            Some(last) if adjacent(*last, piece) => last.bytes += bytes,
            _ if full => return Err(PieceError::TooMany),
            _ => pieces.push(piece),
        }
        // No overflow: both ends were found to be inside their ranges.
        here = rest(offset, local_bytes, bytes).or_else(|| local.next());
        there = rest(address, remote_bytes, bytes).or_else(|| remote.next());
    }
    let left = |run: Option<(u64, u64)>| run.map_or(0, |(_, bytes)| bytes);
    let sum = |left: u64, more: &mut dyn Iterator<Item = (u64, u64)>| {
        more.fold(moved_bytes.saturating_add(left), |sum, (_, bytes)| sum.saturating_add(bytes))
    };
    let local_bytes = sum(left(here), &mut local);
    let remote_bytes = sum(left(there), &mut remote);
    if local_bytes != remote_bytes {
        return Err(PieceError::Length { local_bytes, remote_bytes });
    }
    if pieces.is_empty() { Err(PieceError::Empty) } else { Ok(pieces) }
}

/// Whether a piece lies where it may: what the helper asks again of what it is told.
pub(crate) fn check(piece: Piece, span: Span, region_bytes: u64) -> Result<(), PieceError> {
    let Piece { local_offset: offset, remote_address: address, bytes } = piece;
    if bytes == 0 {
        return Err(PieceError::Empty);
    }
    if !span.holds(piece.remote()) {
        return Err(PieceError::Remote { address, bytes, span });
    }
    match offset.checked_add(bytes) {
        Some(end) if end <= region_bytes => Ok(()),
        _ => Err(PieceError::Local { offset, bytes, region_bytes }),
    }
}

fn adjacent(last: Piece, next: Piece) -> bool {
    last.local_offset + last.bytes == next.local_offset
        && last.remote_address + last.bytes == next.remote_address
}

fn rest(start: u64, all: u64, taken: u64) -> Option<(u64, u64)> {
    (all > taken).then(|| (start + taken, all - taken))
}
