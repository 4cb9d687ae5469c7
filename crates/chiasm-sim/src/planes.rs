//! The data planes of a simulated fleet: what carries granted blocks from one memory into another. The
//! fake nixl plane has a file of its own.
//!
//! These are models, since the real ones need sockets and mappings: they begin, move and end reads as
//! `chiasm-planes` does, and misbehave as planes may. The fences are the real ones: a stream opens by
//! the real producer's leave, and what has landed is judged by the real consumer.

use chiasm_core::cache::{Entry, EntryKey, EntryState};
use chiasm_core::consumer::{FailureReason, ReadEnd, ReadOrder, TransferId};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::extent::{Extent, blocks_in};
use chiasm_core::plane::Plane;
use chiasm_core::producer::{GrantToken, StreamId};
use chiasm_core::time::Nanos;

use crate::content::{digest_of, junk};
use crate::fault::Fault;
use crate::memory::blocks_of;
use crate::nixl::NixlRead;
use crate::node::region_of;
use crate::queue::{Event, Life};
use crate::violation::{Promise, Step, broken};
use crate::world::World;

/// A read under way, at its reader.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) order: ReadOrder,
    /// The staging entry that it fills.
    pub(crate) key: EntryKey,
    pub(crate) blocks: Vec<u32>,
    /// The life of the producer that was asked.
    pub(crate) producer: Life,
    pub(crate) landed: Vec<u64>,
    /// What its producer itself has, if that is not what the hash stands for.
    stands_for: Option<Vec<u64>>,
    /// No digest could tell that its producer has lied, or that its bytes have come to harm.
    pub(crate) unproven: bool,
    /// The stream at the producer, once it has let it in.
    pub(crate) stream: Option<StreamId>,
    /// What there is to know of it over nixl.
    pub(crate) nixl: Option<NixlRead>,
    /// Told to stop, and not there yet.
    pub(crate) aborted: bool,
    pub(crate) last_at: u64,
}

/// A data stream at its producer.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) reader: Life,
    pub(crate) transfer: TransferId,
    pub(crate) blocks: Vec<u32>,
    pub(crate) sent: usize,
    pub(crate) deadline: Nanos,
    pub(crate) stuck: bool,
    pub(crate) last_at: u64,
}

