//! What is encoded is decoded again, and an independent msgpack implementation reads the same.

use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::extent::Extent;
use chiasm_core::host_hint::HostHint;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::wire::{
    AckExtension, AckLimits, AckStatus, ReqExtension, XferAck, XferReq, decode_rows,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use rmpv::Value;

/// Texts around every change of the length's form.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,40}",
        select(vec![0_usize, 1, 31, 32, 255, 256, 65_535, 65_536]).prop_map(|n| "h".repeat(n)),
    ]
}

fn int() -> impl Strategy<Value = i128> {
    prop_oneof![
        any::<u64>().prop_map(i128::from),
        any::<i64>().prop_map(i128::from),
        any::<i8>().prop_map(i128::from),
        select(vec![-129, -128, -33, -32, -1, 0, 2, 127, 128, 255, 256, 65_535, 65_536]),
        select(vec![i128::from(i64::MIN), i128::from(u64::MAX), -32_769, -2_147_483_649]),
    ]
}

fn planes() -> impl Strategy<Value = PlaneList> {
    vec(select(Plane::ALL.to_vec()), 0..4).prop_map(PlaneList::from_iter)
}

#[derive(Debug, Clone)]
struct ReqParts {
    mm_hash: String,
    compatibility_hash: String,
    session_id: String,
    connector_version: i128,
    chiasm: Option<ReqExtension<'static>>,
}

impl ReqParts {
    fn message(&self) -> XferReq<'_> {
        XferReq {
            mm_hash: &self.mm_hash,
            compatibility_hash: &self.compatibility_hash,
            session_id: &self.session_id,
            connector_version: self.connector_version,
            chiasm: self.chiasm,
        }
    }
}

prop_compose! {
    fn req_extension()(
        (rev, epoch, attempt) in (1..=u32::MAX, any::<u64>(), any::<u32>()),
        planes in planes(),
        fingerprint in option::of(select(vec!["", "f", "fingerprint of 34 bytes, str8 form"])),
        (host, agent) in any::<(Option<[u8; 16]>, u64)>(),
        region in option::of(select(vec!["", "chiasm-0123456789abcdef"])),
    ) -> ReqExtension<'static> {
        let host = host.map(HostHint);
        ReqExtension { rev, epoch, planes, attempt, fingerprint, host, region, agent }
    }
}

prop_compose! {
    fn req_parts()(
        mm_hash in text(),
        compatibility_hash in text(),
        session_id in text(),
        connector_version in int(),
        chiasm in option::of(req_extension()),
    ) -> ReqParts {
        ReqParts { mm_hash, compatibility_hash, session_id, connector_version, chiasm }
    }
}

prop_compose! {
    fn extent()(first in any::<u32>(), count in 1..=u32::MAX) -> Extent {
        Extent::new(first, count.min(u32::MAX - first).max(1))
            .unwrap_or_else(|| Extent::new(0, count).unwrap())
    }
}

#[derive(Debug, Clone)]
struct AckParts {
    mm_hash: String,
    status: AckStatus,
    session_id: String,
    indices: Vec<u64>,
    agent_metadata: Vec<u8>,
    mem_descriptor: Vec<u8>,
    chiasm: Option<AckExtension<'static>>,
}

impl AckParts {
    fn message(&self) -> XferAck<'_> {
        XferAck {
            mm_hash: &self.mm_hash,
            status: self.status,
            session_id: &self.session_id,
            src_block_indices: self.indices.clone(),
            agent_metadata: &self.agent_metadata,
            mem_descriptor: &self.mem_descriptor,
            chiasm: self.chiasm.clone(),
        }
    }
}

prop_compose! {
    fn ack_extension()(
        (rev, epoch, attempt) in (1..=u32::MAX, any::<u64>(), any::<u32>()),
        (plane, token) in (option::of(select(Plane::ALL.to_vec())), any::<Option<[u8; 16]>>()),
        extents in vec(extent(), 0..=64),
        dtype in option::of(select(Dtype::ALL.to_vec())),
        (shape, bytes) in (any::<Option<(u32, u32)>>(), any::<Option<u64>>()),
        (block_size_bytes, lease_ms) in (any::<Option<u64>>(), any::<Option<u64>>()),
        digest in any::<Option<[u8; 16]>>(),
        fingerprint in option::of(select(vec!["", "f", "fingerprint of 34 bytes, str8 form"])),
        reason in option::of(select(vec!["", "no_plane", "quota", "draining"])),
        region in option::of(select(vec!["", "chiasm-0123456789abcdef"])),
        (agent, base, region_blocks) in any::<(u64, u64, u32)>(),
    ) -> AckExtension<'static> {
        let digest = digest.map(Digest);
        AckExtension {
            rev, epoch, attempt, plane, token, extents, dtype, shape, bytes, block_size_bytes,
            lease_ms, digest, fingerprint, reason, region, agent, base, region_blocks,
        }
    }
}

