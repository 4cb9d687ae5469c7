//! Orders as bytes.

use chiasm_core::cache::EntryKey;
use chiasm_core::dispatch::{DispatchId, Order, OrderError, OrderKind, RankSet};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use proptest::prelude::*;

fn orders() -> impl Strategy<Value = Order> {
    let extents = prop::collection::vec(
        (any::<u32>(), 1..=u32::MAX)
            .prop_filter_map("overflow", |(first, count)| Extent::new(first, count)),
        0..=64,
    );
    let dtype = prop::option::of(prop::sample::select(Dtype::ALL));
    let meta = (any::<u32>(), any::<u32>(), dtype, any::<u64>());
    (any::<bool>(), any::<u64>(), any::<(u32, u64)>(), 1..=u16::MAX, meta, extents).prop_map(
        |(saves, id, (index, generation), ranks, (rows, width, dtype, bytes), extents)| Order {
            kind: if saves { OrderKind::Save } else { OrderKind::Load },
            dispatch: DispatchId::from_u64(id),
            key: EntryKey::from_parts(index, generation),
            ranks: RankSet::from_bits(ranks),
            meta: EntryMeta { rows, width, dtype, bytes },
            extents,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_order_reads_as_it_was_written(order in orders()) {
        let bytes = order.to_bytes();
        prop_assert!(bytes.len() <= 579);
        prop_assert_eq!(Order::from_bytes(&bytes), Ok(order));
    }

    #[test]
    fn no_bytes_panic_and_cut_or_longer_ones_are_refused(
        order in orders(), cut in any::<prop::sample::Index>(), noise in prop::collection::vec(any::<u8>(), 0..700),
    ) {
        let bytes = order.to_bytes();
        let end = cut.index(bytes.len());
        prop_assert!(Order::from_bytes(&bytes[..end]).is_err());
        let longer = [bytes.as_slice(), &[0]].concat();
        prop_assert!(Order::from_bytes(&longer).is_err());
        let changed: Vec<u8> = bytes.iter().zip(noise.iter().chain(std::iter::repeat(&0))).map(|(a, b)| a ^ b).collect();
        if let Ok(other) = Order::from_bytes(&changed) {
            prop_assert_eq!(other.to_bytes(), changed);
        }
        let _ = Order::from_bytes(&noise);
    }
}

#[test]
fn another_format_is_named() {
    assert_eq!(Order::from_bytes(&[2, 0, 0]), Err(OrderError::Format(2)));
    assert_eq!(Order::from_bytes(&[]), Err(OrderError::Malformed("cut short")));
}
