//! One producer's control connection as the consumer sees it: who waits for it, and which requests
//! are unanswered.
//!
//! It must never match an ack with a request that it does not answer (hazard A5).

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use super::TransferId;
use crate::limits::{MAX_HASHES_PER_SESSION, MAX_UNANSWERED_PER_LINK};
use crate::mm_hash::MmHash;
use crate::plane::PlaneList;
use crate::time::Nanos;

/// A request that has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) transfer: TransferId,
    /// When the request was sent: the lease is counted from here, never from the ack (S2).
    pub(super) sent: Nanos,
    /// The request's number.
    pub(super) attempt: u32,
    /// Which of the connection's session ids it carries.
    pub(super) generation: u32,
    /// Another request for the hash has carried the same one.
    pub(super) repeated: bool,
    /// The planes that it offered.
    pub(super) offered: PlaneList,
    /// Nobody wants the answer any more.
    pub(super) given_up: bool,
}

#[derive(Debug)]
struct Request {
    hash: MmHash,
    answer: Answer,
}

#[derive(Debug)]
enum State {
    /// Not asked for yet, or asked for and not there yet.
    Down { opening: bool },
    /// Requests in the order in which they were sent. Requests of transfers that were given up stay,
    /// so that their late acks answer them and nothing newer.
    Up {
        number: u64,
        sessions: Sessions,
        unanswered: VecDeque<Request>,
        /// When it came up, or brought its latest message.
        heard: Nanos,
    },
    /// To be closed: whatever still comes is not listened to.
    Closing { unanswered: VecDeque<Request> },
}

/// The session ids of one connection (PROTOCOL 35).
///
/// An upstream producer repeats the session id in its OK acks and no attempt. So no two requests for
/// one hash carry the same id to a peer that has shown that it numbers no attempts: then an OK ack
/// names the one request that it answers, however late or often it comes. Before it has shown anything
/// a repeated request is marked: an upstream ack answers it with a reason to ask again.
#[derive(Debug)]
struct Sessions {
    base: String,
    generation: u32,
    /// Asked for in this generation.
    asked: BTreeSet<MmHash>,
    peer: Peer,
}

/// What a peer's acks have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// None has come.
    Unknown,
    /// They repeat the attempt: one id is enough.
    Numbers,
    /// They do not.
    Upstream,
}

impl Sessions {
    fn id(&self, generation: u32) -> Cow<'_, str> {
        if generation == 0 {
            Cow::Borrowed(&self.base)
        } else {
            Cow::Owned(format!("{}.{generation}", self.base))
        }
    }

    /// The generation of a request for `hash` that goes out now, and whether it is a repetition.
    fn next(&mut self, hash: &MmHash) -> (u32, bool) {
        if self.peer == Peer::Numbers {
            return (self.generation, false);
        }
        let again = self.asked.contains(hash);
        if again && self.peer == Peer::Unknown {
            return (self.generation, true);
        }
        if again || self.asked.len() >= MAX_HASHES_PER_SESSION {
            self.generation = self.generation.wrapping_add(1);
            self.asked.clear();
        }
        self.asked.insert(hash.clone());
        (self.generation, false)
    }

    /// The generation of a session id of this connection.
    fn generation_of(&self, session: &str) -> Option<u32> {
        let rest = session.strip_prefix(self.base.as_str())?;
        if rest.is_empty() {
            return Some(0);
        }
        let number = rest.strip_prefix('.')?;
        number.parse().ok().filter(|generation| self.id(*generation) == session)
    }
}

#[derive(Debug)]
pub(super) struct Link {
    state: State,
    /// Transfers whose request has not gone out: the link is not up, or has too many unanswered.
    /// Their numbers ascend, so the first is the oldest.
    waiting: BTreeSet<TransferId>,
}

impl Default for Link {
    fn default() -> Self {
        Self { state: State::Down { opening: false }, waiting: BTreeSet::new() }
    }
}

