//! What peers send, checked; a helper process, seen from its node. Real NIXL is in `tests/interop/nixl`.

mod metadata;
mod pieces;
mod process;
