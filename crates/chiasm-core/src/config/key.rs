//! What a setting is: its names, where it stands, what it may be.
//!
//! Parsing, messages, help and the reference page all read the one [table](super::KEYS) of these.

use std::fmt;
use std::time::Duration;

use super::limits::{LONGEST, MAX_ENGINE_ID_BYTES, SHORTEST};
use super::nixl::NixlBackend;
use super::role::Role;
use crate::plane::Plane;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Another name for the same setting.
    pub alias: Option<Alias>,
    /// Where it stands.
    pub place: Place,
    /// What it may be.
    pub kind: Kind,
    /// What holds where nobody sets it.
    pub fallback: Fallback,
    /// What it is for, as Markdown.
    pub meaning: &'static str,
    /// The release that it came with.
    pub since: &'static str,
    /// A value, as JSON; that of a variable as a shell takes it.
    pub example: &'static str,
}

/// Another name for a setting. Both at once are an error unless they say the same.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// The name.
    pub name: &'static str,
    /// The release that warns when it is used; the next minor one drops it. `None`: it stays.
    pub deprecated_since: Option<&'static str>,
}

/// Where a setting stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The plug-in's own dictionary.
    ExtraConfig,
    /// The object around it, which is the engine's.
    TransferConfig,
    /// The environment of the process.
    Environment,
}

impl Place {
    /// The name of the place.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ExtraConfig => "ec_connector_extra_config",
            Self::TransferConfig => "--ec-transfer-config",
            Self::Environment => "the environment",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a setting may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number of bytes.
    Size,
    /// On or off.
    Switch,
    /// A number of seconds from [`SHORTEST`] to [`LONGEST`].
    Seconds,
    /// The entries of an [`Allowlist`](crate::allowlist::Allowlist).
    Peers,
    /// [`PlaneChoices`](super::PlaneChoices).
    Planes,
    /// An absolute path.
    Path,
    /// A [`NixlBackend`].
    NixlBackend,
    /// [`Interfaces`](super::Interfaces).
    Interfaces,
    /// A [`PortRange`](super::PortRange).
    PortRange,
    /// An address or a name of a host, no wildcard.
    Host,
    /// A port, or 0.
    Port,
    /// A [`Role`].
    Role,
    /// An [`EngineId`](super::EngineId).
    EngineId,
    /// The plug-in's dictionary.
    ExtraConfig,
    /// The engine's own: not looked into.
    Engine,
    /// The engine has it for other connectors: setting it does nothing here.
    Unread,
}

/// What holds where a setting is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// It must be there.
    Required,
    /// This value, as JSON; that of a variable as a shell takes it.
    Value(&'static str),
    /// No one value: in words.
    Described(&'static str),
}

impl Key {
    /// Every name of the setting.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        [Some(self.name), self.alias.map(|alias| alias.name)].into_iter().flatten()
    }

    /// What the setting may be, in words.
    #[must_use]
    pub fn allowed(&self) -> String {
        let seconds = |time: Duration| time.as_secs_f64();
        match self.kind {
            Kind::Size => {
                "a whole number of bytes from 1 to 8 EiB - 1, or a text with one of the units \
                 KiB, MiB, GiB, TiB (1024) and kB, MB, GB, TB (1000)"
                    .into()
            }
            Kind::Switch => "true, 1, yes, false, 0 or no".into(),
            Kind::Seconds => {
                format!("a number of seconds from {} to {}", seconds(SHORTEST), seconds(LONGEST))
            }
            Kind::Peers => "a list of \"host:port\" and \"host:first-last\"".into(),
            Kind::Planes => format!(
                "a list of at least one of {}, each at most once; with \" required\" behind the \
                 name it must be available",
                Plane::NAMES
            ),
            Kind::Path => "an absolute path".into(),
            Kind::NixlBackend => NixlBackend::ALL.map(NixlBackend::name).join(", "),
            Kind::Interfaces => {
                "a list of at least one name of an interface, as UCX has them (`ucx_info -d`)"
                    .into()
            }
            Kind::PortRange => "\"first-last\", both from 1 to 65535".into(),
            Kind::Host => {
                "an address or a name of this host that peers can reach, without a port; no \
                 wildcard"
                    .into()
            }
            Kind::Port => "a number from 0 to 65535 in plain digits".into(),
            Kind::Role => Role::ALL.map(Role::name).join(", "),
            Kind::EngineId => format!(
                "1 to {MAX_ENGINE_ID_BYTES} letters, digits, '.', '_' and '-', no '.' in front"
            ),
            Kind::ExtraConfig => "an object".into(),
            Kind::Engine | Kind::Unread => "whatever the engine allows".into(),
        }
    }
}
