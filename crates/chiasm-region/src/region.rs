//! A mapped region: what a process holds for as long as it uses the shared memory of its instance.
//!
//! Every access is checked against the geometry first, and no access ever forms a reference into
//! the mapping.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use chiasm_core::dispatch::Rank;
use chiasm_core::extent::Extent;

use crate::claim;
use crate::copy::copy;
use crate::create;
use crate::digest::{CHUNK_BYTES, LandedDigest};
use crate::error::RegionError;
use crate::file::{self, Found};
use crate::geometry::{Piece, Pieces, RangeError};
use crate::header::Header;
use crate::header_area;
use crate::join::{self, LastOut};
use crate::mapping::{Access, Mapping};
use crate::memory::SharedBytes;
use crate::options::RegionOptions;
use crate::peer::PeerRegion;
use crate::sleep;

/// The shared memory of one instance, mapped into this process.
///
/// Shared between threads freely; who may touch which block at what time is the cache's business (one
/// writer per block, no reader before it is ready). Copies that break that rule give torn bytes,
/// nothing worse.
///
/// Dropped, it is unmapped, its lock goes, and if this process created it, its file is removed; other
/// processes that still use it keep their mapping.
#[derive(Debug)]
pub struct Region {
    path: PathBuf,
    header: Header,
    access: Access,
    mapping: Mapping,
    /// Holds the shared lock, together with `mapping` and what other processes inherited.
    file: OwnedFd,
    /// The process whose drop removes the file; `None` in those that attached. A forked child has a
    /// copy of this value, but not this process id.
    creator: Option<u32>,
    /// Set where the last process removes the file. The last field: it looks whether anybody is left
    /// when this one's mapping and descriptor are gone.
    last_out: Option<LastOut>,
}

impl Region {
    /// Make a region: reserve all its memory, fault it in, lock it, and only then give it its name.
    ///
    /// A dead region of the same name is removed first; anything else of that name is an error and
    /// untouched. Takes about a second per GiB, nearly all of it the kernel clearing pages.
    pub fn create(options: &RegionOptions) -> Result<Self, RegionError> {
        create::create(options, &create::SYSTEM)
    }

    /// Attach to a region that another process of this instance made, for reading and writing.
    ///
    /// Fails with [`RegionError::Stale`] if no process uses it any more. Neither faults pages in nor
    /// removes the file, ever.
    pub fn attach(path: &Path) -> Result<Self, RegionError> {
        Self::attach_as(path, Access::ReadWrite)
    }

    /// As [`Region::attach`], for reading only: the memory cannot be written through it.
    pub fn attach_read_only(path: &Path) -> Result<Self, RegionError> {
        Self::attach_as(path, Access::ReadOnly)
    }

    /// Attach to the region of this name, or make it: for the processes of one instance, of which
    /// nobody knows which comes first. An epoch of 0 in `options` stands for a random one; the epoch
    /// of a region that is there is left as it is.
    ///
    /// Fails with [`RegionError::OtherShape`] if the region that is there has other blocks. The file is
    /// removed by the node's drop if a node [claims](Region::claim_node) it, else by the last process
    /// that lets go of it.
    pub fn create_or_attach(options: &RegionOptions) -> Result<Self, RegionError> {
        join::create_or_attach(options)
    }

    /// Become the one node of this region: what it removes it removes for all, and no other process can
    /// be its node, now or later. Blocks belong to one node's books, and what a worker was told by an
    /// earlier node it may still be doing.
    pub fn claim_node(&mut self) -> Result<(), RegionError> {
        let live = || RegionError::Live { path: self.path.clone() };
        if !self.claim(header_area::BOARD_AT)? || sleep::had_node(&header_area::board(self)) {
            return Err(live());
        }
        sleep::note_node(&header_area::board(self));
        self.creator = Some(std::process::id());
        self.last_out = None;
        Ok(())
    }

    /// Write down, before anybody is served, at which endpoint the node of this region serves. Readers on
    /// this host hold it against the endpoint that names this region to them: only its own node may.
    pub fn note_serving(&self, mark: [u8; header_area::SERVING_BYTES]) {
        self.bytes().store(header_area::SERVING_AT, &mark);
    }

    /// Become the one process of `rank`.
    pub(crate) fn claim_rank(&self, rank: Rank) -> Result<(), RegionError> {
        if self.claim(header_area::ring_at(rank))? {
            return Ok(());
        }
        Err(RegionError::RankTaken { path: self.path.clone(), rank })
    }

    fn claim(&self, at: usize) -> Result<bool, RegionError> {
        if self.access == Access::ReadOnly {
            let source = io::Error::from(io::ErrorKind::PermissionDenied);
            return Err(RegionError::io("claim a part of", &self.path, source));
        }
        claim::take(self.file.as_fd(), at as u64)
            .map_err(|source| RegionError::io("claim a part of", &self.path, source))
    }

