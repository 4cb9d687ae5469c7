//! Every name that the product's own enums can bring into a tally, so that none is forgotten: a variant
//! that is not listed here does not compile, and its word is asked of the product.
//!
//! It must never say how often something has to happen: `expected.rs` does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chiasm_core::admission::{Event as Admitted, Outcome, Reason, Trouble};
use chiasm_core::allowlist::Refusal;
use chiasm_core::announcement::AnnouncementError;
use chiasm_core::consumer::FailureReason;
use chiasm_core::dispatch::{Event as Dispatched, Rank, RankSet};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::excerpt::Excerpt;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::Plane;
use chiasm_core::producer::RefusalReason;
use chiasm_core::reclaim::Removal;
use chiasm_core::wire::AckStatus;
use chiasm_sim::tally::{of_admitted, of_dispatched};
use chiasm_zmtp::{CloseReason, EnvelopeProblem, Role};

/// One value of each variant. The patterns are a `match` without a rest, and each fits its value.
macro_rules! each {
    ($kind:ty: $( $pattern:pat => $value:expr, )*) => {{
        let _ = |value: &$kind| match value { $( $pattern => (), )* };
        let values: Vec<$kind> = vec![ $( {
            let value: $kind = $value;
            assert!(matches!(&value, $pattern), "{value:?} is no {}", stringify!($pattern));
            value
        }, )* ];
        values
    }};
}

/// Every name that there can be.
pub(crate) fn all() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for reason in failures() {
        names.insert(format!("transfer failed: {}", reason.word()));
    }
    for event in admitted() {
        names.insert(of_admitted(&event));
    }
    names.extend(dispatched().iter().map(|event| of_dispatched(event).to_owned()));
    for reason in closes() {
        names.insert(format!("link down: {}", reason.kind()));
        names.insert(format!("router closed: {}", reason.kind()));
    }
    names.extend(AckStatus::ALL.iter().skip(1).map(|status| format!("nack {}", status.name())));
    names.extend(refusals().iter().map(|reason| format!("refusal {}", reason.word())));
    for removal in removals() {
        names.extend(["sweep", "clear", "last out"].map(|who| format!("{who}: {removal:?}")));
    }
    for plane in Plane::ALL {
        names.extend([format!("bytes over {plane}"), format!("read over {plane}")]);
    }
    names
}

fn failures() -> Vec<FailureReason> {
    use FailureReason as F;
    let word = || "why".to_owned();
    each!(F:
        F::NackMissing => F::NackMissing,
        F::NackIncompat(_) => F::NackIncompat(word()),
        F::NackVersion => F::NackVersion,
        F::NackInternal(_) => F::NackInternal(word()),
        F::UnknownStatus(_) => F::UnknownStatus(42),
        F::NotReady(_) => F::NotReady(word()),
        F::AckTimeout => F::AckTimeout,
        F::Silent => F::Silent,
        F::Mute => F::Mute,
        F::Refused => F::Refused,
        F::Unresolved(_) => F::Unresolved(word()),
        F::Unreachable(_) => F::Unreachable(word()),
        F::Lost(_) => F::Lost(word()),
        F::Garbage(_) => F::Garbage(word()),
        F::AckMismatch(_) => F::AckMismatch(word()),
        F::NoPlane(_) => F::NoPlane(word()),
        F::LeaseRanOut => F::LeaseRanOut,
        F::ReadTimeout => F::ReadTimeout,
        F::Plane(_) => F::Plane(word()),
        F::PlaneAway { .. } => F::PlaneAway { plane: Plane::Shm, why: word() },
        F::BadAgent(_) => F::BadAgent(word()),
        F::SuspectAgent(_) => F::SuspectAgent(word()),
        F::Length { .. } => F::Length { landed: 1, expected: 2 },
        F::Digest => F::Digest,
        F::NoRoom => F::NoRoom,
        F::SavePending => F::SavePending,
        F::TooLarge => F::TooLarge,
        F::TooManyLinks => F::TooManyLinks,
        F::ShutDown => F::ShutDown,
    )
}

