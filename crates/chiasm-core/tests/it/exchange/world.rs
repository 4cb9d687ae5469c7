//! Two sources, two readers, a network, a clock.

use chiasm_core::consumer::{ConsumerAction, Failure, FailureReason, ReadEnd, Wanted};
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::Plane;
use chiasm_core::time::Nanos;
use chiasm_core::wire::Message;

use super::network::Network;
use super::reader::Reader;
use super::source::{Source, blocks_of, name_of};
use super::{Op, SECOND};

pub(super) struct World {
    pub(super) sources: Vec<Source>,
    pub(super) readers: Vec<Reader>,
    network: Network,
    now: u64,
    plane: Plane,
    /// Planes read on after the end of a lease, as a stuck one might.
    lease_blind: bool,
}

fn endpoint_of(source: usize) -> Endpoint {
    Endpoint::parse(&format!("10.0.0.{source}:5601")).unwrap()
}

fn source_at(endpoint: &Endpoint) -> usize {
    (0..2).find(|source| endpoint_of(*source) == *endpoint).expect("one of two")
}

/// The element that `which` chooses, if there is one.
fn pick(all: &[usize], which: usize) -> Option<usize> {
    which.checked_rem(all.len()).map(|index| all[index])
}

impl World {
    pub(super) fn new(plane: Plane, lease_blind: bool, digests: bool) -> Self {
        Self {
            // With digests, half of the entries have one: the other source leaves them out.
            sources: vec![Source::new(1, digests), Source::new(2, digests && lease_blind)],
            readers: vec![Reader::new(1, plane), Reader::new(2, plane)],
            network: Network::default(),
            now: 0,
            plane,
            lease_blind,
        }
    }

    fn now(&self) -> Nanos {
        Nanos::from_nanos(self.now)
    }

    pub(super) fn step(&mut self, op: &Op) {
        match *op {
            Op::Save { source, name } => self.sources[source].save(name),
            Op::SlowSave { source, name } => self.sources[source].begin_save(name),
            Op::FinishSave { source } => self.sources[source].finish_save(),
            Op::Churn { source, blocks } => self.sources[source].churn(blocks),
            Op::Start { reader, source, name, lie } => self.start(reader, source, name, lie),
            Op::Cancel { reader, which } => {
                let reader = &mut self.readers[reader];
                // Most of those that were ever started are over: often take one that reads.
                let reading = reader.jobs.iter().map(|job| job.order.transfer);
                let all: Vec<_> =
                    if which % 2 == 0 { reading.collect() } else { reader.started.clone() };
                if let Some(index) = which.checked_rem(all.len()) {
                    reader.consumer.cancel(all[index], &mut reader.cache);
                }
            }
            Op::Connect { which, succeeds } => self.connect(which, succeeds),
            Op::ToSource(which) => self.deliver_to_source(which),
            Op::ToReader(which) => self.deliver_to_reader(which),
            Op::Break(which) => {
                let live = self.network.which(|connection| !connection.broken);
                if let Some(index) = pick(&live, which) {
                    self.break_connection(index, &FailureReason::Lost("reset".into()));
                }
            }
            Op::SourceNotices(which) => {
                let broken = self.network.which(|connection| connection.broken);
                if let Some(index) = pick(&broken, which) {
                    self.source_notices(index);
                }
            }
            Op::Read { reader, which } => {
                if let Some(index) = which.checked_rem(self.readers[reader].jobs.len()) {
                    let now = self.now();
                    let reader = &mut self.readers[reader];
                    let source = &mut self.sources[reader.jobs[index].source];
                    reader.read(now, index, source, self.lease_blind);
                }
            }
            Op::FailRead { reader, which } => {
                if let Some(index) = which.checked_rem(self.readers[reader].jobs.len()) {
                    self.fail_read(reader, index);
                }
            }
            Op::Pass(nanos) => self.pass(nanos),
        }
        self.act();
    }

