//! Canonical `host:port` of a control socket.
//!
//! Two texts that mean one endpoint become one value, and everything else is refused: an endpoint
//! is what the allowlist compares, so no spelling may slip past it or split one producer in two.
//! Nothing here resolves a name.

mod error;
mod host;
mod listen;

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

pub use error::{EndpointError, EndpointProblem};
pub use host::{Host, HostName};
pub use listen::ListenAddress;

/// Where a producer's control socket listens: `10.0.0.5:5601`, `[fe80::1]:5601` or
/// `vision-0.example:5601`. Its text form is canonical and parses to the same value.
///
/// Ordered by host, then port: the ports of one host are neighbours.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    host: Host,
    port: NonZeroU16,
}

impl Endpoint {
    /// The endpoint `host:port`.
    #[must_use]
    pub const fn new(host: Host, port: NonZeroU16) -> Self {
        Self { host, port }
    }

    /// Reads `host:port`. The host is read by [`Host::parse`], but an IPv6 address must stand in
    /// brackets; the port is 1 to 65535 in plain decimal digits without leading zeros.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        Self::read(text)
            .map_err(|problem| EndpointError::new("an endpoint (host:port)", text, problem))
    }

    pub(crate) fn read(text: &str) -> Result<Self, EndpointProblem> {
        let (host, port) = split(text)?;
        let host = Host::read(host)?;
        let port = port_number(port).and_then(NonZeroU16::new).ok_or(EndpointProblem::Port)?;
        Ok(Self { host, port })
    }

    /// The host.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// The port, 1 to 65535.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.get()
    }

    /// Sixteen bytes that stand for this endpoint where its text has no room: the start of the SHA-256
    /// of that text.
    #[must_use]
    pub fn mark(&self) -> [u8; 16] {
        let hash: [u8; 32] = Sha256::digest(self.to_string()).into();
        let [mark @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = hash;
        mark
    }

    /// The endpoint with another port on the same host.
    #[must_use]
    pub fn with_port(&self, port: NonZeroU16) -> Self {
        Self { host: self.host.clone(), port }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        Self::parse(text)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_host_port(f, &self.host, self.port())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn write_host_port(f: &mut fmt::Formatter<'_>, host: &Host, port: u16) -> fmt::Result {
    if host.is_ipv6() { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
}

/// Takes `host:port` apart without judging either; brackets stay with the host.
pub(crate) fn split(text: &str) -> Result<(&str, &str), EndpointProblem> {
    if text.contains("://") {
        return Err(EndpointProblem::Scheme);
    }
    let (host, port) = text.rsplit_once(':').ok_or(EndpointProblem::MissingPort)?;
    if host.starts_with('[') {
        // "[::1]" alone ends in the bracket: its last colon is part of the address.
        return if port.ends_with(']') {
            Err(EndpointProblem::MissingPort)
        } else {
            Ok((host, port))
        };
    }
    if host.contains(':') {
        return Err(EndpointProblem::BareIpv6);
    }
    Ok((host, port))
}

/// A port in its one spelling: decimal ASCII digits, no sign, no spaces, no leading zero. 0 is for
/// the caller to judge.
pub(crate) fn port_number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = text.len() > 1 && text.starts_with('0');
    if !digits || leading_zero {
        return None;
    }
    text.parse().ok()
}
