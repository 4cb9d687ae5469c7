//! Endpoints: every spelling of one producer is one value or an error.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU16;

use chiasm_core::endpoint::{Endpoint, EndpointProblem, Host, ListenAddress};
use proptest::prelude::*;
use rstest::rstest;

fn canonical(text: &str) -> String {
    Endpoint::parse(text).unwrap_or_else(|error| panic!("{error}")).to_string()
}

#[rstest]
#[case("10.0.0.5:5601", "10.0.0.5:5601")]
#[case("10.0.0.5:1", "10.0.0.5:1")]
#[case("10.0.0.5:65535", "10.0.0.5:65535")]
#[case("[fe80::1]:5601", "[fe80::1]:5601")]
#[case("[FE80:0:0::0:1]:5601", "[fe80::1]:5601")]
#[case("[::1]:5601", "[::1]:5601")]
#[case("[::ffff:127.0.0.1]:5601", "127.0.0.1:5601")]
#[case("[::FFFF:7f00:1]:5601", "127.0.0.1:5601")]
#[case("[0:0:0:0:0:ffff:10.0.0.5]:5601", "10.0.0.5:5601")]
#[case("[::7f00:1]:5601", "[::7f00:1]:5601")]
#[case("vision-0.example:5601", "vision-0.example:5601")]
#[case("Vision-0.EXAMPLE.:5601", "vision-0.example:5601")]
#[case("LOCALHOST:5601", "localhost:5601")]
#[case("localhost.:5601", "localhost:5601")]
#[case("vllm_encoder_1:5601", "vllm_encoder_1:5601")]
#[case("xn--sehr-gut-9za.example:1", "xn--sehr-gut-9za.example:1")]
#[case("3d-vision.0x1.example:1", "3d-vision.0x1.example:1")]
#[case("1e5:1", "1e5:1")]
fn an_endpoint_has_one_spelling(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(canonical(text), expected);
    assert_eq!(canonical(expected), expected);
}

/// The hosts of hazards B5 and h46. Upstream reaches one producer through eight of them and takes
/// each for a producer of its own.
#[rstest]
#[case("127.0.0.1", Some("127.0.0.1"))]
#[case("::ffff:127.0.0.1", Some("127.0.0.1"))]
#[case("localhost", Some("localhost"))]
#[case("LOCALHOST", Some("localhost"))]
#[case("localhost.", Some("localhost"))]
#[case("::1", Some("::1"))]
#[case("[::1]", Some("::1"))]
#[case("127.1", None)]
#[case("127.000.000.001", None)]
#[case("0x7f000001", None)]
#[case("2130706433", None)]
#[case(" 127.0.0.1", None)]
#[case("127.0.0.1 ", None)]
fn hazard_b5_two_spellings_of_one_producer(#[case] text: &str, #[case] expected: Option<&str>) {
    let host = Host::parse(text).ok().map(|host| host.to_string());
    assert_eq!(host.as_deref(), expected);
}

#[rstest]
#[case::shortened("127.1", EndpointProblem::NumberLike)]
#[case::three_parts("127.0.1", EndpointProblem::NumberLike)]
#[case::five_parts("1.2.3.4.5", EndpointProblem::NumberLike)]
#[case::whole_number("2130706433", EndpointProblem::NumberLike)]
#[case::hexadecimal("0x7f000001", EndpointProblem::NumberLike)]
#[case::hexadecimal_upper("0X7F000001", EndpointProblem::NumberLike)]
#[case::hexadecimal_empty("0x", EndpointProblem::NumberLike)]
#[case::hexadecimal_part("127.0.0.0x1", EndpointProblem::NumberLike)]
#[case::octal("0177.0.0.1", EndpointProblem::NumberLike)]
#[case::leading_zeros("127.000.000.001", EndpointProblem::NumberLike)]
#[case::out_of_range("256.0.0.1", EndpointProblem::NumberLike)]
#[case::trailing_dot_on_address("10.0.0.5.", EndpointProblem::NumberLike)]
#[case::name_ending_in_a_number("example.5", EndpointProblem::NumberLike)]
#[case::empty("", EndpointProblem::Wildcard)]
#[case::star("*", EndpointProblem::Wildcard)]
#[case::star_name("*.example", EndpointProblem::Wildcard)]
#[case::any_v4("0.0.0.0", EndpointProblem::Wildcard)]
#[case::any_v6("::", EndpointProblem::Wildcard)]
#[case::any_v6_bracketed("[::]", EndpointProblem::Wildcard)]
#[case::any_mapped("::ffff:0.0.0.0", EndpointProblem::Wildcard)]
#[case::zone("fe80::1%eth0", EndpointProblem::ZoneId)]
#[case::zone_bracketed("[fe80::1%1]", EndpointProblem::ZoneId)]
#[case::bracket_open("[::1", EndpointProblem::Bracket)]
#[case::bracketed_v4("[127.0.0.1]", EndpointProblem::Ipv6)]
#[case::bracketed_name("[localhost]", EndpointProblem::Ipv6)]
#[case::bracketed_nothing("[]", EndpointProblem::Ipv6)]
#[case::bracket_twice("[[::1]]", EndpointProblem::Ipv6)]
#[case::too_many_groups("1:2:3:4:5:6:7:8:9", EndpointProblem::Ipv6)]
#[case::mapped_odd_v4("::ffff:127.1", EndpointProblem::Ipv6)]
#[case::space_inside("bad host!", EndpointProblem::Character(' '))]
#[case::user("root@10.0.0.5", EndpointProblem::Character('@'))]
#[case::path("host/x", EndpointProblem::Character('/'))]
#[case::nul("host\0.example", EndpointProblem::Character('\0'))]
#[case::newline("localhost\n", EndpointProblem::Character('\n'))]
#[case::percent("local%68ost", EndpointProblem::Character('%'))]
#[case::non_ascii_letter("vısion", EndpointProblem::Character('ı'))]
#[case::non_ascii_digits("١٢٧.0.0.1", EndpointProblem::Character('١'))]
#[case::full_width_dot("127。0。0。1", EndpointProblem::Character('。'))]
#[case::dot(".", EndpointProblem::EmptyLabel)]
#[case::two_trailing_dots("localhost..", EndpointProblem::EmptyLabel)]
#[case::leading_dot(".example", EndpointProblem::EmptyLabel)]
#[case::hyphen_first("-a.example", EndpointProblem::Hyphen)]
#[case::hyphen_last("a-.example", EndpointProblem::Hyphen)]
fn odd_hosts_are_refused_with_a_reason(#[case] text: &str, #[case] problem: EndpointProblem) {
    assert_eq!(Host::parse(text).map_err(|error| error.problem()), Err(problem));
}

