//! Bytes go where they should and nowhere else.

use chiasm_core::consumer::{FailureReason, ReadEnd, TransferId};
use chiasm_core::extent::Extent;
use chiasm_core::producer::GrantToken;
use chiasm_planes::tcp::{MAX_PIPELINED, Progress};
use chiasm_region::digest_of;
use proptest::prelude::*;

use crate::support::{
    BLOCK_BYTES, Rig, bytes_for_test, contents, extent, tcp_pair, unix_pair, with_tiny_buffer,
};

fn landed(bytes: &[u8]) -> ReadEnd {
    ReadEnd::Landed { bytes: bytes.len() as u64, digest: Some(digest_of(bytes)) }
}

/// What the consumer's region should hold: `bytes` over `local`, everything else as it was.
fn expect(region: &mut [u8], local: &[Extent], bytes: &[u8]) {
    let mut rest = bytes;
    for extent in local {
        let first = usize::try_from(u64::from(extent.first()) * BLOCK_BYTES).unwrap();
        let room = usize::try_from(u64::from(extent.count()) * BLOCK_BYTES).unwrap();
        let (now, later) = rest.split_at(room.min(rest.len()));
        region[first..first + now.len()].copy_from_slice(now);
        rest = later;
    }
    assert!(rest.is_empty(), "the extents hold the entry");
}

#[test]
fn a_full_pipeline_of_scattered_entries_arrives_in_order() {
    for pair in
        [tcp_pair(), unix_pair(), with_tiny_buffer(unix_pair()), with_tiny_buffer(tcp_pair())]
    {
        let mut rig = Rig::new(1000, pair);
        rig.source.scatter(400);
        let mut expected = contents(&rig.region);
        let mut ends = Vec::new();
        for n in 0..MAX_PIPELINED as u64 {
            assert!(rig.read.has_room());
            // 1 to 6 blocks, the last one partly full.
            let length = usize::try_from(1 + (n * 97) % 590).unwrap();
            let bytes = bytes_for_test(length, n);
            let token = rig.source.grant(&bytes);
            let first = u32::try_from(n).unwrap() * 14;
            let local = vec![extent(first + 8, 1), extent(first, 2), extent(first + 4, 3)];
            expect(&mut expected, &local, &bytes);
            rig.start(n, token, local, length);
            ends.push((TransferId(n), landed(&bytes)));
        }
        assert!(!rig.read.has_room());
        rig.run_until_ended(ends.len());
        assert_eq!(rig.ended, ends);
        assert!(contents(&rig.region) == expected, "bytes differ or landed elsewhere");
        assert!(rig.read.is_idle() && rig.read.has_room());
        assert_eq!(rig.source.completed.len(), ends.len());
        assert_eq!((rig.source.producer.live_grants(), rig.read.backlog_bytes()), (0, 0));
        rig.source.cache.check().unwrap();
    }
}

#[test]
fn an_entry_of_many_slices_arrives() {
    let mut rig = Rig::new(60_000, tcp_pair());
    let bytes = bytes_for_test(5_999_999, 1);
    let token = rig.source.grant(&bytes);
    let local = vec![extent(30_000, 30_000), extent(0, 30_000)];
    let mut expected = contents(&rig.region);
    expect(&mut expected, &local, &bytes);
    rig.start(0, token, local, bytes.len());
    rig.run_until_ended(1);
    assert_eq!(rig.ended, [(TransferId(0), landed(&bytes))]);
    assert!(contents(&rig.region) == expected);
}

#[test]
fn an_entry_of_no_bytes_arrives_too() {
    let mut rig = Rig::new(10, unix_pair());
    for n in 0..3 {
        let bytes = bytes_for_test(if n == 1 { 150 } else { 0 }, n);
        let token = rig.source.grant(&bytes);
        let local = if n == 1 { vec![extent(2, 2)] } else { Vec::new() };
        rig.start(n, token, local, bytes.len());
    }
    rig.run_until_ended(3);
    let lengths: Vec<_> = rig.ended.iter().map(|(id, end)| (id.0, end.clone())).collect();
    assert_eq!(lengths[0], (0, landed(&[])));
    assert_eq!(lengths[1], (1, landed(&bytes_for_test(150, 1))));
    assert_eq!(lengths[2], (2, landed(&[])));
}