/// Reasons for which an item fails its request, or is encoded locally: of transfers' failures those that
/// another attempt cannot mend, by the product's own table of outcomes.
fn reasons() -> Vec<Reason> {
    let ends = |reason: &FailureReason| {
        let trouble = Trouble::of_failure(reason.class(), true);
        trouble.outcome(false) == Outcome::Unavailable
    };
    let mut reasons = each!(Reason:
        Reason::Transfer(_) => Reason::Transfer(FailureReason::NackMissing),
        Reason::Invalid(_) => Reason::Invalid(AnnouncementError::ShapeLength { dims: 3 }),
        Reason::Refused(_) => Reason::Refused(refusal()),
        Reason::BudgetSpent { .. } => Reason::BudgetSpent {
            budget: Duration::ZERO,
            waited_for: "it",
            last: None,
        },
        Reason::ProducerDown { .. } => Reason::ProducerDown { last: None },
        Reason::NeverFits { .. } => Reason::NeverFits { needed: 2, region: 1 },
        Reason::NowhereToBeHad => Reason::NowhereToBeHad,
        Reason::OtherForm { .. } => Reason::OtherForm { rows: 1, width: 1 },
        Reason::TooMany { .. } => Reason::TooMany { what: "requests", limit: 1 },
    );
    reasons.extend(failures().into_iter().filter(ends).map(Reason::Transfer));
    reasons.extend(invalid().into_iter().map(Reason::Invalid));
    reasons
}

fn invalid() -> Vec<AnnouncementError> {
    use AnnouncementError as E;
    let no_endpoint = Endpoint::parse("").expect_err("nothing is no endpoint");
    each!(E:
        E::NotAnObject { .. } => E::NotAnObject { found: Excerpt::of("1") },
        E::Missing { .. } => E::Missing { field: "peer_port" },
        E::WrongType { .. } => {
            E::WrongType { field: "peer_port", expected: "a port", found: Excerpt::of("-1") }
        },
        E::PeerHost(_) => E::PeerHost(no_endpoint),
        E::ShapeLength { .. } => E::ShapeLength { dims: 3 },
        E::Rows { .. } => E::Rows { announced: 1, expected: 2 },
        E::Width { .. } => E::Width { announced: 1, expected: 2 },
        E::Size { .. } => {
            E::Size { announced: 1, rows: 1, width: 1, dtype: None, block_size_bytes: 64 }
        },
        E::TooLarge { .. } => E::TooLarge { blocks: 2, region_blocks: 1 },
    )
}

fn admitted() -> Vec<Admitted> {
    use Admitted as E;
    let (request, hash): (Arc<str>, _) = (Arc::from("r"), MmHash::new("h").expect("a hash"));
    let (source, waited) = (refusal().endpoint, Duration::ZERO);
    let fell_back =
        |reason| E::FellBack { request: Arc::clone(&request), hash: hash.clone(), reason, waited };
    let failed = |reason| E::Failed { request: Arc::clone(&request), hash: None, reason, waited };
    let mut events = each!(E:
        E::Refused(_) => E::Refused(refusal()),
        E::AckTimeout { .. } => E::AckTimeout {
            source: source.clone(),
            hash: hash.clone(),
            attempt: 1,
            waited,
            budget_left: waited,
        },
        E::FellBack { .. } => fell_back(Reason::Refused(refusal())),
        E::Failed { .. } => failed(Reason::NowhereToBeHad),
        E::Disagree { .. } => {
            E::Disagree { hash: hash.clone(), first: None, second: source.clone() }
        },
        E::WrongBytes { .. } => E::WrongBytes {
            source: source.clone(),
            hash: hash.clone(),
            reason: FailureReason::Digest,
        },
        E::BreakerOpened { .. } => E::BreakerOpened {
            source: source.clone(),
            reason: FailureReason::Refused,
            pause: waited,
        },
        E::BreakerClosed { .. } => E::BreakerClosed { source: source.clone() },
    );
    events.extend(
        reasons().into_iter().flat_map(|reason| [failed(reason.clone()), fell_back(reason)]),
    );
    events
}

