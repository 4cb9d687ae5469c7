//! Files that nobody wrote in good faith.

use chiasm_core::config::limits::MAX_FINDINGS;
use chiasm_core::config::{Config, Facts, KEYS, Key};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{problems, read, warnings, with};

#[test]
fn of_more_findings_than_a_person_reads_the_rest_is_counted() {
    let mut ours = json!({"ec_cpu_bytes": 1});
    let mut foreign = ours.clone();
    for at in 0..MAX_FINDINGS + 7 {
        ours[format!("ec_unknown_{at}")] = json!(1);
        foreign[format!("foreign_{at}")] = json!(1);
    }
    let error = read(&ours).unwrap_err();
    assert_eq!(error.problems.iter().count(), MAX_FINDINGS);
    assert_eq!((error.problems.len(), error.problems.omitted()), (MAX_FINDINGS + 7, 7));
    let text = error.to_string();
    assert!(text.starts_with(&format!("the configuration has {} problems\n", MAX_FINDINGS + 7)));
    assert!(text.ends_with("\n  and 7 more"));

    let config = read(&foreign).unwrap();
    assert_eq!((config.warnings.iter().count(), config.warnings.omitted()), (MAX_FINDINGS, 7));
}

#[test]
fn every_line_is_bounded_and_is_one_line() {
    let huge = "\u{661}\n".repeat(500_000);
    let list = vec![Value::from(huge.clone()); 3];
    for key in KEYS.iter().flat_map(Key::names) {
        for value in [json!(huge), json!(list), json!({ &huge: huge }), json!([[[[list]]]])] {
            for line in problems(read(&with(key, value))) {
                assert!(line.len() < 2048 && !line.contains('\n'), "{key}: {} bytes", line.len());
            }
        }
    }
    let plain = "x".repeat(1_000_000);
    for key in [format!("ec_{huge}"), format!("EC-{huge}"), format!("ec_{plain}")] {
        let lines = problems(read(&with(&key, json!(1))));
        assert_eq!(lines.len(), 1);
        assert!(lines[0].len() < 2048 && !lines[0].contains('\n'));
    }
    for key in [huge, plain] {
        let lines = warnings(read(&with(&key, json!(1))));
        assert!(lines.len() == 1 && lines[0].len() < 2048 && !lines[0].contains('\n'));
    }
}

#[test]
fn the_text_of_a_whole_error_is_bounded() {
    let worst = "\u{10FFFF}".repeat(100);
    let list = vec![Value::from(worst); 65_536];
    let error = read(&with("ec_allowed_peers", list.into())).unwrap_err();
    assert_eq!(error.problems.len(), 65_536);
    assert!(error.to_string().len() < MAX_FINDINGS * 2048);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        "[a-z0-9.:\\[\\]-]{0,12}".prop_map(Value::from),
        "(shm|nixl|tcp)( required)?".prop_map(Value::from),
        "[0-9]{1,22}([kKMGT]i?B)?".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any_key(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn any_key() -> impl Strategy<Value = String> {
    let names: Vec<_> = KEYS.iter().flat_map(Key::names).collect();
    prop_oneof![
        4 => prop::sample::select(names).prop_map(str::to_owned),
        1 => "[a-z_]{0,12}",
        1 => "\\PC{0,100}",
    ]
}

proptest! {
    #[test]
    fn no_json_panics_and_what_is_read_can_be_shown_and_holds_its_promises(
        members in prop::collection::btree_map(any_key(), any_json(), 0..12),
        complete in any::<bool>(),
        variable in prop::option::of("\\PC{0,12}|[0-9]{1,6}|[a-z.:]{0,12}"),
        data_parallel_index in any::<u32>(),
        host_address in prop::option::of("\\PC{0,12}|10.0.0.5"),
    ) {
        let mut object: Map<_, _> = members.into_iter().collect();
        if complete {
            object.insert("ec_cpu_bytes".into(), json!(4096));
        }
        let facts = Facts { data_parallel_index, host_address: host_address.as_deref() };
        match Config::read(&Value::Object(object), &|_| variable.clone(), &facts) {
            Ok(config) => {
                prop_assert!(config.effective().iter().all(|row| !row.text.is_empty()));
                prop_assert!(config.lease.value > config.read_timeout.value);
                prop_assert!(config.quarantine.value >= config.read_timeout.value);
                prop_assert!(config.region_bytes.value.0 > 0);
                prop_assert!(!config.planes.value.list().is_empty());
            }
            Err(error) => {
                prop_assert!(!error.problems.is_empty());
                prop_assert_eq!(error.to_string().lines().count(), error.problems.len() + 1);
            }
        }
    }
}
