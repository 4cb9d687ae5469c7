//! Connections and what is on its way over them. It only keeps; what happens to it is the business of
//! `wires`.

use std::collections::{BTreeMap, VecDeque};

use chiasm_zmtp::ConnectionId;

/// Who has made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    /// One life of a node.
    Node { node: usize, life: u32 },
    /// A consumer that belongs to nobody.
    Hostile(usize),
}

/// What is on its way.
#[derive(Clone, Debug)]
pub(crate) enum Chunk {
    Bytes(Vec<u8>),
    /// The sender has closed its end.
    End,
    /// The connection is gone.
    Reset,
}

/// One direction of a connection: in order, whatever the delays.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pub(crate) chunks: VecDeque<(u64, Chunk)>,
    /// Nothing arrives before this.
    pub(crate) last_at: u64,
    /// Nothing arrives any more, and nobody is told.
    pub(crate) cut: bool,
    /// The receiver does not read.
    pub(crate) unread: bool,
    pub(crate) bytes: usize,
}

/// Most bytes on their way in one direction: what two sockets' buffers hold.
pub(crate) const WINDOW_BYTES: usize = 8 << 10;

impl Pipe {
    pub(crate) fn has_room(&self) -> bool {
        self.cut || self.bytes < WINDOW_BYTES
    }
}

/// A control connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) server: usize,
    pub(crate) server_life: u32,
    /// Its name at the server, once that has accepted it.
    pub(crate) peer: Option<ConnectionId>,
    /// The server has seen a first byte, so that it knows what the connection is for.
    pub(crate) sniffed: bool,
    pub(crate) client_open: bool,
    pub(crate) server_open: bool,
    pub(crate) to_server: Pipe,
    pub(crate) to_client: Pipe,
}

impl Connection {
    pub(crate) fn pipe(&mut self, to_server: bool) -> &mut Pipe {
        if to_server { &mut self.to_server } else { &mut self.to_client }
    }
}

/// Between two nodes nothing passes in this direction until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partition {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) until: u64,
}

/// How an endpoint answers to connects for a while, whatever lives there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deaf {
    pub(crate) node: usize,
    pub(crate) refuses: bool,
    pub(crate) until: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) deaf: Vec<Deaf>,
    next: u64,
    /// Messages of honest peers, for those who replay them.
    pub(crate) overheard: VecDeque<Vec<u8>>,
}

impl Network {
    pub(crate) fn open(&mut self, client: Client, server: usize, server_life: u32) -> u64 {
        self.next += 1;
        let connection = Connection {
            client,
            server,
            server_life,
            peer: None,
            sniffed: false,
            client_open: true,
            server_open: false,
            to_server: Pipe::default(),
            to_client: Pipe::default(),
        };
        self.connections.insert(self.next, connection);
        self.next
    }

    /// Until when nothing passes from one node to the other; `None` if everything does.
    pub(crate) fn blocked(&self, now: u64, from: usize, to: usize) -> Option<u64> {
        let of_these = |part: &&Partition| part.from == from && part.to == to && part.until > now;
        self.partitions.iter().filter(of_these).map(|partition| partition.until).max()
    }

    /// How an endpoint answers to connects, if not as usual.
    pub(crate) fn deaf(&self, now: u64, node: usize) -> Option<Deaf> {
        self.deaf.iter().rev().find(|deaf| deaf.node == node && deaf.until > now).copied()
    }

    /// Forgets a connection that both sides have closed.
    pub(crate) fn forget_closed(&mut self, id: u64) {
        let over = |connection: &Connection| !connection.client_open && !connection.server_open;
        if self.connections.get(&id).is_some_and(over) {
            self.connections.remove(&id);
        }
    }
}
