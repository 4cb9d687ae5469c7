//! The listening socket of the status.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use chiasm_region::{Region, status_socket};
use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType, accept_with, listen, sockopt};

use crate::named_socket::NamedSocket;

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 8;

/// Gone with its name when it is dropped.
#[derive(Debug)]
pub(crate) struct StatusSocket(NamedSocket);

impl StatusSocket {
    /// Listens beside the region, whose name and lock this process has.
    pub(crate) fn beside(region: &Region) -> io::Result<Self> {
        let socket = NamedSocket::bind(status_socket(region.path()), SocketType::STREAM)?;
        listen(&socket, BACKLOG)?;
        Ok(Self(socket))
    }

    /// The next client, if one waits and is of this user (or root, who may everything).
    pub(crate) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match accept_with(&self.0, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(client) => {
                let peer = sockopt::socket_peercred(&client)?.uid;
                Ok((peer.is_root() || peer == rustix::process::geteuid()).then_some(client))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for StatusSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