/// The ports of hazards D4 and h47 as far as text can spell them, and more of their kind.
#[rstest]
#[case("0")]
#[case("-1")]
#[case("65536")]
#[case("70000")]
#[case("4294972897")]
#[case("18446744073709557217")]
#[case("+5601")]
#[case("5601.9")]
#[case("5601.")]
#[case("56e2")]
#[case(" 5601")]
#[case("5601 ")]
#[case(" 5601 ")]
#[case("5_601")]
#[case("0x15e1")]
#[case("05601")]
#[case("00")]
#[case("True")]
#[case("٥٦٠١")]
#[case("\u{ff15}\u{ff16}\u{ff10}\u{ff11}")]
#[case("")]
#[case("abc")]
#[case("5601-5602")]
#[case("5601\n")]
fn hazard_d4_odd_ports_are_refused(#[case] port: &str) {
    let refused = |text: String| Endpoint::parse(&text).map_err(|error| error.problem());
    assert_eq!(refused(format!("10.0.0.5:{port}")), Err(EndpointProblem::Port));
    assert_eq!(refused(format!("[::1]:{port}")), Err(EndpointProblem::Port));
}

#[rstest]
#[case("", EndpointProblem::MissingPort)]
#[case("10.0.0.5", EndpointProblem::MissingPort)]
#[case("localhost", EndpointProblem::MissingPort)]
#[case("[::1]", EndpointProblem::MissingPort)]
#[case("[::1]5601", EndpointProblem::Bracket)]
#[case("[::1]x:5601", EndpointProblem::Bracket)]
#[case("::1", EndpointProblem::BareIpv6)]
#[case("::1:5601", EndpointProblem::BareIpv6)]
#[case("a:b:1", EndpointProblem::BareIpv6)]
#[case("tcp://10.0.0.5:5601", EndpointProblem::Scheme)]
#[case(":5601", EndpointProblem::Wildcard)]
#[case("*:5601", EndpointProblem::Wildcard)]
#[case("[::]:5601", EndpointProblem::Wildcard)]
#[case(" 10.0.0.5:5601", EndpointProblem::Character(' '))]
fn what_is_no_endpoint_is_refused_with_a_reason(
    #[case] text: &str,
    #[case] problem: EndpointProblem,
) {
    assert_eq!(Endpoint::parse(text).map_err(|error| error.problem()), Err(problem));
}

#[test]
fn names_are_bounded_as_dns_bounds_them() {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(longest.len(), 253);
    assert!(Host::parse(&longest).is_ok());
    assert!(Host::parse(&format!("{longest}.")).is_ok());
    let problem = |text: &str| Host::parse(text).unwrap_err().problem();
    assert_eq!(problem(&format!("{longest}a")), EndpointProblem::NameTooLong);
    assert_eq!(problem(&format!("{label}a.example")), EndpointProblem::LabelTooLong);
    assert_eq!(problem(&"a".repeat(10_000_000)), EndpointProblem::NameTooLong);
}

