//! The `chiasm` map: bounds, later revisions, upstream's indifference, and what it costs.

use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::extent::Extent;
use chiasm_core::plane::Plane;
use chiasm_core::wire::{
    AckExtension, AckLimits, AckStatus, DecodeError, ReqExtension, XferAck, XferReq,
};
use rmpv::Value;
use rstest::rstest;

const HASH: &str = "6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d";
const SESSION: &str = "3f0c3c9e-6a52-4f0e-8f43-2f8f0d7a5b1e";

/// A message that is a request to one decoder and an ack to the other.
fn message(chiasm: Value) -> Vec<u8> {
    let pairs = vec![
        ("mm_hash".into(), "h".into()),
        ("compatibility_hash".into(), "c".into()),
        ("status".into(), 0.into()),
        ("chiasm".into(), chiasm),
    ];
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &Value::Map(pairs)).unwrap();
    bytes
}

/// The map with this key after a good revision; a second `rev` takes the place of the first.
fn with(key: &str, value: Value) -> Value {
    Value::Map(vec![("rev".into(), 1.into()), (key.into(), value)])
}

fn decode_ack(bytes: &[u8]) -> Result<AckExtension<'_>, DecodeError> {
    XferAck::decode(bytes, &AckLimits::default()).map(|ack| ack.chiasm.unwrap())
}

fn decode_req(bytes: &[u8]) -> Result<ReqExtension<'_>, DecodeError> {
    XferReq::decode(bytes).map(|req| req.chiasm.unwrap())
}

/// The message of `error` without the byte offset, which here depends on the length of names only.
fn reason(error: &DecodeError) -> String {
    let message = error.to_string();
    let Some((path, rest)) = message.split_once(", byte ") else { return message };
    let (_, what) = rest.split_once(": ").unwrap();
    format!("{path}: {what}")
}

fn ints(values: &[u64]) -> Value {
    Value::Array(values.iter().copied().map(Value::from).collect())
}

fn texts(count: usize) -> Value {
    Value::Array(vec!["warp".into(); count])
}

#[rstest]
#[case("rev", 0.into(), "rev: 0 is outside 1..=4294967295")]
#[case("rev", "1".into(), "rev: expected int, found str")]
#[case("epoch", (-1).into(), "epoch: -1 is outside 0..=18446744073709551615")]
#[case("attempt", (1_u64 << 32).into(), "attempt: 4294967296 is outside 0..=4294967295")]
#[case("fingerprint", "f".repeat(129).into(), "fingerprint: 129 bytes, allowed: at most 128")]
fn a_map_that_breaks_a_bound_refuses_both_messages(
    #[case] key: &str,
    #[case] value: Value,
    #[case] expected: &str,
) {
    let bytes = message(with(key, value));
    let expected = format!("at $.chiasm.{expected}");
    assert_eq!(reason(&decode_req(&bytes).unwrap_err()), expected);
    assert_eq!(reason(&decode_ack(&bytes).unwrap_err()), expected);
}

#[rstest]
#[case("planes", texts(17), "planes: 17 planes, allowed: at most 16")]
#[case("planes", "shm".into(), "planes: expected array, found str")]
#[case("planes", ints(&[1]), "planes[0]: expected str, found int")]
fn a_map_that_breaks_a_bound_refuses_the_request(
    #[case] key: &str,
    #[case] value: Value,
    #[case] expected: &str,
) {
    let bytes = message(with(key, value));
    assert_eq!(reason(&decode_req(&bytes).unwrap_err()), format!("at $.chiasm.{expected}"));
}

#[rstest]
#[case("plane", 1.into(), "plane: expected str, found int")]
#[case("token", Value::Binary(vec![0; 15]), "token: 15 bytes, allowed: exactly 16")]
#[case("token", "0123456789abcdef".into(), "token: expected bytes, found str")]
#[case("digest", Value::Binary(vec![0; 17]), "digest: 17 bytes, allowed: exactly 16")]
#[case("extents", ints(&[1, 2, 3]), "extents: 3 elements, allowed: an even number up to 128")]
#[case("extents", ints(&[1; 130]), "extents: 130 elements, allowed: an even number up to 128")]
#[case(
    "extents",
    ints(&[7, 0]),
    "extents[0]: [7, 0] is no run of blocks (count >= 1, first + count < 2^32)"
)]
#[case(
    "extents",
    ints(&[0, 1, 4_294_967_295, 1]),
    "extents[2]: [4294967295, 1] is no run of blocks (count >= 1, first + count < 2^32)"
)]
#[case("extents", ints(&[0, 1 << 32]), "extents[1]: 4294967296 is outside 0..=4294967295")]
#[case("dtype", true.into(), "dtype: expected str, found bool")]
#[case("shape", ints(&[1, 2, 3]), "shape: 3 elements, allowed: exactly 2")]
#[case("shape", ints(&[1, 1 << 32]), "shape[1]: 4294967296 is outside 0..=4294967295")]
#[case("lease_ms", Value::F64(1.0), "lease_ms: expected int, found float")]
#[case("bytes", Value::Nil, "bytes: expected int, found nil")]
#[case("block_size_bytes", true.into(), "block_size_bytes: expected int, found bool")]
#[case("reason", "r".repeat(65).into(), "reason: 65 bytes, allowed: at most 64")]
fn a_map_that_breaks_a_bound_refuses_the_ack(
    #[case] key: &str,
    #[case] value: Value,
    #[case] expected: &str,
) {
    let bytes = message(with(key, value));
    assert_eq!(reason(&decode_ack(&bytes).unwrap_err()), format!("at $.chiasm.{expected}"));
}

