//! Each key by itself: what it takes, what it refuses, what holds without it.

use std::time::Duration;

use chiasm_core::config::{Config, Fallback, KEYS, Place, Source};
use chiasm_core::limits::{ACK_TIMEOUT, MAX_ALLOWED_ENDPOINTS, READ_TIMEOUT, UPSTREAM_LEASE};
use chiasm_core::plane::Plane;
use chiasm_core::{admission, byte_size::ByteSize};
use rstest::rstest;
use serde_json::{Value, json};

use super::{problems, read, read_in, whole, with};

#[test]
fn without_a_key_the_documented_default_holds() {
    let config = read(&json!({"ec_cpu_bytes": 4096})).unwrap();
    assert_eq!(config.role.value, None);
    assert_eq!(config.engine_id.value, None);
    assert_eq!(config.region_bytes.value, ByteSize(4096));
    assert!(!config.remote.value);
    assert!(config.allowed_peers.value.is_empty());
    assert_eq!(config.planes.value.list().iter().collect::<Vec<_>>(), Plane::ALL);
    assert!(config.planes.value.required().is_empty());
    assert_eq!(config.side_channel, None);
    assert_eq!(config.advertise_host.value, None);
    assert!(config.verify.value);
    assert_eq!(config.ack_timeout.value, ACK_TIMEOUT);
    assert_eq!(config.lease.value, UPSTREAM_LEASE);
    assert_eq!(config.read_timeout.value, READ_TIMEOUT);
    assert_eq!(config.wait_budget.value, admission::limits::WAIT_BUDGET);
    assert_eq!(config.quarantine.value, Duration::from_mins(1));
    assert_eq!(config.connect_timeout.value, Duration::from_secs(3));
    assert_eq!(config.save_timeout.value, Duration::from_mins(1));
    assert_eq!(config.region_bytes.source, Source::Key("ec_cpu_bytes"));
    let others = config.effective().into_iter().filter(|row| row.name != "ec_cpu_bytes");
    others.for_each(|row| assert_eq!(row.source, Source::Default, "{}", row.name));
}

#[test]
fn every_documented_default_says_what_holds_without_the_key() {
    let silent = read(&json!({"ec_cpu_bytes": "1GiB"})).unwrap();
    let mut seen = 0;
    for key in KEYS.iter().filter(|key| key.place == Place::ExtraConfig) {
        let Fallback::Value(default) = key.fallback else { continue };
        for name in key.names() {
            let given = with(name, serde_json::from_str(default).unwrap());
            let given = read(&given).unwrap();
            assert_eq!(effective(&given), effective(&silent), "{name}");
            seen += 1;
        }
    }
    assert_eq!(seen, 13);
}

fn effective(config: &Config) -> Vec<(&'static str, Value)> {
    config.effective().into_iter().map(|row| (row.name, row.value)).collect()
}

#[test]
fn every_documented_example_is_valid() {
    for key in KEYS {
        let json = || serde_json::from_str(key.example).unwrap();
        let result = match key.place {
            Place::ExtraConfig => read(&with(key.name, json())),
            Place::TransferConfig => {
                let mut object = whole("ec_consumer", &json!({"ec_cpu_bytes": 4096}));
                object[key.name] = json();
                read(&object)
            }
            Place::Environment => {
                read_in(&with("ec_remote", true.into()), &[(key.name, key.example)])
            }
        };
        assert_eq!(problems(result), [""; 0], "{}", key.name);
    }
}

#[rstest]
#[case(json!(1), 1)]
#[case(json!(i64::MAX), i64::MAX.unsigned_abs())]
#[case(json!(1e9), 1_000_000_000)]
#[case(json!(4096.0), 4096)]
#[case(json!(9_007_199_254_740_992.0), 1 << 53)]
#[case(json!("4GiB"), 4 << 30)]
#[case(json!(" 4 gib "), 4 << 30)]
#[case(json!("4096"), 4096)]
fn a_size_is_a_number_of_bytes_or_has_a_unit(#[case] given: Value, #[case] bytes: u64) {
    let config = read(&json!({ "ec_cpu_bytes": given })).unwrap();
    assert_eq!(config.region_bytes.value, ByteSize(bytes));
}