    fn start(&mut self, reader: usize, source: usize, name: usize, lie: bool) {
        let blocks = blocks_of(name) + u32::from(lie);
        let wanted = Wanted {
            hash: MmHash::new(&name_of(name)).unwrap(),
            source: endpoint_of(source),
            rows: blocks,
            width: 2,
            blocks,
            dtype: Some(Dtype::Float32),
        };
        let now = self.now();
        let reader = &mut self.readers[reader];
        // Two forms of one entry are read under one grant. Over tcp its token opens for one of them, and
        // the other has to ask again.
        let untyped = self.plane == Plane::Shm && reader.started.len().is_multiple_of(3);
        let dtype = wanted.dtype.filter(|_| !untyped);
        let wanted = Wanted { dtype, ..wanted };
        if reader.cache.find(wanted.hash.as_str()).is_none() {
            let id = reader.consumer.start(now, wanted);
            reader.started.push(id);
        }
    }

    fn connect(&mut self, which: usize, succeeds: bool) {
        let Some(index) = which.checked_rem(self.network.opening.len()) else { return };
        let (reader, source) = self.network.opening.remove(index);
        let now = self.now();
        let consumer = &mut self.readers[reader].consumer;
        if succeeds {
            self.network.connect(reader, source);
            consumer.link_up(now, &endpoint_of(source));
        } else {
            consumer.link_down(&endpoint_of(source), &FailureReason::Refused);
        }
    }

    fn deliver_to_source(&mut self, which: usize) {
        let ready = self.network.which(|connection| !connection.to_source.is_empty());
        let Some(index) = pick(&ready, which) else { return };
        let now = self.now();
        let connection = &mut self.network.connections[index];
        let Some(payload) = connection.to_source.pop_front() else { return };
        let Source { producer, cache, .. } = &mut self.sources[connection.source];
        let answer = producer.handle_request(now, connection.peer, &payload, cache);
        connection.to_reader.extend(answer.map(Message::into_bytes));
    }

    fn deliver_to_reader(&mut self, which: usize) {
        let ready =
            self.network.which(|connection| !connection.broken && !connection.to_reader.is_empty());
        let Some(index) = pick(&ready, which) else { return };
        let now = self.now();
        let connection = &mut self.network.connections[index];
        let Some(payload) = connection.to_reader.pop_front() else { return };
        let Reader { consumer, cache, .. } = &mut self.readers[connection.reader];
        consumer.receive(now, &endpoint_of(connection.source), &payload, cache);
    }

    fn break_connection(&mut self, index: usize, reason: &FailureReason) {
        let connection = &mut self.network.connections[index];
        connection.broken = true;
        let consumer = &mut self.readers[connection.reader].consumer;
        consumer.link_down(&endpoint_of(connection.source), reason);
    }

    /// The reader gives up a connection that has brought nothing for too long.
    fn hang_up(&mut self, reader: usize, source: usize) {
        let theirs = self.network.which(|connection| {
            !connection.broken && (connection.reader, connection.source) == (reader, source)
        });
        for index in theirs {
            self.break_connection(index, &FailureReason::Mute);
        }
    }

    fn source_notices(&mut self, index: usize) {
        let connection = self.network.connections.remove(index);
        let Source { producer, cache, .. } = &mut self.sources[connection.source];
        producer.peer_gone(connection.peer, cache);
    }

    fn fail_read(&mut self, reader: usize, index: usize) {
        let now = self.now();
        let reader = &mut self.readers[reader];
        let source = &mut self.sources[reader.jobs[index].source];
        let lost = ReadEnd::Failed(FailureReason::Plane("reset".into()));
        reader.end_read(now, index, source, lost);
    }

    fn pass(&mut self, nanos: u64) {
        self.now += nanos;
        let now = self.now();
        for Source { producer, cache, .. } in &mut self.sources {
            // Which streams are to be closed is for a plane to see: its deadline says the same.
            producer.handle_timeout(now, cache);
        }
        for Reader { consumer, cache, .. } in &mut self.readers {
            consumer.handle_timeout(now, cache);
        }
    }

