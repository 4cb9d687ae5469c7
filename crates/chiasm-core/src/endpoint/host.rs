//! The host of an endpoint: one address or one name, in its one spelling.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::error::{EndpointError, EndpointProblem};
use crate::limits::{MAX_HOST_LABEL_BYTES, MAX_HOST_NAME_BYTES};

/// An IPv4 address, an IPv6 address or a host name. Never a wildcard.
///
/// A name and an address are different hosts, whatever DNS says. The text form is canonical; an
/// IPv6 address stands there without brackets. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(Kind);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Ipv4(Ipv4Addr),
    Ipv6(Ipv6Addr),
    Name(HostName),
}

/// A host name: lower case, no trailing dot, at most [`MAX_HOST_NAME_BYTES`] bytes in parts of at
/// most [`MAX_HOST_LABEL_BYTES`], made of letters, digits, `-` and `_`. Underscores are no part of
/// the host name rules, but compose files and Kubernetes make such names and they resolve.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(Arc<str>);

impl Host {
    /// Reads a host as it stands apart from its port: an address (IPv6 with or without brackets)
    /// or a name, which is lower-cased and loses one trailing dot. IPv4-mapped IPv6 addresses
    /// become the IPv4 address that they stand for.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        Self::read(text).map_err(|problem| EndpointError::new("a host", text, problem))
    }

    /// The host with this address; `None` for the wildcard addresses `0.0.0.0` and `::`.
    #[must_use]
    pub fn from_address(address: IpAddr) -> Option<Self> {
        // Mapped addresses first: ::ffff:0.0.0.0 is a wildcard as well.
        let address = address.to_canonical();
        if address.is_unspecified() {
            return None;
        }
        Some(Self(match address {
            IpAddr::V4(address) => Kind::Ipv4(address),
            IpAddr::V6(address) => Kind::Ipv6(address),
        }))
    }

    /// The address; `None` if the host is a name.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        match self.0 {
            Kind::Ipv4(address) => Some(IpAddr::V4(address)),
            Kind::Ipv6(address) => Some(IpAddr::V6(address)),
            Kind::Name(_) => None,
        }
    }

    /// The name; `None` if the host is an address.
    #[must_use]
    pub const fn name(&self) -> Option<&HostName> {
        match &self.0 {
            Kind::Name(name) => Some(name),
            Kind::Ipv4(_) | Kind::Ipv6(_) => None,
        }
    }

    /// Whether the host is an IPv6 address, which stands in brackets in front of a port.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        matches!(self.0, Kind::Ipv6(_))
    }

    pub(crate) fn read(text: &str) -> Result<Self, EndpointProblem> {
        if text.is_empty() || text.contains('*') {
            return Err(EndpointProblem::Wildcard);
        }
        if let Some(rest) = text.strip_prefix('[') {
            return Self::read_ipv6(rest.strip_suffix(']').ok_or(EndpointProblem::Bracket)?);
        }
        if text.contains(':') {
            return Self::read_ipv6(text);
        }
        // The standard parser is the strict one: four decimal parts, no leading zeros.
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Self::from_address(address.into()).ok_or(EndpointProblem::Wildcard);
        }
        Ok(Self(Kind::Name(HostName::read(text)?)))
    }

    fn read_ipv6(text: &str) -> Result<Self, EndpointProblem> {
        if text.contains('%') {
            return Err(EndpointProblem::ZoneId);
        }
        let address = text.parse::<Ipv6Addr>().map_err(|_| EndpointProblem::Ipv6)?;
        Self::from_address(address.into()).ok_or(EndpointProblem::Wildcard)
    }
}

impl HostName {
    /// The canonical name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn read(text: &str) -> Result<Self, EndpointProblem> {
        let name = text.strip_suffix('.').unwrap_or(text);
        // Before anything that looks at every character.
        if name.len() > MAX_HOST_NAME_BYTES {
            return Err(EndpointProblem::NameTooLong);
        }
        let odd = |char: &char| !char.is_ascii_alphanumeric() && !matches!(char, '-' | '_' | '.');
        if let Some(char) = name.chars().find(odd) {
            return Err(EndpointProblem::Character(char));
        }
        for label in name.split('.') {
            if label.is_empty() {
                return Err(EndpointProblem::EmptyLabel);
            }
            if label.len() > MAX_HOST_LABEL_BYTES {
                return Err(EndpointProblem::LabelTooLong);
            }
            if label.starts_with('-') || label.ends_with('-') {
                return Err(EndpointProblem::Hyphen);
            }
        }
        let name = name.to_ascii_lowercase();
        if ends_in_a_number(&name) {
            return Err(EndpointProblem::NumberLike);
        }
        Ok(Self(name.into()))
    }
}

/// Whether resolvers may take `name` for an IPv4 address: its last part is a decimal, octal or
/// hexadecimal number (the rule of the URL standard; `inet_aton` takes no other forms). No
/// top-level domain is a number, so nothing real is lost.
fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let decimal = last.bytes().all(|byte| byte.is_ascii_digit());
    let hexadecimal =
        last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    decimal || hexadecimal
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Ipv4(address) => fmt::Display::fmt(address, f),
            Kind::Ipv6(address) => fmt::Display::fmt(address, f),
            Kind::Name(name) => f.write_str(&name.0),
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
