//! How NIXL is to be used: the settings of one plane, as an operator writes them.

use std::fmt;

use super::limits::{MAX_INTERFACE_BYTES, MAX_INTERFACES};
use super::setting::Setting;

/// Which of NIXL's backends moves the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NixlBackend {
    /// UCX: RDMA (InfiniBand, RoCE), else shared memory and tcp. What upstream uses.
    #[default]
    Ucx,
    /// libfabric: Elastic Fabric Adapters.
    Libfabric,
}

impl NixlBackend {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Ucx, Self::Libfabric];

    /// NIXL's own name of it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ucx => "UCX",
            Self::Libfabric => "LIBFABRIC",
        }
    }

    /// The backend with exactly this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|backend| backend.name() == name)
    }
}

impl fmt::Display for NixlBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The tcp ports that the backend may listen on, both ends included, none of them 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// The range of `first-last`.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-')?;
        let port = |text| crate::endpoint::port_number(text).filter(|port| *port > 0);
        let (first, last) = (port(first)?, port(last)?);
        (first <= last).then_some(Self { first, last })
    }

    /// The lowest port.
    #[must_use]
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The highest port.
    #[must_use]
    pub const fn last(self) -> u16 {
        self.last
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Names of interfaces, as UCX has them (`mlx5_0:1`, `eth0`). At least one; no name has a comma.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Interfaces(Vec<Box<str>>);

impl Interfaces {
    /// These names, if each is one.
    #[must_use]
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut found = Vec::new();
        for name in names {
            if !is_interface(name) || found.len() == MAX_INTERFACES {
                return None;
            }
            found.push(name.into());
        }
        (!found.is_empty()).then_some(Self(found))
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

impl fmt::Display for Interfaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// Whether this can be the name of an interface.
pub(super) fn is_interface(name: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':');
    (1..=MAX_INTERFACE_BYTES).contains(&name.len()) && name.bytes().all(plain)
}

/// The settings of the nixl plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NixlConfig {
    /// `ec_nixl_library`: absolute path of `libnixl_capi.so` or of its directory; `None`: it is looked
    /// for.
    pub library: Setting<Option<Box<str>>>,
    /// `ec_nixl_backend`.
    pub backend: Setting<NixlBackend>,
    /// `ec_nixl_interfaces`; `None`: all of them.
    pub interfaces: Setting<Option<Interfaces>>,
    /// `ec_nixl_ports`; `None`: any.
    pub ports: Setting<Option<PortRange>>,
}
