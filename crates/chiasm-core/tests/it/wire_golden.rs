//! The codec against every recorded message: same verdicts, same values, same bytes.

use std::fmt::Write as _;
use std::fs;

use chiasm_core::wire::{
    AckLimits, DescriptorRow, Progression, XferAck, XferReq, decode_progression, decode_rows,
    encode_rows,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::wire_vectors::{self, Vector};

/// Lists up to this length are shown whole in the manifest.
const SHOWN_WHOLE: usize = 64;

/// Decodes and gives the value in the manifest's form, together with what our encoder makes of it.
fn decode(vector: &Vector) -> Result<(Value, Vec<u8>), String> {
    match vector.kind.as_str() {
        "req" => {
            let req = XferReq::decode(&vector.bytes).map_err(|error| error.to_string())?;
            Ok((req_value(&req), req.encode()))
        }
        "ack" => {
            let ack = XferAck::decode(&vector.bytes, &AckLimits::default())
                .map_err(|error| error.to_string())?;
            Ok((ack_value(&ack), ack.encode()))
        }
        "memdesc" => {
            let rows = decode_rows(&vector.bytes)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| error.to_string())?;
            Ok((rows_value(&rows), encode_rows(&rows)))
        }
        other => panic!("{}: unknown kind {other}", vector.name),
    }
}

fn req_value(req: &XferReq<'_>) -> Value {
    json!({
        "mm_hash": req.mm_hash,
        "compatibility_hash": req.compatibility_hash,
        "session_id": req.session_id,
        "connector_version": i64::try_from(req.connector_version).unwrap(),
    })
}

fn ack_value(ack: &XferAck<'_>) -> Value {
    json!({
        "mm_hash": ack.mm_hash,
        "status": ack.status.code(),
        "session_id": ack.session_id,
        "src_block_indices": ints_value(&ack.src_block_indices),
        "agent_metadata": bytes_value(ack.agent_metadata),
        "mem_descriptor": bytes_value(ack.mem_descriptor),
    })
}

fn ints_value(ints: &[u64]) -> Value {
    if ints.len() <= SHOWN_WHOLE {
        return json!(ints);
    }
    let sum: u64 = ints.iter().sum();
    json!({ "ints": ints.len(), "first": ints.first(), "last": ints.last(), "sum": sum })
}

fn bytes_value(bytes: &[u8]) -> Value {
    let sha256 = Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    json!({ "bin_len": bytes.len(), "bin_sha256": sha256 })
}

fn rows_value(rows: &[DescriptorRow]) -> Value {
    let row = |row: &DescriptorRow| json!([row.addr, row.len, row.device_id]);
    if rows.len() <= SHOWN_WHOLE {
        return rows.iter().map(row).collect();
    }
    json!({
        "rows": rows.len(),
        "first": rows.first().map(row),
        "last": rows.last().map(row),
    })
}

#[test]
fn every_recorded_message_gets_upstreams_verdict_and_value() {
    let vectors = wire_vectors::all();
    assert_eq!(vectors.len(), 60);
    for vector in &vectors {
        match (decode(vector), &vector.value) {
            (Ok((value, _)), Some(expected)) => assert_eq!(value, *expected, "{}", vector.name),
            (Err(_), None) => {}
            (Ok(_), None) => panic!("{}: accepted, upstream refuses it", vector.name),
            (Err(error), Some(_)) => panic!("{}: {error}", vector.name),
        }
    }
}

#[test]
fn what_upstreams_encoder_made_ours_makes_byte_for_byte() {
    let mut encoded = 0;
    for vector in wire_vectors::all().iter().filter(|vector| vector.from_encoder) {
        let (_, bytes) = decode(vector).unwrap();
        assert!(bytes == vector.bytes, "{}: other bytes", vector.name);
        encoded += 1;
    }
    assert_eq!(encoded, 19);
}

#[test]
fn every_recorded_file_is_in_the_manifest() {
    let vectors = wire_vectors::all();
    let files = fs::read_dir(wire_vectors::directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "hex"));
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert!(vectors.iter().any(|vector| vector.name == name), "{name} is in no row");
    }
}

#[test]
fn recorded_regions_are_progressions_and_come_back_byte_for_byte() {
    for (name, count) in [("memdesc_3", 3), ("memdesc_1000", 1000)] {
        let bytes = wire_vectors::named(name);
        let region = decode_progression(&bytes, 1000).unwrap();
        let expected = Progression::new(139_637_976_727_552, 65_536, 65_536, count, 0).unwrap();
        assert_eq!(region, expected, "{name}");
        assert!(region.encode() == bytes, "{name}: other bytes");
    }
}

/// The places where we refuse what msgspec takes. `bomb_nested_100k` is the third: msgspec refuses
/// it too, but only by running into Python's recursion limit (see the hostile inputs).
#[test]
fn stricter_than_upstream_negative_indices_and_descriptors_are_refused() {
    let ack = wire_vectors::from_hex(concat!(
        "84a474797065a361636ba76d6d5f68617368a168a673746174757300",
        "b17372635f626c6f636b5f696e6469636573", // src_block_indices
        "92",
        "00",
        "ff", // [0, -1]
    ));
    let error = XferAck::decode(&ack, &AckLimits::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "at $.src_block_indices[1], byte 48: -1 is outside 0..=18446744073709551615"
    );

    let rows = wire_vectors::from_hex("919300ff00");
    let error = decode_rows(&rows).unwrap().next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "at $[0][1], byte 3: -1 is outside 0..=18446744073709551615");
}
