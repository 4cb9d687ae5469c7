//! An entry goes from one node to another.

use std::time::Duration;

use chiasm_core::allowlist::Allowlist;
use chiasm_core::consumer::Wanted;
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::ListenAddress;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_node::{Node, NodeConfig};

fn bytes_for_test(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&next());
    }
    bytes.truncate(length);
    bytes
}

fn producer_for_test() -> Node {
    let mut config = NodeConfig::new(64 << 20);
    config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
    Node::start(&config).unwrap()
}

#[test]
fn an_entry_arrives_with_identical_bytes() {
    let producer = producer_for_test();
    let endpoint = producer.endpoint().unwrap().clone();
    let mut config = NodeConfig::new(64 << 20);
    config.allowed = Allowlist::parse([endpoint.to_string().as_str()]).unwrap();
    let consumer = Node::start(&config).unwrap();

    for (name, rows, width) in [("small", 16, 128), ("odd", 7, 13), ("large", 1000, 7168)] {
        let hash = MmHash::new(name).unwrap();
        let meta = EntryMeta::new(rows, width, Dtype::Float32).unwrap();
        let bytes = bytes_for_test(usize::try_from(meta.bytes).unwrap(), u64::from(rows));
        let mut saving = producer.reserve(&hash, meta).unwrap();
        saving.write(&bytes).unwrap();
        saving.finish().unwrap();

        let offer = producer.announce(name).unwrap();
        let blocks = u32::try_from(offer.size_bytes / 4096).unwrap();
        let wanted = Wanted { hash, source: offer.source, rows, width, blocks, dtype: None };
        let id = consumer.fetch(wanted).unwrap();
        let finished = consumer.wait_any(&[id], Duration::from_secs(10)).expect("it ends");
        let loaded = consumer.load(&finished).unwrap_or_else(|| panic!("{:?}", finished.outcome));
        assert_eq!(*loaded.meta(), meta);
        let mut landed = vec![0; bytes.len()];
        loaded.read(0, &mut landed).unwrap();
        assert!(landed == bytes, "{name}: bytes differ");
    }
    assert_eq!(producer.live_grants(), 0);
    assert_eq!(producer.producer_counters().completed, 3);
}
