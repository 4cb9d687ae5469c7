//! *read*: peers' blocks are read into this node's region.
//!
//! It must never say of a read that it has settled when bytes may still land. Reads that are under way when
//! the node is gone it lets end: nobody uses what they bring, but who is read from goes on.

use std::convert::Infallible;
use std::hint;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use chiasm_region::{Lending, LentRegion};

use super::link::Link;
use super::peers::{Failure, Peers};
use super::{POPULATE_BYTES, Stop, register};
use crate::capi::{Agent, Local, Transfer, TransferState};
use crate::command::{Command, PeerId, ReadId};
use crate::event::{Event, FailureKind, Ready};
use crate::limits::{AFTER_NODE_LIMIT, MAX_NOTIFICATION_BYTES, MAX_READS};
use crate::piece::Piece;
use crate::settings::Settings;

/// How long a read is waited for without a pause: on one host most end within. A thread that yields
/// instead waits for its turn on a busy machine, which takes a millisecond.
const BUSY: Duration = Duration::from_micros(100);

/// Pause between two looks at reads that take longer.
const PAUSE: Duration = Duration::from_micros(50);

/// How long progress goes on after the last read, so that its notification leaves.
const LINGER: Duration = Duration::from_millis(50);

/// Pause between two looks meanwhile.
const LINGER_PAUSE: Duration = Duration::from_millis(1);

pub(super) fn run(
    link: &mut Link,
    agent: Agent,
    agent_name: &str,
    settings: &Settings,
    library: String,
    lent: &OwnedFd,
) -> Result<(), Stop> {
    let region = register(&agent, lent, Lending::ReadWrite)
        .map_err(|error| Stop::Refused(format!("{library}: {error}")))?;
    let local = Local { address: region.blocks_address(), bytes: region.blocks_bytes() };
    link.send_all(&Event::Ready(Ready {
        agent_name: agent_name.into(),
        agent_metadata: Vec::new(),
        base_address: local.address as u64,
        blocks_bytes: local.bytes as u64,
        read_only: false,
        backend: settings.backend.name().into(),
        library,
    }))?;
    let backend = settings.backend.name();
    let (peers, reads, linger_until) = (Peers::default(), Vec::new(), Instant::now());
    let mut reader = Reader { agent, backend, local, peers, reads, linger_until };
    let Err(stop) = read(link, &mut reader, region);
    if matches!(stop, Stop::Closed) {
        reader.finish();
    }
    Err(stop)
}

/// Until the node is gone.
fn read(link: &mut Link, reader: &mut Reader, region: &LentRegion) -> Result<Infallible, Stop> {
    let mut last_work = Instant::now();
    loop {
        while !link.is_full() {
            let Some(command) = link.receive()? else { break };
            reader.handle(link, command);
            last_work = Instant::now();
        }
        if reader.poll(link) {
            last_work = Instant::now();
            reader.linger_until = last_work + LINGER;
        }
        link.set_unfinished(!reader.reads.is_empty());
        link.flush()?;
        let now = Instant::now();
        if reader.reads.is_empty() {
            if now < reader.linger_until {
                // Notifications of others' to this agent are nobody's business.
                let _ = reader.agent.progress(|_, _| {});
                link.wait(Some(LINGER_PAUSE))?;
            } else if !region.populate(POPULATE_BYTES) {
                link.wait(None)?;
            }
        } else if now.duration_since(last_work) < BUSY {
            hint::spin_loop();
        } else {
            link.wait(Some(PAUSE))?;
        }
    }
}

struct InFlight {
    id: ReadId,
    peer: PeerId,
    transfer: Transfer,
    pieces: usize,
}

struct Reader {
    agent: Agent,
    backend: &'static str,
    local: Local,
    peers: Peers,
    reads: Vec<InFlight>,
    /// Until then progress goes on, so that the last notification leaves.
    linger_until: Instant,
}

impl Reader {
    fn handle(&mut self, link: &mut Link, command: Command) {
        let answer = match command {
            Command::Live(_) | Command::Ping => return,
            Command::LoadPeer { peer, agent_name, metadata, span } => {
                match self.peers.load(&self.agent, self.backend, peer, &agent_name, &metadata, span)
                {
                    Ok(()) => Event::Loaded { peer },
                    Err((kind, reason)) => Event::LoadFailed { peer, kind, reason },
                }
            }
            Command::ForgetPeer { peer } => {
                self.peers.forget(&self.agent, peer);
                return;
            }
            Command::Read { read, peer, pieces, notification } => {
                match self.start(read, peer, &pieces, &notification) {
                    Ok(()) => return,
                    Err((kind, reason)) => Event::ReadFailed { read, kind, settled: true, reason },
                }
            }
        };
        // There is room: commands are taken only while there is.
        link.push(&answer);
    }

    fn start(
        &mut self,
        id: ReadId,
        peer: PeerId,
        pieces: &[Piece],
        notification: &[u8],
    ) -> Result<(), Failure> {
        let local = |reason: &str| (FailureKind::Local, reason.to_owned());
        if self.reads.len() >= MAX_READS {
            return Err(local("this helper process has as many reads in flight as it may"));
        }
        if self.reads.iter().any(|read| read.id == id) {
            return Err(local("this number is another read's"));
        }
        if notification.len() > MAX_NOTIFICATION_BYTES {
            return Err(local("the notification is too long"));
        }
        let name = self.peers.begin(peer, pieces, self.local.bytes as u64)?;
        match self.agent.read(name, self.local, pieces, notification) {
            Ok(transfer) => {
                self.reads.push(InFlight { id, peer, transfer, pieces: pieces.len() });
                Ok(())
            }
            Err(error) => {
                self.peers.end(&self.agent, peer);
                Err((FailureKind::Peer, error.to_string()))
            }
        }
    }

    /// Look at every read; whether one has ended.
    fn poll(&mut self, link: &mut Link) -> bool {
        let mut ended = false;
        let mut index = 0;
        while let Some(read) = self.reads.get_mut(index) {
            let state = read.transfer.poll();
            if state == TransferState::Running || link.is_full() {
                index += 1;
                continue;
            }
            ended = true;
            let InFlight { id, peer, transfer, pieces } = self.reads.swap_remove(index);
            let released = transfer.release();
            self.peers.end(&self.agent, peer);
            link.push(&outcome(id, state, pieces, released.is_ok()));
        }
        ended
    }

    /// The node is gone: what is under way ends by itself, and the last notification leaves.
    fn finish(&mut self) {
        let gone = Instant::now();
        while gone.elapsed() < AFTER_NODE_LIMIT
            && (!self.reads.is_empty() || Instant::now() < self.linger_until)
        {
            let before = self.reads.len();
            self.reads.retain_mut(|read| read.transfer.poll() == TransferState::Running);
            if self.reads.len() < before {
                self.linger_until = Instant::now() + LINGER;
            }
            let _ = self.agent.progress(|_, _| {});
            thread::sleep(PAUSE);
        }
    }
}

fn outcome(read: ReadId, state: TransferState, pieces: usize, released: bool) -> Event {
    if state == TransferState::Done {
        return Event::ReadDone { read };
    }
    Event::ReadFailed {
        read,
        kind: FailureKind::Peer,
        // One piece is one request of the backend's, and its failure is its end. Of several, the first
        // failure is reported while others may be under way.
        settled: pieces == 1 && released,
        reason: "the peer is gone, cannot be reached, or does not let it be read".into(),
    }
}
