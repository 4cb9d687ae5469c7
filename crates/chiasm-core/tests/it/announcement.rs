//! Announcements: untrusted JSON in, a validated offer or a reason out.

use chiasm_core::announcement::{
    Announcement, AnnouncementError, Expectation, OutgoingAnnouncement, ParamsError, ParamsLimits,
    RemoteAnnouncement, parse_params, parse_params_text,
};
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::entry::EntryMeta;
use chiasm_core::limits::{MAX_PARAMS_BYTES, MAX_PARAMS_ITEMS};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Map, Value, json};

fn announced_for_test() -> Value {
    json!({
        "modality": "image",
        "metadata": {"grid": [1, 8, 8]},
        "item_indices": [0],
        "peer_host": "10.0.0.5",
        "peer_port": 5601,
        "size_bytes": 8192,
        "shape": [16, 128],
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut announced = announced_for_test();
    announced[field] = value;
    announced
}

fn remote(value: &Value) -> RemoteAnnouncement {
    match Announcement::parse(value) {
        Ok(Announcement::Remote(remote)) => remote,
        other => panic!("{other:?}"),
    }
}

fn expectation_for_test() -> Expectation {
    Expectation {
        rows: Some(16),
        width: Some(128),
        dtype: Some(Dtype::Float32),
        block_size_bytes: 512,
        region_blocks: 16,
    }
}

#[test]
fn an_announcement_of_a_vllm_producer_is_read() {
    let announcement = remote(&announced_for_test());
    assert_eq!(
        announcement,
        RemoteAnnouncement {
            source: Endpoint::parse("10.0.0.5:5601").unwrap(),
            size_bytes: 8192,
            rows: 16,
            width: 128,
        }
    );
    assert_eq!(announcement.check(&expectation_for_test()), Ok(16));
}

#[rstest]
#[case("::1", "[::1]:5601")]
#[case("[::1]", "[::1]:5601")]
#[case("::ffff:10.0.0.5", "10.0.0.5:5601")]
#[case("Vision-0.example.", "vision-0.example:5601")]
fn hazard_b5_the_source_is_canonical(#[case] host: &str, #[case] source: &str) {
    assert_eq!(remote(&with("peer_host", json!(host))).source.to_string(), source);
}

#[rstest]
#[case(json!({"modality": "image", "metadata": {}, "item_indices": [0]}))]
#[case(json!({}))]
#[case(json!({"peer_host": null, "peer_port": 5601, "size_bytes": 0, "shape": "x"}))]
fn without_a_host_there_is_nothing_to_read(#[case] value: Value) {
    assert_eq!(Announcement::parse(&value), Ok(Announcement::MetadataOnly));
}

#[rstest]
#[case(json!(123))]
#[case(json!(null))]
#[case(json!("10.0.0.5:5601"))]
#[case(json!([["peer_host", "10.0.0.5"]]))]
fn what_is_no_object_is_no_announcement(#[case] value: Value) {
    assert_eq!(Announcement::parse(&value).unwrap_err().kind(), "not_an_object");
}

#[rstest]
#[case("peer_port")]
#[case("size_bytes")]
#[case("shape")]
fn next_to_a_host_no_field_may_be_missing(#[case] field: &'static str) {
    let mut announced = announced_for_test();
    announced.as_object_mut().unwrap().remove(field);
    assert_eq!(Announcement::parse(&announced), Err(AnnouncementError::Missing { field }));
}

/// The hosts and ports of hazards C1, D4 and h47, and the sizes and shapes of conformance 9, A8 and
/// B1. Upstream converts some of these and leaks blocks on the others.
#[rstest]
#[case("peer_port", "type", vec![
    json!(0), json!(-1), json!(65536), json!(70000), json!("5601"), json!(" 5601 "), json!(5601.9),
    json!(5601.0), json!(true), json!("5_601"), json!("0x15e1"), json!("abc"), json!(null),
    json!([5601]), json!({}), json!(u64::MAX), json!(1e300),
])]
#[case("peer_host", "type", vec![json!(2_130_706_433), json!(true), json!(["a"]), json!({"a": 1})])]
#[case("peer_host", "peer_host", vec![
    json!(""), json!("*"), json!("0.0.0.0"), json!("::"), json!("bad host!"), json!("127.1"),
    json!("127.000.000.001"), json!("0x7f000001"), json!("2130706433"), json!(" 127.0.0.1"),
    json!("127.0.0.1 "), json!("10.0.0.5:5601"), json!("fe80::1%eth0"), json!("tcp://10.0.0.5"),
])]
#[case("size_bytes", "type", vec![
    json!(0), json!(-8192), json!("8192"), json!(8192.0), json!(null), json!(true), json!([8192]),
])]
#[case("shape", "type", vec![
    json!([1, 0]), json!([0, 128]), json!([1, -32]), json!([-16, -128]), json!([16, "128"]),
    json!([16.0, 128]), json!([true, 128]), json!([null, 128]), json!([[16], 128]),
    json!([16, 4_294_967_296_u64]), json!(null), json!("16x128"), json!({"0": 16, "1": 128}),
])]
#[case("shape", "shape", vec![json!([]), json!([16]), json!([1, 16, 128]), json!([[16, 128]])])]
fn hazard_c1_a_field_of_another_type_or_range_is_refused(
    #[case] field: &str,
    #[case] kind: &str,
    #[case] values: Vec<Value>,
) {
    for value in values {
        let error = Announcement::parse(&with(field, value.clone())).unwrap_err();
        assert_eq!(error.kind(), kind, "{field}: {value}");
        assert!(error.to_string().contains(field), "{error}");
    }
}