    /// Whether another process has claimed the part of the header area at byte `at`.
    pub(crate) fn is_claimed(&self, at: usize) -> io::Result<bool> {
        claim::is_taken(self.file.as_fd(), at as u64)
    }

    /// Its file goes with the last process that has it.
    pub(crate) fn left_to_the_last(mut self) -> Self {
        self.creator = None;
        self.last_out = Some(LastOut::new(&self.path));
        self
    }

    fn attach_as(path: &Path, access: Access) -> Result<Self, RegionError> {
        let path = crate::options::absolute(path)?;
        let file = match file::open_live(&path, access)? {
            Found::Live(file) => file,
            Found::Dead => return Err(RegionError::Stale { path }),
            Found::Foreign(cause) => return Err(RegionError::Foreign { path, cause }),
        };
        let header = file::read_header(file.as_fd(), &path)?;
        let len = mapped_bytes(&header);
        let mapping = Mapping::new(file.as_fd(), len, access)
            .map_err(|source| RegionError::io("map", &path, source))?;
        Ok(Self { path, header, access, mapping, file, creator: None, last_out: None })
    }

    /// What [`create`] made, as its creator's.
    pub(crate) fn created(path: PathBuf, header: Header, mapping: Mapping, file: OwnedFd) -> Self {
        let creator = Some(header.creator_process);
        let access = Access::ReadWrite;
        Self { path, header, access, mapping, file, creator, last_out: None }
    }