impl World {
    /// The consumer wants a read.
    pub(crate) fn start_read(&mut self, number: usize, order: ReadOrder) -> Step {
        let at = self.life(number);
        let node = &self.nodes[number];
        let staged = node.instance.cache().entries().find(|(_, entry)| {
            entry.state() == EntryState::NotReady && entry.extents() == order.local
        });
        let Some((key, _)) = staged else {
            return Err(broken(Promise::S4, format!("node {number} reads into blocks of nobody")));
        };
        let blocks: Vec<u32> = blocks_of(&order.local).collect();
        let server = self.directory.get(&order.source).copied().unwrap_or(usize::MAX);
        let producer = Life { node: server, life: self.nodes.get(server).map_or(0, |it| it.life) };
        let (transfer, plane) = (order.transfer, order.plane);
        self.tally.count(&format!("read over {plane}"));
        self.note("read", &[number as u64, transfer.0, server as u64]);
        // What was there before is nobody's business: S3 would not see it otherwise.
        for block in &blocks {
            let word = self.junk();
            self.nodes[number].memory.write(*block, word, "a new read")?;
        }
        let (remote, shm) = (order.shm.clone(), order.plane == Plane::Shm);
        let theirs = self.nodes.get(server).and_then(|node| {
            let hash = self.nodes[number].hash_of(key)?;
            let content = self.catalogue.content(self.catalogue.number_of(hash)?);
            let (key, _) = node.instance.cache().find(hash)?;
            node.other_words(key, content)
        });
        let stands_for = theirs.filter(|_| !order.digest);
        let entry = self.nodes[number].hash_of(key).and_then(|hash| self.catalogue.number_of(hash));
        let lied = entry.is_some_and(|entry| self.forged.contains(&(server, entry)));
        let unproven = lied && !order.digest;
        let (nixl, last_at) = ((plane == Plane::Nixl).then(|| order.clone()), self.now);
        let read = Read {
            order,
            key,
            blocks,
            producer,
            landed: Vec::new(),
            stands_for,
            unproven,
            stream: None,
            nixl: None,
            aborted: false,
            last_at,
        };
        self.nodes[number].reads.insert(transfer, read);
        if let Some(order) = nixl {
            return self.start_nixl(number, &order);
        }
        if shm {
            let here = remote.is_some_and(|remote| {
                let known = self.nodes.get(server).filter(|producer| {
                    producer.up
                        && producer.epoch == remote.epoch
                        && region_of(server) == remote.name
                        && in_region(&remote.extents, producer.setup.blocks)
                });
                known.is_some() && self.setup.share_host(number, server)
            });
            if !here || self.fires(Fault::RegionAway) {
                let why = "the region is not here".to_owned();
                let away = FailureReason::PlaneAway { plane: Plane::Shm, why };
                self.end_read(number, transfer, ReadEnd::Failed(away));
                return Ok(());
            }
            let at_time = self.now + self.block_time();
            self.push(at_time, Event::Copy { at, transfer });
        } else {
            let reader = at;
            let open = self.now + 2 * self.latency();
            let blocked = self.network.blocked(self.now, number, server).is_some();
            if server < self.nodes.len() && !blocked {
                let at = Life { node: server, life: producer.life };
                self.push(open, Event::StreamOpen { at, reader, transfer });
            }
            // A stream on which nothing moves for ten seconds is closed.
            let stall = self.now + 10_000_000_000;
            self.push(stall, Event::ReadOver { at, transfer, why: "stalled" });
        }
        Ok(())
    }

    /// A read is not wanted any more. Its end is still reported, now or when its plane has let go.
    pub(crate) fn abort_read(&mut self, number: usize, transfer: TransferId) {
        self.note("abort read", &[number as u64, transfer.0]);
        let read = self.nodes[number].reads.get(&transfer);
        if read.is_some_and(|read| read.order.plane == Plane::Nixl) {
            self.abort_nixl(number, transfer);
            return;
        }
        let slow = self.fires(Fault::SlowAbort);
        let at = self.life(number);
        let Some(read) = self.nodes[number].reads.get_mut(&transfer) else { return };
        read.aborted = true;
        if slow {
            let when = self.now + self.random.skewed(1_000_000, 5_000_000_000);
            self.push(when, Event::ReadOver { at, transfer, why: "aborted" });
            return;
        }
        self.let_go(number, transfer);
        let why = FailureReason::Plane("aborted".into());
        self.end_read(number, transfer, ReadEnd::Failed(why));
    }

    /// The reader closes its end of the stream, and the producer learns of it a little later.
    fn let_go(&mut self, number: usize, transfer: TransferId) {
        let Some(read) = self.nodes[number].reads.get(&transfer) else { return };
        if let Some(stream) = read.stream {
            let at = read.producer;
            let when = self.now + self.latency();
            self.push(when, Event::StreamGone { at, stream });
        }
    }

    pub(crate) fn end_read(&mut self, number: usize, transfer: TransferId, end: ReadEnd) {
        let now = self.time();
        let node = &mut self.nodes[number];
        let Some(read) = node.reads.remove(&transfer) else { return };
        let landed = matches!(end, ReadEnd::Landed { .. });
        let holds = if read.unproven { Some(read.landed) } else { read.stands_for };
        if let Some(words) = holds.filter(|_| landed) {
            self.tally.count("other bytes believed");
            node.believed.insert(read.key, words);
        }
        node.instance.read_ended(now, transfer, end);
        self.note("read ended", &[number as u64, transfer.0, u64::from(landed)]);
    }

