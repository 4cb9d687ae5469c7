//! Faults that a producer makes on command, FOR TESTS: what consumers must survive.
//!
//! Nothing here is reached unless a fault was asked for by name at the node's start.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::time::Duration;

use chiasm_core::extent::Extent;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckExtension, AckLimits, AckStatus, XferAck, XferReq};
use chiasm_zmtp::ConnectionId;

/// A way to misbehave. Text forms are those of `chiasm produce --fault`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `missing`: answer every request with `NACK_MISSING`.
    Missing,
    /// `incompat`: answer every request with `NACK_INCOMPAT`.
    Incompat,
    /// `not-ready:N`: answer the first N requests for each hash with `NACK_NOT_READY`.
    NotReady(u32),
    /// `silent`: answer nothing.
    Silent,
    /// `garbage`: answer with bytes that are no ack.
    Garbage,
    /// `die-before-ack`: end by SIGKILL when the first request comes.
    DieBeforeAck,
    /// `die-after-ack`: end by SIGKILL when the first OK ack has been sent.
    DieAfterAck,
    /// `slow-bytes`: send the bytes of an entry at a few KiB a second, over tcp.
    SlowBytes,
    /// `wrong-extents`: grant other blocks, another size and another shape than announced.
    WrongExtents,
    /// `wrong-region`: name another file than the region in an ack on shm.
    WrongRegion,
    /// `wrong-life`: say another life of the node in an ack on shm.
    WrongLife,
    /// `wild-extents`: say that the entry lies outside the region in an ack on shm.
    WildExtents,
    /// `wrong-bytes`: change one byte of an entry after its digest was taken.
    WrongBytes,
    /// `late-ack:SECONDS`: hold every ack back for so long.
    LateAck(Duration),
}

impl Fault {
    /// The planes that a producer serves while it makes this fault: bytes are slow in sockets only.
    pub(crate) fn planes(self, planes: PlaneList) -> PlaneList {
        if self == Self::SlowBytes { planes.without(Plane::Shm) } else { planes }
    }
}

/// The text names no fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is no fault; there are missing, incompat, not-ready:N, silent, garbage, \
     die-before-ack, die-after-ack, slow-bytes, wrong-extents, wrong-region, wrong-life, wild-extents, \
     wrong-bytes, late-ack:SECONDS"
)]
pub struct FaultError {
    given: String,
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let error = || FaultError { given: text.chars().take(80).collect() };
        if let Some(count) = text.strip_prefix("not-ready:") {
            return count.parse().map(Self::NotReady).map_err(|_| error());
        }
        if let Some(seconds) = text.strip_prefix("late-ack:") {
            let seconds = seconds.parse::<f64>().ok();
            let delay = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            return delay.map(Self::LateAck).ok_or_else(error);
        }
        Ok(match text {
            "missing" => Self::Missing,
            "incompat" => Self::Incompat,
            "silent" => Self::Silent,
            "garbage" => Self::Garbage,
            "die-before-ack" => Self::DieBeforeAck,
            "die-after-ack" => Self::DieAfterAck,
            "slow-bytes" => Self::SlowBytes,
            "wrong-extents" => Self::WrongExtents,
            "wrong-region" => Self::WrongRegion,
            "wrong-life" => Self::WrongLife,
            "wild-extents" => Self::WildExtents,
            "wrong-bytes" => Self::WrongBytes,
            _ => return Err(error()),
        })
    }
}

/// What is done instead of sending an ack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misdeed {
    Send(Vec<u8>),
    SendNothing,
    SendThenDie(Vec<u8>),
    Die,
    /// Change a byte of the entry of this hash, then send the ack.
    CorruptThenSend(String, Vec<u8>),
}

/// Makes one kind of fault.
#[derive(Debug)]
pub(crate) struct Saboteur {
    fault: Fault,
    /// Requests seen by hash.
    seen: BTreeMap<String, u32>,
    /// Hashes of which a byte has been changed: once is enough, twice would put it right again.
    corrupted: BTreeSet<String>,
    /// Acks that are held back, by the instant at which they go out.
    late: BTreeMap<(Nanos, u64), (ConnectionId, Vec<u8>)>,
    next_late: u64,
}

impl Saboteur {
    pub(crate) fn new(fault: Fault) -> Self {
        Self {
            fault,
            seen: BTreeMap::new(),
            corrupted: BTreeSet::new(),
            late: BTreeMap::new(),
            next_late: 0,
        }
    }

