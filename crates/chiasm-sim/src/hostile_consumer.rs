//! A consumer that belongs to nobody: it invents sessions, pins what it can, does not read, replays
//! what others said, and sends bytes that mean nothing.

use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::wire::{ReqExtension, XferDone, XferReq};
use chiasm_zmtp::{CloseReason, Link, LinkEvent, LinkLimits};

use crate::fault::Fault;
use crate::network::{Chunk, Client};
use crate::queue::Event;
use crate::violation::Step;
use crate::world::World;

/// Between two of its deeds, in nanoseconds.
const PAUSE: (u64, u64) = (1_000_000, 2_000_000_000);

/// One of them.
#[derive(Debug)]
pub(crate) struct HostileConsumer {
    pub(crate) target: usize,
    link: Option<Link>,
    connection: Option<u64>,
    sessions: u64,
}

impl HostileConsumer {
    pub(crate) fn new(target: usize) -> Self {
        Self { target, link: None, connection: None, sessions: 0 }
    }
}

const DEEDS: &[Fault] = &[
    Fault::InventedSessions,
    Fault::PinsEverything,
    Fault::NeverReads,
    Fault::Replays,
    Fault::CollidingNames,
    Fault::GarbageBytes,
    Fault::WrongGreeting,
    Fault::InventedTokens,
    Fault::SilentConnect,
];

impl World {
    /// It does something.
    pub(crate) fn hostile_acts(&mut self, which: usize) -> Step {
        if self.quiet {
            self.hostile_leaves(which);
            return Ok(());
        }
        let (low, high) = PAUSE;
        let when = self.now + self.random.skewed(low, high);
        self.push(when, Event::Hostile(which));
        let deed = *self.random.pick(DEEDS).unwrap_or(&Fault::SilentConnect);
        if !self.random.chance(self.setup.rates.of(deed).min(1) * 1000) {
            return Ok(());
        }
        self.fired(deed);
        let target = self.hostiles[which].target;
        let up = self.nodes[target].up && self.nodes[target].paused_until <= self.now;
        match deed {
            Fault::InventedTokens if up => self.open_with_invented_token(target)?,
            Fault::SilentConnect => {
                self.connect_as(Client::Hostile(which), target);
            }
            Fault::GarbageBytes => {
                let id = self.connect_as(Client::Hostile(which), target);
                let length = self.random.between(1, 200);
                let bytes = (0..length).map(|_| u8::try_from(self.random.below(256)).unwrap_or(0));
                let bytes = bytes.collect();
                self.transmit(id, true, bytes);
            }
            Fault::WrongGreeting => {
                let id = self.connect_as(Client::Hostile(which), target);
                let bytes = self.wrong_greeting();
                self.transmit(id, true, bytes);
            }
            _ => {}
        }
        let now = self.time();
        if self.hostiles[which].link.is_none() {
            let mut link = Link::new(LinkLimits::default(), self.random.next(), now);
            // It connects at once; the event only says so.
            while link.poll_event().is_some() {}
            let id = self.connect_as(Client::Hostile(which), target);
            self.hostiles[which].link = Some(link);
            self.hostiles[which].connection = Some(id);
            return Ok(());
        }
        for payload in self.payloads(which, deed) {
            if let Some(link) = &mut self.hostiles[which].link {
                let _ = link.send(now, payload);
            }
        }
        if deed == Fault::NeverReads
            && let Some(id) = self.hostiles[which].connection
            && let Some(connection) = self.network.connections.get_mut(&id)
        {
            connection.to_client.unread = true;
        }
        self.hostile_writes(which);
        Ok(())
    }

