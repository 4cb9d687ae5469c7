//! Bytes between a region's mapping and a stream socket in one system call, without a buffer of our
//! own in between.
//!
//! `sendmsg` with scattered pieces was measured to beat `sendfile`, `splice` and `MSG_ZEROCOPY` on
//! loopback. It must never loop: one call, and the caller decides when to come back.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use chiasm_core::limits::MAX_EXTENTS;

use crate::geometry::Pieces;
use crate::memory::SharedBytes;

/// Most pieces of one call. An entry has at most [`MAX_EXTENTS`] extents, so a call takes all of
/// them; Linux's own limit, `IOV_MAX`, is 1024. More pieces make a short count, never an error.
const PIECES: usize = MAX_EXTENTS;

/// The pieces as the kernel wants them.
struct Scattered {
    pieces: [libc::iovec; PIECES],
    count: usize,
}

impl Scattered {
    fn new(bytes: SharedBytes<'_>, pieces: Pieces<'_>) -> Self {
        const EMPTY: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut scattered = Self { pieces: [EMPTY; PIECES], count: 0 };
        for (slot, piece) in scattered.pieces.iter_mut().zip(pieces) {
            slot.iov_base = bytes.pointer(piece.at, piece.len).cast();
            slot.iov_len = piece.len;
            scattered.count += 1;
        }
        scattered
    }
}

/// One `sendmsg` of `pieces`; how many bytes went out.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: SharedBytes<'_>,
    pieces: Pieces<'_>,
) -> io::Result<usize> {
    let mut scattered = Scattered::new(bytes, pieces);
    // SAFETY: `msghdr` is plain data for which all zeroes means: no name, no pieces, no control.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = scattered.pieces.as_mut_ptr();
    // The field's type differs between C libraries; the count is at most 64.
    message.msg_iovlen = scattered.count as _;
    // MSG_NOSIGNAL: a peer that has gone is an error here, not a SIGPIPE for the engine.
    // SAFETY: the descriptor is open (borrowed). The kernel reads the pieces, which lie inside the
    // caller's mapping (checked by `pointer`) and stay mapped during the call; it copies, so a
    // concurrent writer makes torn bytes on the wire, which the reader's digest finds.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// One `readv` into `pieces`; how many bytes came in, 0 at the end of the stream.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    bytes: SharedBytes<'_>,
    pieces: Pieces<'_>,
) -> io::Result<usize> {
    let scattered = Scattered::new(bytes, pieces);
    let count = libc::c_int::try_from(scattered.count).expect("at most 64 pieces");
    // SAFETY: the descriptor is open (borrowed). The kernel writes the pieces, which lie inside the
    // caller's writable mapping (checked by `pointer`) and stay mapped during the call; no Rust
    // reference covers them, and the cache lets nobody else write blocks that are being filled.
    let received = unsafe { libc::readv(socket.as_raw_fd(), scattered.pieces.as_ptr(), count) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}
