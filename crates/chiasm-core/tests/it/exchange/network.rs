//! Connections: in order each, in no order among each other, and lost on either side at its own time.

use std::collections::VecDeque;

use chiasm_core::producer::PeerId;

pub(super) struct Connection {
    pub(super) peer: PeerId,
    pub(super) reader: usize,
    pub(super) source: usize,
    pub(super) to_source: VecDeque<Vec<u8>>,
    pub(super) to_reader: VecDeque<Vec<u8>>,
    /// The reader has given it up. What it sent before may still arrive.
    pub(super) broken: bool,
}

#[derive(Default)]
pub(super) struct Network {
    /// (reader, source) pairs that somebody tries to connect.
    pub(super) opening: Vec<(usize, usize)>,
    pub(super) connections: Vec<Connection>,
    next_peer: u64,
}

impl Network {
    pub(super) fn connect(&mut self, reader: usize, source: usize) {
        let peer = PeerId(self.next_peer);
        self.next_peer += 1;
        let (to_source, to_reader) = (VecDeque::new(), VecDeque::new());
        let broken = false;
        let new = Connection { peer, reader, source, to_source, to_reader, broken };
        self.connections.push(new);
    }

    pub(super) fn live(&mut self, reader: usize, source: usize) -> Option<&mut Connection> {
        let theirs = |connection: &&mut Connection| {
            !connection.broken && (connection.reader, connection.source) == (reader, source)
        };
        self.connections.iter_mut().find(theirs)
    }

    /// The indices of connections for which `suits` holds.
    pub(super) fn which(&self, suits: impl Fn(&Connection) -> bool) -> Vec<usize> {
        let indices = 0..self.connections.len();
        indices.filter(|index| suits(&self.connections[*index])).collect()
    }
}