    /// A greeting and what follows it, with something in it that is not spoken here.
    fn wrong_greeting(&mut self) -> Vec<u8> {
        let what = self.random.below(8);
        let (major, as_server) = (if what == 0 { 2 } else { 3 }, u8::from(what == 1));
        let mechanism = if what == 2 { b"PLAIN" } else { b"NULL\0" };
        let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, major, 1];
        bytes.extend(mechanism);
        bytes.extend([0; 15]);
        bytes.push(as_server);
        bytes.extend([0; 31]);
        let ready = |socket: &[u8; 6]| {
            let property = [b"\x05READY\x0bSocket-Type\0\0\0\x06" as &[u8], socket].concat();
            [&[4, 28], property.as_slice()].concat()
        };
        match what {
            3 => bytes.extend(ready(b"STREAM")),
            4 => bytes.extend(b"\x04\x09\x05ERROR\x02no"),
            // A command, and a message, of 2^40 bytes.
            5 => bytes.extend([ready(b"DEALER").as_slice(), &[6, 0, 0, 1, 0, 0, 0, 0, 0]].concat()),
            6 => bytes.extend([ready(b"DEALER").as_slice(), &[2, 0, 0, 1, 0, 0, 0, 0, 0]].concat()),
            7 => bytes.extend([0, 1, 0]),
            _ => {}
        }
        bytes
    }

    fn payloads(&mut self, which: usize, deed: Fault) -> Vec<Vec<u8>> {
        let mut planes = PlaneList::EMPTY;
        planes.push(if self.random.chance(500) { Plane::Tcp } else { Plane::Shm });
        let host = chiasm_core::host_hint::HostHint([0; 16]);
        let sessions = self.hostiles[which].sessions;
        self.hostiles[which].sessions += 40;
        let ask = |hash: &str, session: &str, attempt: u32| {
            XferReq {
                mm_hash: hash,
                compatibility_hash: "the same everywhere",
                session_id: session,
                connector_version: 2,
                chiasm: Some(ReqExtension {
                    planes,
                    attempt,
                    host: Some(host),
                    ..ReqExtension::default()
                }),
            }
            .encode()
        };
        let hashes: Vec<String> = (0..self.setup.entries)
            .map(|entry| self.catalogue.content(entry).hash.to_string())
            .collect();
        match deed {
            Fault::InventedSessions => (0..20)
                .filter_map(|at| {
                    let hash = hashes.get(at % hashes.len())?;
                    Some(ask(hash, &format!("invented {}", sessions + at as u64), 1))
                })
                .collect(),
            Fault::PinsEverything => hashes.iter().map(|hash| ask(hash, "one", 7)).collect(),
            Fault::NeverReads => {
                let all = hashes.iter().cycle().take(120);
                all.map(|hash| ask(hash, "silent", 7)).collect()
            }
            Fault::Replays => {
                let heard = self.network.overheard.iter();
                let mut heard: Vec<Vec<u8>> = heard.flat_map(|bytes| payloads_in(bytes)).collect();
                // And the ends of grants that others hold (hazard D7).
                let ends: Vec<Vec<u8>> = heard.iter().filter_map(|one| end_of(one)).collect();
                heard.extend(ends);
                heard
            }
            Fault::CollidingNames => {
                let hash = hashes.first().map_or("", String::as_str);
                let done = XferDone { mm_hash: hash, session_id: "a:b", attempt: 1 };
                vec![
                    ask(hash, "a", 1),
                    ask(hash, &format!("a:{hash}"), 1),
                    ask(hash, "a:b", 1),
                    done.encode(),
                    done.encode(),
                    ask("", "", 0),
                    ask(hash, &"long".repeat(100), 1),
                    of_another_version(hash),
                ]
            }
            _ => Vec::new(),
        }
    }

    fn hostile_writes(&mut self, which: usize) {
        let now = self.time();
        let Some(id) = self.hostiles[which].connection else { return };
        loop {
            let Some(link) = &mut self.hostiles[which].link else { return };
            let bytes = link.output().to_vec();
            let room = self.network.connections.get(&id).is_some_and(|it| it.to_server.has_room());
            if bytes.is_empty() || !room {
                return;
            }
            link.consume_output(now, bytes.len());
            self.transmit(id, true, bytes);
        }
    }

    pub(crate) fn hostile_connected(&mut self, which: usize, id: u64, accepted: bool) {
        let now = self.time();
        if self.hostiles[which].connection != Some(id) {
            return;
        }
        if accepted && let Some(link) = &mut self.hostiles[which].link {
            link.connected(now);
            self.hostile_writes(which);
        } else {
            self.hostiles[which].link = None;
        }
    }

    pub(crate) fn hostile_receives(&mut self, which: usize, id: u64, chunk: Chunk) {
        let now = self.time();
        if self.hostiles[which].connection != Some(id) {
            self.close_client(id);
            return;
        }
        if let Some(link) = &mut self.hostiles[which].link {
            match chunk {
                Chunk::Bytes(bytes) => link.receive(now, &bytes),
                Chunk::End | Chunk::Reset => link.close(now, CloseReason::PeerClosed),
            }
            let mut lost = false;
            while let Some(event) = link.poll_event() {
                lost |= matches!(event, LinkEvent::Down(_));
            }
            if lost {
                self.hostiles[which].link = None;
                self.hostiles[which].connection = None;
                self.close_client(id);
                return;
            }
        }
        self.hostile_writes(which);
    }

    /// It goes away with all of its connections.
    pub(crate) fn hostile_leaves(&mut self, which: usize) {
        let connections = self.network.connections.iter();
        let mine = connections.filter(|(_, it)| it.client == Client::Hostile(which));
        let mine: Vec<u64> = mine.map(|(id, _)| *id).collect();
        self.hostiles[which].link = None;
        self.hostiles[which].connection = None;
        for id in mine {
            self.close_client(id);
        }
    }
}

/// A request of a connector that does not exist yet.
fn of_another_version(mm_hash: &str) -> Vec<u8> {
    let compatibility_hash = "the same everywhere";
    let (session_id, connector_version) = ("of another version", 3);
    let chiasm = Some(ReqExtension { attempt: 1, ..ReqExtension::default() });
    XferReq { mm_hash, compatibility_hash, session_id, connector_version, chiasm }.encode()
}

/// What would end the grant that somebody else's request gets.
fn end_of(request: &[u8]) -> Option<Vec<u8>> {
    let XferReq { mm_hash, session_id, chiasm, .. } = XferReq::decode(request).ok()?;
    let attempt = chiasm?.attempt.max(1);
    Some(XferDone { mm_hash, session_id, attempt }.encode())
}

/// The payloads of whole messages in bytes of a connection: empty frame, then a short or a long one.
fn payloads_in(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let [1, 0, rest @ ..] = bytes {
        let (length, body) = match rest {
            [0, length, body @ ..] => (usize::from(*length), body),
            [2, body @ ..] => {
                let Some((length, body)) = body.split_first_chunk() else { break };
                (usize::try_from(u64::from_be_bytes(*length)).unwrap_or(usize::MAX), body)
            }
            _ => break,
        };
        let Some(payload) = body.get(..length) else { break };
        found.push(payload.to_vec());
        bytes = body.get(length..).unwrap_or_default();
    }
    found
}