    /// A read is over for a reason of its plane's.
    pub(crate) fn read_over(&mut self, number: usize, transfer: TransferId, why: &str) -> Step {
        let now = self.now;
        let Some(read) = self.nodes[number].reads.get(&transfer) else { return Ok(()) };
        if why == "stalled" && now < read.last_at + 10_000_000_000 && !read.aborted {
            let at = self.life(number);
            let again = self.nodes[number].reads[&transfer].last_at + 10_000_000_000;
            self.push(again, Event::ReadOver { at, transfer, why: "stalled" });
            return Ok(());
        }
        self.let_go(number, transfer);
        let expected = self.nodes[number].reads[&transfer].order.bytes;
        let why = match why {
            "length" => FailureReason::Length { landed: expected + 1, expected },
            _ => FailureReason::Plane(why.to_owned()),
        };
        self.end_read(number, transfer, ReadEnd::Failed(why));
        self.settle(number)
    }

    /// A data stream presents its token.
    pub(crate) fn stream_open(
        &mut self,
        number: usize,
        reader: Life,
        transfer: TransferId,
    ) -> Step {
        let now = self.time();
        let node = &self.nodes[reader.node];
        let token = node.reads.get(&transfer).filter(|_| node.life == reader.life);
        let Some(token) = token.filter(|read| !read.aborted).and_then(|read| read.order.token)
        else {
            return Ok(());
        };
        if self.fires(Fault::ReadReset) {
            let when = self.now + self.latency();
            self.push(when, Event::ReadOver { at: reader, transfer, why: "reset" });
            return Ok(());
        }
        let expected = self.nodes[reader.node].reads.get(&transfer).map(|read| read.order.bytes);
        let node = &mut self.nodes[number];
        let Some(opened) = node.instance.open_stream(now, token) else {
            let when = self.now + self.latency();
            self.tally.count("stream refused");
            self.push(when, Event::ReadOver { at: reader, transfer, why: "the grant had ended" });
            return self.settle(number);
        };
        node.grants.opened(token.0, opened.stream);
        let lies = self.nodes[number].setup.hostile && self.fires(Fault::WrongLength);
        let node = &mut self.nodes[number];
        if lies || expected != Some(opened.bytes) {
            // The reader hangs up at the first words of the answer.
            node.instance.stream_ended(now, opened.stream, false);
            node.grants.stream_ended(opened.stream, &mut node.memory);
            let when = self.now + self.latency();
            self.push(when, Event::ReadOver { at: reader, transfer, why: "length" });
            return self.settle(number);
        }
        let stuck = self.fires(Fault::ReadStuck);
        let serve = Serve {
            reader,
            transfer,
            blocks: blocks_of(&opened.extents).collect(),
            sent: 0,
            deadline: opened.deadline,
            stuck,
            last_at: self.now,
        };
        self.nodes[number].serves.insert(opened.stream, serve);
        if let Some(read) = self.nodes[reader.node].reads.get_mut(&transfer) {
            read.stream = Some(opened.stream);
        }
        self.note("stream", &[number as u64, reader.node as u64, transfer.0]);
        let at = self.life(number);
        let when = self.now + self.block_time();
        self.push(when, Event::StreamSend { at, stream: opened.stream });
        self.settle(number)
    }

    /// A stream that nobody has a grant for.
    pub(crate) fn open_with_invented_token(&mut self, number: usize) -> Step {
        let now = self.time();
        let mut token = [0; 16];
        for byte in &mut token {
            *byte = u8::try_from(self.random.below(256)).unwrap_or(0);
        }
        let opened = self.nodes[number].instance.open_stream(now, GrantToken(token));
        crate::violation::ensure(opened.is_none(), Promise::S8, || {
            "an invented token opened a stream".to_owned()
        })?;
        self.settle(number)
    }

