//! What happens to connections: they are made, carry chunks in order, lose, delay and spoil them, and
//! end on either side at its own time.

use chiasm_core::endpoint::Endpoint;
use chiasm_core::time::Nanos;
use chiasm_zmtp::{CloseReason, ConnectionId};

use crate::fault::Fault;
use crate::network::{Chunk, Client, Deaf, Partition};
use crate::queue::{Event, Life};
use crate::violation::{Promise, Step, ensure};
use crate::world::World;

/// Messages that hostile consumers may overhear.
const OVERHEARD: usize = 16;

impl World {
    /// A node begins to connect to an endpoint.
    pub(crate) fn connect(&mut self, node: usize, endpoint: &Endpoint) -> Step<u64> {
        let allowed = self.nodes[node].allowed.iter().any(|known| known == endpoint);
        ensure(allowed, Promise::S1, || format!("node {node} connects to {endpoint}"))?;
        let client = Client::Node { node, life: self.nodes[node].life };
        let server = self.directory.get(endpoint).copied().unwrap_or(usize::MAX);
        Ok(self.connect_as(client, server))
    }

    /// Somebody begins to connect to a node.
    pub(crate) fn connect_as(&mut self, client: Client, server: usize) -> u64 {
        let id = self.network.open(client, server, 0);
        self.note("connect", &[id, server as u64]);
        let from = match client {
            Client::Node { node, .. } => node,
            Client::Hostile(_) => usize::MAX,
        };
        let at = self.now + self.latency();
        let blocked = self.network.blocked(self.now, from, server).is_some()
            || self.network.blocked(self.now, server, from).is_some();
        match self.network.deaf(self.now, server) {
            Some(Deaf { refuses: true, .. }) => {
                self.fired(Fault::ConnectRefused);
                self.push(at, Event::Connected { connection: id, accepted: false });
            }
            Some(Deaf { refuses: false, .. }) => self.fired(Fault::ConnectBlackHole),
            None if blocked || server == usize::MAX => {}
            None => self.push(at, Event::Accept { connection: id }),
        }
        id
    }

    /// A connect has reached its endpoint.
    pub(crate) fn accept(&mut self, id: u64) -> Step {
        let Some(connection) = self.network.connections.get_mut(&id) else { return Ok(()) };
        let server = &self.nodes[connection.server];
        if server.dark {
            return Ok(());
        }
        let accepted = server.up && server.setup.role.serves();
        connection.server_life = server.life;
        connection.server_open = accepted;
        let (number, paused) = (connection.server, server.paused_until > self.now);
        let at = self.now + self.latency();
        self.push(at, Event::Connected { connection: id, accepted });
        if accepted && !paused {
            self.take_in(id);
            self.settle(number)?;
        }
        Ok(())
    }

    /// The server's process takes in a connection that its host has accepted.
    fn take_in(&mut self, id: u64) {
        let now = self.time();
        let Some(connection) = self.network.connections.get_mut(&id) else { return };
        if connection.peer.is_some() {
            return;
        }
        let node = &mut self.nodes[connection.server];
        match node.router.accept(now) {
            Ok(peer) => {
                connection.peer = Some(peer);
                node.peers.insert(peer, id);
            }
            Err(_) => self.close_server(id),
        }
    }

    /// Who has tried to connect learns what came of it.
    pub(crate) fn connected(&mut self, id: u64, accepted: bool) -> Step {
        let now = self.time();
        let Some(connection) = self.network.connections.get(&id) else { return Ok(()) };
        match connection.client {
            Client::Hostile(hostile) => {
                self.hostile_connected(hostile, id, accepted);
                Ok(())
            }
            Client::Node { node, life } => {
                let endpoint = crate::node::endpoint_of(connection.server);
                let up = self.nodes[node].up && self.nodes[node].life == life;
                let link = self.nodes[node].links.get_mut(&endpoint);
                let mine = link.filter(|link| up && link.connection == Some(id));
                let Some(link) = mine else {
                    self.close_client(id);
                    return Ok(());
                };
                if accepted {
                    link.link.connected(now);
                } else {
                    link.failure = Some(chiasm_core::consumer::FailureReason::Refused);
                    let error = "connection refused".to_owned();
                    link.link.connect_failed(now, CloseReason::ConnectFailed { error });
                }
                self.settle(node)
            }
        }
    }

