//! What breaks other connectors and must not break this one, one test per hazard, named after it.
//!
//! Each makes the input, timing or peer of its hazard between two whole instances, and asserts both
//! that the wrong outcome is absent and that the right answer arrives. The hazards that a narrower test
//! covers better are beside the part that they are about; `docs/hazards.md` lists all of them.

mod a;
mod b;
mod c;
mod d;

use chiasm_core::admission::Decision;
use chiasm_core::cache::EntryState;
use chiasm_core::instance::Instance;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::{GrantToken, PeerId};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckLimits, ReqExtension, XferAck, XferReq};
use serde_json::Value;

use crate::conformance_pair::{Network, Pair};

/// Upstream's `ec_transfer_params` of one entry with this field changed.
fn with_field(mut params: Value, name: &str, field: &str, value: Value) -> Value {
    params[name][field] = value;
    params
}

/// The state of whatever has this name in the consumer's region.
fn landed(pair: &Pair, name: &str) -> Option<EntryState> {
    pair.consumer.cache().find(name).map(|(_, entry)| entry.state())
}

/// A new request for `name` gets it, in two steps of the engine.
fn assert_served(pair: &mut Pair, id: &str, name: &str, rows: u32) {
    pair.network = Network::Fast;
    pair.request(id, name, rows, false);
    assert_eq!(pair.step(id), Decision::Wait, "{name}");
    assert_eq!(pair.step(id), Decision::Ready, "{name}");
    pair.finish(id);
}

/// What a Chiasm peer sends for this pair.
fn request_bytes(session: &str, hash: &str) -> Vec<u8> {
    let planes: PlaneList = [Plane::Tcp].into_iter().collect();
    let extension = ReqExtension { planes, attempt: 1, ..ReqExtension::default() };
    let request = XferReq {
        mm_hash: hash,
        compatibility_hash: "same",
        session_id: session,
        connector_version: 2,
        chiasm: Some(extension),
    };
    request.encode()
}

/// The answer's bytes to [`request_bytes`].
fn ask(producer: &mut Instance, now: Nanos, peer: PeerId, session: &str, hash: &str) -> Vec<u8> {
    let request = request_bytes(session, hash);
    producer.handle_request(now, peer, &request).expect("a request is answered").into_bytes()
}

fn decoded(ack: &[u8]) -> XferAck<'_> {
    XferAck::decode(ack, &AckLimits::default()).expect("our own ack")
}

fn token_of(ack: &[u8]) -> GrantToken {
    let extension = decoded(ack).chiasm.expect("between Chiasm nodes");
    GrantToken(extension.token.expect("tcp has a token"))
}
