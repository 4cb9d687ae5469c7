//! Whose bytes have ended a read helper, if anybody's have.

use std::collections::BTreeMap;

use chiasm_nixl::Ended;
use rustix::process::Signal;

use super::peer::Peer;

/// The peer that has ended a helper of these peers; `None` where it is nobody's doing, or cannot be told.
pub(super) fn guilty(peers: &BTreeMap<u64, Peer>, ended: &Ended) -> Option<u64> {
    // Somebody's SIGKILL is nobody's metadata.
    suspect(peers).filter(|_| has_crashed(ended))
}

/// Whose bytes were being loaded, in order; else those of the one peer that was being read from and has
/// delivered nothing yet, since its addresses are used first then.
fn suspect(peers: &BTreeMap<u64, Peer>) -> Option<u64> {
    let loading = peers.iter().find(|(_, peer)| !peer.loaded).map(|(id, _)| *id);
    let mut read = peers.iter().filter(|(_, peer)| peer.reads > 0);
    let alone = match (read.next(), read.next()) {
        (Some((id, peer)), None) if !peer.delivered => Some(*id),
        _ => None,
    };
    loading.or(alone)
}

/// Whether the process has ended by its own doing.
fn has_crashed(ended: &Ended) -> bool {
    let crashes = [Signal::ILL, Signal::ABORT, Signal::BUS, Signal::FPE, Signal::SEGV];
    let by_signal = |signal| crashes.iter().any(|crash| crash.as_raw() == signal);
    ended.signal.is_some_and(by_signal) || ended.code.is_some_and(|code| code != 0)
}