    /// The client closes its end.
    pub(crate) fn close_client(&mut self, id: u64) {
        let open = self
            .network
            .connections
            .get_mut(&id)
            .is_some_and(|connection| std::mem::replace(&mut connection.client_open, false));
        if open {
            self.launch(id, true, Chunk::End);
        }
        self.network.forget_closed(id);
    }

    /// The server closes its end.
    pub(crate) fn close_server(&mut self, id: u64) {
        let open = self
            .network
            .connections
            .get_mut(&id)
            .is_some_and(|connection| std::mem::replace(&mut connection.server_open, false));
        if open {
            self.launch(id, false, Chunk::End);
        }
        self.network.forget_closed(id);
    }

    /// Bytes of one or more whole messages go into a pipe, and perhaps not as they are.
    pub(crate) fn transmit(&mut self, id: u64, to_server: bool, mut bytes: Vec<u8>) {
        self.trace.absorb_bytes(&bytes);
        if to_server && bytes.starts_with(&[1, 0]) && self.is_overheard(id) {
            self.network.overheard.push_back(bytes.clone());
            if self.network.overheard.len() > OVERHEARD {
                self.network.overheard.pop_front();
            }
        }
        if self.fires(Fault::MessageLost) {
            return;
        }
        if self.fires(Fault::ConnectionReset) {
            self.launch(id, true, Chunk::Reset);
            self.launch(id, false, Chunk::Reset);
            return;
        }
        if self.fires(Fault::HalfOpen)
            && let Some(connection) = self.network.connections.get_mut(&id)
        {
            connection.pipe(to_server).cut = true;
        }
        if bytes.len() > 1 && self.fires(Fault::MessageTruncated) {
            let keep = self.random.index(bytes.len());
            bytes.truncate(keep);
        }
        if self.fires(Fault::MessageCorrupted) {
            let at = self.random.index(bytes.len());
            let flipped = u8::try_from(self.random.between(1, 255)).unwrap_or(1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= flipped;
            }
        }
        if self.fires(Fault::MessageDuplicated) {
            self.launch(id, to_server, Chunk::Bytes(bytes.clone()));
        }
        self.launch(id, to_server, Chunk::Bytes(bytes));
        if let Some(connection) = self.network.connections.get(&id) {
            let chunks =
                if to_server { &connection.to_server.chunks } else { &connection.to_client.chunks };
            let last = chunks.len();
            if last >= 2 && self.fires(Fault::MessagesReordered) {
                self.swap_last(id, to_server);
            }
        }
    }

    fn is_overheard(&self, id: u64) -> bool {
        let client = self.network.connections.get(&id).map(|connection| connection.client);
        !self.hostiles.is_empty() && matches!(client, Some(Client::Node { .. }))
    }

    fn swap_last(&mut self, id: u64, to_server: bool) {
        let Some(connection) = self.network.connections.get_mut(&id) else { return };
        let chunks = &mut connection.pipe(to_server).chunks;
        let (last, before) = (chunks.len() - 1, chunks.len() - 2);
        let times = (chunks[before].0, chunks[last].0);
        chunks.swap(before, last);
        (chunks[before].0, chunks[last].0) = times;
    }