    /// Number of blocks, at least one.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.header.geometry.blocks()
    }

    /// Bytes of one block, at least one.
    #[must_use]
    pub fn block_size_bytes(&self) -> u64 {
        self.header.geometry.block_size_bytes()
    }

    /// Random id of the life of the node that the region was made for.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.header.epoch
    }

    /// Bytes of the region that this process reaches through huge pages now; see
    /// [`RegionOptions::huge_pages`]. Reads `/proc`: not for a path that serves.
    pub fn huge_page_bytes(&self) -> io::Result<u64> {
        self.mapping.huge_page_bytes()
    }

    /// Absolute path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// User and process id of the creator, the latter in its own PID namespace: for logs only,
    /// nothing is ever decided by them.
    #[must_use]
    pub fn creator(&self) -> (u32, u32) {
        (self.header.creator_user, self.header.creator_process)
    }

    /// Address of the first block in this process, on a page boundary: for those who have to name the
    /// memory to a device. Valid for as long as this value lives.
    #[must_use]
    pub fn blocks_address(&self) -> usize {
        self.bytes().pointer(self.first_block(), 0) as usize
    }

    /// Bytes of all blocks.
    #[must_use]
    pub fn blocks_bytes(&self) -> u64 {
        u64::from(self.blocks()) * self.block_size_bytes()
    }

    /// Where the first `len` bytes of the entry laid over `extents` lie: (offset from the first block,
    /// bytes), in the entry's order.
    pub fn ranges(&self, extents: &[Extent], len: u64) -> Result<Vec<(u64, u64)>, RangeError> {
        let first = self.first_block();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let pieces = self.pieces(extents, 0, len)?;
        Ok(pieces.map(|piece| ((piece.at - first) as u64, piece.len as u64)).collect())
    }

    fn first_block(&self) -> usize {
        usize::try_from(self.header.geometry.header_bytes())
            .expect("a geometry fits the address space")
    }

    /// Copy `bytes` into the entry laid over `extents`, from byte `offset` of the entry on. Nothing
    /// is copied if it does not fit.
    pub fn copy_in(&self, extents: &[Extent], offset: u64, bytes: &[u8]) -> Result<(), RangeError> {
        let mut rest = bytes;
        for piece in self.writable_pieces(extents, offset, bytes.len())? {
            let (now, later) = rest.split_at(piece.len);
            self.bytes().store(piece.at, now);
            rest = later;
        }
        Ok(())
    }

    /// As [`Region::copy_in`], and take the bytes into `digest` as they landed, chunk by chunk while
    /// they are in the cache.
    pub fn copy_in_digested(
        &self,
        extents: &[Extent],
        offset: u64,
        bytes: &[u8],
        digest: &mut LandedDigest,
    ) -> Result<(), RangeError> {
        let mut rest = bytes;
        for piece in self.writable_pieces(extents, offset, bytes.len())? {
            let (now, later) = rest.split_at(piece.len);
            let ats = (piece.at..).step_by(CHUNK_BYTES);
            for (at, chunk) in ats.zip(now.chunks(CHUNK_BYTES)) {
                self.bytes().store(at, chunk);
                digest.take_in(self.bytes(), Piece { at, len: chunk.len() });
            }
            rest = later;
        }
        Ok(())
    }

    /// Copy bytes of the entry laid over `extents`, from byte `offset` of the entry on, to all of
    /// `out`. Nothing is copied if `out` is longer than what is left of the entry.
    pub fn copy_out(
        &self,
        extents: &[Extent],
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), RangeError> {
        let mut rest = out;
        for piece in self.pieces(extents, offset, rest.len())? {
            let (now, later) = rest.split_at_mut(piece.len);
            self.bytes().load(piece.at, now);
            rest = later;
        }
        Ok(())
    }

    /// One `sendmsg` of bytes `offset .. offset + len` of the entry to a stream socket, straight
    /// from the mapping; how many bytes went out, which may be fewer.
    ///
    /// The caller caps `len` (1 MiB a slice keeps its thread responsive). Errors are the system's
    /// (`WouldBlock` and `Interrupted` among them; a peer that has gone is `BrokenPipe`, never a
    /// signal), or `InvalidInput` around a [`RangeError`].
    pub fn send(
        &self,
        socket: BorrowedFd<'_>,
        extents: &[Extent],
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        let pieces = self.pieces(extents, offset, len).map_err(invalid_input)?;
        crate::socket::send(socket, self.bytes(), pieces)
    }

    /// One `readv` from a stream socket straight into bytes `offset .. offset + len` of the entry;
    /// how many bytes came in, which may be fewer, 0 at the end of the stream.
    ///
    /// Errors as [`Region::send`]'s.
    pub fn receive(
        &self,
        socket: BorrowedFd<'_>,
        extents: &[Extent],
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        let pieces = self.writable_pieces(extents, offset, len).map_err(invalid_input)?;
        crate::socket::receive(socket, self.bytes(), pieces)
    }

    /// Copy bytes `offset .. offset + len` of an entry that a peer has laid over `remote` to the same
    /// bytes of the entry laid over `local`; with `digest`, take them in as they landed. Nothing is
    /// copied if either does not fit.
    ///
    /// The caller caps `len`, as for [`Region::send`].
    pub fn copy_from_peer(
        &self,
        peer: &PeerRegion,
        remote: &[Extent],
        local: &[Extent],
        offset: u64,
        len: usize,
        mut digest: Option<&mut LandedDigest>,
    ) -> Result<(), RangeError> {
        let mut sources = peer.pieces(remote, offset, len)?;
        let mut source = Piece { at: 0, len: 0 };
        // Both sides were found to have all bytes: neither runs out before the other.
        for mut target in self.writable_pieces(local, offset, len)? {
            while target.len > 0 {
                if source.len == 0 {
                    let Some(next) = sources.next() else { return Ok(()) };
                    source = next;
                }
                let now = target.len.min(source.len);
                match digest.as_deref_mut() {
                    Some(digest) => {
                        let source = Piece { at: source.at, len: now };
                        digest.copy_and_take_in(peer.bytes(), source, self.bytes(), target.at);
                    }
                    None => copy(peer.bytes(), source.at, self.bytes(), target.at, now),
                }
                source = Piece { at: source.at + now, len: source.len - now };
                target = Piece { at: target.at + now, len: target.len - now };
            }
        }
        Ok(())
    }

    /// Whether `other` is open on this very file.
    pub(crate) fn is_same_file(&self, other: BorrowedFd<'_>) -> bool {
        match (rustix::fs::fstat(self.file.as_fd()), rustix::fs::fstat(other)) {
            (Ok(ours), Ok(other)) => (ours.st_dev, ours.st_ino) == (other.st_dev, other.st_ino),
            _ => false,
        }
    }

    pub(crate) fn bytes(&self) -> SharedBytes<'_> {
        self.mapping.bytes()
    }

    pub(crate) fn pieces<'a>(
        &self,
        extents: &'a [Extent],
        offset: u64,
        len: usize,
    ) -> Result<Pieces<'a>, RangeError> {
        self.header.geometry.pieces(extents, offset, len)
    }

    /// A store through a read-only mapping would be a fault that ends the process.
    fn writable_pieces<'a>(
        &self,
        extents: &'a [Extent],
        offset: u64,
        len: usize,
    ) -> Result<Pieces<'a>, RangeError> {
        match self.access {
            Access::ReadWrite => self.pieces(extents, offset, len),
            Access::ReadOnly => Err(RangeError::ReadOnly),
        }
    }
}

impl Drop for Region {
    /// S9. The name goes first, while the lock still keeps everybody else from reusing it.
    fn drop(&mut self) {
        if self.creator == Some(std::process::id()) && file::is_at(self.file.as_fd(), &self.path) {
            // Nothing can be done about a failure here; the next start removes what is left.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// Bytes that a region with this header maps.
pub(crate) fn mapped_bytes(header: &Header) -> usize {
    usize::try_from(header.geometry.file_bytes()).expect("a geometry fits the address space")
}

fn invalid_input(error: RangeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
