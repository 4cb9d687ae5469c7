//! Where a producer is asked to listen.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use super::error::{EndpointError, EndpointProblem};
use super::{Endpoint, Host, port_number, split, write_host_port};

/// `host:port` to bind, where port 0 lets the system choose one. Never a wildcard: what is bound is
/// what is announced, and nobody can connect to `0.0.0.0` of another host.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ListenAddress {
    host: Host,
    port: u16,
}

impl ListenAddress {
    /// The listen address `host:port`; port 0 is chosen by the system when it is bound.
    #[must_use]
    pub const fn new(host: Host, port: u16) -> Self {
        Self { host, port }
    }

    /// Reads `host:port` by the rules of [`Endpoint::parse`], with port 0 allowed.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        Self::read(text)
            .map_err(|problem| EndpointError::new("an address to listen on", text, problem))
    }

    fn read(text: &str) -> Result<Self, EndpointProblem> {
        let (host, port) = split(text)?;
        let host = Host::read(host).map_err(|problem| match problem {
            EndpointProblem::Wildcard => EndpointProblem::ListenWildcard,
            other => other,
        })?;
        let port = port_number(port).ok_or(EndpointProblem::ListenPort)?;
        Ok(Self { host, port })
    }

    /// The host to bind.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// The port to bind; 0 where the system chooses.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What to announce once the socket is bound to `bound_port`, read back from the socket itself
    /// (hazard C17: upstream announces the 0 that it was given).
    #[must_use]
    pub fn endpoint(&self, bound_port: NonZeroU16) -> Endpoint {
        Endpoint::new(self.host.clone(), bound_port)
    }
}

impl FromStr for ListenAddress {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        Self::parse(text)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_host_port(f, &self.host, self.port)
    }
}

impl fmt::Debug for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
