//! Which planes an operator wants, in which order, and which of them must be there.

use std::fmt;

use crate::plane::{Plane, PlaneList};

/// The word behind a plane's name that makes its absence a start-up error.
const REQUIRED: &str = "required";

/// One entry of `ec_planes`: `"nixl"` or `"nixl required"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlaneChoice {
    /// The plane.
    pub plane: Plane,
    /// Whether the instance must not start without it. Else it is skipped with a warning.
    pub required: bool,
}

impl PlaneChoice {
    /// The entry, if it is one.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (name, required) = match text.split_once(' ') {
            Some((name, word)) => (name, (word == REQUIRED).then_some(true)?),
            None => (text, false),
        };
        Some(Self { plane: Plane::from_name(name)?, required })
    }
}

impl fmt::Display for PlaneChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.plane, if self.required { " required" } else { "" })
    }
}

/// `ec_planes`: each plane at most once, at least one, the preferred one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaneChoices(pub(super) Vec<PlaneChoice>);

impl PlaneChoices {
    /// The entries, the preferred one first.
    pub fn iter(&self) -> impl Iterator<Item = PlaneChoice> + '_ {
        self.0.iter().copied()
    }

    /// The planes alone, in order of preference.
    #[must_use]
    pub fn list(&self) -> PlaneList {
        self.iter().map(|choice| choice.plane).collect()
    }

    /// The planes without which the instance must not start.
    #[must_use]
    pub fn required(&self) -> PlaneList {
        self.iter().filter(|choice| choice.required).map(|choice| choice.plane).collect()
    }
}