    /// The producer sends a slice.
    pub(crate) fn stream_send(&mut self, number: usize, stream: StreamId) -> Step {
        let now = self.time();
        let node = &mut self.nodes[number];
        let Some(serve) = node.serves.get_mut(&stream) else { return Ok(()) };
        if now > serve.deadline {
            self.close_serve(number, stream, "the lease ran out while sending");
            return self.settle(number);
        }
        if serve.stuck {
            return Ok(());
        }
        let slice: Vec<u32> =
            serve.blocks.iter().skip(serve.sent).take(self.setup.slice_blocks).copied().collect();
        serve.sent += slice.len();
        let (reader, transfer) = (serve.reader, serve.transfer);
        let done = serve.sent >= serve.blocks.len();
        let last_at = serve.last_at;
        let mut words: Vec<u64> = slice.iter().map(|block| node.memory.read(*block)).collect();
        if self.fires(Fault::DataCorrupted) {
            self.corrupt(reader, transfer, &mut words);
        }
        let mut arrives = self.now + self.latency();
        if let Some(until) = self.network.blocked(self.now, number, reader.node) {
            arrives = arrives.max(until);
        }
        let deadline = self.nodes[reader.node].instance.poll_timeout();
        arrives = self.around_a_deadline(arrives, deadline).max(last_at + 1);
        self.push(arrives, Event::Land { at: reader, transfer, words });
        if done {
            // The last byte has gone into the socket.
            let node = &mut self.nodes[number];
            node.serves.remove(&stream);
            node.instance.stream_ended(now, stream, true);
            node.grants.stream_ended(stream, &mut node.memory);
            return self.settle(number);
        }
        let at = self.life(number);
        let mut next = self.now + self.block_time() * slice.len() as u64;
        next = self.around_a_deadline(next, self.nodes[number].instance.poll_timeout());
        if let Some(serve) = self.nodes[number].serves.get_mut(&stream) {
            serve.last_at = arrives;
        }
        self.push(next, Event::StreamSend { at, stream });
        Ok(())
    }

    /// The producer ends a stream before all of it is sent.
    pub(crate) fn close_serve(&mut self, number: usize, stream: StreamId, why: &'static str) {
        let now = self.time();
        let node = &mut self.nodes[number];
        let Some(serve) = node.serves.remove(&stream) else { return };
        node.instance.stream_ended(now, stream, false);
        node.grants.stream_ended(stream, &mut node.memory);
        let when = (self.now + self.latency()).max(serve.last_at + 1);
        self.push(when, Event::ReadOver { at: serve.reader, transfer: serve.transfer, why });
    }

    /// The producer sees that a reader has gone.
    pub(crate) fn stream_gone(&mut self, number: usize, stream: StreamId) -> Step {
        let now = self.time();
        let node = &mut self.nodes[number];
        if node.serves.remove(&stream).is_some() {
            node.instance.stream_ended(now, stream, false);
            node.grants.stream_ended(stream, &mut node.memory);
            self.settle(number)?;
        }
        Ok(())
    }

    /// Blocks arrive at their reader.
    pub(crate) fn land(&mut self, number: usize, transfer: TransferId, words: &[u64]) -> Step {
        self.write_landed(number, transfer, words)?;
        self.finish_if_whole(number, transfer)
    }

    pub(crate) fn write_landed(
        &mut self,
        number: usize,
        transfer: TransferId,
        words: &[u64],
    ) -> Step {
        let now = self.now;
        let node = &mut self.nodes[number];
        let Some(read) = node.reads.get_mut(&transfer) else { return Ok(()) };
        read.last_at = now;
        for word in words {
            let Some(block) = read.blocks.get(read.landed.len()).copied() else { break };
            read.landed.push(*word);
            let state = node.instance.cache().entry(read.key).map(Entry::state);
            if !matches!(state, Some(EntryState::NotReady | EntryState::Quarantined)) {
                let what = format!(
                    "node {number}: transfer {} writes into block {block}, which is not its own \
                     any more ({state:?})",
                    transfer.0
                );
                return Err(broken(Promise::S4, what));
            }
            node.memory.write(block, *word, "a read")?;
        }
        Ok(())
    }

