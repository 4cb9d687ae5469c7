//! The socket through which workers wake the node's thread.
//!
//! What comes over it means nothing but "look at the rings": anybody of this user may send anything.

use std::os::fd::{AsFd, BorrowedFd};

use chiasm_region::{Region, wake_socket};
use rustix::net::{RecvFlags, SocketType};

use crate::named_socket::NamedSocket;

/// Datagrams taken at once; more leave the socket ready, and the next turn takes them.
const DATAGRAMS_PER_WAKE: usize = 64;

#[derive(Debug)]
pub(crate) struct WakeSocket(NamedSocket);

impl WakeSocket {
    /// Beside the region, whose name and lock this process has. `None`, with a line that says so, where
    /// that is not possible; workers are then seen at the tick.
    pub(crate) fn beside(region: &Region) -> Option<Self> {
        let path = wake_socket(region.path());
        match NamedSocket::bind(path.clone(), SocketType::DGRAM) {
            Ok(socket) => Some(Self(socket)),
            Err(error) => {
                tracing::warn!(
                    %error,
                    path = %path.display(),
                    "workers cannot wake this node, their reports are seen up to 250 ms late: give \
                     the region a shorter name or another directory"
                );
                None
            }
        }
    }

    /// Takes the wake-ups that have come.
    pub(crate) fn drain(&self) {
        for _ in 0..DATAGRAMS_PER_WAKE {
            if rustix::net::recv(&self.0, &mut [0_u8; 1], RecvFlags::TRUNC).is_err() {
                return;
            }
        }
    }
}

impl AsFd for WakeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
