//! Keys that nobody knows: a misspelt one stops the start, a foreign one does not.

use chiasm_core::config::{KEYS, Key, Place, Reason};
use rstest::rstest;
use serde_json::json;

use super::{problems, read, warnings, whole, with};

#[rstest]
#[case("ec_allowed_peer")]
#[case("ec_alowed_peers")]
#[case("allowed_peers")]
#[case("allowed_peer")]
#[case("ec_allow_peers")]
#[case("EC_ALLOWED_PEERS")]
#[case("ec-allowed-peers")]
#[case("allowedPeers")]
fn a_misspelt_allowlist_is_never_ignored(#[case] key: &str) {
    for object in [
        with(key, json!(["10.0.0.5:5601"])),
        whole("ec_consumer", &with(key, json!(["10.0.0.5:5601"]))),
    ] {
        let error = read(&object).unwrap_err();
        let problem = error.problems.iter().next().unwrap();
        assert_eq!(&*problem.key, key);
        assert_eq!(problem.nearest(), Some("ec_allowed_peers"));
        assert_eq!(
            problem.to_string(),
            format!("{key}: no such key; did you mean ec_allowed_peers?")
        );
    }
    // Nor where it is misplaced besides.
    let mut object = whole("ec_consumer", &with("ec_verify", true.into()));
    object[key] = json!(["10.0.0.5:5601"]);
    assert_eq!(problems(read(&object)).len(), 1);
}

#[test]
fn every_key_is_recognised_in_every_spelling_that_is_one_edit_away() {
    let extra = KEYS.iter().filter(|key| key.place == Place::ExtraConfig);
    let names: Vec<_> = KEYS.iter().flat_map(Key::names).collect();
    for name in extra.flat_map(Key::names) {
        let missing = (0..name.len()).map(|at| name[..at].to_owned() + &name[at + 1..]);
        let doubled = (0..name.len()).map(|at| name[..=at].to_owned() + &name[at..]);
        let wrong = (0..name.len()).map(|at| name[..at].to_owned() + "~" + &name[at + 1..]);
        for misspelt in missing.chain(doubled).chain(wrong) {
            if names.contains(&misspelt.as_str()) {
                continue;
            }
            let error = read(&with(&misspelt, json!(1))).unwrap_err();
            let nearest = error.problems.iter().next().unwrap().nearest();
            assert_eq!(nearest, Some(name), "{misspelt}");
        }
    }
}

#[rstest]
#[case("ec_x")]
#[case("ec_")]
#[case("consumer_x")]
#[case("pin_memory")]
#[case("read_ahead_bytes")]
#[case("quarantine_x")]
#[case("wait_x")]
#[case("connect_x")]
#[case("save_x")]
fn a_key_that_starts_like_ours_is_a_problem(#[case] key: &str) {
    let error = read(&with(key, json!(1))).unwrap_err();
    let problem = error.problems.iter().next().unwrap();
    assert!(matches!(problem.reason, Reason::Unknown { .. }), "{problem}");
    if problem.nearest().is_none() {
        assert_eq!(
            problem.to_string(),
            format!("{key}: no such key; `chiasm config reference` lists the valid ones")
        );
    }
}

#[test]
fn any_other_key_is_one_warning_each() {
    let extra = json!({
        "ec_cpu_bytes": 1, "shared_storage_path": "/x", "num_ec_blocks": 8, "timeout_s": 3, "": 0,
        "line\nbreak": 1,
    });
    assert_eq!(
        warnings(read(&extra)),
        [r#""""#, r#""line\nbreak""#, "num_ec_blocks", "shared_storage_path", "timeout_s"].map(
            |key| {
                format!("{key}: Chiasm has no such key in ec_connector_extra_config and ignores it")
            }
        )
    );
}

#[test]
fn both_names_of_remote_reads_may_stand_side_by_side_if_they_agree() {
    let extra = |ours, upstreams| json!({"ec_cpu_bytes": 1, "ec_remote": ours, "ec_enable_nixl": upstreams});
    for (ours, upstreams, on) in
        [(json!(true), json!("yes"), true), (json!(0), json!(false), false)]
    {
        let config = read(&extra(ours, upstreams)).unwrap();
        assert_eq!(config.remote.value, on);
        assert_eq!(config.remote.source.to_string(), "key ec_remote");
    }
    for (ours, upstreams, shown) in [(true, "no", "\"no\""), (false, "TRUE", "\"TRUE\"")] {
        let lines = problems(read(&extra(json!(ours), json!(upstreams))));
        assert_eq!(
            lines,
            [format!(
                "ec_enable_nixl, {shown}: contradicts ec_remote, which is another name for it"
            )]
        );
    }
    let config = read(&with("ec_enable_nixl", json!(true))).unwrap();
    assert_eq!(config.remote.source.to_string(), "key ec_enable_nixl");
}