fn dispatched() -> Vec<Dispatched> {
    use Dispatched as E;
    let (hash, rank, waited) = (MmHash::new("h").expect("a hash"), Rank::ZERO, Duration::ZERO);
    let ranks = RankSet::default();
    each!(E:
        E::SaveLost { .. } => E::SaveLost { hash: hash.clone(), rank, waited, blocks: 1 },
        E::LoadLate { .. } => E::LoadLate { hash: hash.clone(), ranks, waited },
        E::SaveFailed { .. } => E::SaveFailed { hash, rank },
        E::WorkerGone { .. } => E::WorkerGone { rank, saves: 1, loads: 1 },
    )
}

fn closes() -> Vec<CloseReason> {
    use CloseReason as C;
    let (text, limit) = (String::new, Duration::ZERO);
    each!(C:
        C::PeerClosed => C::PeerClosed,
        C::Io { .. } => C::Io { error: text() },
        C::ConnectFailed { .. } => C::ConnectFailed { error: text() },
        C::ConnectTimeout { .. } => C::ConnectTimeout { limit },
        C::NotZmtp { .. } => C::NotZmtp { first: text() },
        C::VersionTooOld { .. } => C::VersionTooOld { major: 2 },
        C::Mechanism { .. } => C::Mechanism { seen: text() },
        C::AsServer { .. } => C::AsServer { seen: 1 },
        C::SocketType { .. } => C::SocketType { ours: Role::Router, theirs: text() },
        C::BadCommand { .. } => C::BadCommand { name: text(), problem: "none" },
        C::PeerError { .. } => C::PeerError { reason: text() },
        C::MessageBeforeReady => C::MessageBeforeReady,
        C::BadFlags { .. } => C::BadFlags { flags: 9 },
        C::MessageTooLarge { .. } => C::MessageTooLarge { announced: 2, limit: 1 },
        C::CommandTooLarge { .. } => C::CommandTooLarge { announced: 2, limit: 1 },
        C::Envelope(_) => C::Envelope(EnvelopeProblem::NoPayload),
        C::HandshakeTimeout { .. } => C::HandshakeTimeout { waiting_for: "READY", limit },
        C::HeartbeatTimeout { .. } => C::HeartbeatTimeout { limit },
        C::IdleTimeout { .. } => C::IdleTimeout { limit },
        C::OutputFull { .. } => C::OutputFull { queued: 2, limit: 1 },
        C::ConnectionCap { .. } => C::ConnectionCap { limit: 1 },
        C::Refused { .. } => C::Refused { why: text() },
        C::ShutDown => C::ShutDown,
    )
}

fn refusals() -> Vec<RefusalReason> {
    use RefusalReason as R;
    each!(R:
        R::Version => R::Version,
        R::CompatHash => R::CompatHash,
        R::Fingerprint => R::Fingerprint,
        R::SessionId => R::SessionId,
        R::SessionInUse => R::SessionInUse,
        R::Missing => R::Missing,
        R::NotReady => R::NotReady,
        R::Quota => R::Quota,
        R::NoPlane => R::NoPlane,
        R::Draining => R::Draining,
        R::AgentDown => R::AgentDown,
    )
}

fn removals() -> Vec<Removal> {
    use Removal as R;
    each!(R:
        R::Absent => R::Absent,
        R::Removed => R::Removed,
        R::Live => R::Live,
        R::Busy => R::Busy,
        R::Foreign => R::Foreign,
    )
}

fn refusal() -> Refusal {
    let endpoint = Endpoint::parse("10.0.0.1:5601").expect("an endpoint");
    Refusal { endpoint, near_miss: None }
}
