//! Numbers under which sources are known to the poller: the kind in the top byte, the id below.

/// What is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Waker = 0,
    Listener = 1,
    Inbound = 2,
    Control = 3,
    Stream = 4,
    Status = 5,
    StatusClient = 6,
    Worker = 7,
    Nixl = 8,
}

const ID_BITS: u32 = 56;

/// Ids count up from zero, one a connection: 56 bits are enough for two thousand years at a million
/// connections a second.
pub(crate) fn token(source: Source, id: u64) -> u64 {
    ((source as u64) << ID_BITS) | (id & ((1 << ID_BITS) - 1))
}

pub(crate) fn split(token: u64) -> Option<(Source, u64)> {
    let source = match token >> ID_BITS {
        0 => Source::Waker,
        1 => Source::Listener,
        2 => Source::Inbound,
        3 => Source::Control,
        4 => Source::Stream,
        5 => Source::Status,
        6 => Source::StatusClient,
        7 => Source::Worker,
        8 => Source::Nixl,
        _ => return None,
    };
    Some((source, token & ((1 << ID_BITS) - 1)))
}