    fn finish_if_whole(&mut self, number: usize, transfer: TransferId) -> Step {
        let node = &self.nodes[number];
        let Some(read) = node.reads.get(&transfer) else { return Ok(()) };
        if read.landed.len() < read.blocks.len() {
            return Ok(());
        }
        let digest = read.order.digest.then(|| digest_of(read.landed.iter().copied()));
        let end = if read.aborted {
            ReadEnd::Failed(FailureReason::Plane("aborted".into()))
        } else {
            ReadEnd::Landed { bytes: read.order.bytes, digest }
        };
        self.end_read(number, transfer, end);
        self.settle(number)
    }

    /// A reader copies a slice from another's region. Nobody watches the lease while it does.
    pub(crate) fn copy(&mut self, number: usize, transfer: TransferId) -> Step {
        let Some(read) = self.nodes[number].reads.get(&transfer) else { return Ok(()) };
        let Some(remote) = &read.order.shm else { return Ok(()) };
        let (from, producer) = (read.landed.len(), read.producer);
        let theirs: Vec<u32> =
            blocks_of(&remote.extents).skip(from).take(self.setup.slice_blocks).collect();
        // A mapping outlives the life that made the file.
        let words = theirs.iter().map(|block| match self.nodes.get(producer.node) {
            Some(node) if node.life == producer.life => node.memory.read(*block),
            _ => self
                .graves
                .get(&(producer.node, producer.life))
                .map_or(junk(0), |memory| memory.read(*block)),
        });
        let words: Vec<u64> = words.collect();
        if words.is_empty() {
            return self.read_over(number, transfer, "extents too short");
        }
        self.write_landed(number, transfer, &words)?;
        let at = self.life(number);
        let read = &self.nodes[number].reads[&transfer];
        if read.landed.len() < read.blocks.len() {
            let mut next = self.now + self.block_time() * words.len() as u64;
            next = self.around_a_deadline(next, self.nodes[number].instance.poll_timeout());
            self.push(next, Event::Copy { at, transfer });
            return Ok(());
        }
        self.finish_if_whole(number, transfer)
    }

    /// A producer has left the allowlist: streams to it are closed at once.
    pub(crate) fn leave_producer(&mut self, number: usize, endpoint: &Endpoint) {
        let mine = self.nodes[number]
            .reads
            .iter()
            .filter(|(_, read)| read.order.source == *endpoint && read.order.plane == Plane::Tcp);
        let mine: Vec<TransferId> = mine.map(|(transfer, _)| *transfer).collect();
        for transfer in mine {
            self.let_go(number, transfer);
            let why = FailureReason::Plane("the producer is not on the allowlist any more".into());
            self.end_read(number, transfer, ReadEnd::Failed(why));
        }
    }

    pub(crate) fn block_time(&mut self) -> u64 {
        let (low, high) = self.setup.block_time;
        self.random.skewed(low, high)
    }

    /// One of the words that are on their way to a read becomes another.
    pub(crate) fn corrupt(&mut self, reader: Life, transfer: TransferId, words: &mut [u64]) {
        let at = self.random.index(words.len());
        let junk = self.junk();
        if let Some(word) = words.get_mut(at) {
            *word = junk;
        }
        let node = &mut self.nodes[reader.node];
        let read = node.reads.get_mut(&transfer).filter(|_| node.life == reader.life);
        if let Some(read) = read {
            read.unproven |= !read.order.digest;
        }
    }

    /// A word that stands for nothing.
    pub(crate) fn junk(&mut self) -> u64 {
        self.junk_count += 1;
        junk(self.junk_count)
    }
}

fn in_region(extents: &[Extent], blocks: u32) -> bool {
    blocks_in(extents) <= u64::from(blocks) && extents.iter().all(|extent| extent.end() <= blocks)
}