    /// A chunk is on its way.
    fn launch(&mut self, id: u64, to_server: bool, chunk: Chunk) {
        let Some((from, to)) = self.ends(id, to_server) else { return };
        let delayed = matches!(chunk, Chunk::Bytes(_)) && self.fires(Fault::MessageDelayed);
        let more = if delayed { self.random.skewed(1_000_000, 60_000_000_000) } else { 0 };
        let mut at = self.now + self.latency() + more;
        if let Some(until) = self.network.blocked(self.now, from, to) {
            // What was lost meanwhile is sent again when the way is free.
            at = at.max(until + self.latency());
        }
        if to < self.nodes.len() {
            at = self.around_a_deadline(at, self.nodes[to].instance.poll_timeout());
        }
        let Some(connection) = self.network.connections.get_mut(&id) else { return };
        let pipe = connection.pipe(to_server);
        at = at.max(pipe.last_at);
        pipe.last_at = at;
        match &chunk {
            Chunk::Bytes(bytes) => pipe.bytes += bytes.len(),
            Chunk::Reset => {
                at = self.now + 1;
                pipe.chunks.clear();
                pipe.bytes = 0;
                pipe.last_at = at;
            }
            Chunk::End => {}
        }
        pipe.chunks.push_back((at, chunk));
        self.push(at, Event::Deliver { connection: id, to_server });
    }

    /// From which node to which a chunk goes; hostile consumers have no number.
    pub(crate) fn ends(&self, id: u64, to_server: bool) -> Option<(usize, usize)> {
        let connection = self.network.connections.get(&id)?;
        let client = match connection.client {
            Client::Node { node, .. } => node,
            Client::Hostile(_) => usize::MAX,
        };
        Some(if to_server { (client, connection.server) } else { (connection.server, client) })
    }

    /// Whatever is due in a pipe arrives.
    pub(crate) fn deliver(&mut self, id: u64, to_server: bool) -> Step {
        let now = self.now;
        let Some(connection) = self.network.connections.get_mut(&id) else { return Ok(()) };
        let pipe = connection.pipe(to_server);
        if pipe.unread || pipe.chunks.front().is_none_or(|(at, _)| *at > now) {
            return Ok(());
        }
        let was_full = !pipe.has_room();
        let Some((_, chunk)) = pipe.chunks.pop_front() else { return Ok(()) };
        if let Chunk::Bytes(bytes) = &chunk {
            pipe.bytes = pipe.bytes.saturating_sub(bytes.len());
        }
        if pipe.cut && !matches!(chunk, Chunk::Reset) {
            return Ok(());
        }
        self.note("deliver", &[id, u64::from(to_server)]);
        if to_server {
            self.reach_server(id, chunk)?;
        } else {
            self.reach_client(id, chunk)?;
        }
        if was_full && let Some((from, _)) = self.ends(id, to_server) {
            // The sender's socket has room again.
            if from < self.nodes.len() && self.nodes[from].up {
                self.settle(from)?;
            }
        }
        Ok(())
    }

    fn reach_server(&mut self, id: u64, chunk: Chunk) -> Step {
        let now = self.time();
        let Some(connection) = self.network.connections.get(&id) else { return Ok(()) };
        let (number, life) = (connection.server, connection.server_life);
        let Some(node) = self.nodes.get(number) else { return Ok(()) };
        if !node.up || node.life != life || !connection.server_open {
            // Its host knows no such connection.
            if !node.dark && connection.client_open && matches!(chunk, Chunk::Bytes(_)) {
                self.launch(id, false, Chunk::Reset);
            }
            return Ok(());
        }
        self.take_in(id);
        let Some(connection) = self.network.connections.get_mut(&id) else { return Ok(()) };
        let Some(peer) = connection.peer else { return Ok(()) };
        let node = &mut self.nodes[number];
        match chunk {
            Chunk::Bytes(bytes) => {
                connection.sniffed |= !bytes.is_empty();
                node.router.receive(now, peer, &bytes);
            }
            Chunk::End => node.router.close(peer, CloseReason::PeerClosed),
            Chunk::Reset => node.router.close(peer, reset()),
        }
        self.settle(number)
    }

