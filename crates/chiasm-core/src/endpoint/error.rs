//! Why a text is no endpoint, host or listen address.

use crate::excerpt::Excerpt;
use crate::limits::{MAX_HOST_LABEL_BYTES, MAX_HOST_NAME_BYTES};

/// A text that was refused: what was given, what it should have been, what is wrong with it and
/// what is allowed instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given} is not {expected}: {problem}")]
pub struct EndpointError {
    expected: &'static str,
    given: Excerpt,
    problem: EndpointProblem,
}

impl EndpointError {
    pub(super) fn new(expected: &'static str, given: &str, problem: EndpointProblem) -> Self {
        Self { expected, given: Excerpt::of(given), problem }
    }

    /// What is wrong, for code that has to tell one cause from another.
    #[must_use]
    pub const fn problem(&self) -> EndpointProblem {
        self.problem
    }
}

/// What can be wrong with an endpoint. The text of each says what is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum EndpointProblem {
    /// A URL where a bare endpoint belongs.
    #[error("write host:port alone, without a scheme such as tcp://")]
    Scheme,
    /// No colon with a port behind it.
    #[error("the port is missing; write host:port, for example 10.0.0.5:5601")]
    MissingPort,
    /// The port is not in its one spelling, or out of range.
    #[error(
        "a port is a number from 1 to 65535 in plain digits, without sign, space or leading zero"
    )]
    Port,
    /// As [`EndpointProblem::Port`], where 0 is allowed too.
    #[error(
        "a port to listen on is a number from 0 (chosen by the system) to 65535 in plain digits, \
         without sign, space or leading zero"
    )]
    ListenPort,
    /// `*`, `0.0.0.0`, `::`, `*.example` or nothing at all, where one producer must be named.
    #[error("an empty or wildcard host names no single producer; give its address or host name")]
    Wildcard,
    /// A wildcard to listen on: it would be announced, and peers cannot connect to it.
    #[error(
        "an empty or wildcard host cannot be announced to peers; give the one address or name of \
         this host that they can reach, or localhost to serve this host alone"
    )]
    ListenWildcard,
    /// An opening bracket without its closing one, or text behind that.
    #[error("a bracketed address ends in one closing bracket, for example [fe80::1]:5601")]
    Bracket,
    /// Colons in the host without brackets around it.
    #[error("an IPv6 address stands in brackets here, for example [fe80::1]:5601")]
    BareIpv6,
    /// Brackets or colons, but no IPv6 address.
    #[error("this is no IPv6 address")]
    Ipv6,
    /// `fe80::1%eth0`.
    #[error("an IPv6 address here has no zone id (%eth0): it means something on one host only")]
    ZoneId,
    /// `127.1`, `0x7f000001`, `2130706433`, `127.000.000.001`, `10.0.0.5.`.
    #[error(
        "it reads like a number but is no IPv4 address in its one spelling, for example 10.0.0.5 \
         (four parts from 0 to 255 without leading zeros)"
    )]
    NumberLike,
    /// A character that no host name has.
    #[error(
        "{0:?} cannot stand in a host name; letters, digits, '-', '_' and '.' can (write an \
         international name in its xn-- form)"
    )]
    Character(char),
    /// Two dots in a row, or a dot in front.
    #[error("a host name has no empty part between its dots")]
    EmptyLabel,
    /// A part of a host name that begins or ends with a hyphen.
    #[error("no part of a host name begins or ends with '-'")]
    Hyphen,
    /// Longer than DNS allows (RFC 1035).
    #[error("a host name has at most {MAX_HOST_NAME_BYTES} characters")]
    NameTooLong,
    /// A part longer than DNS allows (RFC 1035).
    #[error("a part of a host name has at most {MAX_HOST_LABEL_BYTES} characters")]
    LabelTooLong,
}