    /// What to do with the right answer to a request.
    pub(crate) fn distort(
        &mut self,
        now: Nanos,
        to: ConnectionId,
        request: &[u8],
        answer: Vec<u8>,
    ) -> Misdeed {
        let Ok(request) = XferReq::decode(request) else { return Misdeed::Send(answer) };
        let seen = self.seen.entry(request.mm_hash.to_owned()).or_default();
        *seen += 1;
        let ack = XferAck::decode(&answer, &AckLimits::default());
        let is_ok = ack.as_ref().is_ok_and(|ack| ack.status.is_ok());
        match self.fault {
            Fault::Missing => Misdeed::Send(nack(&request, AckStatus::Missing)),
            Fault::Incompat => Misdeed::Send(nack(&request, AckStatus::Incompat)),
            Fault::NotReady(count) if *seen <= count => {
                Misdeed::Send(nack(&request, AckStatus::NotReady))
            }
            Fault::Silent => Misdeed::SendNothing,
            Fault::Garbage => Misdeed::Send(vec![0xFF; 64]),
            Fault::DieBeforeAck => Misdeed::Die,
            Fault::DieAfterAck if is_ok => Misdeed::SendThenDie(answer),
            Fault::WrongExtents => match ack {
                Ok(ack) if is_ok => Misdeed::Send(with_wrong_extents(ack)),
                _ => Misdeed::Send(answer),
            },
            Fault::WrongRegion | Fault::WrongLife | Fault::WildExtents => match ack {
                Ok(ack) if is_ok => Misdeed::Send(lying_about_the_region(self.fault, ack)),
                _ => Misdeed::Send(answer),
            },
            Fault::WrongBytes if is_ok && self.corrupted.insert(request.mm_hash.to_owned()) => {
                Misdeed::CorruptThenSend(request.mm_hash.to_owned(), answer)
            }
            Fault::LateAck(delay) => {
                self.late.insert((now.after(delay), self.next_late), (to, answer));
                self.next_late += 1;
                Misdeed::SendNothing
            }
            _ => Misdeed::Send(answer),
        }
    }

    pub(crate) fn sends_slowly(&self) -> bool {
        self.fault == Fault::SlowBytes
    }

    /// The acks that have been held back for long enough.
    pub(crate) fn due(&mut self, now: Nanos) -> Vec<(ConnectionId, Vec<u8>)> {
        let mut due = Vec::new();
        while let Some(entry) = self.late.first_entry()
            && entry.key().0 <= now
        {
            due.push(entry.remove());
        }
        due
    }

    pub(crate) fn poll_timeout(&self) -> Nanos {
        self.late.first_key_value().map_or(Nanos::NEVER, |((at, _), _)| *at)
    }
}

fn nack(request: &XferReq<'_>, status: AckStatus) -> Vec<u8> {
    let extension = request
        .chiasm
        .as_ref()
        .map(|theirs| AckExtension { attempt: theirs.attempt, ..AckExtension::default() });
    XferAck { chiasm: extension, ..XferAck::bare(request.mm_hash, status) }.encode()
}

fn with_wrong_extents(mut ack: XferAck<'_>) -> Vec<u8> {
    if let Some(extension) = &mut ack.chiasm {
        extension.bytes = extension.bytes.map(|bytes| bytes * 2);
        extension.shape = extension.shape.map(|(rows, width)| (rows.saturating_mul(2), width));
        extension.extents.clear();
    }
    ack.encode()
}

fn lying_about_the_region(fault: Fault, mut ack: XferAck<'_>) -> Vec<u8> {
    if let Some(extension) = &mut ack.chiasm
        && extension.plane == Some(Plane::Shm)
    {
        match fault {
            Fault::WrongRegion => extension.region = Some("chiasm-/../../../etc/passwd"),
            Fault::WrongLife => extension.epoch = extension.epoch.wrapping_add(1),
            _ => {
                let far = |extent: &Extent| Extent::new(extent.first() | 1 << 31, extent.count());
                extension.extents = extension.extents.iter().filter_map(far).collect();
            }
        }
    }
    ack.encode()
}

#[cfg(test)]
mod tests {
    use chiasm_core::wire::CONNECTOR_VERSION;

    use super::*;

    #[test]
    fn faults_are_known_by_name_and_others_are_listed() {
        assert_eq!("silent".parse(), Ok(Fault::Silent));
        assert_eq!("not-ready:3".parse(), Ok(Fault::NotReady(3)));
        assert_eq!("late-ack:0.5".parse(), Ok(Fault::LateAck(Duration::from_millis(500))));
        for text in ["", "Silent", "not-ready", "not-ready:-1", "late-ack:x", "late-ack:-1"] {
            let error = text.parse::<Fault>().unwrap_err().to_string();
            assert!(error.contains("die-after-ack"), "{error}");
        }
    }

    /// The first answer may be that the entry is not ready, as over nixl while that starts.
    #[test]
    fn wrong_bytes_are_made_with_the_first_ok_ack_and_once() {
        let mut saboteur = Saboteur::new(Fault::WrongBytes);
        let request = XferReq {
            mm_hash: "a",
            compatibility_hash: "",
            session_id: "",
            connector_version: i128::from(CONNECTOR_VERSION),
            chiasm: None,
        };
        let mut corrupts = |status| {
            let answer = XferAck::bare("a", status).encode();
            let to = ConnectionId::from_u64(0);
            let misdeed = saboteur.distort(Nanos::ZERO, to, &request.encode(), answer);
            matches!(misdeed, Misdeed::CorruptThenSend(hash, _) if hash == "a")
        };
        let acks = [AckStatus::NotReady, AckStatus::Ok, AckStatus::Ok];
        assert_eq!(acks.map(&mut corrupts), [false, true, false]);
    }
}
