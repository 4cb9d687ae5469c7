//! One read in flight.
//!
//! There is no way to cancel one: NIXL says that it has, and bytes still land.

use std::ffi::CStr;
use std::ptr;

use super::agent::{Agent, NixlError, check, goes_on};
use super::table::{HOST_MEMORY, Handle, READ, SUCCESS, Table};
use crate::piece::Piece;

/// Registered memory of this process that is read into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    /// Its first address.
    pub(crate) address: usize,
    /// Its length.
    pub(crate) bytes: usize,
}

/// How a read stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferState {
    /// Bytes may land.
    Running,
    /// All bytes have landed and the notification is on its way.
    Done,
    /// It has ended without.
    Failed,
}

/// The read.
pub(crate) struct Transfer {
    functions: &'static Table,
    agent: Handle,
    request: Handle,
    state: TransferState,
}

impl Transfer {
    pub(super) fn start(
        agent: &Agent,
        peer: &CStr,
        local: Local,
        pieces: &[Piece],
        options: Handle,
    ) -> Result<Self, NixlError> {
        let functions = agent.functions;
        let (here, there) = (List::new(functions)?, List::new(functions)?);
        for &piece in pieces {
            let (address, remote, bytes) = addresses(local, piece)?;
            here.add(address, bytes)?;
            there.add(remote, bytes)?;
        }
        let mut request = ptr::null_mut();
        // SAFETY: live objects and a C string, all living across the call, which copies what it keeps. The
        // local addresses lie in memory that is registered and stays mapped until the process ends
        // (`Local` is made of the region or of leaked memory); NIXL writes there by itself, and no
        // reference into it exists. The remote ones are numbers to it.
        let status = unsafe {
            (functions.create_xfer_req)(
                agent.raw,
                READ,
                here.list,
                there.list,
                peer.as_ptr(),
                &raw mut request,
                options,
            )
        };
        check("prepare a read", status)?;
        let mut transfer =
            Self { functions, agent: agent.raw, request, state: TransferState::Running };
        // SAFETY: a live agent and the request that was just made for it; the options have been taken.
        let status = unsafe { (functions.post_xfer_req)(agent.raw, request, ptr::null_mut()) };
        transfer.take(status);
        Ok(transfer)
    }

    /// How it stands; makes progress while it runs.
    pub(crate) fn poll(&mut self) -> TransferState {
        if self.state == TransferState::Running {
            // SAFETY: a live agent and its request, not released: that takes `self`.
            let status = unsafe { (self.functions.get_xfer_status)(self.agent, self.request) };
            self.take(status);
        }
        self.state
    }

    /// Give the request back to NIXL. Only for a read that has ended: one that runs would go on behind
    /// NIXL's back.
    pub(crate) fn release(self) -> Result<(), NixlError> {
        debug_assert!(self.state != TransferState::Running, "a running read cannot be cancelled");
        // SAFETY: a live agent and its request, released once, since `self` is consumed.
        let status = unsafe { (self.functions.release_xfer_req)(self.agent, self.request) };
        check("release a read", status)?;
        // SAFETY: what is left of the request; it was released, and nobody refers to it.
        let status = unsafe { (self.functions.destroy_xfer_req)(self.request) };
        check("forget a read", status)
    }

    fn take(&mut self, status: i32) {
        self.state = match status {
            SUCCESS => TransferState::Done,
            status if goes_on(status) => TransferState::Running,
            _ => TransferState::Failed,
        };
    }
}

/// A piece as addresses of this process: checked once more, for this is where they leave Rust.
fn addresses(local: Local, piece: Piece) -> Result<(usize, usize, usize), NixlError> {
    let outside = NixlError { what: "read outside of its memory", status: -1 };
    let number = |number: u64| usize::try_from(number).map_err(|_| outside);
    let (offset, bytes) = (number(piece.local_offset)?, number(piece.bytes)?);
    let end = offset.checked_add(bytes).filter(|&end| end <= local.bytes);
    let remote = number(piece.remote_address)?;
    match (end, remote.checked_add(bytes)) {
        (Some(_), Some(_)) => Ok((local.address + offset, remote, bytes)),
        _ => Err(outside),
    }
}

/// A list of ranges of one side.
struct List {
    functions: &'static Table,
    list: Handle,
}

impl List {
    fn new(functions: &'static Table) -> Result<Self, NixlError> {
        let mut list = ptr::null_mut();
        // SAFETY: an out-pointer.
        let status = unsafe { (functions.create_xfer_dlist)(HOST_MEMORY, &raw mut list) };
        check("make a list of ranges", status)?;
        Ok(Self { functions, list })
    }

    fn add(&self, address: usize, bytes: usize) -> Result<(), NixlError> {
        // SAFETY: the list; the range is only noted.
        let status = unsafe { (self.functions.xfer_dlist_add_desc)(self.list, address, bytes, 0) };
        check("note a range", status)
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: made by `create_xfer_dlist`, destroyed once; requests have their own copies.
        unsafe { (self.functions.destroy_xfer_dlist)(self.list) };
    }
}
