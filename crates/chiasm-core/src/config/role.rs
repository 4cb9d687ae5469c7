//! What an instance does with encoder outputs.

use std::fmt;

/// `ec_role` of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Encodes and serves: `ec_producer`.
    Producer,
    /// Reads: `ec_consumer`.
    Consumer,
    /// Does both: `ec_both`.
    Both,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Producer, Self::Consumer, Self::Both];

    /// The name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Producer => "ec_producer",
            Self::Consumer => "ec_consumer",
            Self::Both => "ec_both",
        }
    }

    /// The role with exactly this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Whether the instance serves encoder outputs.
    #[must_use]
    pub const fn produces(self) -> bool {
        matches!(self, Self::Producer | Self::Both)
    }

    /// Whether the instance needs encoder outputs of others.
    #[must_use]
    pub const fn consumes(self) -> bool {
        matches!(self, Self::Consumer | Self::Both)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
