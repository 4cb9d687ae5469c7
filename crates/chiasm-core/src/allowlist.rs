//! Which producers an operator has approved.
//!
//! The allowlist is asked before any block is allocated, any name is resolved or any socket is
//! opened (S1, PROTOCOL 30). It compares canonical endpoints only; it resolves nothing, so a name
//! and the address behind it are two endpoints. It authorises an endpoint; it does not authenticate
//! a peer and says nothing about the contents.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU16;

use crate::endpoint::{self, Endpoint, EndpointProblem, Host};
use crate::excerpt::Excerpt;
use crate::limits::{MAX_ALLOWED_ENDPOINTS, MAX_ALLOWED_PORT_RANGE};

/// The approved endpoints. Empty (the default) approves nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowlist {
    endpoints: BTreeSet<Endpoint>,
}

/// What the allowlist says about one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The operator has approved it.
    Allowed,
    /// Not on the list.
    Refused(Refusal),
}

impl Allowlist {
    /// Reads the entries of `ec_allowed_peers`: each is `host:port`, or `host:first-last` for at
    /// most [`MAX_ALLOWED_PORT_RANGE`] ports of one host. The same endpoint may stand there twice.
    ///
    /// On failure every entry that is wrong is named; none is dropped in silence.
    pub fn parse<'a>(
        entries: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Vec<AllowlistError>> {
        let mut endpoints = BTreeSet::new();
        let mut problems = Vec::new();
        for (position, entry) in (1..).zip(entries) {
            let added = match read_entry(entry) {
                Ok(added) => added,
                Err(problem) => {
                    problems.push(AllowlistError { position, given: Excerpt::of(entry), problem });
                    continue;
                }
            };
            endpoints.extend(added);
            if endpoints.len() > MAX_ALLOWED_ENDPOINTS {
                let problem = AllowlistProblem::TooMany;
                problems.push(AllowlistError { position, given: Excerpt::of(entry), problem });
                break;
            }
        }
        if problems.is_empty() { Ok(Self { endpoints }) } else { Err(problems) }
    }

    /// Whether `endpoint` is approved. Costs O(log n) comparisons, for a refusal too.
    #[must_use]
    pub fn check(&self, endpoint: &Endpoint) -> Verdict {
        if self.endpoints.contains(endpoint) {
            return Verdict::Allowed;
        }
        let same_host = |near: &&Endpoint| near.host() == endpoint.host();
        let below = self.endpoints.range(..endpoint).next_back().filter(same_host);
        let above = self.endpoints.range(endpoint..).next().filter(same_host);
        let distance = |near: &&Endpoint| near.port().abs_diff(endpoint.port());
        let near_miss = below.into_iter().chain(above).min_by_key(distance).cloned();
        Verdict::Refused(Refusal { endpoint: endpoint.clone(), near_miss })
    }

    /// How many endpoints are approved.
    #[must_use]
    pub fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// Whether nobody is approved: no remote reads at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// The approved endpoints, by host and then by port.
    pub fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.iter()
    }
}

/// An endpoint that is not approved. Its text is the line for the operator: the near miss where the
/// same host is approved with another port, else what to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The endpoint that was asked for.
    pub endpoint: Endpoint,
    /// The approved endpoint of the same host whose port is nearest.
    pub near_miss: Option<Endpoint>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, near_miss } = self;
        match near_miss {
            Some(allowed) => write!(f, "{allowed} is allowed, {endpoint} is not"),
            None => write!(
                f,
                "{endpoint} is not allowed; if this producer is trusted, add it: \
                 ec_allowed_peers: [\"{endpoint}\"]"
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// An entry of `ec_allowed_peers` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ec_allowed_peers, entry {position}, {given}: {problem}")]
pub struct AllowlistError {
    /// Which entry, counted from 1.
    pub position: usize,
    /// The entry.
    pub given: Excerpt,
    /// What is wrong with it.
    pub problem: AllowlistProblem,
}

/// What can be wrong with an entry of the allowlist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowlistProblem {
    /// Neither an endpoint nor a range of them.
    #[error(transparent)]
    Endpoint(#[from] EndpointProblem),
    /// One end of the range is no port.
    #[error("a range is first-last, both ports from 1 to 65535 in plain digits")]
    RangeEnd,
    /// The range runs backwards.
    #[error("the range is reversed: its first port is greater than its last")]
    RangeReversed,
    /// The range is longer than the limit.
    #[error(
        "the range has {ports} ports, more than the limit of {MAX_ALLOWED_PORT_RANGE}; name the \
         ports that producers use"
    )]
    RangeTooLarge {
        /// Ports in the range.
        ports: u32,
    },
    /// The whole list is longer than the limit; entries after this one were not looked at.
    #[error("with it the list has more than {MAX_ALLOWED_ENDPOINTS} endpoints")]
    TooMany,
}

fn read_entry(entry: &str) -> Result<Vec<Endpoint>, AllowlistProblem> {
    // Only a port can hold the range: hyphens in the host are part of its name.
    let range =
        endpoint::split(entry).ok().and_then(|(host, ports)| Some((host, ports.split_once('-')?)));
    let Some((host, (first, last))) = range else {
        return Ok(vec![Endpoint::read(entry)?]);
    };
    let host = Host::read(host)?;
    let port = |text| endpoint::port_number(text).filter(|port| *port != 0);
    let (Some(first), Some(last)) = (port(first), port(last)) else {
        return Err(AllowlistProblem::RangeEnd);
    };
    let Some(steps) = last.checked_sub(first) else {
        return Err(AllowlistProblem::RangeReversed);
    };
    let ports = u32::from(steps) + 1;
    if ports > MAX_ALLOWED_PORT_RANGE {
        return Err(AllowlistProblem::RangeTooLarge { ports });
    }
    let ports = (first..=last).filter_map(NonZeroU16::new);
    Ok(ports.map(|port| Endpoint::new(host.clone(), port)).collect())
}
