//! One producer's control connection as the consumer sees it: who waits for it, and which requests
//! are unanswered.
//!
//! It must never match an ack with a request that it does not answer (hazard A5).

use std::collections::VecDeque;

use super::TransferId;
use crate::limits::MAX_UNANSWERED_PER_LINK;
use crate::mm_hash::MmHash;
use crate::time::Nanos;

/// A request that has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) transfer: TransferId,
    /// When the request was sent: the lease is counted from here, never from the ack (S2).
    pub(super) sent: Nanos,
}

#[derive(Debug)]
struct Request {
    attempt: u32,
    hash: MmHash,
    answer: Answer,
}

#[derive(Debug)]
enum State {
    /// Not asked for yet, or asked for and not there yet.
    Down { opening: bool, waiting: Vec<TransferId> },
    /// Requests in the order in which they were sent. Requests of transfers that were given up stay,
    /// so that their late acks answer them and nothing newer.
    Up { session: String, unanswered: VecDeque<Request> },
}

#[derive(Debug)]
pub(super) struct Link(State);

impl Default for Link {
    fn default() -> Self {
        Self(State::Down { opening: false, waiting: Vec::new() })
    }
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        matches!(self.0, State::Up { .. })
    }

    /// The session id of this connection's life; empty while it is down.
    pub(super) fn session(&self) -> &str {
        match &self.0 {
            State::Up { session, .. } => session,
            State::Down { .. } => "",
        }
    }

    /// `transfer` waits until the link is up. True if somebody has to open it.
    pub(super) fn wait(&mut self, transfer: TransferId) -> bool {
        match &mut self.0 {
            State::Down { opening, waiting } => {
                waiting.push(transfer);
                !std::mem::replace(opening, true)
            }
            State::Up { .. } => false,
        }
    }

    /// The link stands; gives those who waited for it. After a reconnect nothing is unanswered.
    pub(super) fn up(&mut self, session: String) -> Vec<TransferId> {
        let new = State::Up { session, unanswered: VecDeque::new() };
        let old = std::mem::replace(&mut self.0, new);
        Self(old).into_transfers()
    }

    /// A request goes out. False, and nothing is kept, if too many are unanswered already.
    pub(super) fn ask(
        &mut self,
        now: Nanos,
        transfer: TransferId,
        hash: &MmHash,
        attempt: u32,
    ) -> bool {
        let State::Up { unanswered, .. } = &mut self.0 else { return false };
        if unanswered.len() >= MAX_UNANSWERED_PER_LINK {
            return false;
        }
        let answer = Answer { transfer, sent: now };
        unanswered.push_back(Request { attempt, hash: hash.clone(), answer });
        true
    }

    /// The request that an ack of `hash` answers: the one with its attempt, or, from a peer that
    /// sends none, the oldest of that hash.
    pub(super) fn answer(&mut self, hash: &str, attempt: Option<u32>) -> Option<Answer> {
        let State::Up { unanswered, .. } = &mut self.0 else { return None };
        let at = unanswered.iter().position(|request| {
            request.hash.as_str() == hash && attempt.is_none_or(|number| number == request.attempt)
        })?;
        unanswered.remove(at).map(|request| request.answer)
    }

    /// Everybody who waits for the link or for an answer on it.
    pub(super) fn into_transfers(self) -> Vec<TransferId> {
        match self.0 {
            State::Down { waiting, .. } => waiting,
            State::Up { unanswered, .. } => {
                unanswered.iter().map(|request| request.answer.transfer).collect()
            }
        }
    }
}