#[test]
fn a_name_and_an_address_are_different_hosts() {
    assert_ne!(Host::parse("localhost").unwrap(), Host::parse("127.0.0.1").unwrap());
    assert_ne!(Host::parse("127.0.0.1").unwrap(), Host::parse("::1").unwrap());
}

#[test]
fn an_error_names_what_was_given_what_is_wrong_and_what_is_allowed() {
    let message = |text| Endpoint::parse(text).unwrap_err().to_string();
    assert_eq!(
        message("10.0.0.5:70000"),
        "\"10.0.0.5:70000\" is not an endpoint (host:port): a port is a number from 1 to 65535 in \
         plain digits, without sign, space or leading zero"
    );
    assert_eq!(
        message("127.1:5601"),
        "\"127.1:5601\" is not an endpoint (host:port): it reads like a number but is no IPv4 \
         address in its one spelling, for example 10.0.0.5 (four parts from 0 to 255 without \
         leading zeros)"
    );
    assert!(message("a\nb\u{202e}:1").starts_with("\"a\\nb\\u{202e}:1\" is not"));
    assert!(message(&"x".repeat(1_000_000)).len() < 400);
}

#[test]
fn hazard_c17_a_listen_address_may_leave_the_port_to_the_system_and_never_the_host() {
    let address = ListenAddress::parse("[::FFFF:10.0.0.5]:0").unwrap();
    assert_eq!((address.to_string().as_str(), address.port()), ("10.0.0.5:0", 0));
    let bound = address.endpoint(NonZeroU16::new(40123).unwrap());
    assert_eq!(bound.to_string(), "10.0.0.5:40123");
    for text in ["*:0", "0.0.0.0:5601", "[::]:5601", ":5601", "[::ffff:0.0.0.0]:1"] {
        let error = ListenAddress::parse(text).unwrap_err();
        assert_eq!(error.problem(), EndpointProblem::ListenWildcard, "{text}");
        assert!(error.to_string().contains("give the one address or name"), "{error}");
    }
    for text in ["10.0.0.5:65536", "10.0.0.5:+0", "10.0.0.5:00", "10.0.0.5:"] {
        let error = ListenAddress::parse(text).unwrap_err();
        assert_eq!(error.problem(), EndpointProblem::ListenPort, "{text}");
    }
}

fn any_host() -> impl Strategy<Value = Host> {
    let address = prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
        any::<[u8; 4]>().prop_map(|v4| IpAddr::V6(std::net::Ipv4Addr::from(v4).to_ipv6_mapped())),
        // Many zero groups: where the short forms are.
        prop::array::uniform8(0u16..2).prop_map(|groups| IpAddr::V6(Ipv6Addr::from(groups))),
    ];
    let address = address.prop_filter_map("a wildcard", Host::from_address);
    let name = "([a-z0-9_]([a-z0-9_-]{0,10}[a-z0-9_])?\\.){0,3}[a-z]([a-z0-9-]{0,10}[a-z])?\\.?";
    let name = name.prop_map(|name: String| Host::parse(&name).unwrap());
    prop_oneof![address, name]
}

proptest! {
    #[test]
    fn the_text_of_an_endpoint_parses_to_the_same_endpoint(
        host in any_host(),
        port in 1u16..,
    ) {
        let endpoint = Endpoint::new(host.clone(), NonZeroU16::new(port).unwrap());
        let text = endpoint.to_string();
        prop_assert_eq!(Endpoint::parse(&text), Ok(endpoint.clone()));
        prop_assert_eq!(Endpoint::parse(&text.to_ascii_uppercase()), Ok(endpoint));
        prop_assert_eq!(Host::parse(&host.to_string()), Ok(host));
    }

    #[test]
    fn whatever_is_accepted_is_canonical_and_no_wildcard(text in "\\PC{0,40}|[0-9a-fx.:\\[\\]%*-]{0,24}") {
        if let Ok(endpoint) = Endpoint::parse(&text) {
            let canonical = endpoint.to_string();
            prop_assert!(canonical.is_ascii());
            prop_assert_eq!(Endpoint::parse(&canonical), Ok(endpoint.clone()));
            if let Some(address) = endpoint.host().address() {
                prop_assert!(!address.is_unspecified());
                prop_assert_eq!(address, address.to_canonical());
            }
        }
    }

    /// What the system's resolver would read as an IPv4 address without asking DNS must never pass
    /// as a name.
    #[test]
    fn no_number_passes_as_a_name(
        parts in prop::collection::vec("[0-9]{1,10}|0[xX][0-9a-fA-F]{0,8}", 1..5),
        dot in "\\.?",
    ) {
        let text = parts.join(".") + &dot;
        if let Ok(host) = Host::parse(&text) {
            prop_assert!(host.address().is_some(), "{} became {}", text, host);
            prop_assert_eq!(host.to_string(), text);
        }
    }
}
