//! What the core's most frequent operations cost the allocator: they run under the lock that the engine's
//! scheduler and the node's thread share. A binary of its own, because it counts what the global
//! allocator hands out. What a request to the producer costs is in `producer_alloc`.

mod counting;

use chiasm_core::admission::{Admission, AdmissionConfig, Decision, Item};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::{Announcement, Expectation, RemoteAnnouncement};
use chiasm_core::cache::{Cache, EvictionPolicy};
use chiasm_core::consumer::{Consumer, ConsumerConfig};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use chiasm_core::limits;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{
    AckExtension, AckLimits, AckStatus, ReqExtension, XferAck, XferDone, XferReq,
};

use counting::counted;

const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn planes() -> PlaneList {
    [Plane::Shm, Plane::Tcp].into_iter().collect()
}

#[test]
fn an_engine_that_asks_about_a_waiting_request_allocates_nothing() {
    let mut cache = Cache::new(100_000, EvictionPolicy::Fifo);
    let mut consumer = Consumer::new(ConsumerConfig {
        compat_hash: "c".into(),
        fingerprint: None,
        epoch: 1,
        session: "s".into(),
        block_size_bytes: 4096,
        host: None,
        region: None,
        planes: planes(),
        ack_timeout: limits::ACK_TIMEOUT,
        read_timeout: limits::READ_TIMEOUT,
        lease_margin: limits::LEASE_MARGIN,
        verify: true,
    });
    let allowed = Allowlist::parse(["10.0.0.5:5601"]).unwrap();
    let mut admission = Admission::new(AdmissionConfig::default(), allowed, [7; 32]);
    let expected = Expectation {
        rows: None,
        width: None,
        dtype: None,
        block_size_bytes: 4096,
        region_blocks: u32::MAX,
    };
    let now = Nanos::from_nanos(1);
    let ids: Vec<String> = (0..1000).map(|request| format!("request-{request}")).collect();
    for id in &ids {
        let items = (0..8).map(|item| {
            let source = "10.0.0.5:5601".parse().unwrap();
            let remote = RemoteAnnouncement { source, size_bytes: 4096, rows: 1, width: 2048 };
            let hash = MmHash::new(&format!("{id}-{item}")).unwrap();
            Item::new(hash, 1, false, Some(&Ok(Announcement::Remote(remote))), &expected)
        });
        admission.track(now, id, items.collect(), &mut cache, &mut consumer).unwrap();
        admission.ensure(now, id, 8, 0, &mut cache, &mut consumer);
    }
    let steps = admission.steps();
    let (waiting, allocations, _) = counted(|| {
        let ask = |id| admission.ensure(now, id, 8, 0, &mut cache, &mut consumer);
        ids.iter().map(String::as_str).map(ask).filter(|it| *it == Some(Decision::Wait)).count()
    });
    assert_eq!((waiting, allocations, admission.steps() - steps), (1000, 0, 0));
}

#[test]
fn a_save_into_a_full_region_allocates_its_entry_and_little_else() {
    let mut cache = Cache::new(1000, EvictionPolicy::Fifo);
    let meta = EntryMeta::new(10, 2048, Dtype::Bfloat16).unwrap();
    let names: Vec<MmHash> =
        (0..1200).map(|name| MmHash::new(&format!("{name:064}")).unwrap()).collect();
    let mut save = |name: &MmHash| {
        counted(|| {
            let key = cache.reserve(name, meta, 10).unwrap();
            cache.mark_ready(key, None).unwrap();
            cache.pin(key).unwrap();
            cache.unpin(key).unwrap();
        })
        .1
    };
    // The region and the tables fill up.
    for name in &names[..1000] {
        save(name);
    }
    let costs: Vec<usize> = names[1000..].iter().map(save).collect();
    // Where it lies, who was evicted for it, and the hole that was there in between.
    assert_eq!(costs.iter().min(), Some(&3));
    // Nodes of the tables' trees come and go now and then.
    let all: usize = costs.iter().sum();
    assert!(all <= 4 * costs.len(), "{all} for {} saves", costs.len());
}

#[test]
fn a_message_is_written_into_one_piece_of_memory_and_read_where_it_is() {
    let request = XferReq {
        mm_hash: HASH,
        compatibility_hash: HASH,
        session_id: "0123456789abcdef.1",
        connector_version: 2,
        chiasm: Some(ReqExtension { planes: planes(), attempt: 1, ..ReqExtension::default() }),
    };
    let (bytes, written, _) = counted(|| request.encode());
    let (read, in_place, _) = counted(|| XferReq::decode(&bytes).is_ok());
    assert_eq!((written, read, in_place), (1, true, 0));

    let extension = AckExtension {
        rev: 1,
        epoch: 1,
        attempt: 1,
        plane: Some(Plane::Shm),
        region: Some("chiasm-0123456789abcdef"),
        extents: vec![Extent::new(0, 64).unwrap()],
        shape: Some((64, 2048)),
        bytes: Some(262_144),
        block_size_bytes: Some(4096),
        lease_ms: Some(30_000),
        ..AckExtension::default()
    };
    let ack = XferAck {
        session_id: "0123456789abcdef.1",
        chiasm: Some(extension),
        ..XferAck::bare(HASH, AckStatus::Ok)
    };
    let (bytes, written, _) = counted(|| ack.encode());
    // The extents, as many as there are.
    let (read, in_place, _) = counted(|| XferAck::decode(&bytes, &AckLimits::default()).is_ok());
    assert_eq!((written, read, in_place), (1, true, 1));

    let done = XferDone { mm_hash: HASH, session_id: "0123456789abcdef.1", attempt: 1 };
    let (bytes, written, _) = counted(|| done.encode());
    let (read, in_place, _) = counted(|| XferDone::decode(&bytes).is_ok());
    assert_eq!((written, read, in_place), (1, true, 0));
}
