//! Why an item is not ready: what the log, the report and `chiasm fetch` say.

use std::time::Duration;

use crate::allowlist::Refusal;
use crate::announcement::AnnouncementError;
use crate::consumer::FailureReason;

/// Why an item fell back, or why its request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A transfer failed in a way that another attempt cannot mend.
    #[error("{0}")]
    Transfer(FailureReason),
    /// The announcement cannot be used.
    #[error("the announcement is invalid: {0}")]
    Invalid(AnnouncementError),
    /// The announced producer is not approved.
    #[error("{0}")]
    Refused(Refusal),
    /// Its time is over. `last` is what went wrong last, if anything did.
    #[error(
        "not there within wait_budget_s = {}, waiting for {waited_for} in the end{}",
        .budget.as_secs_f64(),
        last_words(.last.as_ref())
    )]
    BudgetSpent {
        /// `wait_budget_s`.
        budget: Duration,
        /// What it waited for when its time was over.
        waited_for: &'static str,
        /// The latest failure.
        last: Option<FailureReason>,
    },
    /// The producer is known to be down, so nobody waits who need not.
    #[error("the producer is down{}", last_words(.last.as_ref()))]
    ProducerDown {
        /// The failure that showed it.
        last: Option<FailureReason>,
    },
    /// The items of the request are together larger than the region.
    #[error(
        "the request's items need {needed} blocks together, the region has {region}: raise \
         ec_cpu_bytes"
    )]
    NeverFits {
        /// Blocks of all items that the request needs at once.
        needed: u64,
        /// Blocks of the region.
        region: u32,
    },
    /// There is no announcement, no entry and no local input: nothing can bring it.
    #[error("it is not announced, not in the region, and there is no local input to encode")]
    NowhereToBeHad,
    /// An entry of the hash that is in use has another form than the request needs. Both cannot be
    /// right, and the engine would take the entry for its own.
    #[error(
        "the region holds an entry of this mm_hash with shape [{rows}, {width}], which the request \
         cannot use"
    )]
    OtherForm {
        /// Rows of that entry.
        rows: u32,
        /// Width of that entry.
        width: u32,
    },
    /// A limit of admission.
    #[error("more than {limit} {what}")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

fn last_words(last: Option<&FailureReason>) -> String {
    last.map(|reason| format!("; last: {reason}")).unwrap_or_default()
}

impl Reason {
    /// A short machine word: JSON output, metric labels. Released words stay.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Transfer(reason) => reason.word(),
            Self::Invalid(error) => error.kind(),
            Self::Refused(_) => "not_allowed",
            Self::BudgetSpent { .. } => "budget",
            Self::ProducerDown { .. } => "producer_down",
            Self::NeverFits { .. } => "never_fits",
            Self::NowhereToBeHad => "not_announced",
            Self::OtherForm { .. } => "other_form",
            Self::TooMany { .. } => "too_many",
        }
    }
}
