//! Messages that upstream's own encoder and decoder have judged: `testdata/wire`.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

/// One row of the manifest and its bytes.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) from_encoder: bool,
    /// The decoded value; `None` where the message is refused.
    pub(crate) value: Option<Value>,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/wire")
}

pub(crate) fn all() -> Vec<Vector> {
    let manifest = fs::read_to_string(directory().join("manifest.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&manifest).unwrap();
    rows.iter().map(load).collect()
}

pub(crate) fn named(name: &str) -> Vec<u8> {
    all().into_iter().find(|vector| vector.name == name).unwrap().bytes
}

fn load(row: &Value) -> Vector {
    let name = row["name"].as_str().unwrap().to_owned();
    let hex = fs::read_to_string(directory().join(format!("{name}.hex"))).unwrap();
    let bytes = from_hex(hex.trim());
    assert_eq!(row["bytes"].as_u64(), Some(bytes.len() as u64), "{name}");
    Vector {
        kind: row["kind"].as_str().unwrap().to_owned(),
        from_encoder: match row["source"].as_str().unwrap() {
            "encoder" => true,
            "crafted" => false,
            other => panic!("{name}: unknown source {other}"),
        },
        value: match row["expect"].as_str().unwrap() {
            "ok" => Some(row["value"].clone()),
            "reject" => None,
            other => panic!("{name}: unknown verdict {other}"),
        },
        name,
        bytes,
    }
}

pub(crate) fn from_hex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "half a byte");
    let digits: Vec<char> = hex.chars().collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap())
        .collect()
}
