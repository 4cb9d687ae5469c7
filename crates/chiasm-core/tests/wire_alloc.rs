//! A refused message costs next to no memory, whatever lengths it claims. A binary of its own,
//! because it counts what the global allocator hands out.

mod counting;

use std::time::Duration;

use chiasm_core::cache::{Cache, EvictionPolicy};
use chiasm_core::consumer::{Consumer, ConsumerConfig, ReceivedAck, Wanted};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::Plane;
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckLimits, AckStatus, XferAck, XferReq, decode_progression, decode_rows};

use counting::counted;

/// 1024 bytes of hash that an unknown status carries, and the counters of its `Arc`.
const MOST_FOR_A_REFUSAL: usize = 1024 + 64;

fn read_everything(bytes: &[u8]) -> bool {
    let limits = AckLimits { max_blocks: usize::MAX };
    let mut accepted = XferReq::decode(bytes).is_ok();
    accepted |= XferAck::decode(bytes, &limits).is_ok();
    accepted |= decode_progression(bytes, u32::MAX).is_ok();
    accepted | decode_rows(bytes).is_ok_and(|rows| rows.into_iter().all(|row| row.is_ok()))
}

fn ack_head(entries: u8) -> Vec<u8> {
    let mut bytes = vec![0x80 | entries];
    bytes.extend(b"\xa7mm_hash\xa1h");
    bytes
}

/// Hostile messages: a million indices that are really there, followed by what refuses the ack.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let mut unknown_status = vec![0x82];
    unknown_status.extend(b"\xa6status\x06\xa7mm_hash\xda\x04\x00");
    unknown_status.extend([b'h'; 1024]);

    let mut indices_then_no_status = ack_head(2);
    indices_then_no_status.extend(b"\xb1src_block_indices\xdd\x00\x10\x00\x00");
    indices_then_no_status.extend(vec![0; 1 << 20]);

    let mut indices_then_a_negative = ack_head(2);
    indices_then_a_negative.extend(b"\xb1src_block_indices\xdd\x00\x10\x00\x00");
    indices_then_a_negative.extend(vec![0; (1 << 20) - 1]);
    indices_then_a_negative.push(0xff);

    let mut lying_array = ack_head(3);
    lying_array.extend(b"\xa6status\x00\xb1src_block_indices\xdd\xff\xff\xff\xff");
    lying_array.extend([0; 100]);

    let mut rows = vec![0xdd, 0x00, 0x04, 0x00, 0x00];
    rows.extend([0x93, 0x00, 0x01, 0x00].repeat(1 << 18));
    rows.push(0xc0);

    let mut nested = ack_head(2);
    nested.extend(b"\xa1x");
    nested.extend(vec![0x91; 1 << 20]);

    vec![
        ("unknown status", unknown_status),
        ("indices, then no status", indices_then_no_status),
        ("indices, then a negative one", indices_then_a_negative),
        ("an array that is not there", lying_array),
        ("a region and a byte more", rows),
        ("a million levels", nested),
    ]
}

#[test]
fn a_refused_message_costs_next_to_no_memory() {
    for (name, bytes) in hostile() {
        let mut accepted = true;
        let ((), _, allocated) = counted(|| accepted = read_everything(&bytes));
        assert!(!accepted, "{name}: accepted");
        assert!(allocated <= MOST_FOR_A_REFUSAL, "{name}: {allocated} bytes");
    }
}

#[test]
fn an_accepted_ack_costs_its_indices_and_nothing_else() {
    let mut bytes = ack_head(3);
    bytes.extend(b"\xa6status\x00\xb1src_block_indices\xdc\x03\xe8");
    bytes.extend([7; 1000]);
    let ((), _, allocated) = counted(|| {
        assert!(XferAck::decode(&bytes, &AckLimits::default()).is_ok());
    });
    assert_eq!(allocated, 8 * 1000);
}

#[test]
fn the_counter_counts() {
    assert_eq!(counted(|| drop(std::hint::black_box(vec![0_u8; 12_345]))).2, 12_345);
}

/// What the consumer allocates to take an ack with so many block indices, which it refuses.
fn taking_an_ack_of(blocks: u64) -> usize {
    let source = Endpoint::parse("10.0.0.1:5601").unwrap();
    let mut cache = Cache::new(4, EvictionPolicy::Fifo);
    let mut consumer = Consumer::new(ConsumerConfig {
        compat_hash: "same".into(),
        fingerprint: None,
        epoch: 4,
        session: "s".into(),
        block_size_bytes: 64,
        planes: [Plane::Nixl].into_iter().collect(),
        host: None,
        region: None,
        verify: true,
        ack_timeout: Duration::from_secs(30),
        read_timeout: Duration::from_secs(20),
        lease_margin: Duration::from_secs(1),
    });
    let hash = MmHash::new("h").unwrap();
    let wanted =
        Wanted { hash, source: source.clone(), rows: 1, width: 16, blocks: 1, dtype: None };
    consumer.start(Nanos::ZERO, wanted);
    consumer.link_up(Nanos::ZERO, &source);
    let src_block_indices = (0..blocks).collect();
    let ack = XferAck { src_block_indices, ..XferAck::bare("h", AckStatus::Ok) }.encode();
    let received = ReceivedAck::decode(&ack, &AckLimits::default());
    let ((), _, allocated) = counted(|| {
        consumer.receive_ack(Nanos::ZERO, &source, &received, &mut cache);
    });
    let outcome = consumer.poll_finished().unwrap().outcome;
    assert!(outcome.is_err_and(|failure| failure.reason.to_string().contains("session")));
    allocated
}

/// The consumer is shared with the engine's thread: what a list costs has been paid before.
#[test]
fn taking_an_ack_with_a_long_list_costs_no_more_than_with_a_short_one() {
    assert_eq!(taking_an_ack_of(1 << 20), taking_an_ack_of(1));
}