impl Link {
    /// The session id that requests of this generation carry; empty unless the link is up.
    pub(super) fn session(&self, generation: u32) -> Cow<'_, str> {
        match &self.state {
            State::Up { sessions, .. } => sessions.id(generation),
            State::Down { .. } | State::Closing { .. } => Cow::Borrowed(""),
        }
    }

    /// Whether messages are taken from it.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// An ack has come, with an attempt or without.
    pub(super) fn has_answered(&mut self, with_attempt: bool) {
        let State::Up { sessions, .. } = &mut self.state else { return };
        if with_attempt {
            sessions.peer = Peer::Numbers;
            sessions.asked = BTreeSet::new();
        } else if sessions.peer == Peer::Unknown {
            sessions.peer = Peer::Upstream;
        }
    }

    /// The generation of a request for `hash` that goes out now, and whether it is a repetition.
    pub(super) fn next_generation(&mut self, hash: &MmHash) -> (u32, bool) {
        match &mut self.state {
            State::Up { sessions, .. } => sessions.next(hash),
            State::Down { .. } | State::Closing { .. } => (0, false),
        }
    }

    /// The number of this connection's session, if it is up.
    pub(super) fn number(&self) -> Option<u64> {
        match &self.state {
            State::Up { number, .. } => Some(*number),
            State::Down { .. } | State::Closing { .. } => None,
        }
    }

    /// `transfer` waits until it can ask. True if somebody has to open the link.
    pub(super) fn wait(&mut self, transfer: TransferId) -> bool {
        self.waiting.insert(transfer);
        match &mut self.state {
            State::Down { opening } => !std::mem::replace(opening, true),
            State::Up { .. } | State::Closing { .. } => false,
        }
    }

    /// The link stands. What was unanswered on an earlier connection has to be asked again.
    pub(super) fn up(&mut self, now: Nanos, number: u64, session: String) {
        let (generation, asked, peer) = (0, BTreeSet::new(), Peer::Unknown);
        let sessions = Sessions { base: session, generation, asked, peer };
        let new = State::Up { number, sessions, unanswered: VecDeque::new(), heard: now };
        let old = std::mem::replace(&mut self.state, new);
        self.waiting.extend(old.asked());
    }

    /// A message has come.
    pub(super) fn hear(&mut self, now: Nanos) {
        if let State::Up { heard, .. } = &mut self.state {
            *heard = now;
        }
    }

    /// Whether nothing has come since before `transfer` asked.
    pub(super) fn is_mute_for(&self, transfer: TransferId) -> bool {
        let State::Up { unanswered, heard, .. } = &self.state else { return false };
        let theirs = unanswered.iter().find(|request| request.answer.transfer == transfer);
        theirs.is_some_and(|request| *heard <= request.answer.sent)
    }

    /// The oldest transfer that has not asked and may do so now.
    pub(super) fn next_to_ask(&mut self) -> Option<TransferId> {
        match &self.state {
            State::Up { unanswered, .. } if unanswered.len() < MAX_UNANSWERED_PER_LINK => {
                self.waiting.pop_first()
            }
            _ => None,
        }
    }

    /// A request goes out.
    pub(super) fn asked(&mut self, hash: &MmHash, answer: Answer) {
        if let State::Up { unanswered, .. } = &mut self.state {
            unanswered.push_back(Request { hash: hash.clone(), answer });
        }
    }

    /// The request that an ack of `hash` answers: the one with its attempt, or, from a peer that
    /// sends none, the one with its session id, or else the oldest of that hash (PROTOCOL 31). `None`
    /// if there is no such request.
    pub(super) fn answer(
        &mut self,
        hash: &str,
        attempt: Option<u32>,
        session: &str,
    ) -> Option<Answer> {
        let State::Up { unanswered, sessions, .. } = &mut self.state else { return None };
        // A foreign id is for whoever checks the ack; one of ours names its request.
        let named = attempt.is_none().then(|| sessions.generation_of(session)).flatten();
        let at = unanswered.iter().position(|request| {
            attempt.is_none_or(|number| number == request.answer.attempt)
                && named.is_none_or(|generation| generation == request.answer.generation)
                && request.hash.as_str() == hash
        })?;
        let found = unanswered.remove(at).map(|request| request.answer);
        if named.is_some() {
            // Answers come in order: those to earlier requests for it are lost.
            let lost = |request: &Request, index: usize| {
                index < at && request.answer.given_up && request.hash.as_str() == hash
            };
            let mut index = 0;
            unanswered.retain(|request| {
                let keep = !lost(request, index);
                index += 1;
                keep
            });
        }
        found
    }

    /// `transfer` wants no answer any more.
    pub(super) fn give_up(&mut self, transfer: TransferId) {
        self.waiting.remove(&transfer);
        if let State::Up { unanswered, .. } | State::Closing { unanswered } = &mut self.state {
            let theirs = unanswered.iter_mut().find(|request| request.answer.transfer == transfer);
            if let Some(request) = theirs {
                request.answer.given_up = true;
            }
        }
    }

    /// Whether somebody waits and nothing can be asked, because the producer has left as many
    /// requests unanswered as may be, each for so long that it was given up.
    pub(super) fn is_silent(&self) -> bool {
        let State::Up { unanswered, .. } = &self.state else { return false };
        !self.waiting.is_empty()
            && unanswered.len() >= MAX_UNANSWERED_PER_LINK
            && unanswered.iter().all(|request| request.answer.given_up)
    }

    /// Nothing is sent on this connection or taken from it any more. False if that was so before.
    pub(super) fn close(&mut self) -> bool {
        let State::Up { unanswered, .. } = &mut self.state else { return false };
        self.state = State::Closing { unanswered: std::mem::take(unanswered) };
        true
    }

    /// Everybody who waits for the link or for an answer on it, the oldest first.
    pub(super) fn into_transfers(self) -> BTreeSet<TransferId> {
        let mut transfers = self.waiting;
        transfers.extend(self.state.asked());
        transfers
    }
}

impl State {
    /// The transfers that still want an answer.
    fn asked(self) -> impl Iterator<Item = TransferId> {
        let unanswered = match self {
            Self::Down { .. } => VecDeque::new(),
            Self::Up { unanswered, .. } | Self::Closing { unanswered } => unanswered,
        };
        let live = unanswered.into_iter().filter(|request| !request.answer.given_up);
        live.map(|request| request.answer.transfer)
    }
}
