//! Where a producer listens: variables, what the engine has found, and the rank's port.

use chiasm_core::config::{Config, Facts, Source};
use rstest::rstest;
use serde_json::{Value, json};

use super::{FACTS, problems, read_in, read_with, warnings, whole};

const HOST: &str = "VLLM_EC_SIDE_CHANNEL_HOST";
const PORT: &str = "VLLM_EC_SIDE_CHANNEL_PORT";
const REMEDY: &str = "set VLLM_EC_SIDE_CHANNEL_HOST to the address or name of this host that peers \
                      can reach, or to localhost to serve this host alone";

fn producer() -> Value {
    whole("ec_producer", &json!({"ec_cpu_bytes": 1, "ec_remote": true}))
}

fn listen(config: &Config) -> (String, Source, Source) {
    let channel = config.side_channel.as_ref().unwrap();
    (channel.listen().unwrap().to_string(), channel.host.source, channel.port.source)
}

#[test]
fn the_variable_wins_then_the_engines_own_then_what_it_found() {
    let ours = Source::Variable(HOST);
    let engines = Source::Variable("VLLM_HOST_IP");
    for (variables, host, source) in [
        (vec![(HOST, "a.example"), ("VLLM_HOST_IP", "10.0.0.7")], "a.example:0", ours),
        (vec![(HOST, "localhost")], "localhost:0", ours),
        (vec![(HOST, "FE80::1")], "[fe80::1]:0", ours),
        (vec![("VLLM_HOST_IP", "10.0.0.7")], "10.0.0.7:0", engines),
        (vec![("VLLM_HOST_IP", "")], "10.0.0.5:0", Source::Engine),
        (vec![], "10.0.0.5:0", Source::Engine),
    ] {
        let config = read_in(&producer(), &variables).unwrap();
        assert_eq!(listen(&config), (host.into(), source, Source::Default), "{variables:?}");
    }
}

#[rstest]
#[case("*")]
#[case("0.0.0.0")]
#[case("::")]
#[case("[::]")]
#[case("::ffff:0.0.0.0")]
#[case("")]
fn a_wildcard_is_a_problem_whoever_came_up_with_it(#[case] wildcard: &str) {
    let given = problems(read_in(&producer(), &[(HOST, wildcard)]));
    let start =
        format!("{HOST}, \"{wildcard}\": cannot be announced: nobody can connect to it; {REMEDY}");
    assert_eq!(given.len(), 1);
    assert!(given[0].starts_with(&start), "{}", given[0]);

    if !wildcard.is_empty() {
        let engines = problems(read_in(&producer(), &[("VLLM_HOST_IP", wildcard)]));
        assert!(engines[0].starts_with("VLLM_HOST_IP, "), "{}", engines[0]);
        assert!(engines[0].contains(REMEDY), "{}", engines[0]);
    }

    let facts = Facts { host_address: Some(wildcard), ..FACTS };
    let found = problems(read_with(&producer(), &[], &facts));
    assert_eq!(
        found,
        [format!(
            "{HOST}, \"{wildcard}\": is what the engine found as this host's address, and nobody can \
         connect to it; {REMEDY}"
        )]
    );
    // The variable makes it good.
    assert!(read_with(&producer(), &[(HOST, "10.0.0.5")], &facts).is_ok());
}

#[rstest]
#[case("127.1", "it reads like a number")]
#[case("10.0.0.5:5601", "this is no IPv6 address")]
#[case(" 10.0.0.5", "' ' cannot stand in a host name")]
#[case("tcp://10.0.0.5", "this is no IPv6 address")]
#[case("fe80::1%eth0", "no zone id")]
#[case("caf\u{fffd}", "cannot stand in a host name")]
fn another_host_that_is_none_is_a_problem(#[case] host: &str, #[case] reason: &str) {
    let lines = problems(read_in(&producer(), &[(HOST, host)]));
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].starts_with(&format!("{HOST}, ")) && lines[0].contains(reason),
        "{}",
        lines[0]
    );
    assert!(lines[0].contains("without a port"), "{}", lines[0]);
    let facts = Facts { host_address: Some(host), ..FACTS };
    assert!(problems(read_with(&producer(), &[], &facts))[0].contains(REMEDY));
}