prop_compose! {
    fn ack_parts()(
        mm_hash in text(),
        status in select(AckStatus::ALL.to_vec()),
        session_id in text(),
        indices in vec(any::<u64>(), 0..40),
        agent_metadata in vec(any::<u8>(), 0..400),
        mem_descriptor in vec(any::<u8>(), 0..40),
        chiasm in option::of(ack_extension()),
    ) -> AckParts {
        AckParts { mm_hash, status, session_id, indices, agent_metadata, mem_descriptor, chiasm }
    }
}

/// The pairs of a map, as an independent implementation reads them; it must use up all bytes.
fn independent_pairs(mut bytes: &[u8]) -> Vec<(String, Value)> {
    let value = rmpv::decode::read_value(&mut bytes).unwrap();
    assert!(bytes.is_empty(), "bytes after the message");
    let Value::Map(pairs) = value else { panic!("no map: {value}") };
    pairs.into_iter().map(|(key, value)| (key.as_str().unwrap().to_owned(), value)).collect()
}

fn independent_bytes(pairs: &[(String, Value)]) -> Vec<u8> {
    let map = pairs.iter().map(|(key, value)| (Value::from(key.as_str()), value.clone())).collect();
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &Value::Map(map)).unwrap();
    bytes
}

fn value_of<'a>(pairs: &'a [(String, Value)], key: &str) -> Option<&'a Value> {
    pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value)
}

fn as_i128(value: &Value) -> i128 {
    value.as_u64().map(i128::from).or_else(|| value.as_i64().map(i128::from)).unwrap()
}

proptest! {
    #[test]
    fn a_request_comes_back_and_others_read_the_same(parts in req_parts()) {
        let message = parts.message();
        let bytes = message.encode();
        prop_assert_eq!(&XferReq::decode(&bytes).unwrap(), &message);

        let pairs = independent_pairs(&bytes);
        prop_assert_eq!(pairs[0].clone(), ("type".to_owned(), Value::from("req")));
        prop_assert_eq!(value_of(&pairs, "mm_hash").unwrap().as_str(), Some(message.mm_hash));
        let version = value_of(&pairs, "connector_version").map_or(2, as_i128);
        prop_assert_eq!(version, message.connector_version);
        // Both always choose the shortest form.
        prop_assert_eq!(independent_bytes(&pairs), bytes);
    }

    #[test]
    fn an_ack_comes_back_and_others_read_the_same(parts in ack_parts()) {
        let message = parts.message();
        let bytes = message.encode();
        prop_assert_eq!(&XferAck::decode(&bytes, &AckLimits::default()).unwrap(), &message);

        let pairs = independent_pairs(&bytes);
        prop_assert_eq!(pairs[0].clone(), ("type".to_owned(), Value::from("ack")));
        let indices: Vec<u64> = value_of(&pairs, "src_block_indices")
            .map(|list| list.as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect())
            .unwrap_or_default();
        prop_assert_eq!(indices, message.src_block_indices);
        prop_assert_eq!(independent_bytes(&pairs), bytes);
    }

    #[test]
    fn the_order_of_fields_does_not_matter(
        parts in ack_parts(),
        order in vec(any::<u64>(), 7),
    ) {
        let message = parts.message();
        let mut pairs = independent_pairs(&message.encode());
        let mut ranks = order.into_iter().cycle();
        pairs.sort_by_cached_key(|_| ranks.next());
        let bytes = independent_bytes(&pairs);
        prop_assert_eq!(&XferAck::decode(&bytes, &AckLimits::default()).unwrap(), &message);
    }

    #[test]
    fn a_missing_tag_is_accepted_and_the_last_of_two_values_counts(
        parts in req_parts(),
        other in "[a-z]{0,40}",
    ) {
        let message = parts.message();
        let mut pairs = independent_pairs(&message.encode());
        pairs.remove(0);
        pairs.insert(0, ("mm_hash".to_owned(), Value::from(other.as_str())));
        let bytes = independent_bytes(&pairs);
        prop_assert_eq!(&XferReq::decode(&bytes).unwrap(), &message);

        pairs.push(("mm_hash".to_owned(), Value::from(other.as_str())));
        let bytes = independent_bytes(&pairs);
        prop_assert_eq!(XferReq::decode(&bytes).unwrap().mm_hash, other.as_str());
    }

    #[test]
    fn descriptor_rows_are_read_as_others_write_them(rows in vec(any::<[u64; 3]>(), 0..40)) {
        let list = rows.iter().map(|row| row.iter().copied().map(Value::from).collect()).collect();
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &Value::Array(list)).unwrap();
        let read: Vec<[u64; 3]> = decode_rows(&bytes)
            .unwrap()
            .map(|row| row.unwrap())
            .map(|row| [row.addr, row.len, row.device_id])
            .collect();
        prop_assert_eq!(read, rows);
    }
}

#[test]
fn a_version_outside_msgpack_is_written_as_the_nearer_end() {
    let mut req = XferReq {
        mm_hash: "a",
        compatibility_hash: "b",
        session_id: "",
        connector_version: i128::MAX,
        chiasm: None,
    };
    assert_eq!(XferReq::decode(&req.encode()).unwrap().connector_version, i128::from(u64::MAX));
    req.connector_version = i128::MIN;
    assert_eq!(XferReq::decode(&req.encode()).unwrap().connector_version, i128::from(i64::MIN));
}
