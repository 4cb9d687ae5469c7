//! Why a transfer failed, and what kind of failure that is for admission's outcome table.

use crate::plane::Plane;
use crate::wire::AckStatus;

/// What may still be tried for one (request, source).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureClass {
    /// Asking this source again cannot help.
    Terminal,
    /// Try again, with back-off, inside the budget.
    Retryable,
    /// The bytes or the extents were wrong: one more try, and the peer is penalised.
    ReadWrong,
    /// There is no room just now: wait for some.
    NoRoom,
}

/// Why a transfer failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailureReason {
    /// The producer never had the entry, or has evicted it.
    #[error("the producer has no such entry (NACK_MISSING)")]
    NackMissing,
    /// Model, dtype, block size, vLLM version or fingerprint differ.
    #[error("the producer serves another model, dtype, block size or version (NACK_INCOMPAT{})", detail(.0))]
    NackIncompat(String),
    /// The producer speaks another version of the connector protocol.
    #[error("the producer speaks another connector version (NACK_VERSION)")]
    NackVersion,
    /// The producer could not serve the request.
    #[error("the producer could not serve the request (NACK_INTERNAL{})", detail(.0))]
    NackInternal(String),
    /// A status that this version does not know.
    #[error("the producer answered with the unknown status {0}")]
    UnknownStatus(i128),
    /// The producer is still encoding or saving it, or is over a quota.
    #[error("the entry is not ready at the producer (NACK_NOT_READY{})", detail(.0))]
    NotReady(String),
    /// No answer in time.
    #[error("no ack in time")]
    AckTimeout,
    /// The producer leaves too many requests unanswered.
    #[error(
        "the producer leaves more than {} requests unanswered",
        crate::limits::MAX_UNANSWERED_PER_LINK
    )]
    Silent,
    /// The producer has said nothing at all for as long as an ack may take.
    #[error("the connection has brought nothing for as long as an ack may take")]
    Mute,
    /// Nobody listens at the producer's endpoint.
    #[error("connection refused")]
    Refused,
    /// The name could not be resolved.
    #[error("the name could not be resolved: {0}")]
    Unresolved(String),
    /// The connection could not be made, in time or at all.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// The connection was lost.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The producer sent something that is no ack.
    #[error("not an ack: {0}")]
    Garbage(String),
    /// The producer's ack does not fit the announcement.
    #[error("the ack does not fit the announcement: {0}")]
    AckMismatch(String),
    /// There is no plane that both sides have.
    #[error("no plane in common: {0}")]
    NoPlane(String),
    /// The lease had run out, or too little of it was left.
    #[error("the lease ran out before the bytes could be trusted")]
    LeaseRanOut,
    /// The read took too long.
    #[error("the read took longer than read_timeout_s")]
    ReadTimeout,
    /// The plane lost its way to the producer or the producer's grant had ended.
    #[error("the read failed: {0}")]
    Plane(String),
    /// The plane cannot reach this producer at all; another one can be tried at once.
    #[error("the {plane} plane does not reach this producer: {why}")]
    PlaneAway {
        /// Which.
        plane: Plane,
        /// What was found out.
        why: String,
    },
    /// What the producer says of its NIXL agent ends the process that loads it, or cannot be loaded.
    #[error("the producer's NIXL agent cannot be loaded: {0}")]
    BadAgent(String),
    /// The producer's NIXL agent has ended the process that loaded it, and is not loaded again for a
    /// while.
    #[error("the producer's NIXL agent is not loaded for now: {0}")]
    SuspectAgent(String),
    /// Another number of bytes than agreed.
    #[error("{landed} bytes landed, {expected} were agreed")]
    Length {
        /// Bytes that came.
        landed: u64,
        /// Bytes that the ack promised.
        expected: u64,
    },
    /// The bytes are not those that the producer saved.
    #[error("the content digest of the landed bytes differs from the producer's")]
    Digest,
    /// All blocks are held.
    #[error("no room in the region just now")]
    NoRoom,
    /// The engine itself is saving the entry: it will be there without a transfer.
    #[error("a local save of the entry is under way")]
    SavePending,
    /// Larger than the whole region.
    #[error("larger than the whole region")]
    TooLarge,
    /// Too many producers at once.
    #[error("more than {} producers at once", crate::limits::MAX_LINKS)]
    TooManyLinks,
    /// This node is shutting down.
    #[error("shutting down")]
    ShutDown,
}