#[test]
fn the_bounds_themselves_are_allowed() {
    let bytes = message(with("fingerprint", "f".repeat(128).into()));
    assert_eq!(decode_req(&bytes).unwrap().fingerprint.unwrap().len(), 128);
    let bytes = message(with("reason", "r".repeat(64).into()));
    assert_eq!(decode_ack(&bytes).unwrap().reason.unwrap().len(), 64);
    let bytes = message(with("extents", ints(&[1; 128])));
    assert_eq!(decode_ack(&bytes).unwrap().extents, [Extent::new(1, 1).unwrap(); 64]);
    let bytes = message(with("planes", texts(16)));
    assert!(decode_req(&bytes).unwrap().planes.is_empty());
}

/// A newer revision may know more planes and types. The wire knows one spelling of each.
#[test]
fn names_that_this_revision_does_not_know_are_as_good_as_none() {
    for name in ["warp", "SHM", ""] {
        assert_eq!(decode_ack(&message(with("plane", name.into()))).unwrap().plane, None, "{name}");
    }
    for name in ["float31", "torch.bfloat16", ""] {
        assert_eq!(decode_ack(&message(with("dtype", name.into()))).unwrap().dtype, None, "{name}");
    }
}

#[rstest]
#[case(Value::Nil, "at $.chiasm: expected map, found nil")]
#[case(Value::Array(Vec::new()), "at $.chiasm: expected map, found array")]
#[case(Value::Map(Vec::new()), "$.chiasm.rev: required field is missing")]
#[case(
    Value::Map(vec![(1.into(), 1.into())]),
    "at $.chiasm: a key must be str, found int"
)]
fn what_is_no_chiasm_map_refuses_both_messages(#[case] chiasm: Value, #[case] expected: &str) {
    let bytes = message(chiasm);
    assert_eq!(reason(&decode_req(&bytes).unwrap_err()), expected);
    assert_eq!(reason(&decode_ack(&bytes).unwrap_err()), expected);
}

#[test]
fn only_the_revision_is_required() {
    let bytes = message(Value::Map(vec![("rev".into(), 1.into())]));
    assert_eq!(decode_req(&bytes).unwrap(), ReqExtension::default());
    assert_eq!(decode_ack(&bytes).unwrap(), AckExtension::default());
}

#[test]
fn a_later_revision_is_read_and_what_it_adds_is_ignored() {
    let chiasm = Value::Map(vec![
        ("compression".into(), Value::Map(vec![(Value::Nil, Value::F32(0.5))])),
        ("rev".into(), 2.into()),
        ("attempt".into(), 3.into()),
        ("planes".into(), Value::Array(vec!["cxl".into(), "tcp".into(), "shm".into()])),
        ("tier".into(), Value::Nil),
    ]);
    let bytes = message(chiasm);
    let req = decode_req(&bytes).unwrap();
    assert_eq!((req.rev, req.attempt), (2, 3));
    assert_eq!(req.planes.iter().collect::<Vec<_>>(), [Plane::Tcp, Plane::Shm]);
    let ack = decode_ack(&bytes).unwrap();
    assert_eq!((ack.rev, ack.attempt), (2, 3));
}

#[test]
fn keys_that_the_other_message_owns_are_unknown_here() {
    let bytes = message(with("planes", 1.into()));
    assert!(decode_ack(&bytes).is_ok());
    let bytes = message(with("token", 1.into()));
    assert!(decode_req(&bytes).is_ok());
}

fn full_ack(extents: usize) -> XferAck<'static> {
    let extents = (0..u32::try_from(extents).unwrap())
        .map(|index| Extent::new(1_000_000 + 20_000 * index, 10_000).unwrap())
        .collect();
    XferAck {
        session_id: SESSION,
        chiasm: Some(AckExtension {
            epoch: u64::MAX,
            attempt: 3,
            plane: Some(Plane::Nixl),
            token: Some([0xaa; 16]),
            extents,
            dtype: Some(Dtype::Float8E8m0fnu),
            shape: Some((70_000, 70_000)),
            bytes: Some(1 << 33),
            block_size_bytes: Some(70_000),
            lease_ms: Some(30_000),
            digest: Some(Digest([0xbb; 16])),
            fingerprint: Some(HASH),
            ..AckExtension::default()
        }),
        ..XferAck::bare(HASH, AckStatus::Ok)
    }
}

/// An ack to a Chiasm peer stays under 450 bytes; upstream's has 14 MB for a
/// region of 10^6 blocks. Each further extent costs at most ten bytes.
#[test]
fn an_ack_to_a_chiasm_peer_is_small() {
    let one = full_ack(1).encode().len();
    assert!(one < 450, "{one} bytes");
    let most = full_ack(64).encode().len();
    assert_eq!((one, most), (420, 926));
    let refusal = XferAck {
        chiasm: Some(AckExtension {
            epoch: u64::MAX,
            reason: Some("draining"),
            ..AckExtension::default()
        }),
        ..XferAck::bare(HASH, AckStatus::Internal)
    };
    assert_eq!(refusal.encode().len(), 136);
}

#[test]
fn what_upstream_reads_of_a_chiasm_message_stays_the_same() {
    let ack = full_ack(1);
    let plain = XferAck { chiasm: None, ..ack.clone() };
    let (ack, plain) = (ack.encode(), plain.encode());
    // One more entry in the map, at its end.
    assert_eq!(ack[0], plain[0] + 1);
    assert!(ack[1..].starts_with(&plain[1..]));
    assert!(ack[plain.len()..].starts_with(b"\xa6chiasm"));
}
