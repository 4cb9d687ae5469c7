//! Bytes from a peer that lies, is broken, or speaks a later version.

use std::sync::LazyLock;

use chiasm_core::wire::{
    AckLimits, DecodeError, XferAck, XferReq, decode_progression, decode_rows,
};
use proptest::collection::vec;
use proptest::prelude::*;
use rmpv::Value;
use rstest::rstest;

use crate::wire_vectors;

fn packed(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes
}

fn map(pairs: Vec<(Value, Value)>) -> Vec<u8> {
    packed(&Value::Map(pairs))
}

fn req_with(extra: Vec<(Value, Value)>) -> Vec<u8> {
    let mut pairs = vec![
        ("type".into(), "req".into()),
        ("mm_hash".into(), "h".into()),
        ("compatibility_hash".into(), "c".into()),
    ];
    pairs.extend(extra);
    map(pairs)
}

fn ack_with(extra: Vec<(Value, Value)>) -> Vec<u8> {
    let mut pairs = vec![
        ("type".into(), "ack".into()),
        ("mm_hash".into(), "h".into()),
        ("status".into(), 0.into()),
    ];
    pairs.extend(extra);
    map(pairs)
}

fn ack(bytes: &[u8]) -> Result<XferAck<'_>, DecodeError> {
    XferAck::decode(bytes, &AckLimits::default())
}

fn nested(levels: usize) -> Value {
    (1..levels).fold(Value::Array(Vec::new()), |inner, _| Value::Array(vec![inner]))
}