#[test]
fn without_an_engine_to_ask_the_host_stays_open() {
    let facts = Facts { host_address: None, ..FACTS };
    let channel = read_with(&producer(), &[], &facts).unwrap().side_channel.unwrap();
    assert_eq!((channel.host.value.as_ref(), channel.listen()), (None, None));
    let config = read_with(&producer(), &[(HOST, "a")], &facts).unwrap();
    assert_eq!(listen(&config).0, "a:0");
}

#[rstest]
#[case("5601", 0, 5601)]
#[case("5601", 7, 5608)]
#[case("1", 0, 1)]
#[case("65535", 0, 65535)]
#[case("65528", 7, 65535)]
#[case("0", 0, 0)]
#[case("0", u32::MAX, 0)]
fn each_rank_has_a_port_of_its_own(#[case] base: &str, #[case] index: u32, #[case] port: u16) {
    let facts = Facts { data_parallel_index: index, ..FACTS };
    let config = read_with(&producer(), &[(PORT, base)], &facts).unwrap();
    let (listen, _, source) = listen(&config);
    assert_eq!((listen, source), (format!("10.0.0.5:{port}"), Source::Variable(PORT)));
}

#[rstest]
#[case("65535", 1)]
#[case("65529", 7)]
#[case("5601", u32::MAX)]
fn a_port_past_the_last_one_is_a_problem(#[case] base: &str, #[case] index: u32) {
    let facts = Facts { data_parallel_index: index, ..FACTS };
    let lines = problems(read_with(&producer(), &[(PORT, base)], &facts));
    let start =
        format!("{PORT}, \"{base}\": plus the data-parallel index {index} is more than 65535; ");
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with(&start), "{}", lines[0]);
}

#[rstest]
#[case("-1")]
#[case("65536")]
#[case("99999999999999999999")]
#[case("")]
#[case(" 5601 ")]
#[case("+5601")]
#[case("05601")]
#[case("5601.0")]
#[case("0x15e1")]
#[case("5_601")]
#[case("\u{661}")]
#[case("tcp://10.0.0.1:5601")]
fn a_port_that_is_none_is_a_problem(#[case] port: &str) {
    let lines = problems(read_in(&producer(), &[(PORT, port)]));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with(&format!("{PORT}, \"")), "{}", lines[0]);
    let allowed =
        "not allowed; allowed: a number from 0 to 65535 in plain digits, for example 5601";
    assert!(lines[0].ends_with(allowed), "{}", lines[0]);
}

#[test]
fn an_instance_that_serves_nobody_is_not_stopped_by_them() {
    let variables = [(HOST, "0.0.0.0"), (PORT, "many")];
    let facts = Facts { host_address: Some("0.0.0.0"), ..FACTS };
    let peers = json!(["10.0.0.5:5601"]);
    let consumer = json!({"ec_cpu_bytes": 1, "ec_remote": true, "ec_allowed_peers": peers});
    let local = json!({"ec_cpu_bytes": 1});
    for object in [whole("ec_consumer", &consumer), whole("ec_both", &local), local] {
        let config = read_with(&object, &variables, &facts);
        assert_eq!(
            warnings(config.clone()),
            [
                format!(
                    "{HOST}, \"0.0.0.0\": not allowed; no harm done, because this instance serves nobody"
                ),
                format!(
                    "{PORT}, \"many\": not allowed; no harm done, because this instance serves nobody"
                ),
            ]
        );
        assert_eq!(config.unwrap().side_channel, None);
    }
}

#[test]
fn a_producer_is_told_when_its_endpoint_cannot_be_named_or_reached() {
    let port = format!(
        "{PORT}: is 0, so the port is another one after each start and no ec_allowed_peers can name \
         it for long; set it, for example to 5601"
    );
    assert_eq!(warnings(read_in(&producer(), &[])), [port.as_str()]);
    let facts = Facts { host_address: Some("127.0.0.1"), ..FACTS };
    let loopback = format!(
        "{HOST}: is not set, and the engine found 127.0.0.1, which other hosts cannot reach"
    );
    assert_eq!(warnings(read_with(&producer(), &[], &facts)), [loopback.as_str(), port.as_str()]);
    // Asked for, it is fine.
    let variables = [(HOST, "127.0.0.1"), (PORT, "5601")];
    assert_eq!(warnings(read_with(&producer(), &variables, &facts)), [""; 0]);
}