#[test]
fn hazard_d5_the_length_of_a_shape_is_judged_before_its_elements() {
    // Were elements looked at first, the first of them would be the error.
    let shape = Value::Array(vec![json!("not a number"); 3_000_000]);
    let error = Announcement::parse(&with("shape", shape)).unwrap_err();
    assert_eq!(error, AnnouncementError::ShapeLength { dims: 3_000_000 });
    assert!(error.to_string().len() < 100);
}

#[test]
fn an_error_names_the_field_and_what_stands_there() {
    let error = Announcement::parse(&with("peer_port", json!(true))).unwrap_err();
    assert_eq!(error.to_string(), "peer_port is true, expected an integer from 1 to 65535");
    let error = Announcement::parse(&with("peer_host", json!("127.1"))).unwrap_err();
    assert!(error.to_string().starts_with("peer_host: \"127.1\" is not a host: "), "{error}");
}

#[rstest]
#[case::rows_of_another_image(json!([17, 128]), 8704, "rows")]
#[case::hazard_a8_half_the_width(json!([16, 64]), 4096, "width")]
#[case::hazard_b1_another_block_count(json!([16, 128]), 16384, "size")]
#[case::not_in_whole_blocks(json!([16, 128]), 8191, "size")]
#[case::one_byte_over(json!([16, 128]), 8193, "size")]
#[case::size_of_another_type(json!([16, 128]), 4096, "size")]
fn a_lie_about_an_entry_is_refused(
    #[case] shape: Value,
    #[case] size_bytes: u64,
    #[case] kind: &str,
) {
    let mut announced = with("shape", shape);
    announced["size_bytes"] = json!(size_bytes);
    let error = remote(&announced).check(&expectation_for_test()).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
}

#[test]
fn an_entry_larger_than_the_region_is_refused() {
    let expected = Expectation { region_blocks: 15, ..expectation_for_test() };
    assert_eq!(
        remote(&announced_for_test()).check(&expected),
        Err(AnnouncementError::TooLarge { blocks: 16, region_blocks: 15 })
    );
    // 2^33 blocks: more than block numbers can name.
    let mut huge = with("shape", json!([u32::MAX, 1024]));
    huge["size_bytes"] = json!(u64::from(u32::MAX) * 1024 * 8);
    let expected = Expectation {
        rows: None,
        width: None,
        dtype: Some(Dtype::Float64),
        block_size_bytes: 4096,
        region_blocks: u32::MAX,
    };
    assert_eq!(remote(&huge).check(&expected).unwrap_err().kind(), "too_large");
}

