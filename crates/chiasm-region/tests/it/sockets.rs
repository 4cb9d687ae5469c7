//! Bytes from mapping to socket to mapping.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use chiasm_core::extent::{Extent, blocks_in};
use chiasm_region::{RangeError, Region};
use proptest::prelude::*;

use crate::child::Child;
use crate::support::{extent, options_for_test, pattern, region_for_test};

fn non_blocking_pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    // The smallest that the kernel allows, so that writes are cut short.
    rustix::net::sockopt::set_socket_send_buffer_size(&near, 1).unwrap();
    (near, far)
}

/// Send the whole entry from one region to the other; how many writes that took.
fn carry(
    source: (&Region, &[Extent]),
    target: (&Region, &[Extent]),
    total: usize,
    slice: usize,
) -> u32 {
    let (near, far) = non_blocking_pair();
    let (mut sent, mut received) = (0, 0);
    let mut writes = 0;
    let progress = |outcome: io::Result<usize>| match outcome {
        Ok(bytes) => bytes,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            0
        }
    };
    while received < total {
        let len = slice.min(total - sent);
        if len > 0 {
            let bytes = progress(source.0.send(near.as_fd(), source.1, sent as u64, len));
            assert!(bytes <= len);
            sent += bytes;
            writes += u32::from(bytes > 0);
        }
        let len = slice.min(total - received);
        let bytes = progress(target.0.receive(far.as_fd(), target.1, received as u64, len));
        assert!(bytes <= len);
        received += bytes;
        assert!(received <= sent, "nothing arrives that was not sent");
    }
    writes
}

/// Disjoint extents, in any order, over 200 blocks: odd blocks of a shuffled list stay free.
fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let all: Vec<Extent> = (0..40).map(|i| extent(i * 5, 1 + i % 4)).collect();
    (Just(all).prop_shuffle(), 1..=40_usize).prop_map(|(mut all, count)| {
        all.truncate(count);
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_entry_arrives_whole_through_short_writes(
        from in extents(), to in extents(), block_size in 1..4000_u64, slice in 1..100_000_usize, cut in any::<prop::sample::Index>(),
    ) {
        let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let make = |dir: &std::path::Path| {
            let mut options = options_for_test(dir);
            options.blocks = 200;
            options.block_size_bytes = block_size;
            Region::create(&options).unwrap()
        };
        let (source, target) = (make(near.path()), make(far.path()));
        let fits = usize::try_from(blocks_in(&from).min(blocks_in(&to)) * block_size).unwrap();
        let total = 1 + cut.index(fits);
        let slice = slice.max(total / 500);
        let bytes = pattern(total);
        source.copy_in(&from, 0, &bytes).unwrap();

        carry((&source, &from), (&target, &to), total, slice);

        let mut expected = vec![0; usize::try_from(200 * block_size).unwrap()];
        let places = to.iter().flat_map(|extent| {
            u64::from(extent.first()) * block_size..u64::from(extent.end()) * block_size
        });
        for (place, byte) in places.zip(bytes) {
            expected[usize::try_from(place).unwrap()] = byte;
        }
        let mut landed = vec![1; expected.len()];
        target.copy_out(&[extent(0, 200)], 0, &mut landed).unwrap();
        prop_assert_eq!(landed, expected, "these blocks and no others");
    }
}

#[test]
fn a_full_socket_cuts_a_write_short() {
    let dirs = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let big = |dir: &std::path::Path| {
        let mut options = options_for_test(dir);
        options.blocks = 1000;
        Region::create(&options).unwrap()
    };
    let (source, target) = (big(dirs.0.path()), big(dirs.1.path()));
    let extents = [extent(500, 500), extent(0, 500)];
    let writes = carry((&source, &extents), (&target, &extents), 1_000_000, 1_000_000);
    assert!(writes > 1, "one write took a megabyte: the test does not see a partial write");
}

#[test]
fn more_extents_than_one_call_takes_make_a_short_count() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options_for_test(dir.path());
    options.blocks = 2500;
    options.block_size_bytes = 10;
    let region = Region::create(&options).unwrap();
    let every_other: Vec<Extent> = (0..1200).map(|i| extent(i * 2, 1)).collect();
    let (near, far) = UnixStream::pair().unwrap();

    // 1200 pieces are more than the kernel's own limit of 1024, which answers EMSGSIZE.
    assert_eq!(region.send(near.as_fd(), &every_other, 0, 12_000).unwrap(), 640);
    assert_eq!(region.receive(far.as_fd(), &every_other, 0, 12_000).unwrap(), 640);
    // The 64 pieces are counted from the offset on.
    assert_eq!(region.send(near.as_fd(), &every_other, 11_995, 5).unwrap(), 5);
}

#[test]
fn no_bytes_are_no_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let (near, far) = UnixStream::pair().unwrap();
    assert_eq!(region.send(near.as_fd(), &[extent(0, 1)], 5, 0).unwrap(), 0);
    assert_eq!(region.receive(far.as_fd(), &[extent(0, 1)], 5, 0).unwrap(), 0);
}

#[test]
fn the_end_of_the_stream_reads_as_zero() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let (near, far) = UnixStream::pair().unwrap();
    region.send(near.as_fd(), &[extent(0, 1)], 0, 10).unwrap();
    drop(near);
    assert_eq!(region.receive(far.as_fd(), &[extent(0, 10)], 0, 1000).unwrap(), 10);
    assert_eq!(region.receive(far.as_fd(), &[extent(0, 10)], 10, 990).unwrap(), 0);
}

#[test]
fn a_range_outside_the_region_never_reaches_the_socket() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let (near, far) = non_blocking_pair();
    let refused = |outcome: io::Result<usize>| {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        *error.into_inner().unwrap().downcast::<RangeError>().unwrap()
    };
    let outside = [extent(10, 1)];
    let expected = RangeError::ExtentOutside { extent: outside[0], blocks: 10 };
    assert_eq!(refused(region.send(near.as_fd(), &outside, 0, 1)), expected);
    assert_eq!(refused(region.receive(far.as_fd(), &outside, 0, 1)), expected);
    let past = refused(region.send(near.as_fd(), &[extent(0, 10)], 9_999, 2));
    assert!(matches!(past, RangeError::PastEnd { .. }));

    let reader = Region::attach_read_only(region.path()).unwrap();
    assert_eq!(refused(reader.receive(far.as_fd(), &[extent(0, 1)], 0, 1)), RangeError::ReadOnly);
    assert_eq!(reader.send(near.as_fd(), &[extent(0, 1)], 0, 3).unwrap(), 3);
    assert_eq!(region.receive(far.as_fd(), &[extent(0, 1)], 0, 9).unwrap(), 3);
}

#[test]
fn a_peer_that_has_gone_is_an_error_and_not_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let child = Child::run("send to nobody", dir.path());
    assert_eq!(child.said, "BrokenPipe");
    assert!(child.finish().success());
}