    /// Does what the consumers ask for.
    fn act(&mut self) {
        for reader in 0..self.readers.len() {
            while let Some(action) = self.readers[reader].consumer.poll_action() {
                match action {
                    ConsumerAction::OpenLink(endpoint) => {
                        self.network.opening.push((reader, source_at(&endpoint)));
                    }
                    ConsumerAction::CloseLink(endpoint, FailureReason::Mute) => {
                        self.hang_up(reader, source_at(&endpoint));
                    }
                    ConsumerAction::CloseLink(_, reason) => {
                        panic!("nobody sends garbage: {reason}")
                    }
                    ConsumerAction::Send(endpoint, payload) => {
                        if let Some(connection) = self.network.live(reader, source_at(&endpoint)) {
                            connection.to_source.push_back(payload);
                        }
                    }
                    ConsumerAction::StartRead(order) => {
                        let source = source_at(&order.source);
                        self.readers[reader].begin_read(order, source);
                    }
                    ConsumerAction::AbortRead(id) => {
                        let jobs = &mut self.readers[reader].jobs;
                        let theirs = jobs.iter_mut().find(|job| job.order.transfer == id);
                        theirs.expect("a read under way").aborted = true;
                    }
                }
            }
            self.readers[reader].collect();
        }
    }

    pub(super) fn check(&self) {
        for source in &self.sources {
            source.cache.check().unwrap();
            let pinned = source.cache.usage().pinned_entries;
            assert_eq!(pinned > 0, source.producer.pinned_blocks() > 0);
        }
        for reader in &self.readers {
            reader.check();
        }
    }

    /// Lets everything that is under way come to its end.
    pub(super) fn settle(&mut self) {
        let mut quiet = false;
        while !quiet {
            quiet = true;
            while !self.network.opening.is_empty() {
                self.step(&Op::Connect { which: 0, succeeds: true });
                quiet = false;
            }
            while self.network.connections.iter().any(|connection| !connection.to_source.is_empty())
            {
                self.step(&Op::ToSource(0));
                quiet = false;
            }
            let waits = |network: &Network| {
                !network.which(|one| !one.broken && !one.to_reader.is_empty()).is_empty()
            };
            while waits(&self.network) {
                self.step(&Op::ToReader(0));
                quiet = false;
            }
            for reader in 0..self.readers.len() {
                while !self.readers[reader].jobs.is_empty() {
                    self.step(&Op::Read { reader, which: 0 });
                    quiet = false;
                }
            }
            self.check();
        }
    }

    pub(super) fn failures(&mut self) -> Vec<(String, Failure)> {
        self.readers.iter_mut().flat_map(|reader| std::mem::take(&mut reader.failures)).collect()
    }

    /// S4 at rest: all connections are lost, all reads have ended, all leases are over.
    pub(super) fn end(&mut self) {
        while !self.network.opening.is_empty() {
            self.step(&Op::Connect { which: 0, succeeds: false });
        }
        while !self.network.connections.is_empty() {
            self.step(&Op::Break(0));
            self.step(&Op::SourceNotices(0));
        }
        for reader in 0..self.readers.len() {
            while !self.readers[reader].jobs.is_empty() {
                self.step(&Op::Read { reader, which: 0 });
                self.check();
            }
        }
        self.step(&Op::Pass(31 * SECOND));
        for source in &mut self.sources {
            source.finish_all_saves();
            assert_eq!((source.producer.live_grants(), source.producer.pinned_blocks()), (0, 0));
            assert!(!source.cache.has_held_entries());
        }
        for reader in &self.readers {
            assert_eq!(reader.consumer.live_transfers(), 0);
            assert_eq!(reader.consumer.poll_timeout(), Nanos::NEVER);
            assert!(!reader.cache.has_held_entries());
        }
        self.check();
    }
}