#[rstest]
#[case::one_byte_elements(2048, true)]
#[case::two(4096, true)]
#[case::four(8192, true)]
#[case::eight(16384, true)]
#[case::too_small_for_any(1024, false)]
#[case::three(6144, false)]
#[case::sixteen(32768, false)]
#[case::largest(u64::MAX, false)]
fn where_the_type_is_unknown_some_type_must_have_that_size(
    #[case] size_bytes: u64,
    #[case] fits: bool,
) {
    let expected = Expectation {
        rows: None,
        width: None,
        dtype: None,
        region_blocks: 1 << 20,
        ..expectation_for_test()
    };
    let announcement = remote(&with("size_bytes", json!(size_bytes)));
    assert_eq!(announcement.check(&expected).is_ok(), fits);
}

#[test]
fn a_block_size_of_zero_admits_nothing_and_divides_nothing() {
    for dtype in [None, Some(Dtype::Float32)] {
        let expected = Expectation { block_size_bytes: 0, dtype, ..expectation_for_test() };
        assert_eq!(remote(&announced_for_test()).check(&expected).unwrap_err().kind(), "size");
    }
}

#[test]
fn a_producer_announces_exactly_the_keys_of_vllm() {
    let mut outgoing = OutgoingAnnouncement::new("image", 0);
    outgoing.add_item(2);
    assert_eq!(
        outgoing.to_json(),
        json!({"modality": "image", "metadata": {}, "item_indices": [0, 2]})
    );
    let meta = EntryMeta::new(15, 128, Dtype::Float32).unwrap();
    let source = Endpoint::parse("[::1]:5601").unwrap();
    let offer = RemoteAnnouncement::of_entry(source, &meta, 4096).unwrap();
    let metadata: Map<String, Value> = [("grid".into(), json!([1, 8, 8]))].into_iter().collect();
    let value = outgoing.with_entry(offer.clone(), metadata).to_json();
    assert_eq!(
        value,
        json!({
            "modality": "image",
            "metadata": {"grid": [1, 8, 8]},
            "item_indices": [0, 2],
            "peer_host": "::1",
            "peer_port": 5601,
            "size_bytes": 8192,
            "shape": [15, 128],
        })
    );
    assert_eq!(remote(&value), offer);
}

#[test]
fn an_entry_whose_size_overflows_is_not_announced() {
    let source = Endpoint::parse("a:1").unwrap();
    let meta = EntryMeta { rows: 1, width: 1, dtype: None, bytes: u64::MAX };
    assert_eq!(RemoteAnnouncement::of_entry(source.clone(), &meta, 4096), None);
    assert_eq!(RemoteAnnouncement::of_entry(source, &meta, 0), None);
}

#[test]
fn one_bad_item_does_not_spoil_the_others() {
    let text = json!({
        "aa": announced_for_test(),
        "bb": 123,
        "cc": with("peer_port", json!("5601")),
        "dd": {"modality": "image", "metadata": {}, "item_indices": [3]},
        "": announced_for_test(),
    })
    .to_string();
    let params = parse_params_text(&text, &ParamsLimits::default()).unwrap();
    let kinds: Vec<_> = params
        .items
        .iter()
        .map(|(mm_hash, item)| {
            (mm_hash.as_str(), item.as_ref().map_err(AnnouncementError::kind).cloned())
        })
        .collect();
    assert_eq!(
        kinds,
        [
            ("aa", Ok(Announcement::Remote(remote(&announced_for_test())))),
            ("bb", Err("not_an_object")),
            ("cc", Err("type")),
            ("dd", Ok(Announcement::MetadataOnly)),
        ]
    );
    assert_eq!(params.refused_keys.len(), 1);
}

#[rstest]
#[case("[]")]
#[case("null")]
#[case("\"x\"")]
#[case("3")]
fn params_that_are_no_object_are_an_error(#[case] text: &str) {
    let error = parse_params_text(text, &ParamsLimits::default()).unwrap_err();
    assert!(matches!(error, ParamsError::NotAnObject { .. }), "{error}");
}

#[test]
fn params_that_are_no_json_say_where() {
    let error = parse_params_text("{\"a\": }", &ParamsLimits::default()).unwrap_err().to_string();
    assert!(error.contains("line 1 column 7"), "{error}");
    let nested = "[".repeat(100_000);
    let error = parse_params_text(&nested, &ParamsLimits::default()).unwrap_err().to_string();
    assert!(error.contains("recursion limit"), "{error}");
}