#[test]
fn a_digest_is_computed_only_where_it_is_wanted() {
    let mut rig = Rig::new(10, unix_pair());
    let token = rig.source.grant(&bytes_for_test(150, 1));
    let job = chiasm_planes::tcp::ReadJob {
        transfer: TransferId(4),
        token,
        local: vec![extent(0, 2)],
        bytes: 150,
        digest: false,
    };
    rig.read.start(crate::support::at(0), job);
    rig.run_until_ended(1);
    assert_eq!(rig.ended, [(TransferId(4), ReadEnd::Landed { bytes: 150, digest: None })]);
}

#[test]
fn a_token_that_opens_nothing_fails_its_job_alone() {
    let mut rig = Rig::new(10, unix_pair());
    let bytes = bytes_for_test(150, 1);
    let token = rig.source.grant(&bytes);
    rig.start(0, GrantToken([0; 16]), vec![extent(0, 2)], 150);
    rig.start(1, token, vec![extent(2, 2)], 150);
    rig.start(2, token, vec![extent(4, 2)], 150);
    rig.run_until_ended(3);
    let refused = FailureReason::Plane("the grant had ended at the producer".into());
    assert_eq!(rig.ended[0], (TransferId(0), ReadEnd::Failed(refused.clone())));
    assert_eq!(rig.ended[1], (TransferId(1), landed(&bytes)));
    assert_eq!(rig.ended[2], (TransferId(2), ReadEnd::Failed(refused)), "a token opens once");
    assert_eq!(rig.source.producer.counters().bad_tokens, 2);
    assert!(contents(&rig.region)[400..600].iter().all(|byte| *byte == 0));
}

/// The blocks may belong to somebody else from the report of the end on.
#[test]
fn an_aborted_job_writes_nothing_more_and_the_next_one_is_right() {
    let mut rig = Rig::new(30_000, unix_pair());
    let (large, small) = (bytes_for_test(1_500_000, 1), bytes_for_test(777, 2));
    let (first, second) = (rig.source.grant(&large), rig.source.grant(&small));
    rig.start(0, first, vec![extent(0, 15_000)], large.len());
    rig.start(1, second, vec![extent(20_000, 8)], small.len());
    rig.progress_read();
    rig.progress_serve();
    rig.progress_read();
    let moved = large.len() as u64 + 777 - rig.read.backlog_bytes();
    assert!(moved > 0 && moved < 1_500_000, "in the middle of the first body: {moved}");

    assert!(rig.read.abort(TransferId(0)));
    assert!(!rig.read.abort(TransferId(0)), "once");
    assert!(!rig.read.abort(TransferId(9)), "never started");
    let aborted = ReadEnd::Failed(FailureReason::Plane("aborted".into()));
    rig.ended.extend(rig.read.take_ended());
    assert_eq!(rig.ended, [(TransferId(0), aborted)]);
    let mut expected = contents(&rig.region);
    // A new tenant.
    let tenant = bytes_for_test(1_500_000, 3);
    rig.region.copy_in(&[extent(0, 15_000)], 0, &tenant).unwrap();
    expect(&mut expected, &[extent(0, 15_000)], &tenant);
    expect(&mut expected, &[extent(20_000, 8)], &small);
    rig.run_until_ended(2);
    assert_eq!(rig.ended[1], (TransferId(1), landed(&small)));
    assert!(contents(&rig.region) == expected, "a late byte");
    assert_eq!(rig.ended.len(), 2, "its end is reported once");
    assert!(rig.read.is_idle());
}

#[test]
fn a_job_that_is_aborted_before_its_answer_is_drained_or_refused() {
    let mut rig = Rig::new(100, unix_pair());
    let bytes = bytes_for_test(500, 1);
    let token = rig.source.grant(&bytes);
    rig.start(0, token, vec![extent(0, 5)], 500);
    rig.start(1, GrantToken([9; 16]), vec![extent(5, 5)], 500);
    assert!(rig.read.abort(TransferId(0)) && rig.read.abort(TransferId(1)));
    let again = rig.source.grant(&bytes);
    rig.start(2, again, vec![extent(10, 5)], 500);
    rig.run_until_ended(3);
    assert_eq!(rig.ended[2], (TransferId(2), landed(&bytes)));
    assert!(contents(&rig.region)[..1000].iter().all(|byte| *byte == 0));
}

