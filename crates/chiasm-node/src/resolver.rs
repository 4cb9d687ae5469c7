//! Name resolution, away from the node's thread: `getaddrinfo` may take seconds.
//!
//! Only names of approved endpoints come here (S1). An IP literal needs no resolution and is
//! answered at once.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use chiasm_core::endpoint::Endpoint;

use crate::poller::Waker;

/// Names that are looked up at the same time; more fail at once and are tried again with the link's
/// back-off.
const MAX_LOOKUPS: usize = 16;

/// The addresses of one endpoint, or why there are none.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) endpoint: Endpoint,
    pub(crate) addresses: Result<Vec<SocketAddr>, String>,
}

#[derive(Debug)]
pub(crate) struct Resolver {
    waker: Arc<Waker>,
    sender: Sender<Resolved>,
    receiver: Receiver<Resolved>,
    running: usize,
}

impl Resolver {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        let (sender, receiver) = channel();
        Self { waker, sender, receiver, running: 0 }
    }

    /// Starts looking up; the answer comes by [`Resolver::poll`], after a wake-up if it takes time.
    pub(crate) fn resolve(&mut self, endpoint: &Endpoint) {
        let port = endpoint.port();
        let name = match (endpoint.host().address(), endpoint.host().name()) {
            (Some(address), _) => return self.answer(endpoint, address, port),
            (None, Some(name)) => name.as_str().to_owned(),
            (None, None) => unreachable!("a host is an address or a name"),
        };
        if self.running >= MAX_LOOKUPS {
            let addresses = Err(format!("{MAX_LOOKUPS} names are being looked up already"));
            let _ = self.sender.send(Resolved { endpoint: endpoint.clone(), addresses });
            self.running += 1;
            return;
        }
        self.running += 1;
        let (sender, waker, asked) =
            (self.sender.clone(), Arc::clone(&self.waker), endpoint.clone());
        let spawned = thread::Builder::new().name("chiasm-resolve".into()).spawn(move || {
            let found = (name.as_str(), port).to_socket_addrs();
            let addresses = match found.map(Vec::from_iter) {
                Ok(addresses) if addresses.is_empty() => Err("it has no address".into()),
                Ok(addresses) => Ok(addresses),
                Err(error) => Err(error.to_string()),
            };
            let _ = sender.send(Resolved { endpoint: asked, addresses });
            waker.wake();
        });
        if let Err(error) = spawned {
            let addresses = Err(format!("no thread for the look-up: {error}"));
            let _ = self.sender.send(Resolved { endpoint: endpoint.clone(), addresses });
        }
    }

    fn answer(&mut self, endpoint: &Endpoint, address: IpAddr, port: u16) {
        let addresses = Ok(vec![SocketAddr::new(address, port)]);
        let _ = self.sender.send(Resolved { endpoint: endpoint.clone(), addresses });
        self.running += 1;
    }

    pub(crate) fn poll(&mut self) -> Option<Resolved> {
        let resolved = self.receiver.try_recv().ok()?;
        self.running -= 1;
        Some(resolved)
    }
}
