//! The settings of the nixl plane.

use chiasm_core::config::NixlBackend;
use rstest::rstest;
use serde_json::{Value, json};

use super::{problems, read, with};

#[test]
fn without_them_nixl_is_looked_for_and_uses_what_it_finds() {
    let config = read(&json!({"ec_cpu_bytes": 4096})).unwrap();
    assert_eq!(config.nixl.library.value, None);
    assert_eq!(config.nixl.backend.value, NixlBackend::Ucx);
    assert_eq!(config.nixl.interfaces.value, None);
    assert_eq!(config.nixl.ports.value, None);
}

#[test]
fn each_is_taken_as_it_is_written() {
    let given = json!({
        "ec_cpu_bytes": 4096,
        "ec_nixl_library": "/opt/nixl/lib64",
        "ec_nixl_backend": "LIBFABRIC",
        "ec_nixl_interfaces": ["mlx5_0:1", "eth0", "bond0.42"],
        "ec_nixl_ports": "42000-42100",
    });
    let nixl = read(&given).unwrap().nixl;
    assert_eq!(nixl.library.value.as_deref(), Some("/opt/nixl/lib64"));
    assert_eq!(nixl.backend.value, NixlBackend::Libfabric);
    let interfaces = nixl.interfaces.value.unwrap();
    assert_eq!(interfaces.iter().collect::<Vec<_>>(), ["mlx5_0:1", "eth0", "bond0.42"]);
    assert_eq!(interfaces.to_string(), "mlx5_0:1,eth0,bond0.42", "as UCX takes it");
    let ports = nixl.ports.value.unwrap();
    assert_eq!((ports.first(), ports.last()), (42000, 42100));
}

#[rstest]
#[case("ec_nixl_library", json!("libnixl_capi.so"))]
#[case("ec_nixl_library", json!(""))]
#[case("ec_nixl_library", json!("/a\0b"))]
#[case("ec_nixl_library", json!(7))]
#[case("ec_nixl_library", json!(format!("/{}", "a".repeat(4095))))]
#[case("ec_nixl_backend", json!("ucx"))]
#[case("ec_nixl_backend", json!("MOONCAKE"))]
#[case("ec_nixl_backend", json!(["UCX"]))]
#[case("ec_nixl_interfaces", json!("eth0"))]
#[case("ec_nixl_interfaces", json!([]))]
#[case("ec_nixl_interfaces", json!(["eth0,eth1"]))]
#[case("ec_nixl_interfaces", json!(["eth0 "]))]
#[case("ec_nixl_interfaces", json!([""]))]
#[case("ec_nixl_interfaces", json!([7]))]
#[case("ec_nixl_interfaces", json!(["a".repeat(71)]))]
#[case("ec_nixl_interfaces", json!(vec!["eth0"; 33]))]
#[case("ec_nixl_ports", json!("42100-42000"))]
#[case("ec_nixl_ports", json!("0-10"))]
#[case("ec_nixl_ports", json!("42000"))]
#[case("ec_nixl_ports", json!("42000-65536"))]
#[case("ec_nixl_ports", json!("+1-2"))]
#[case("ec_nixl_ports", json!([42000, 42100]))]
#[case("ec_nixl_ports", json!(42000))]
fn what_is_none_is_one_problem_that_shows_the_form(#[case] key: &str, #[case] given: Value) {
    let lines = problems(read(&with(key, given)));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with(key) && lines[0].contains("; allowed: "), "{}", lines[0]);
    assert!(lines[0].contains(", for example "), "{}", lines[0]);
}

#[test]
fn the_entry_that_is_wrong_is_named() {
    let lines = problems(read(&with("ec_nixl_interfaces", json!(["eth0", "a b", "c;d"]))));
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("ec_nixl_interfaces, entry 2, \"a b\": "), "{}", lines[0]);
    assert!(lines[1].starts_with("ec_nixl_interfaces, entry 3, \"c;d\": "), "{}", lines[1]);
}

#[test]
fn a_misspelt_one_is_an_error_that_names_the_right_one() {
    let lines = problems(read(&with("ec_nixl_port", json!("1-2"))));
    assert_eq!(lines, ["ec_nixl_port: no such key; did you mean ec_nixl_ports?"]);
}
