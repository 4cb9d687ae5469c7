//! What only several settings together can get wrong.

use rstest::rstest;
use serde_json::{Value, json};

use super::{problems, read, read_in, warnings, whole};

fn extra(more: &Value) -> Value {
    let mut extra = json!({"ec_cpu_bytes": 1});
    for (key, value) in more.as_object().unwrap() {
        extra[key] = value.clone();
    }
    extra
}

#[rstest]
#[case(json!({"pin_lease_s": 20}), "pin_lease_s, 20: must be more than read_timeout_s, which is 20s")]
#[case(json!({"pin_lease_s": 19.5}), "pin_lease_s, 19.5: must be more than read_timeout_s, which is 20s")]
#[case(json!({"read_timeout_s": 30}), "pin_lease_s, 30: must be more than read_timeout_s, which is 30s")]
#[case(json!({"quarantine_s": 19}), "quarantine_s, 19: must not be less than read_timeout_s, which is 20s")]
fn times_that_contradict_each_other_are_problems(#[case] more: Value, #[case] start: &str) {
    let lines = problems(read(&extra(&more)));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with(start), "{}", lines[0]);
}

#[rstest]
#[case(json!({"pin_lease_s": 20.001}))]
#[case(json!({"read_timeout_s": 29.999}))]
#[case(json!({"quarantine_s": 20}))]
fn times_at_the_edge_of_a_contradiction_are_fine(#[case] more: Value) {
    assert_eq!(problems(read(&extra(&more))), [""; 0]);
}

#[test]
fn a_time_that_is_wrong_by_itself_is_not_compared() {
    // Neither 0 nor the default of 20 s: nobody knows what was meant.
    let lines = problems(read(&extra(&json!({"pin_lease_s": 1, "read_timeout_s": 0}))));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("read_timeout_s, 0"), "{}", lines[0]);
}

#[test]
fn a_step_as_long_as_the_budget_leaves_no_time_for_a_retry() {
    let peers = json!({"ec_remote": true, "ec_allowed_peers": ["a:1"], "wait_budget_s": 20});
    let object = |role, more: &Value| {
        let mut extra = extra(&peers);
        for (key, value) in more.as_object().unwrap() {
            extra[key] = value.clone();
        }
        whole(role, &extra)
    };
    let line = |key: &str, value: &str| {
        format!(
            "{key}: {value} is not less than wait_budget_s, 20s: one silent peer uses up the budget, \
             and no retry follows"
        )
    };
    assert_eq!(
        warnings(read(&object("ec_consumer", &json!({})))),
        [line("consumer_ack_timeout_s", "30s"), line("read_timeout_s", "20s"),]
    );
    let shorter = json!({"consumer_ack_timeout_s": 19.999, "read_timeout_s": 10});
    assert_eq!(warnings(read(&object("ec_consumer", &shorter))), [""; 0]);
    let connect =
        json!({"consumer_ack_timeout_s": 5, "read_timeout_s": 10, "connect_timeout_s": 25});
    assert_eq!(
        warnings(read(&object("ec_consumer", &connect))),
        [line("connect_timeout_s", "25s")]
    );
    // A producer does not wait for anybody.
    let lines = warnings(read_in(
        &whole("ec_producer", &extra(&json!({"ec_remote": true, "wait_budget_s": 20}))),
        &[("VLLM_EC_SIDE_CHANNEL_PORT", "5601")],
    ));
    assert_eq!(lines, [""; 0]);
}

#[test]
fn an_allowlist_without_effect_is_told() {
    let port = [("VLLM_EC_SIDE_CHANNEL_PORT", "5601")];
    let peers = json!(["a:1"]);
    let of = |role: &str, extra: &Value| warnings(read_in(&whole(role, extra), &port));
    let off = extra(&json!({"ec_allowed_peers": peers}));
    let on = extra(&json!({"ec_allowed_peers": peers, "ec_remote": true}));
    let nobody = extra(&json!({"ec_remote": true}));
    for role in ["ec_producer", "ec_consumer", "ec_both"] {
        assert_eq!(
            of(role, &off),
            ["ec_allowed_peers: has no effect while ec_remote (ec_enable_nixl) is false"]
        );
        assert_eq!(of(role, &extra(&json!({}))), [""; 0]);
    }
    assert_eq!(
        of("ec_producer", &on),
        [
            "ec_allowed_peers: has no effect on an ec_producer; it names producers to read from and does \
         not limit who may read from this one"
        ]
    );
    assert_eq!(of("ec_producer", &nobody), [""; 0]);
    for role in ["ec_consumer", "ec_both"] {
        assert_eq!(of(role, &on), [""; 0]);
        assert_eq!(
            of(role, &nobody),
            [
                "ec_allowed_peers: is empty, so this instance reads from nobody; add the endpoints of the \
             producers that you trust"
            ]
        );
    }
}