    fn reach_client(&mut self, id: u64, chunk: Chunk) -> Step {
        let now = self.time();
        let Some(connection) = self.network.connections.get(&id) else { return Ok(()) };
        let endpoint = crate::node::endpoint_of(connection.server);
        match connection.client {
            Client::Hostile(hostile) => {
                self.hostile_receives(hostile, id, chunk);
                Ok(())
            }
            Client::Node { node, life } => {
                let here = self.nodes[node].up && self.nodes[node].life == life;
                let link = self.nodes[node].links.get_mut(&endpoint);
                let Some(link) = link.filter(|link| here && link.connection == Some(id)) else {
                    return Ok(());
                };
                match chunk {
                    Chunk::Bytes(bytes) => link.link.receive(now, &bytes),
                    Chunk::End => link.link.close(now, CloseReason::PeerClosed),
                    Chunk::Reset => link.link.close(now, reset()),
                }
                self.settle(node)
            }
        }
    }

    /// Writes what the router has for a connection, as far as its socket takes it.
    pub(crate) fn flush_server(&mut self, node: usize, peer: ConnectionId) {
        let now = self.time();
        let Some(id) = self.nodes[node].peers.get(&peer).copied() else { return };
        loop {
            let Some(connection) = self.network.connections.get(&id) else { return };
            if !connection.sniffed || !connection.to_client.has_room() {
                return;
            }
            let router = &mut self.nodes[node].router;
            let bytes = router.output(peer).to_vec();
            if bytes.is_empty() {
                return;
            }
            router.consume_output(now, peer, bytes.len());
            self.transmit(id, false, bytes);
        }
    }

    /// Writes what a link has for its connection, as far as its socket takes it.
    pub(crate) fn flush_client(&mut self, node: usize, endpoint: &Endpoint) {
        let now = self.time();
        loop {
            let Some(link) = self.nodes[node].links.get_mut(endpoint) else { return };
            let Some(id) = link.connection else { return };
            let bytes = link.link.output().to_vec();
            let room = self.network.connections.get(&id).is_some_and(|it| it.to_server.has_room());
            if bytes.is_empty() || !room {
                return;
            }
            link.link.consume_output(now, bytes.len());
            self.transmit(id, true, bytes);
        }
    }

    /// A node's end of all its connections is gone. Its host tells the other ends, unless it is dark.
    pub(crate) fn drop_connections(&mut self, at: Life, dark: bool) {
        let of_it = |connection: &crate::network::Connection| {
            let client = Client::Node { node: at.node, life: at.life };
            let server = connection.server == at.node && connection.server_life == at.life;
            (connection.client == client, server && connection.server_open)
        };
        let all = self.network.connections.iter();
        let mine: Vec<(u64, (bool, bool))> =
            all.map(|(id, connection)| (*id, of_it(connection))).collect();
        for (id, (client, server)) in mine {
            if !client && !server {
                continue;
            }
            if let Some(connection) = self.network.connections.get_mut(&id) {
                connection.client_open &= !client;
                connection.server_open &= !server;
                if dark {
                    connection.to_client.cut = true;
                }
            }
            if !dark {
                self.launch(id, client, Chunk::Reset);
            }
            self.network.forget_closed(id);
        }
    }

    /// Nothing passes from one node to another until then.
    pub(crate) fn part(&mut self, from: usize, to: usize, until: u64) {
        self.network.partitions.push(Partition { from, to, until });
    }

    /// One way through the network.
    pub(crate) fn latency(&mut self) -> u64 {
        let (low, high) = self.setup.latency;
        self.random.skewed(low, high)
    }

    /// Now and then something that would happen at `at` happens around a deadline instead.
    pub(crate) fn around_a_deadline(&mut self, at: u64, deadline: Nanos) -> u64 {
        let deadline = deadline.as_nanos();
        if deadline <= self.now + 1 || deadline > self.now + 60_000_000_000 {
            return at;
        }
        if self.fires(Fault::JustBefore) {
            deadline - 1
        } else if self.fires(Fault::JustAt) {
            deadline
        } else if self.fires(Fault::JustAfter) {
            deadline + 1
        } else {
            at
        }
    }
}

fn reset() -> CloseReason {
    CloseReason::Io { error: "connection reset by peer".to_owned() }
}