#[rstest]
#[case(json!(0), "0")]
#[case(json!(-1), "-1")]
#[case(json!(0.5), "0.5")]
#[case(json!(1e19), "1e+19")]
#[case(json!(9_007_199_254_740_994.0), "9007199254740994.0")]
#[case(json!(i64::MAX.unsigned_abs() + 1), "9223372036854775808")]
#[case(json!("0"), r#""0""#)]
#[case(json!("8388608TiB"), r#""8388608TiB""#)]
#[case(json!("99999999999TiB"), r#""99999999999TiB""#)]
#[case(json!("4G"), r#""4G""#)]
#[case(json!(""), r#""""#)]
#[case(json!(true), "true")]
#[case(json!(null), "null")]
#[case(json!([1]), "an array of 1")]
#[case(json!({"bytes": 1}), "an object of 1")]
fn another_size_is_a_problem(#[case] given: Value, #[case] shown: &str) {
    let lines = problems(read(&json!({ "ec_cpu_bytes": given })));
    assert_eq!(
        lines,
        [format!(
            "ec_cpu_bytes, {shown}: not allowed; allowed: a whole number of bytes from 1 to 8 EiB - 1, \
         or a text with one of the units KiB, MiB, GiB, TiB (1024) and kB, MB, GB, TB (1000), for \
         example \"4GiB\""
        )]
    );
}

#[test]
fn the_size_of_the_region_must_be_given() {
    let lines = problems(read(&json!({})));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("ec_cpu_bytes: missing; allowed: a whole number"), "{}", lines[0]);
    assert!(lines[0].ends_with(", for example \"4GiB\""), "{}", lines[0]);
}

#[rstest]
#[case("ec_remote", |config: &Config| config.remote.value)]
#[case("ec_enable_nixl", |config: &Config| config.remote.value)]
#[case("ec_verify", |config: &Config| config.verify.value)]
fn a_switch_takes_the_words_of_upstream_and_their_opposites(
    #[case] key: &str,
    #[case] value: fn(&Config) -> bool,
) {
    for on in [json!(true), json!(1), json!("true"), json!("TRUE"), json!("1"), json!(" Yes ")] {
        assert!(value(&read(&with(key, on.clone())).unwrap()), "{on}");
    }
    for off in [json!(false), json!(0), json!("false"), json!("False"), json!("0"), json!("no")] {
        assert!(!value(&read(&with(key, off.clone())).unwrap()), "{off}");
    }
    let padded = " ".repeat(100) + "true";
    for wrong in [
        json!("on"),
        json!("off"),
        json!(""),
        json!("t"),
        json!("y"),
        json!(2),
        json!(-1),
        json!(1.0),
        json!(null),
        json!([]),
        json!([true]),
        json!({}),
        json!(padded),
    ] {
        let lines = problems(read(&with(key, wrong.clone())));
        assert_eq!(lines.len(), 1, "{wrong}");
        assert!(lines[0].starts_with(&format!("{key}, ")), "{}", lines[0]);
        assert!(lines[0].contains("allowed: true, 1, yes, false, 0 or no"), "{}", lines[0]);
    }
}

type Time = fn(&Config) -> Duration;

