//! The allowlist: what is approved, what is not, and what the operator is told.

use chiasm_core::allowlist::{Allowlist, AllowlistProblem, Verdict};
use chiasm_core::endpoint::{Endpoint, EndpointProblem};
use chiasm_core::limits::MAX_ALLOWED_ENDPOINTS;
use proptest::prelude::*;
use rstest::rstest;

fn allowlist(entries: &[&str]) -> Allowlist {
    Allowlist::parse(entries.iter().copied()).unwrap()
}

fn endpoint(text: &str) -> Endpoint {
    Endpoint::parse(text).unwrap()
}

fn refusal(allowlist: &Allowlist, text: &str) -> Option<String> {
    match allowlist.check(&endpoint(text)) {
        Verdict::Allowed => None,
        Verdict::Refused(refusal) => Some(refusal.to_string()),
    }
}

#[test]
fn an_empty_list_approves_nobody() {
    for list in [Allowlist::default(), allowlist(&[])] {
        assert!(list.is_empty());
        assert_eq!(
            refusal(&list, "10.0.0.5:5601").unwrap(),
            "10.0.0.5:5601 is not allowed; if this producer is trusted, add it: \
             ec_allowed_peers: [\"10.0.0.5:5601\"]"
        );
    }
}

#[test]
fn an_entry_approves_its_endpoint_in_every_accepted_spelling() {
    let list = allowlist(&["[::ffff:10.0.0.5]:5601", "Vision-0.Example.:5601", "[FE80::1]:5601"]);
    for text in ["10.0.0.5:5601", "vision-0.example:5601", "[fe80:0::1]:5601"] {
        assert_eq!(refusal(&list, text), None);
    }
    assert_eq!(list.len(), 3);
}

#[rstest]
#[case::nearest_below(&["10.0.0.5:5601"], "10.0.0.5:5602", "10.0.0.5:5601 is allowed, 10.0.0.5:5602 is not")]
#[case::nearest_above(&["10.0.0.5:5601"], "10.0.0.5:1", "10.0.0.5:5601 is allowed, 10.0.0.5:1 is not")]
#[case::nearer_of_two(&["a:10", "a:20"], "a:16", "a:20 is allowed, a:16 is not")]
#[case::ipv6(&["[::1]:10"], "[::1]:11", "[::1]:10 is allowed, [::1]:11 is not")]
#[case::past_a_range(&["a:10-12", "b:1", "A:9"], "a:13", "a:12 is allowed, a:13 is not")]
fn a_near_miss_names_the_port_that_is_allowed(
    #[case] entries: &[&str],
    #[case] asked: &str,
    #[case] line: &str,
) {
    assert_eq!(refusal(&allowlist(entries), asked).unwrap(), line);
}

#[rstest]
#[case(&["localhost:5601"], "127.0.0.1:5601")]
#[case(&["127.0.0.1:5601"], "localhost:5601")]
#[case(&["127.0.0.1:5601"], "[::1]:5601")]
#[case(&["10.0.0.4:5601", "10.0.0.6:5601"], "10.0.0.5:5601")]
#[case(&["a.example:1"], "b.a.example:1")]
#[case(&["b.a.example:1"], "a.example:1")]
fn a_name_its_address_and_its_neighbours_are_other_endpoints(
    #[case] entries: &[&str],
    #[case] asked: &str,
) {
    let line = refusal(&allowlist(entries), asked).unwrap();
    assert_eq!(
        line,
        format!(
            "{asked} is not allowed; if this producer is trusted, add it: ec_allowed_peers: \
             [\"{asked}\"]"
        )
    );
}

#[test]
fn a_range_stands_for_exactly_its_ports() {
    let list = allowlist(&["[::1]:5601-5608", "vision-0:65535-65535", "a:1-1024"]);
    assert_eq!(list.len(), 8 + 1 + 1024);
    assert_eq!(refusal(&list, "[::1]:5601"), None);
    assert_eq!(refusal(&list, "[::1]:5608"), None);
    assert!(refusal(&list, "[::1]:5600").is_some());
    assert!(refusal(&list, "[::1]:5609").is_some());
    assert_eq!(refusal(&list, "vision-0:65535"), None);
    assert_eq!(refusal(&list, "a:1024"), None);
}

