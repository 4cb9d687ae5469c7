//! How many connections each address has: one host must not take all of them (S7).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

#[derive(Debug, Default)]
pub(super) struct Addresses(BTreeMap<IpAddr, usize>);

impl Addresses {
    /// Counts one connection more, unless the address has `limit` already.
    pub(super) fn take(&mut self, address: IpAddr, limit: usize) -> bool {
        let count = self.0.entry(address).or_default();
        if *count >= limit {
            return false;
        }
        *count += 1;
        true
    }

    /// How many connections each address has that has any.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IpAddr, usize)> + Clone {
        self.0.iter().map(|(address, count)| (*address, *count))
    }

    pub(super) fn give_back(&mut self, address: IpAddr) {
        if let Some(count) = self.0.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&address);
            }
        }
    }
}

/// Whom a socket is connected to; `None` if the connection is gone already.
pub(super) fn peer_of(socket: impl AsFd) -> Option<SocketAddr> {
    let address = rustix::net::getpeername(socket).ok().flatten()?;
    SocketAddr::try_from(address).ok()
}