#[rstest]
#[case("consumer_ack_timeout_s", |config: &Config| config.ack_timeout.value)]
#[case("wait_budget_s", |config: &Config| config.wait_budget.value)]
#[case("connect_timeout_s", |config: &Config| config.connect_timeout.value)]
#[case("save_timeout_s", |config: &Config| config.save_timeout.value)]
#[case("pin_lease_s", |config: &Config| config.lease.value)]
#[case("quarantine_s", |config: &Config| config.quarantine.value)]
#[case("read_timeout_s", |config: &Config| config.read_timeout.value)]
fn a_time_is_a_finite_number_of_seconds_within_bounds(#[case] key: &str, #[case] time: Time) {
    // The largest first: the lease and the quarantine have to go with the read time-out.
    let around = |value: Value| {
        let mut extra = json!({
            "ec_cpu_bytes": 1, "read_timeout_s": 0.01, "pin_lease_s": 86400, "quarantine_s": 86400,
        });
        extra[key] = value;
        if key == "pin_lease_s" {
            extra["read_timeout_s"] = json!(0.01);
        }
        extra
    };
    for (given, nanos) in [
        (json!(25), 25_000_000_000),
        (json!(0.5), 500_000_000),
        (json!("30"), 30_000_000_000),
        (json!(" 1e1 "), 10_000_000_000),
        (json!(86399.5), 86_399_500_000_000),
        (json!(0.011), 11_000_000),
    ] {
        let config =
            read(&around(given.clone())).unwrap_or_else(|error| panic!("{given}: {error}"));
        assert_eq!(time(&config), Duration::from_nanos(nanos), "{given}");
    }
    for wrong in [
        json!(0),
        json!(0.0),
        json!(-1),
        json!(0.0099),
        json!(86_400.1),
        json!(1e300),
        json!("nan"),
        json!("inf"),
        json!("-inf"),
        json!("1e999"),
        json!(""),
        json!("30s"),
        json!("0x10"),
        json!(true),
        json!(null),
        json!([30]),
        json!({"s": 30}),
        json!(u64::MAX),
    ] {
        let lines = problems(read(&around(wrong.clone())));
        assert_eq!(lines.len(), 1, "{wrong}: {lines:?}");
        assert!(lines[0].starts_with(&format!("{key}, ")), "{}", lines[0]);
        let allowed = "not allowed; allowed: a number of seconds from 0.01 to 86400, for example ";
        assert!(lines[0].contains(allowed), "{}", lines[0]);
    }
}

#[rstest]
#[case("consumer_ack_timeout_s")]
#[case("wait_budget_s")]
#[case("connect_timeout_s")]
#[case("save_timeout_s")]
#[case("read_timeout_s")]
fn both_bounds_of_a_time_are_allowed(#[case] key: &str) {
    for bound in [0.01, 86400.0] {
        let extra = with(key, json!(bound));
        let lines = problems(read(&extra));
        // A read time-out of a day is allowed by itself and contradicts its neighbours.
        assert!(lines.iter().all(|line| line.contains("read_timeout_s, which is")), "{lines:?}");
    }
}

#[test]
fn the_allowlist_is_a_list_of_endpoints_and_ranges() {
    let given = json!(["10.0.0.5:5601", "Vision-0.example.:5601-5603", "[::1]:1"]);
    let config = read(&with("ec_allowed_peers", given)).unwrap();
    let peers: Vec<_> = config.allowed_peers.value.iter().map(ToString::to_string).collect();
    assert_eq!(
        peers,
        [
            "10.0.0.5:5601",
            "[::1]:1",
            "vision-0.example:5601",
            "vision-0.example:5602",
            "vision-0.example:5603",
        ]
    );
    assert!(read(&with("ec_allowed_peers", json!([]))).unwrap().allowed_peers.value.is_empty());
}

#[test]
fn no_entry_of_the_allowlist_is_dropped_because_the_others_are_right() {
    for entry in [json!(5601), json!(null), json!(["b:1"]), json!("b")] {
        let lines = problems(read(&with("ec_allowed_peers", json!(["a:1", entry]))));
        assert_eq!(lines.len(), 1, "{entry}");
        assert!(lines[0].starts_with("ec_allowed_peers, entry 2, "), "{}", lines[0]);
    }
}

