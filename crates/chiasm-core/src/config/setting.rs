//! A value and where it came from.

use std::fmt;

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Nobody has set it.
    Default,
    /// This key of the configuration, under the name that was used.
    Key(&'static str),
    /// This environment variable.
    Variable(&'static str),
    /// The engine found it out: its host's address, its rank.
    Engine,
}

impl Source {
    /// The kind of source, for machines: `default`, `key`, `variable` or `engine`.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Key(_) => "key",
            Self::Variable(_) => "variable",
            Self::Engine => "engine",
        }
    }

    /// The key or the variable.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Key(name) | Self::Variable(name) => Some(name),
            Self::Default | Self::Engine => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self.name() {
            Some(name) => write!(f, " {name}"),
            None => Ok(()),
        }
    }
}

/// An effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub source: Source,
}

impl<T> Setting<T> {
    pub(super) const fn default(value: T) -> Self {
        Self { value, source: Source::Default }
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Setting<U> {
        Setting { value: change(self.value), source: self.source }
    }
}
