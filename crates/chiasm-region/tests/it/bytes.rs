//! Bytes in and out, against a plain vector.

use chiasm_core::extent::Extent;
use chiasm_region::{LandedDigest, RangeError, Region, digest_of};
use proptest::prelude::*;

use crate::support::{extent, options_for_test, pattern, region_for_test};

/// The naive model: all blocks in a row, and every byte of an entry looked up by itself.
struct Model {
    data: Vec<u8>,
    block_size_bytes: usize,
}

impl Model {
    /// Index of each byte of the entry, in order; `None` if an extent is outside.
    fn entry(&self, extents: &[Extent]) -> Option<Vec<usize>> {
        let block_size = self.block_size_bytes;
        let blocks = self.data.len() / block_size;
        let mut indices = Vec::new();
        for extent in extents {
            for block in extent.first() as usize..extent.end() as usize {
                if block >= blocks {
                    return None;
                }
                indices.extend(block * block_size..(block + 1) * block_size);
            }
        }
        Some(indices)
    }

    fn range(&self, extents: &[Extent], offset: u64, len: usize) -> Option<Vec<usize>> {
        let offset = usize::try_from(offset).ok()?;
        let indices = self.entry(extents)?;
        Some(indices.get(offset..offset.checked_add(len)?)?.to_vec())
    }
}

#[derive(Debug, Clone)]
struct Access {
    extents: Vec<Extent>,
    offset: u64,
    len: usize,
    write: bool,
    digested: bool,
}

fn access(blocks: u32, block_size: u64) -> impl Strategy<Value = Access> {
    let extents = prop::collection::vec((0..=blocks, 1..=3_u32), 0..5);
    // Mostly inside, sometimes past the end.
    let offset = prop_oneof![9 => 0..=block_size * 4, 1 => any::<u64>()];
    let len = 0..=usize::try_from(block_size).unwrap() * 4;
    (extents, offset, len, any::<bool>(), any::<bool>()).prop_map(
        |(extents, offset, len, write, digested)| {
            let extents = extents.into_iter().map(|(f, c)| extent(f, c)).collect();
            Access { extents, offset, len, write, digested }
        },
    )
}