#[test]
fn every_wrong_entry_of_the_allowlist_is_named_with_its_place_in_the_list() {
    let given = json!(["a:1", 5601, "127.1:5601", "b:2", null, "*:1", ["c:3"], "c:3-2"]);
    let lines = problems(read(&with("ec_allowed_peers", given)));
    let starts = [
        "ec_allowed_peers, entry 2, 5601: not allowed; allowed: a list of \"host:port\"",
        "ec_allowed_peers, entry 3, \"127.1:5601\": it reads like a number but is no IPv4 address",
        "ec_allowed_peers, entry 5, null: not allowed",
        "ec_allowed_peers, entry 6, \"*:1\": an empty or wildcard host names no single producer",
        "ec_allowed_peers, entry 7, an array of 1: not allowed",
        "ec_allowed_peers, entry 8, \"c:3-2\": the range is reversed",
    ];
    assert_eq!(lines.len(), starts.len(), "{lines:?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
        assert!(line.ends_with("[\"10.0.0.5:5601\", \"vision-0.example:5601-5608\"]"), "{line}");
    }
}

#[rstest]
#[case("ec_allowed_peers", json!("10.0.0.5:5601"), "[\"10.0.0.5:5601\", ")]
#[case("ec_allowed_peers", json!("10.0.0.5:5601,10.0.0.6:5601"), "[\"10.0.0.5:5601\", ")]
#[case("ec_allowed_peers", json!("[\"10.0.0.5:5601\"]"), "[\"10.0.0.5:5601\", ")]
#[case("ec_allowed_peers", json!({"a": 1}), "[\"10.0.0.5:5601\", ")]
#[case("ec_allowed_peers", json!(null), "[\"10.0.0.5:5601\", ")]
#[case("ec_allowed_peers", json!(false), "[\"10.0.0.5:5601\", ")]
#[case("ec_planes", json!("tcp"), "[\"shm\", \"nixl required\", \"tcp\"]")]
#[case("ec_planes", json!({"shm": "required"}), "[\"shm\", \"nixl required\", \"tcp\"]")]
fn what_is_no_list_is_answered_with_the_list_form(
    #[case] key: &str,
    #[case] given: Value,
    #[case] form: &str,
) {
    let lines = problems(read(&with(key, given)));
    assert_eq!(lines.len(), 1);
    let middle =
        ": no list; a single entry stands in brackets too, and each in quotes of its own; ";
    assert!(lines[0].contains(middle), "{}", lines[0]);
    assert!(lines[0].contains(&format!(", for example {form}")), "{}", lines[0]);
}

#[test]
fn a_list_longer_than_an_allowlist_is_refused_unread() {
    let full = vec![json!("a:1"); MAX_ALLOWED_ENDPOINTS];
    assert_eq!(
        read(&with("ec_allowed_peers", full.clone().into())).unwrap().allowed_peers.value.len(),
        1
    );
    let mut over = full;
    over.push(json!("b:1"));
    let lines = problems(read(&with("ec_allowed_peers", over.into())));
    assert_eq!(lines.len(), 1);
    let start = "ec_allowed_peers, an array of 65537: more than 65536 entries; allowed: a list of";
    assert!(lines[0].starts_with(start), "{}", lines[0]);
}

#[test]
fn planes_keep_their_order_and_say_which_must_be_there() {
    let config = read(&with("ec_planes", json!(["tcp", "nixl required"]))).unwrap();
    let planes = &config.planes.value;
    assert_eq!(planes.list().iter().collect::<Vec<_>>(), [Plane::Tcp, Plane::Nixl]);
    assert_eq!(planes.required().iter().collect::<Vec<_>>(), [Plane::Nixl]);
    let shown: Vec<_> = planes.iter().map(|choice| choice.to_string()).collect();
    assert_eq!(shown, ["tcp", "nixl required"]);
}

