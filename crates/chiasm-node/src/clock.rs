//! The node's clock. Nothing below the node reads one.

use chiasm_core::time::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_BOOTTIME`: it goes on while the machine is suspended, so that a lease that ran out during
/// suspension has run out.
#[must_use]
pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Nanos::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}
