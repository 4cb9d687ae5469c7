//! Metadata as hostile input: only a whole blob is let through.

use chiasm_nixl::{AgentMetadata, MAX_AGENT_NAME_BYTES, MAX_METADATA_BYTES, MetadataError, Span};
use proptest::prelude::*;

/// A blob as NIXL 1.5.1 lays it out.
struct Blob {
    name: Vec<u8>,
    connections: Vec<(&'static str, Vec<u8>)>,
    sections: Vec<(&'static str, u32, Vec<Range>)>,
}

/// Address, length and key.
type Range = (u64, u64, Vec<u8>);

fn blob_for_test() -> Blob {
    Blob {
        name: b"encoder-0_dp0".to_vec(),
        connections: vec![("UCX", vec![0x7C; 213])],
        sections: vec![("UCX", 0, vec![(0x7F00_0000_0000, 1 << 20, vec![0xA5; 11])])],
    }
}

fn field(tag: &str, value: &[u8]) -> Vec<u8> {
    let mut field = tag.as_bytes().to_vec();
    field.extend_from_slice(&(value.len() as u64).to_le_bytes());
    field.extend_from_slice(value);
    field.push(b'|');
    field
}

fn count(tag: &str, count: usize) -> Vec<u8> {
    field(tag, &(count as u64).to_le_bytes())
}

impl Blob {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"nixlSerDes|".to_vec();
        bytes.extend(field("Agent", &self.name));
        bytes.extend(count("Conns", self.connections.len()));
        for (backend, address) in &self.connections {
            bytes.extend(field("t", backend.as_bytes()));
            bytes.extend(field("c", address));
        }
        bytes.extend(field("", b"MemSection"));
        bytes.extend(count("nixlSecElms", self.sections.len()));
        for (backend, kind, ranges) in &self.sections {
            bytes.extend(field("bknd", backend.as_bytes()));
            bytes.extend(field("nixlDList", b"nixlSDList"));
            bytes.extend(field("t", &kind.to_le_bytes()));
            bytes.extend(count("n", ranges.len()));
            for (address, len, key) in ranges {
                let mut range = Vec::new();
                for number in [*address, *len, 0] {
                    range.extend_from_slice(&number.to_le_bytes());
                }
                range.extend_from_slice(key);
                bytes.extend(field("", &range));
            }
        }
        bytes
    }

    fn parse(&self) -> Result<AgentMetadata, MetadataError> {
        AgentMetadata::parse(&self.bytes())
    }
}

#[test]
fn a_whole_blob_says_who_it_is_and_what_is_registered() {
    let metadata = blob_for_test().parse().unwrap();
    assert_eq!(metadata.agent_name(), "encoder-0_dp0");
    assert_eq!(metadata.backends(), ["UCX"]);
    let range = Span { address: 0x7F00_0000_0000, bytes: 1 << 20 };
    assert_eq!(metadata.ranges(), [range]);
    assert!(metadata.holds(range));
    assert!(metadata.holds(Span { address: range.address + 1, bytes: range.bytes - 1 }));
    assert!(!metadata.holds(Span { address: range.address + 1, bytes: range.bytes }));
    assert!(!metadata.holds(Span { address: range.address - 1, bytes: 1 }));
    assert!(!metadata.holds(Span { address: range.address, bytes: u64::MAX }));
}

#[test]
fn memory_of_a_gpu_is_not_ours_to_read() {
    let mut blob = blob_for_test();
    blob.sections[0].1 = 1;
    let metadata = blob.parse().unwrap();
    assert_eq!(metadata.ranges(), []);
}

#[test]
fn two_adjacent_ranges_are_not_one() {
    let mut blob = blob_for_test();
    blob.sections[0].2 = vec![(4096, 4096, vec![]), (8192, 4096, vec![])];
    let metadata = blob.parse().unwrap();
    assert!(metadata.holds(Span { address: 4096, bytes: 4096 }));
    assert!(!metadata.holds(Span { address: 4096, bytes: 8192 }), "each has a key of its own");
}

#[test]
fn every_truncation_and_every_addition_is_refused() {
    let bytes = blob_for_test().bytes();
    for len in 0..bytes.len() {
        assert!(AgentMetadata::parse(&bytes[..len]).is_err(), "{len} bytes of {}", bytes.len());
    }
    let mut longer = bytes;
    longer.push(b'|');
    let at = longer.len() - 1;
    assert_eq!(
        AgentMetadata::parse(&longer),
        Err(MetadataError::Malformed { what: "its end", at })
    );
}

#[test]
fn a_range_that_wraps_around_is_refused() {
    let mut blob = blob_for_test();
    for (address, bytes) in [(1, u64::MAX), (u64::MAX, 1), (u64::MAX - 4095, 4096)] {
        blob.sections[0].2[0] = (address, bytes, vec![]);
        assert_eq!(blob.parse(), Err(MetadataError::Wraps { address, bytes }));
    }
    blob.sections[0].2[0] = (u64::MAX - 4096, 4096, vec![]);
    assert!(blob.parse().is_ok(), "it ends at the last address there is");
}

#[test]
fn names_that_are_not_printable_or_too_long_are_refused() {
    let mut blob = blob_for_test();
    for name in [vec![], b"a\0b".to_vec(), "\u{e9}".into(), vec![b'a'; MAX_AGENT_NAME_BYTES + 1]] {
        blob.name = name;
        assert_eq!(blob.parse(), Err(MetadataError::Name));
    }
    blob.name = vec![b'a'; MAX_AGENT_NAME_BYTES];
    assert!(blob.parse().is_ok());
}

#[test]
fn more_parts_than_any_agent_has_are_refused() {
    let mut blob = blob_for_test();
    blob.sections[0].2 = vec![(4096, 1, vec![]); 64];
    assert_eq!(blob.parse().unwrap().ranges().len(), 64);
    blob.sections[0].2.push((4096, 1, vec![]));
    assert_eq!(blob.parse(), Err(MetadataError::TooMany { what: "ranges", count: 65 }));
    let mut blob = blob_for_test();
    blob.connections = vec![("UCX", vec![]); 65];
    assert_eq!(blob.parse(), Err(MetadataError::TooMany { what: "connections", count: 65 }));
    let mut blob = blob_for_test();
    blob.connections[0].1 = vec![0; MAX_METADATA_BYTES];
    assert!(matches!(blob.parse(), Err(MetadataError::TooLong { .. })));
}

proptest! {
    #[test]
    fn no_damage_panics_or_lets_a_wrapping_range_through(
        at in 0_usize..500,
        by in proptest::collection::vec(any::<u8>(), 1..9),
    ) {
        let mut bytes = blob_for_test().bytes();
        let at = at % bytes.len();
        let end = (at + by.len()).min(bytes.len());
        bytes[at..end].copy_from_slice(&by[..end - at]);
        if let Ok(metadata) = AgentMetadata::parse(&bytes) {
            prop_assert!(metadata.ranges().iter().all(|range| range.end().is_some()));
            prop_assert!(!metadata.agent_name().is_empty());
        }
    }

    #[test]
    fn nonsense_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(AgentMetadata::parse(&bytes).is_err());
        let mut begun = b"nixlSerDes|Agent".to_vec();
        begun.extend_from_slice(&bytes);
        prop_assert!(AgentMetadata::parse(&begun).is_err());
    }

    #[test]
    fn the_opaque_parts_may_be_anything(
        address in proptest::collection::vec(any::<u8>(), 0..600),
        key in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut blob = blob_for_test();
        blob.connections[0].1 = address;
        blob.sections[0].2[0].2 = key;
        prop_assert!(blob.parse().is_ok());
    }
}
