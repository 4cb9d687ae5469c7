//! The engine's whole object, or the plug-in's part of it; and settings in the wrong place.

use chiasm_core::config::Source;
use serde_json::{Value, json};

use super::{problems, read, read_in, warnings, whole, with};

#[test]
fn the_whole_object_and_its_inner_part_say_the_same() {
    let extra = with("ec_remote", json!(true));
    let inner = read(&extra).unwrap();
    let outer = read(&whole("ec_both", &extra)).unwrap();
    assert_eq!((outer.remote, outer.region_bytes), (inner.remote, inner.region_bytes));
    assert_eq!(outer.role.source, Source::Key("ec_role"));
    assert_eq!(inner.role.source, Source::Default);
}

#[test]
fn what_belongs_inside_or_outside_is_told_so() {
    let object = json!({
        "ec_connector": "ChiasmConnector", "ec_role": "ec_producer", "ec_cpu_bytes": "4GiB",
        "ec_connector_extra_config": {"ec_cpu_bytes": "4GiB", "engine_id": "e0", "VLLM_HOST_IP": "a"},
    });
    assert_eq!(
        problems(read(&object)),
        [
            "ec_cpu_bytes: stands in --ec-transfer-config, belongs in ec_connector_extra_config",
            "VLLM_HOST_IP: stands in ec_connector_extra_config, belongs in the environment",
            "engine_id: stands in ec_connector_extra_config, belongs in --ec-transfer-config",
        ]
    );
}

#[test]
fn one_key_of_the_engine_makes_it_the_engines_object() {
    // Somebody has put the id among the plug-in's keys.
    let lines = problems(read(&json!({"engine_id": "e0", "ec_cpu_bytes": "4GiB"})));
    assert_eq!(lines.len(), 3, "{lines:?}");
    let belongs =
        "ec_cpu_bytes: stands in --ec-transfer-config, belongs in ec_connector_extra_config";
    assert_eq!(lines[0], belongs);
    assert!(lines[1].starts_with("ec_role: missing; allowed: ec_producer, ec_consumer, ec_both"));
    assert!(lines[2].starts_with("ec_cpu_bytes: missing"));
}

#[test]
fn an_inner_part_that_is_no_object_is_a_problem() {
    for extra in [json!(null), json!([]), json!("{}"), json!(7)] {
        let lines = problems(read(&whole("ec_consumer", &extra)));
        let start = "ec_connector_extra_config, ";
        assert!(lines[0].starts_with(start), "{extra}: {lines:?}");
        assert!(
            lines[0].contains("not allowed; allowed: an object, for example {\"ec_cpu_bytes\"")
        );
    }
    for value in [json!(null), json!([]), json!("{}"), json!(7)] {
        let lines = problems(read(&value));
        assert!(lines[0].starts_with("configuration, "), "{value}");
        assert!(lines[0].ends_with(": not a JSON object"), "{value}");
    }
}

#[test]
fn keys_of_the_engine_that_are_not_ours_pass() {
    let mut object = whole("ec_consumer", &with("ec_verify", json!(true)));
    object["mm_encoder_output_widths"] = json!({"image": 64});
    assert_eq!(warnings(read(&object)), [""; 0]);
    object["ec_port"] = json!(14579);
    object["ec_new_key_of_a_later_engine"] = json!(1);
    object["unheard_of"] = json!(1);
    assert_eq!(
        warnings(read(&object)),
        [
            "ec_new_key_of_a_later_engine: Chiasm has no such key in --ec-transfer-config and ignores it",
            "ec_port: is for other connectors, and Chiasm does not read it",
            "unheard_of: Chiasm has no such key in --ec-transfer-config and ignores it",
        ]
    );
    object["ec_rol"] = json!("ec_both");
    assert_eq!(problems(read(&object)), ["ec_rol: no such key; did you mean ec_role?"]);
}

#[test]
fn an_object_without_a_connector_is_useless_to_the_engine() {
    let object = json!({"ec_role": "ec_both", "ec_connector_extra_config": {"ec_cpu_bytes": 1}});
    assert_eq!(
        warnings(read(&object)),
        ["ec_connector: is not set, so vLLM loads no connector at all"]
    );
}

#[test]
fn an_object_that_loads_another_connector_is_told_so() {
    let told = |connector: Value, module: Value| {
        let mut object = whole("ec_consumer", &json!({"ec_cpu_bytes": 1}));
        object["ec_connector"] = connector;
        object["ec_connector_module_path"] = module;
        warnings(read(&object))
    };
    assert_eq!(told(json!("ChiasmConnector"), json!("chiasm.vllm")), [""; 0]);
    // Whoever forgets one of the two keys on the way from vLLM's own connector.
    for module in [json!("chiasm.vllm"), json!(null)] {
        assert_eq!(
            told(json!("ECCPUConnector"), module),
            [
                "ec_connector, \"ECCPUConnector\": is not Chiasm's, so none of this is in force, the \
                 allowlist included; write \"ChiasmConnector\""
            ]
        );
    }
    assert_eq!(
        told(json!("ChiasmConnector"), json!(null)),
        ["ec_connector_module_path: is not set, so vLLM looks for ChiasmConnector among its own \
             connectors and does not find it; write \"chiasm.vllm\""]
    );
    assert_eq!(
        told(json!("ChiasmConnector"), json!("chiasm.vlm")),
        [
            "ec_connector_module_path, \"chiasm.vlm\": is not Chiasm's; unless a module of yours has \
             ChiasmConnector, write \"chiasm.vllm\""
        ]
    );
    assert_eq!(
        told(json!(null), json!("chiasm.vllm")),
        ["ec_connector: is not set, so vLLM loads no connector at all"]
    );
}

#[test]
fn all_problems_are_told_at_once() {
    let mut extra = json!({
        "ec_cpu_bytes": "4G", "ec_remote": "maybe", "ec_enable_nixl": "on", "ec_planes": [],
        "ec_advertise_host": "*", "ec_verify": 2, "consumer_ack_timeout_s": 0, "pin_lease_s": "x",
        "read_timeout_s": -1, "quarantine_s": null, "wait_budget_s": 1e9, "connect_timeout_s": [],
        "save_timeout_s": {}, "allowed_peers": [], "ec_foo": 1,
    });
    extra["ec_allowed_peers"] = (0..33).map(|at| format!("host{at}")).collect::<Vec<_>>().into();
    let object = json!({
        "ec_role": "both", "engine_id": "a/b", "engine_idd": "x", "ec_connector_extra_config": extra,
    });
    let variables = [("VLLM_EC_SIDE_CHANNEL_HOST", "0.0.0.0"), ("VLLM_EC_SIDE_CHANNEL_PORT", "-1")];
    let lines = problems(read_in(&object, &variables));
    // Thirteen keys, two unknown ones, three outside, two variables, the allowlist's entries.
    assert_eq!(lines.len(), 13 + 2 + 3 + 2 + 33, "{lines:#?}");
    let error = read_in(&object, &variables).unwrap_err();
    assert_eq!((error.problems.len(), error.problems.omitted()), (53, 0));
    let text = error.to_string();
    assert!(text.starts_with("the configuration has 53 problems\n  "), "{text}");
    assert_eq!(text.lines().count(), 54);
    for line in &lines {
        assert!(text.contains(line), "{line}");
    }
}
