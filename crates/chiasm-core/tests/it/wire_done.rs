//! `XferDone`: its bytes, and everything that is none.

use chiasm_core::wire::{AckLimits, DecodeError, XferAck, XferDone, XferReq};
use proptest::prelude::*;
use rmpv::Value;
use rstest::rstest;

const DONE: XferDone<'_> = XferDone { mm_hash: "ab", session_id: "s.1", attempt: 300 };

/// Written by hand from the msgpack specification.
const GOLDEN: &[u8] =
    b"\x84\xa4type\xa4done\xa7mm_hash\xa2ab\xaasession_id\xa3s.1\xa7attempt\xcd\x01\x2c";

fn message(pairs: &[(&str, Value)]) -> Vec<u8> {
    let pairs = pairs.iter().map(|(key, value)| ((*key).into(), value.clone())).collect();
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &Value::Map(pairs)).unwrap();
    bytes
}

fn whole() -> Vec<(&'static str, Value)> {
    vec![
        ("type", "done".into()),
        ("mm_hash", "ab".into()),
        ("session_id", "s.1".into()),
        ("attempt", 300.into()),
    ]
}

#[test]
fn it_has_the_documented_bytes_and_comes_back() {
    assert_eq!(DONE.encode(), GOLDEN);
    assert_eq!(XferDone::decode(GOLDEN), Ok(DONE));
    assert_eq!(message(&whole()), GOLDEN);
}

#[test]
fn it_is_neither_request_nor_ack_and_they_are_no_done() {
    let error = XferReq::decode(GOLDEN).unwrap_err().to_string();
    assert_eq!(error, "at $.type, byte 6: expected \"req\"");
    let error = XferAck::decode(GOLDEN, &AckLimits::default()).unwrap_err().to_string();
    assert_eq!(error, "at $.type, byte 6: expected \"ack\"");
    for tag in ["req", "ack", "", "DONE"] {
        let mut pairs = whole();
        pairs[0].1 = tag.into();
        let error = XferDone::decode(&message(&pairs)).unwrap_err().to_string();
        assert_eq!(error, "at $.type, byte 6: expected \"done\"");
    }
}

#[rstest]
#[case(0, "$.type: required field is missing")]
#[case(1, "$.mm_hash: required field is missing")]
#[case(2, "$.session_id: required field is missing")]
#[case(3, "$.attempt: required field is missing")]
fn every_field_is_required(#[case] without: usize, #[case] expected: &str) {
    let mut pairs = whole();
    pairs.remove(without);
    assert_eq!(XferDone::decode(&message(&pairs)).unwrap_err().to_string(), expected);
}

#[rstest]
#[case("attempt", 0.into(), "0 is outside 1..=4294967295")]
#[case("attempt", (1_u64 << 32).into(), "4294967296 is outside 0..=4294967295")]
#[case("attempt", (-1).into(), "-1 is outside 0..=4294967295")]
#[case("attempt", "1".into(), "expected int, found str")]
#[case("mm_hash", Value::Binary(vec![1]), "expected str, found bytes")]
#[case("session_id", Value::Nil, "expected str, found nil")]
fn wrong_values_are_refused(#[case] key: &str, #[case] value: Value, #[case] expected: &str) {
    let mut pairs = whole();
    pairs.iter_mut().find(|(known, _)| *known == key).unwrap().1 = value;
    let error = XferDone::decode(&message(&pairs)).unwrap_err().to_string();
    assert!(error.starts_with(&format!("at $.{key}, ")), "{error}");
    assert!(error.ends_with(expected), "{error}");
}

/// A later revision may say more, in any order.
#[test]
fn unknown_fields_are_ignored_and_the_tag_may_come_last() {
    let mut pairs = whole();
    pairs.rotate_left(1);
    pairs.insert(1, ("reason", Value::Array(vec![1.into(), Value::Nil])));
    assert_eq!(XferDone::decode(&message(&pairs)), Ok(DONE));
}

#[test]
fn every_cut_and_every_byte_too_many_is_refused() {
    for length in 0..GOLDEN.len() {
        assert!(XferDone::decode(&GOLDEN[..length]).is_err(), "{length}");
    }
    let long = [GOLDEN, b"\xc0"].concat();
    let error = XferDone::decode(&long).unwrap_err();
    assert!(matches!(error, DecodeError::Trailing { extra: 1, .. }), "{error}");
}

proptest! {
    #[test]
    fn whatever_is_written_is_read(mm_hash in ".{0,80}", session_id in ".{0,80}", attempt in 1..=u32::MAX) {
        let done = XferDone { mm_hash: &mm_hash, session_id: &session_id, attempt };
        let bytes = done.encode();
        prop_assert_eq!(XferDone::decode(&bytes), Ok(done));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..GOLDEN.len(), byte: u8) {
        let _ = XferDone::decode(&bytes);
        let mut changed = GOLDEN.to_vec();
        changed[at] = byte;
        let _ = XferDone::decode(&changed);
    }
}