#[test]
fn params_are_bounded_in_items_and_in_text() {
    let limits = ParamsLimits::default();
    let items = |count: usize| -> Value {
        (0..count).map(|item| (format!("{item}"), json!({}))).collect::<Map<_, _>>().into()
    };
    assert_eq!(parse_params(&items(MAX_PARAMS_ITEMS), &limits).unwrap().items.len(), 4096);
    assert_eq!(
        parse_params(&items(MAX_PARAMS_ITEMS + 1), &limits),
        Err(ParamsError::TooManyItems { items: 4097, limit: 4096 })
    );
    let mut text = String::from("{}");
    text.push_str(&" ".repeat(MAX_PARAMS_BYTES - text.len()));
    assert!(parse_params_text(&text, &limits).is_ok());
    text.push(' ');
    assert_eq!(
        parse_params_text(&text, &limits),
        Err(ParamsError::TooLong { bytes: MAX_PARAMS_BYTES + 1, limit: MAX_PARAMS_BYTES })
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}|[0-9.:x]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let key = "peer_host|peer_port|size_bytes|shape|[a-z]{0,3}";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(key, inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_panics_and_what_passes_is_sound(
        host in prop_oneof![Just(json!("10.0.0.5")), any_json()],
        port in prop_oneof![Just(json!(5601)), any_json()],
        size in prop_oneof![(0u64..20_000).prop_map(Value::from), any_json()],
        shape in prop_oneof![
            (0u32..40, 0u32..200).prop_map(|(rows, width)| json!([rows, width])),
            any_json(),
        ],
        rows in prop::option::of(0u32..40),
        width in prop::option::of(0u32..200),
        dtype in prop::option::of(prop::sample::select(Dtype::ALL)),
        block_size_bytes in prop_oneof![Just(0u64), Just(512), Just(u64::MAX), any::<u64>()],
        region_blocks in any::<u32>(),
    ) {
        let value = json!({
            "peer_host": host, "peer_port": port, "size_bytes": size, "shape": shape,
        });
        if let Ok(Announcement::Remote(remote)) = Announcement::parse(&value) {
            prop_assert!(remote.rows > 0 && remote.width > 0 && remote.size_bytes > 0);
            let expected = Expectation { rows, width, dtype, block_size_bytes, region_blocks };
            if let Ok(blocks) = remote.check(&expected) {
                prop_assert!(blocks > 0 && blocks <= region_blocks);
                prop_assert_eq!(u64::from(blocks) * block_size_bytes, remote.size_bytes);
                prop_assert_eq!(rows.unwrap_or(remote.rows), remote.rows);
                prop_assert_eq!(width.unwrap_or(remote.width), remote.width);
            }
        }
    }

    #[test]
    fn no_params_panic(value in any_json(), text in "\\PC{0,40}|[\\[\\]{}:,\"0-9a]{0,40}") {
        let limits = ParamsLimits::default();
        let _ = parse_params(&value, &limits);
        let _ = parse_params_text(&text, &limits);
    }

    #[test]
    fn every_entry_is_announced_so_that_it_is_accepted(
        rows in 1u32..5000,
        width in 1u32..9000,
        dtype in prop::sample::select(Dtype::ALL),
        block_size_bytes in 1u64..100_000,
    ) {
        let meta = EntryMeta::new(rows, width, dtype).unwrap();
        let source = Endpoint::parse("vision-0:5601").unwrap();
        let Some(offer) = RemoteAnnouncement::of_entry(source, &meta, block_size_bytes) else {
            return Ok(());
        };
        let value = OutgoingAnnouncement::new("image", 0).with_entry(offer, Map::new()).to_json();
        for dtype in [None, Some(dtype)] {
            let expected = Expectation {
                rows: Some(rows), width: Some(width), dtype, block_size_bytes,
                region_blocks: u32::MAX,
            };
            prop_assert_eq!(remote(&value).check(&expected).ok(), meta.blocks(block_size_bytes));
        }
    }
}