#[test]
fn a_producer_that_hangs_up_in_the_middle_fails_every_open_job() {
    let mut rig = Rig::new(30_000, unix_pair());
    let bytes = bytes_for_test(1_500_000, 1);
    for n in 0..2 {
        let token = rig.source.grant(&bytes);
        rig.start(n, token, vec![extent(0, 15_000)], bytes.len());
    }
    rig.progress_read();
    rig.progress_serve();
    let stream = rig.serve.serving().expect("half way out");
    rig.serve_socket = unix_pair().0;
    rig.source.producer.stream_ended(stream, false, &mut rig.source.cache);
    let reason = loop {
        match rig.progress_read() {
            Progress::Closed(reason) => break reason,
            Progress::Yielded => {}
            Progress::Blocked => panic!("nobody will write any more"),
        }
    };
    assert_eq!(reason, "the producer closed the stream");
    assert_eq!(rig.ended, []);
    rig.read.abort(TransferId(1));
    rig.read.lose(&reason);
    let lost = ReadEnd::Failed(FailureReason::Plane(reason));
    let aborted = ReadEnd::Failed(FailureReason::Plane("aborted".into()));
    assert_eq!(rig.read.take_ended(), [(TransferId(1), aborted), (TransferId(0), lost)]);
    assert!(rig.read.is_idle());
    assert_eq!((rig.source.producer.counters().lost, rig.source.completed.len()), (1, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Sizes, scattering, aborts and the turns of both ends at random, through the smallest buffer.
    #[test]
    fn whatever_the_cuts_the_bytes_are_right(
        sizes in prop::collection::vec((0..4000_usize, prop::bool::weighted(0.2)), 1..20),
        scattered: bool,
        turns in prop::collection::vec(any::<bool>(), 0..200),
        first in 0..40_u32,
    ) {
        let mut rig = Rig::new(2000, with_tiny_buffer(unix_pair()));
        if scattered {
            rig.source.scatter(900);
        }
        let mut expected = contents(&rig.region);
        let mut right = Vec::new();
        let mut next = first;
        for (n, (size, _)) in (0..).zip(&sizes) {
            let bytes = bytes_for_test(*size, n);
            let token = rig.source.grant(&bytes);
            let blocks = u32::try_from(size.div_ceil(100)).unwrap();
            let left = blocks / 2;
            // Two runs, the second before the first.
            let local: Vec<Extent> = [Extent::new(next + blocks - left, left), Extent::new(next, blocks - left)]
                .into_iter()
                .flatten()
                .collect();
            next += blocks + 1;
            rig.start(n, token, local.clone(), *size);
            right.push((local, bytes));
        }
        let mut turns = turns.into_iter();
        let mut jobs = (0..).zip(&sizes);
        for turn in turns.by_ref() {
            if turn { rig.progress_read(); } else { rig.progress_serve(); }
            if let Some((n, (_, true))) = jobs.next() {
                rig.read.abort(TransferId(n));
            }
        }
        rig.run_until_ended(sizes.len());
        prop_assert_eq!(rig.ended.len(), sizes.len());
        for (id, end) in &rig.ended {
            let (local, bytes) = &right[usize::try_from(id.0).unwrap()];
            match end {
                ReadEnd::Landed { .. } => {
                    prop_assert_eq!(end, &landed(bytes));
                    expect(&mut expected, local, bytes);
                }
                ReadEnd::Failed(_) => {
                    // What had landed before the abort may stand there.
                    let mut found = vec![0; bytes.len()];
                    rig.region.copy_out(local, 0, &mut found).unwrap();
                    expect(&mut expected, local, &found);
                }
            }
        }
        prop_assert!(contents(&rig.region) == expected);
    }
}