#[rstest]
#[case("a:5608-5601", AllowlistProblem::RangeReversed)]
#[case("a:1-1025", AllowlistProblem::RangeTooLarge { ports: 1025 })]
#[case("a:1-65535", AllowlistProblem::RangeTooLarge { ports: 65535 })]
#[case("a:0-5", AllowlistProblem::RangeEnd)]
#[case("a:5-", AllowlistProblem::RangeEnd)]
#[case("a:-5", AllowlistProblem::RangeEnd)]
#[case("a:1-2-3", AllowlistProblem::RangeEnd)]
#[case("a:1 - 2", AllowlistProblem::RangeEnd)]
#[case("a:65535-65536", AllowlistProblem::RangeEnd)]
#[case("127.1:1-2", AllowlistProblem::Endpoint(EndpointProblem::NumberLike))]
#[case("*:1-2", AllowlistProblem::Endpoint(EndpointProblem::Wildcard))]
#[case("10.0.0.5:*", AllowlistProblem::Endpoint(EndpointProblem::Port))]
#[case("10.0.0.0/8:5601", AllowlistProblem::Endpoint(EndpointProblem::Character('/')))]
#[case("::1:1-2", AllowlistProblem::Endpoint(EndpointProblem::BareIpv6))]
#[case("vision-0", AllowlistProblem::Endpoint(EndpointProblem::MissingPort))]
#[case("", AllowlistProblem::Endpoint(EndpointProblem::MissingPort))]
#[case("a:1,b:2", AllowlistProblem::Endpoint(EndpointProblem::BareIpv6))]
fn an_entry_that_approves_nobody_is_an_error(
    #[case] entry: &str,
    #[case] problem: AllowlistProblem,
) {
    let problems = Allowlist::parse([entry]).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!((problems[0].position, &problems[0].problem), (1, &problem));
}

#[test]
fn all_problems_are_reported_at_once() {
    let entries = ["a:1", "0.0.0.0:5601", "b:2-1", "b:2", "c"];
    let lines: Vec<_> =
        Allowlist::parse(entries).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "ec_allowed_peers, entry 2, \"0.0.0.0:5601\": an empty or wildcard host names no \
             single producer; give its address or host name",
            "ec_allowed_peers, entry 3, \"b:2-1\": the range is reversed: its first port is \
             greater than its last",
            "ec_allowed_peers, entry 5, \"c\": the port is missing; write host:port, for example \
             10.0.0.5:5601",
        ]
    );
}

#[test]
fn the_list_as_a_whole_is_bounded() {
    let range = |host: usize| format!("host{host}.example:1-1024");
    let full: Vec<_> = (0..MAX_ALLOWED_ENDPOINTS / 1024).map(range).collect();
    let mut entries: Vec<_> = full.iter().map(String::as_str).collect();
    assert_eq!(allowlist(&entries).len(), MAX_ALLOWED_ENDPOINTS);
    // The same endpoint twice costs nothing.
    entries.push("host0.example:7");
    assert_eq!(allowlist(&entries).len(), MAX_ALLOWED_ENDPOINTS);
    entries.extend(["one.more:1", "not looked at any more"]);
    let problems = Allowlist::parse(entries).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].problem, AllowlistProblem::TooMany);
}

proptest! {
    #[test]
    fn exactly_the_listed_endpoints_are_approved(
        listed in prop::collection::btree_set(("[ab]", 1u16..30), 0..20),
        asked in ("[ab]", 1u16..30),
    ) {
        let texts: Vec<_> = listed.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let list = Allowlist::parse(texts.iter().map(String::as_str)).unwrap();
        let asked_endpoint = endpoint(&format!("{}:{}", asked.0, asked.1));
        match list.check(&asked_endpoint) {
            Verdict::Allowed => prop_assert!(listed.contains(&asked)),
            Verdict::Refused(refusal) => {
                prop_assert!(!listed.contains(&asked));
                let nearest = listed
                    .iter()
                    .filter(|(host, _)| *host == asked.0)
                    .map(|(_, port)| port.abs_diff(asked.1))
                    .min();
                let near_miss = refusal.near_miss.map(|near| near.port().abs_diff(asked.1));
                prop_assert_eq!(near_miss, nearest);
            }
        }
    }

    #[test]
    fn no_entry_panics(entry in "\\PC{0,30}|[a-z0-9:.\\[\\]-]{0,30}") {
        let _ = Allowlist::parse([entry.as_str()]);
    }
}