#[rstest]
#[case::empty("", "at $, byte 0: the message ends inside this value")]
#[case::nil("c0", "at $, byte 0: expected map, found nil")]
#[case::array("93a16101c3", "at $, byte 0: expected map, found array")]
#[case::reserved("c1", "at $, byte 0: 0xc1 starts no msgpack value")]
#[case::int_key("8101a161", "at $, byte 1: a key must be str, found int")]
#[case::bin_key("81c40161a161", "at $, byte 1: a key must be str, found bytes")]
#[case::nothing_in_it("80", "$.mm_hash: required field is missing")]
#[case::wrong_tag("81a474797065a361636b", "at $.type, byte 6: expected \"req\"")]
#[case::tag_of_other_type("81a47479706501", "at $.type, byte 6: expected str, found int")]
#[case::bool_for_text("81a76d6d5f68617368c3", "at $.mm_hash, byte 9: expected str, found bool")]
#[case::bytes_for_text(
    "81a76d6d5f68617368c40161",
    "at $.mm_hash, byte 9: expected str, found bytes"
)]
#[case::surrogate("81a76d6d5f68617368a3eda080", "at $.mm_hash, byte 9: str is not valid UTF-8")]
#[case::cut_text(
    "81a76d6d5f68617368a56162",
    "at $.mm_hash, byte 10: the message ends inside this value"
)]
fn a_refusal_says_what_and_where(#[case] hex: &str, #[case] message: &str) {
    let error = XferReq::decode(&wire_vectors::from_hex(hex)).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn bytes_after_a_message_are_counted() {
    let mut bytes = req_with(Vec::new());
    let length = bytes.len();
    bytes.extend([0xc0, 0xc0]);
    assert_eq!(XferReq::decode(&bytes), Err(DecodeError::Trailing { offset: length, extra: 2 }));
}

#[rstest]
#[case::too_large_for_the_receiver(5, false)]
#[case::as_large_as_the_receiver_takes(4, true)]
fn the_number_of_blocks_is_bounded_by_the_receiver(#[case] blocks: u64, #[case] accepted: bool) {
    let list = Value::Array((0..blocks).map(Value::from).collect());
    let bytes = ack_with(vec![("src_block_indices".into(), list)]);
    let outcome = XferAck::decode(&bytes, &AckLimits { max_blocks: 4 });
    assert_eq!(outcome.is_ok(), accepted);
    if let Err(error) = outcome {
        assert_eq!(
            error.to_string(),
            "at $.src_block_indices, byte 46: 5 blocks, allowed: at most 4"
        );
    }
}

#[test]
fn an_unknown_status_names_its_transfer() {
    for status in [-1_i64, 6, i64::MAX] {
        let bytes =
            map(vec![("mm_hash".into(), "some hash".into()), ("status".into(), status.into())]);
        let Err(DecodeError::UnknownStatus { mm_hash, status: found, attempt }) = ack(&bytes)
        else {
            panic!("{:?}", ack(&bytes));
        };
        assert_eq!(mm_hash.unwrap().as_str(), "some hash");
        assert_eq!((found, attempt), (i128::from(status), None));
    }
    let chiasm = Value::Map(vec![("rev".into(), 2.into()), ("attempt".into(), 7.into())]);
    let bytes = map(vec![
        ("mm_hash".into(), "h".into()),
        ("status".into(), 9.into()),
        ("chiasm".into(), chiasm),
    ]);
    assert!(matches!(ack(&bytes), Err(DecodeError::UnknownStatus { attempt: Some(7), .. })));
}

/// Found by comparing with msgspec: the last of two values counts, but only if the first was valid.
#[test]
fn an_unknown_status_is_not_made_good_by_a_later_one() {
    let bytes = map(vec![
        ("mm_hash".into(), "h".into()),
        ("status".into(), (-128).into()),
        ("status".into(), 2.into()),
    ]);
    assert!(matches!(ack(&bytes), Err(DecodeError::UnknownStatus { status: -128, .. })));
}

#[test]
fn an_unknown_status_of_a_hash_that_nobody_can_have_asked_for_carries_none() {
    for hash in [String::new(), "h".repeat(1025)] {
        let bytes = map(vec![("mm_hash".into(), hash.into()), ("status".into(), 6.into())]);
        assert!(matches!(ack(&bytes), Err(DecodeError::UnknownStatus { mm_hash: None, .. })));
    }
}

#[test]
fn unknown_fields_are_skipped_whatever_they_hold() {
    let extra = vec![
        ("nil".into(), Value::Nil),
        ("yes".into(), true.into()),
        ("float".into(), Value::F32(1.5)),
        ("double".into(), Value::F64(1.5)),
        ("negative".into(), (-70_000).into()),
        ("bytes".into(), Value::Binary(vec![0xc1; 300])),
        ("ext".into(), Value::Ext(-1, vec![0; 4])),
        ("long ext".into(), Value::Ext(5, vec![0; 70_000])),
        ("map".into(), Value::Map(vec![(1.into(), Value::Nil), (Value::Nil, nested(5))])),
        ("last".into(), Value::Array(vec![Value::Array(Vec::new()), "x".into(), nested(63)])),
        ("session_id".into(), "s".into()),
    ];
    let bytes = req_with(extra);
    assert_eq!(XferReq::decode(&bytes).unwrap().session_id, "s");
}

#[test]
fn unknown_fields_may_nest_64_levels_and_no_more() {
    let bytes = req_with(vec![("x".into(), nested(64))]);
    assert!(XferReq::decode(&bytes).is_ok());
    let bytes = req_with(vec![("x".into(), nested(65))]);
    let error = XferReq::decode(&bytes).unwrap_err();
    assert!(matches!(error, DecodeError::Nesting { .. }), "{error}");
    let maps = (1..65).fold(Value::Map(Vec::new()), |inner, _| Value::Map(vec![(1.into(), inner)]));
    let bytes = req_with(vec![("x".into(), maps)]);
    assert!(matches!(XferReq::decode(&bytes), Err(DecodeError::Nesting { .. })));
    let bytes = wire_vectors::named("bomb_nested_100k");
    assert!(matches!(XferReq::decode(&bytes), Err(DecodeError::Nesting { .. })));
}

#[test]
fn an_unknown_key_need_not_be_utf8() {
    let bytes = wire_vectors::from_hex(
        "83a2fffe01a76d6d5f68617368a168b2636f6d7061746962696c6974795f68617368a163",
    );
    assert_eq!(XferReq::decode(&bytes).unwrap().mm_hash, "h");
}

/// Every message that is cut short is refused: no length is believed without its bytes.
#[test]
fn every_cut_of_every_small_message_is_refused() {
    for vector in wire_vectors::all() {
        if vector.value.is_none() || vector.bytes.len() > 20_000 {
            continue;
        }
        for length in 0..vector.bytes.len() {
            let cut = &vector.bytes[..length];
            let accepted = match vector.kind.as_str() {
                "req" => XferReq::decode(cut).is_ok(),
                "ack" => ack(cut).is_ok(),
                _ => decode_progression(cut, 1000).is_ok(),
            };
            assert!(!accepted, "{}: {length} bytes are enough", vector.name);
        }
    }
}

/// Reads `bytes` as everything. What is accepted must be msgpack to others too, and must survive
/// its own encoding.
fn judge(bytes: &[u8]) {
    let is_msgpack = || {
        let mut rest = bytes;
        rmpv::decode::read_value_ref(&mut rest).is_ok() && rest.is_empty()
    };
    if let Ok(req) = XferReq::decode(bytes) {
        assert!(is_msgpack());
        assert_eq!(XferReq::decode(&req.encode()).as_ref(), Ok(&req));
    }
    if let Ok(accepted) = ack(bytes) {
        assert!(is_msgpack());
        assert_eq!(ack(&accepted.encode()).as_ref(), Ok(&accepted));
    }
    if let Ok(region) = decode_progression(bytes, u32::MAX) {
        assert!(is_msgpack());
        assert_eq!(decode_progression(&region.encode(), u32::MAX), Ok(region));
    }
    if let Ok(rows) = decode_rows(bytes) {
        let announced = rows.announced();
        assert!(rows.count() <= announced + 1);
    }
}

static SMALL_VECTORS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let all = wire_vectors::all().into_iter().map(|vector| vector.bytes);
    all.filter(|bytes| !bytes.is_empty() && bytes.len() < 1000).collect()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_bytes_are_refused_or_understood(bytes in vec(any::<u8>(), 0..200)) {
        judge(&bytes);
    }

    #[test]
    fn changed_messages_are_refused_or_understood(
        index in any::<prop::sample::Index>(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in option_index(),
        grafted in vec(any::<u8>(), 0..8),
    ) {
        let mut bytes = index.get(&SMALL_VECTORS).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            let at = cut.index(bytes.len());
            bytes.splice(at..at, grafted);
        }
        judge(&bytes);
    }
}

fn option_index() -> impl Strategy<Value = Option<prop::sample::Index>> {
    proptest::option::of(any::<prop::sample::Index>())
}