fn detail(word: &str) -> String {
    if word.is_empty() { String::new() } else { format!(", {word}") }
}

impl FailureReason {
    /// A short machine word: JSON output, metric labels.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::NackMissing => "nack_missing",
            Self::NackIncompat(_) => "nack_incompat",
            Self::NackVersion => "nack_version",
            Self::NackInternal(_) => "nack_internal",
            Self::UnknownStatus(_) => "unknown_status",
            Self::NotReady(_) => "not_ready",
            Self::AckTimeout | Self::ReadTimeout => "timeout",
            Self::Silent => "silent",
            Self::Mute => "mute",
            Self::Refused => "refused",
            Self::Unresolved(_) => "unresolved",
            Self::Unreachable(_) => "unreachable",
            Self::Lost(_) => "lost",
            Self::Garbage(_) => "garbage",
            Self::AckMismatch(_) => "ack_mismatch",
            Self::NoPlane(_) => "no_plane",
            Self::LeaseRanOut => "lease",
            Self::Plane(_) | Self::PlaneAway { .. } => "plane",
            Self::BadAgent(_) | Self::SuspectAgent(_) => "bad_agent",
            Self::Length { .. } => "length",
            Self::Digest => "digest",
            Self::NoRoom => "no_room",
            Self::SavePending => "save_pending",
            Self::TooLarge => "too_large",
            Self::TooManyLinks => "too_many_links",
            Self::ShutDown => "shut_down",
        }
    }

    /// What may still be tried.
    #[must_use]
    pub const fn class(&self) -> FailureClass {
        match self {
            Self::NackMissing
            | Self::NackIncompat(_)
            | Self::NackVersion
            | Self::NackInternal(_)
            | Self::UnknownStatus(_)
            | Self::AckMismatch(_)
            | Self::NoPlane(_)
            | Self::TooLarge
            | Self::ShutDown => FailureClass::Terminal,
            Self::Length { .. } | Self::Digest | Self::BadAgent(_) => FailureClass::ReadWrong,
            Self::NoRoom => FailureClass::NoRoom,
            Self::NotReady(_)
            | Self::AckTimeout
            | Self::ReadTimeout
            | Self::Silent
            | Self::Mute
            | Self::Refused
            | Self::Unresolved(_)
            | Self::Unreachable(_)
            | Self::Lost(_)
            | Self::Garbage(_)
            | Self::LeaseRanOut
            | Self::SavePending
            | Self::Plane(_)
            | Self::PlaneAway { .. }
            | Self::SuspectAgent(_)
            | Self::TooManyLinks => FailureClass::Retryable,
        }
    }

    /// Whether what is remembered of the producer's NIXL agent may be what is wrong.
    pub(super) const fn blames_agent(&self) -> bool {
        matches!(self, Self::BadAgent(_) | Self::SuspectAgent(_))
    }

    /// The reason that a NACK gives. `word` is what a Chiasm producer adds. `None` for OK.
    pub(super) fn of_nack(status: AckStatus, word: &str) -> Option<Self> {
        Some(match status {
            AckStatus::Ok => return None,
            AckStatus::Missing => Self::NackMissing,
            AckStatus::Incompat => Self::NackIncompat(word.into()),
            AckStatus::Version => Self::NackVersion,
            AckStatus::Internal if word == "no_plane" => {
                Self::NoPlane("the producer serves none of those offered".into())
            }
            AckStatus::Internal => Self::NackInternal(word.into()),
            AckStatus::NotReady => Self::NotReady(word.into()),
        })
    }
}

/// A reason together with its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What may still be tried.
    pub class: FailureClass,
    /// What happened.
    pub reason: FailureReason,
}

impl From<FailureReason> for Failure {
    fn from(reason: FailureReason) -> Self {
        Self { class: reason.class(), reason }
    }
}