#[test]
fn planes_that_are_unknown_or_named_twice_are_problems() {
    let given =
        json!(["shm", "rdma", "shm required", 7, "TCP", "tcp  required", "tcp optional", " tcp"]);
    let lines = problems(read(&with("ec_planes", given)));
    let starts = [
        "ec_planes, entry 2, \"rdma\": not allowed; allowed: a list of at least one of shm, nixl, tcp",
        "ec_planes, entry 3, \"shm required\": named twice",
        "ec_planes, entry 4, 7: not allowed",
        "ec_planes, entry 5, \"TCP\": not allowed",
        "ec_planes, entry 6, \"tcp  required\": not allowed",
        "ec_planes, entry 7, \"tcp optional\": not allowed",
        "ec_planes, entry 8, \" tcp\": not allowed",
    ];
    assert_eq!(lines.len(), starts.len(), "{lines:?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    let lines = problems(read(&with("ec_planes", json!([]))));
    assert!(
        lines[0].starts_with("ec_planes, an array of 0: not allowed; allowed: a list of at least")
    );
}

#[test]
fn the_host_to_announce_is_canonical_and_no_wildcard() {
    let extra = |host: Value| {
        let mut extra = with("ec_advertise_host", host);
        extra["ec_remote"] = json!(true);
        extra
    };
    let config = read(&extra(json!("Vision-0.Example."))).unwrap();
    assert_eq!(config.advertise_host.value.unwrap().to_string(), "vision-0.example");
    for wrong in [
        json!("*"),
        json!(""),
        json!("0.0.0.0"),
        json!("::"),
        json!("127.1"),
        json!("a:5601"),
        json!("http://a"),
        json!(7),
        json!(null),
        json!(["a"]),
    ] {
        let lines = problems(read(&extra(wrong.clone())));
        assert_eq!(lines.len(), 1, "{wrong}");
        assert!(lines[0].starts_with("ec_advertise_host, "), "{}", lines[0]);
    }
}

#[test]
fn roles_are_the_engines() {
    let extra = json!({"ec_cpu_bytes": 1, "ec_remote": true});
    for (role, serves, reads) in
        [("ec_producer", true, false), ("ec_consumer", false, true), ("ec_both", true, true)]
    {
        let config = read(&whole(role, &extra)).unwrap();
        assert_eq!((config.side_channel.is_some(), config.reads()), (serves, reads), "{role}");
        assert_eq!(config.role.value.unwrap().to_string(), role);
    }
    // Not known: both.
    let config = read(&extra).unwrap();
    assert_eq!((config.side_channel.is_some(), config.reads()), (true, true));
    // Remote reads off: neither.
    let config = read(&whole("ec_both", &json!({"ec_cpu_bytes": 1}))).unwrap();
    assert_eq!((config.side_channel.is_some(), config.reads()), (false, false));
    for wrong in ["producer", "EC_BOTH", "", "ec_both "] {
        let lines = problems(read(&whole(wrong, &extra)));
        let allowed = "not allowed; allowed: ec_producer, ec_consumer, ec_both, for example";
        assert!(lines[0].contains(allowed), "{wrong}: {}", lines[0]);
    }
}

#[test]
fn an_engine_id_is_a_plain_bounded_name() {
    let with_id = |id: Value| {
        let mut object = whole("ec_both", &json!({"ec_cpu_bytes": 1}));
        object["engine_id"] = id;
        read(&object)
    };
    let longest = "x".repeat(128);
    for id in ["e0", "8d3f1c7e-0000-4000-8000-000000000000", "Pod_1.a-b", "-", &longest] {
        let id_read = with_id(json!(id)).unwrap().engine_id.value.unwrap();
        assert_eq!(id_read.as_str(), id);
        assert_eq!(id_read.agent_name(7), format!("{id}_dp7"));
    }
    assert_eq!(with_id(json!(null)).unwrap().engine_id.value, None);
    let long = "x".repeat(129);
    for id in [
        json!(""),
        json!(long),
        json!("a/b"),
        json!("t/../../../tmp/x"),
        json!(".."),
        json!(".a"),
        json!("a b"),
        json!("a\0"),
        json!("\u{e9}"),
        json!(7),
        json!({}),
    ] {
        let lines = problems(with_id(id.clone()));
        assert_eq!(lines.len(), 1, "{id}");
        assert!(lines[0].contains("allowed: 1 to 128 letters, digits"), "{}", lines[0]);
    }
}
