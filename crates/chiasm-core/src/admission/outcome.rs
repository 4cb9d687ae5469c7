//! The outcome table: what comes of a trouble, with and without local input. Data; nothing else
//! decides it.

use crate::consumer::{FailureClass, FailureReason};

/// What can go wrong for one (request, `mm_hash`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// This source cannot deliver it to this request: a final NACK, an announcement that is invalid
    /// or refused, a request that can never fit.
    Terminal,
    /// The attempt failed, another may not: not ready, silence, connection, lease, plane.
    Retryable,
    /// The bytes were wrong, for the first time.
    ReadWrong,
    /// The bytes were wrong again.
    ReadWrongAgain,
    /// There was no room.
    NoRoom,
    /// The producer is known to be down.
    BreakerOpen,
    /// Its time is over.
    BudgetSpent,
}

/// What comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Try again after a pause, inside the budget.
    Retry,
    /// Wait for the producer's return, inside the budget.
    Wait,
    /// The engine encodes the item itself.
    Fallback,
    /// The request fails.
    Unavailable,
}

/// Trouble, outcome with local input, outcome without. In the order of
/// [`Trouble`].
pub const OUTCOMES: [(Trouble, Outcome, Outcome); 7] = [
    (Trouble::Terminal, Outcome::Fallback, Outcome::Unavailable),
    (Trouble::Retryable, Outcome::Retry, Outcome::Retry),
    (Trouble::ReadWrong, Outcome::Retry, Outcome::Retry),
    (Trouble::ReadWrongAgain, Outcome::Fallback, Outcome::Unavailable),
    (Trouble::NoRoom, Outcome::Retry, Outcome::Retry),
    (Trouble::BreakerOpen, Outcome::Fallback, Outcome::Wait),
    (Trouble::BudgetSpent, Outcome::Fallback, Outcome::Unavailable),
];

impl Trouble {
    /// Looks it up in [`OUTCOMES`].
    #[must_use]
    pub const fn outcome(self, local_input: bool) -> Outcome {
        let (_, with_local_input, without) = OUTCOMES[self as usize];
        if local_input { with_local_input } else { without }
    }

    /// The trouble that a failed transfer is. `wrong_before` says whether the same read has ended
    /// wrong already.
    #[must_use]
    pub const fn of_failure(class: FailureClass, wrong_before: bool) -> Self {
        match class {
            FailureClass::Terminal => Self::Terminal,
            FailureClass::Retryable => Self::Retryable,
            FailureClass::NoRoom => Self::NoRoom,
            FailureClass::ReadWrong if wrong_before => Self::ReadWrongAgain,
            FailureClass::ReadWrong => Self::ReadWrong,
        }
    }
}

/// What a failed transfer says about its producer's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// It is there and answers.
    Answers,
    /// It is not there, or does not answer.
    Down,
    /// It cannot be reached at all, which took `connect_timeout_s` to learn: no second attempt while
    /// somebody could encode instead.
    Unreachable,
    /// It delivers wrong bytes, which counts like an outage.
    Misbehaves,
    /// Nothing.
    Silent,
}

impl Signal {
    /// Exhaustive on purpose: a new reason has to be placed here.
    #[must_use]
    pub const fn of(reason: &FailureReason) -> Self {
        match reason {
            FailureReason::NackMissing
            | FailureReason::NackIncompat(_)
            | FailureReason::NackVersion
            | FailureReason::NackInternal(_)
            | FailureReason::UnknownStatus(_)
            | FailureReason::NotReady(_)
            | FailureReason::AckMismatch(_)
            | FailureReason::NoPlane(_)
            | FailureReason::NoRoom
            | FailureReason::SavePending
            | FailureReason::TooLarge
            | FailureReason::LeaseRanOut
            | FailureReason::PlaneAway { .. } => Self::Answers,
            FailureReason::AckTimeout
            | FailureReason::Silent
            | FailureReason::Mute
            | FailureReason::Refused
            | FailureReason::Unresolved(_)
            | FailureReason::Lost(_)
            | FailureReason::Garbage(_) => Self::Down,
            FailureReason::Unreachable(_) => Self::Unreachable,
            FailureReason::Length { .. }
            | FailureReason::Digest
            | FailureReason::BadAgent(_)
            | FailureReason::SuspectAgent(_) => Self::Misbehaves,
            FailureReason::ReadTimeout
            | FailureReason::Plane(_)
            | FailureReason::TooManyLinks
            | FailureReason::ShutDown => Self::Silent,
        }
    }
}