fn story() -> impl Strategy<Value = (u32, u64, Vec<Access>)> {
    (1..=12_u32, prop_oneof![1..=70_u64, 4000..=9000_u64]).prop_flat_map(|(blocks, block_size)| {
        let accesses = prop::collection::vec(access(blocks, block_size), 1..12);
        (Just(blocks), Just(block_size), accesses)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_series_of_copies_is_what_a_vector_would_do((blocks, block_size, accesses) in story()) {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options_for_test(dir.path());
        options.blocks = blocks;
        options.block_size_bytes = block_size;
        let region = Region::create(&options).unwrap();
        let other = Region::attach_read_only(region.path()).unwrap();
        let block_size_bytes = usize::try_from(block_size).unwrap();
        let mut model = Model { data: vec![0; block_size_bytes * blocks as usize], block_size_bytes };
        let mut fresh = 0_u8;

        for Access { extents, offset, len, write, digested } in accesses {
            let indices = model.range(&extents, offset, len);
            if write {
                let bytes: Vec<u8> = (0..len).map(|_| { fresh = fresh.wrapping_add(1); fresh }).collect();
                let mut digest = LandedDigest::new();
                let outcome = if digested {
                    region.copy_in_digested(&extents, offset, &bytes, &mut digest)
                } else {
                    region.copy_in(&extents, offset, &bytes)
                };
                prop_assert_eq!(outcome.is_ok(), indices.is_some());
                for (&index, &byte) in indices.iter().flatten().zip(&bytes) {
                    model.data[index] = byte;
                }
                // Extents that name a block twice overwrite what has landed: then there is no one digest.
                let mut unique = indices.clone().unwrap_or_default();
                unique.sort_unstable();
                unique.dedup();
                if outcome.is_ok() && digested && unique.len() == len {
                    prop_assert_eq!(digest.finish(), digest_of(&bytes));
                }
            } else {
                let mut out = vec![0xEE; len];
                let outcome = region.copy_out(&extents, offset, &mut out);
                prop_assert_eq!(outcome.is_ok(), indices.is_some());
                let expected = indices.map_or(vec![0xEE; len], |indices| {
                    indices.into_iter().map(|index| model.data[index]).collect()
                });
                prop_assert_eq!(out, expected);
            }
        }

        // Through another mapping, and no byte elsewhere.
        let mut all = vec![0; model.data.len()];
        other.copy_out(&[extent(0, blocks)], 0, &mut all).unwrap();
        prop_assert_eq!(all, model.data);
    }

    // Longer than the chunks that are hashed at a time, and no multiple of them.
    #[test]
    fn a_digest_in_parts_is_the_digest_of_the_whole(cuts in prop::collection::vec(0..=LONG, 0..6)) {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options_for_test(dir.path());
        options.block_size_bytes = 30_011;
        let region = Region::create(&options).unwrap();
        let extents = [extent(4, 6), extent(0, 3)];
        let bytes = pattern(LONG);
        let mut cuts = cuts;
        cuts.extend([0, LONG]);
        cuts.sort_unstable();

        let (mut first, mut second) = (LandedDigest::new(), LandedDigest::new());
        for ends in cuts.windows(2) {
            let (offset, part) = (ends[0] as u64, &bytes[ends[0]..ends[1]]);
            region.copy_in_digested(&extents, offset, part, &mut first).unwrap();
            second.update(&region, &extents, offset, part.len()).unwrap();
        }
        prop_assert_eq!(first.finish(), digest_of(&bytes));
        prop_assert_eq!(second.finish(), digest_of(&bytes));
        let mut landed = vec![0; LONG];
        region.copy_out(&extents, 0, &mut landed).unwrap();
        prop_assert!(landed == bytes);
    }
}

/// Bytes of an entry of nine blocks of 30,011 bytes, nearly.
const LONG: usize = 270_000;

#[test]
fn digests_are_those_of_the_xxhash_library() {
    // From the Python package xxhash 3, xxh3_128_hexdigest.
    assert_eq!(digest_of(b"").to_string(), "99aa06d3014798d86001c324468d497f");
    assert_eq!(digest_of(&pattern(100_000)).to_string(), "54182c58bbb1337c42c23aeead96750d");
    assert_eq!(LandedDigest::new().finish(), digest_of(b""));
}

#[test]
fn a_digest_sees_what_landed_and_not_what_was_sent() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let extents = [extent(2, 3)];
    let bytes = pattern(3000);
    region.copy_in(&extents, 0, &bytes).unwrap();
    Region::attach(region.path()).unwrap().copy_in(&extents, 1500, &[0xFF]).unwrap();

    let mut digest = LandedDigest::new();
    digest.update(&region, &extents, 0, 3000).unwrap();
    assert_ne!(digest.finish(), digest_of(&bytes));
}

#[test]
fn a_read_only_region_refuses_every_write() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    region.copy_in(&[extent(0, 10)], 0, &pattern(10_000)).unwrap();
    let reader = Region::attach_read_only(region.path()).unwrap();
    let extents = [extent(1, 1)];

    assert_eq!(reader.copy_in(&extents, 0, b"x"), Err(RangeError::ReadOnly));
    let mut digest = LandedDigest::new();
    let outcome = reader.copy_in_digested(&extents, 0, b"x", &mut digest);
    assert_eq!(outcome, Err(RangeError::ReadOnly));
    digest.update(&reader, &[extent(0, 10)], 0, 10_000).unwrap();
    assert_eq!(digest.finish(), digest_of(&pattern(10_000)));
}

#[test]
fn an_error_names_the_extent_and_the_limits() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let outside = region.copy_in(&[extent(0, 1), extent(9, 2)], 0, b"x").unwrap_err();
    assert_eq!(outside.to_string(), "extent [9+2] ends outside the region of 10 blocks");
    let past = region.copy_out(&[extent(0, 2)], 1999, &mut [0; 2]).unwrap_err();
    assert_eq!(
        past.to_string(),
        "bytes 1999+2 end outside the entry of 2000 bytes in all its extents"
    );
    let mut digest = LandedDigest::new();
    assert_eq!(digest.update(&region, &[extent(0, 2)], 1999, 2), Err(past));
    assert_eq!(digest.finish(), digest_of(b""));
}
