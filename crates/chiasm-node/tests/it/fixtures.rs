//! Nodes, entries and fetches for the tests of this crate.

use std::time::{Duration, Instant};

use chiasm_core::admission::{Decision, Item, Verdict};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::{Announcement, Expectation, RemoteAnnouncement};
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::{Endpoint, ListenAddress};
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_node::{Node, NodeConfig};

/// Blocks of a node for tests: 32 MiB.
pub(crate) const BLOCKS: u32 = 8192;

/// How long anything here may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes that look random and depend on `seed` alone.
pub(crate) fn bytes_for_test(length: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(usize::try_from(length).unwrap()).collect()
}

pub(crate) fn config_for_test() -> NodeConfig {
    NodeConfig::new(u64::from(BLOCKS) * 4096)
}

/// A node that serves on a port of the system's choice.
pub(crate) fn producer_for_test() -> Node {
    let mut config = config_for_test();
    config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
    Node::start(&config).unwrap()
}

/// A node that may read from these endpoints.
pub(crate) fn consumer_for_test(allowed: &[&Endpoint]) -> Node {
    let mut config = config_for_test();
    config.allowed = allow(allowed);
    Node::start(&config).unwrap()
}

pub(crate) fn allow(endpoints: &[&Endpoint]) -> Allowlist {
    let texts: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
    Allowlist::parse(texts.iter().map(String::as_str)).unwrap()
}

/// Saves an entry of this shape and gives its bytes.
pub(crate) fn save_for_test(node: &Node, hash: &str, rows: u32, width: u32) -> Vec<u8> {
    let meta = EntryMeta::new(rows, width, Dtype::Float32).unwrap();
    let bytes = bytes_for_test(meta.bytes, u64::from(rows) * 1000 + u64::from(width));
    let mut saving = node.reserve(&MmHash::new(hash).unwrap(), meta).unwrap();
    saving.write(&bytes).unwrap();
    saving.finish().unwrap();
    bytes
}

/// One item without local input, as announced.
pub(crate) fn item_for_test(hash: &str, offer: RemoteAnnouncement) -> Item {
    let expected = Expectation {
        rows: None,
        width: None,
        dtype: None,
        block_size_bytes: 4096,
        region_blocks: BLOCKS,
    };
    let announcement = Ok(Announcement::Remote(offer));
    Item::new(MmHash::new(hash).unwrap(), 1, false, Some(&announcement), &expected)
}

/// One item that is in this node's region already, without local input.
pub(crate) fn item_for_local_test(hash: &str) -> Item {
    let expected = Expectation {
        rows: None,
        width: None,
        dtype: None,
        block_size_bytes: 4096,
        region_blocks: BLOCKS,
    };
    Item::new(MmHash::new(hash).unwrap(), 1, false, None, &expected)
}

/// Asks until the request is decided.
pub(crate) fn decide(node: &Node, id: &str, items: usize) -> Decision {
    let end = Instant::now() + PATIENCE;
    loop {
        let news = node.news();
        let decision = node.ensure(id, items, 0).expect("the request is tracked");
        if decision != Decision::Wait {
            return decision;
        }
        assert!(Instant::now() < end, "{id} is not decided within {PATIENCE:?}");
        node.wait(news, Duration::from_millis(100));
    }
}

/// What a fetch of one item came to: its bytes, or the word of its failure.
pub(crate) fn fetch(
    node: &Node,
    hash: &str,
    offer: RemoteAnnouncement,
) -> Result<Vec<u8>, &'static str> {
    node.track(hash, vec![item_for_test(hash, offer)]).unwrap();
    let decision = decide(node, hash, 1);
    let words = node.report(hash, |item| {
        assert!(matches!(item.verdict, Verdict::Ready | Verdict::Unavailable));
        item.reason.map(chiasm_core::admission::Reason::word)
    });
    let result = match words.as_slice() {
        [None] => {
            assert_eq!(decision, Decision::Ready);
            let loaded = node.load(hash).expect("a ready item is promised");
            let mut bytes = vec![0; usize::try_from(loaded.meta().bytes).unwrap()];
            loaded.read(0, &mut bytes).unwrap();
            Ok(bytes)
        }
        [Some(word)] => {
            assert_eq!(decision, Decision::Unavailable);
            Err(*word)
        }
        other => panic!("one item, not {other:?}"),
    };
    node.finish(hash);
    result
}

/// Looks, whenever something has changed at the node and ten times a second, until it is so.
pub(crate) fn wait_until(node: &Node, what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        let news = node.news();
        if is_so() {
            return;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}: {:?}", node.usage());
        node.wait(news, Duration::from_millis(100));
    }
}
