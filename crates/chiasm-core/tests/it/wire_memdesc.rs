//! Descriptor lists as progressions: what is one, what is not, and in how many slices.

use chiasm_core::wire::{
    DescriptorRow, MemDescError, Progression, ProgressionScan, decode_progression, decode_rows,
    encode_rows,
};
use proptest::prelude::*;
use rstest::rstest;

use crate::wire_vectors;

fn list(rows: &[[u64; 3]]) -> Vec<u8> {
    let row = |[addr, len, device_id]: &[u64; 3]| DescriptorRow {
        addr: *addr,
        len: *len,
        device_id: *device_id,
    };
    encode_rows(&rows.iter().map(row).collect::<Vec<_>>())
}

#[rstest]
#[case::no_rows(&[], MemDescError::Empty)]
#[case::no_bytes(&[[8, 0, 0]], MemDescError::ZeroLength { row: 0 })]
#[case::no_bytes_later(&[[8, 8, 0], [16, 0, 0]], MemDescError::ZeroLength { row: 1 })]
#[case::other_length(&[[8, 8, 0], [16, 7, 0]], MemDescError::NotUniform { row: 1 })]
#[case::other_device(&[[8, 8, 0], [16, 8, 1]], MemDescError::NotUniform { row: 1 })]
#[case::gap(&[[8, 8, 0], [16, 8, 0], [25, 8, 0]], MemDescError::NotProgression { row: 2 })]
#[case::too_near(&[[8, 8, 0], [24, 8, 0], [32, 8, 0]], MemDescError::NotProgression { row: 2 })]
#[case::descending(&[[16, 8, 0], [8, 8, 0]], MemDescError::NotProgression { row: 1 })]
#[case::repeated(&[[8, 8, 0], [8, 8, 0]], MemDescError::NotProgression { row: 1 })]
#[case::overlap(&[[8, 8, 0], [15, 8, 0]], MemDescError::Overlap { len: 8, stride: 7 })]
#[case::one_past_the_end(&[[u64::MAX - 6, 8, 0]], MemDescError::Wraps { row: 0 })]
#[case::last_wraps(
    &[[u64::MAX - 16, 8, 0], [u64::MAX - 6, 8, 0]],
    MemDescError::Wraps { row: 1 }
)]
#[case::address_wraps(
    &[[u64::MAX - 15, 8, 0], [u64::MAX - 7, 8, 0], [0, 8, 0]],
    MemDescError::NotProgression { row: 2 }
)]
#[case::too_many(
    &[[0, 8, 0], [8, 8, 0], [16, 8, 0], [24, 8, 0]],
    MemDescError::TooManyRows { rows: 4, max: 3 }
)]
fn what_is_no_region(#[case] rows: &[[u64; 3]], #[case] error: MemDescError) {
    assert_eq!(decode_progression(&list(rows), 3), Err(error));
}

#[test]
fn the_last_block_may_end_at_the_end_of_the_address_space() {
    let region = decode_progression(&list(&[[u64::MAX - 7, 8, 5]]), 1).unwrap();
    assert_eq!(region, Progression::new(u64::MAX - 7, 8, 8, 1, 5).unwrap());
    assert_eq!(region.addr(0), Some(u64::MAX - 7));
    assert_eq!(region.addr(1), None);
}

#[test]
fn blocks_may_be_further_apart_than_they_are_long() {
    let region = decode_progression(&list(&[[0, 8, 0], [10, 8, 0], [20, 8, 0]]), 3).unwrap();
    assert_eq!((region.block_bytes(), region.stride(), region.count()), (8, 10, 3));
    assert_eq!(region.addr(2), Some(20));
}

#[test]
fn bytes_after_the_list_are_refused_by_both_readers() {
    let mut bytes = list(&[[0, 8, 0]]);
    bytes.push(0xc0);
    let error = decode_progression(&bytes, 1).unwrap_err();
    assert_eq!(error.to_string(), "byte 5: 1 bytes follow the end of the message");
    let mut rows = decode_rows(&bytes).unwrap();
    assert!(rows.next().unwrap().is_ok());
    assert!(rows.next().unwrap().is_err());
    assert!(rows.next().is_none());
}

#[test]
fn a_list_that_ends_early_is_refused_at_its_row() {
    let mut bytes = list(&[[0, 8, 0], [8, 8, 0]]);
    bytes.pop();
    let error = decode_progression(&bytes, 2).unwrap_err();
    assert_eq!(error.to_string(), "at $[1], byte 6: the message ends inside this value");
}

#[rstest]
#[case::two("9192070a", "at $[0], byte 1: 2 elements, allowed: exactly 3")]
#[case::four("91940708090a", "at $[0], byte 1: 4 elements, allowed: exactly 3")]
#[case::four_that_look_like_two_rows(
    "92940708099307080a",
    "at $[0], byte 1: 4 elements, allowed: exactly 3"
)]
fn a_row_has_three_elements(#[case] hex: &str, #[case] message: &str) {
    let bytes = wire_vectors::from_hex(hex);
    assert_eq!(decode_progression(&bytes, 2).unwrap_err().to_string(), message);
    let first = decode_rows(&bytes).unwrap().next().unwrap();
    assert_eq!(first.unwrap_err().to_string(), message);
}

proptest! {
    #[test]
    fn a_region_comes_back_whole_or_in_slices(
        base in any::<u64>(),
        len in 1_u64..1 << 20,
        gap in 0_u64..1 << 20,
        count in 1_u32..200,
        device_id in any::<u64>(),
        slice in 1_u32..50,
    ) {
        let base = base >> 1;
        let region = Progression::new(base, len, len + gap, count, device_id).unwrap();
        let bytes = region.encode();
        prop_assert_eq!(&decode_progression(&bytes, count).unwrap(), &region);

        let mut scan = ProgressionScan::new(&bytes, count).unwrap();
        let mut slices = 0;
        let scanned = loop {
            slices += 1;
            if let Some(region) = scan.advance(&bytes, slice).unwrap() {
                break region;
            }
        };
        prop_assert_eq!(scanned, region);
        prop_assert_eq!(slices, count.div_ceil(slice));

        let rows: Vec<_> = decode_rows(&bytes).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(rows.len(), usize::try_from(count).unwrap());
        for (index, row) in (0..count).zip(rows) {
            prop_assert_eq!(Some(row.addr), region.addr(index));
        }
    }

    /// The streaming check agrees with the plain definition over all rows.
    #[test]
    fn a_list_is_a_region_exactly_if_its_rows_say_so(
        rows in proptest::collection::vec((0_u64..6, 0_u64..3, 0_u64..2), 0..5),
    ) {
        let rows: Vec<[u64; 3]> =
            rows.into_iter().map(|(addr, len, device)| [addr, len, device]).collect();
        let uniform = rows.windows(2).all(|pair| pair[0][1..] == pair[1][1..]);
        let steps: Vec<i128> = rows
            .windows(2)
            .map(|pair| i128::from(pair[1][0]) - i128::from(pair[0][0]))
            .collect();
        let even = steps.windows(2).all(|pair| pair[0] == pair[1]);
        let apart = steps.iter().all(|step| *step >= i128::from(rows[0][1]));
        let region = !rows.is_empty() && rows[0][1] > 0 && uniform && even && apart;
        prop_assert_eq!(decode_progression(&list(&rows), 5).is_ok(), region);
    }
}
