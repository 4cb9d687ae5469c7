//! The ways of moving bytes between two nodes, by the names that the wire and the configuration use.
//!
//! Only names and their order live here; what a plane does is the business of the planes' crate.

use std::fmt;

/// A way of moving an entry's bytes from a producer to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plane {
    /// Same host, same user: the consumer maps the producer's region read-only. `shm`.
    Shm,
    /// RDMA through NIXL, and the only plane towards upstream peers. `nixl`.
    Nixl,
    /// A stream to the producer's control endpoint; always there. `tcp`.
    Tcp,
}

impl Plane {
    /// Every plane, in the default order of preference.
    pub const ALL: [Self; 3] = [Self::Shm, Self::Nixl, Self::Tcp];

    /// Every name, for messages that say what is allowed.
    pub const NAMES: &str = "shm, nixl, tcp";

    /// The name on the wire and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Nixl => "nixl",
            Self::Tcp => "tcp",
        }
    }

    /// The plane with exactly this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plane| plane.name() == name)
    }
}

impl fmt::Display for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Planes in order of preference, each at most once. Needs no allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PlaneList([Option<Plane>; Plane::ALL.len()]);

impl PlaneList {
    /// No plane.
    pub const EMPTY: Self = Self([None; Plane::ALL.len()]);

    /// Appends `plane`, unless it is there already: the first mention decides its rank.
    pub fn push(&mut self, plane: Plane) {
        if self.contains(plane) {
            return;
        }
        if let Some(free) = self.0.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(plane);
        }
    }

    /// The same without `plane`.
    #[must_use]
    pub fn without(self, plane: Plane) -> Self {
        self.iter().filter(|listed| *listed != plane).collect()
    }

    /// Whether `plane` is in the list.
    #[must_use]
    pub fn contains(&self, plane: Plane) -> bool {
        self.iter().any(|listed| listed == plane)
    }

    /// The planes, the preferred one first.
    pub fn iter(&self) -> impl Iterator<Item = Plane> + use<> {
        self.0.into_iter().flatten()
    }

    /// Number of planes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is no plane at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl fmt::Display for PlaneList {
    /// The names, the preferred one first, with commas between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, plane) in self.iter().enumerate() {
            write!(f, "{}{plane}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl FromIterator<Plane> for PlaneList {
    fn from_iter<I: IntoIterator<Item = Plane>>(planes: I) -> Self {
        let mut list = Self::EMPTY;
        for plane in planes {
            list.push(plane);
        }
        list
    }
}

impl fmt::Debug for PlaneList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again_and_nothing_else_is() {
        for plane in Plane::ALL {
            assert_eq!(Plane::from_name(plane.name()), Some(plane));
            assert!(Plane::NAMES.contains(plane.name()));
        }
        assert_eq!(Plane::from_name("SHM"), None);
        assert_eq!(Plane::from_name(""), None);
    }

    #[test]
    fn a_list_keeps_the_first_mention_of_each_plane() {
        let list: PlaneList =
            [Plane::Tcp, Plane::Shm, Plane::Tcp, Plane::Nixl, Plane::Shm].into_iter().collect();
        assert_eq!(list.iter().collect::<Vec<_>>(), [Plane::Tcp, Plane::Shm, Plane::Nixl]);
        assert_eq!(list.len(), 3);
        assert_eq!(list.to_string(), "tcp, shm, nixl");
        assert!(PlaneList::EMPTY.is_empty());
        assert!(!PlaneList::EMPTY.contains(Plane::Tcp));
        let less = list.without(Plane::Shm);
        assert_eq!(less.iter().collect::<Vec<_>>(), [Plane::Tcp, Plane::Nixl]);
        assert_eq!(less.without(Plane::Shm), less);
    }
}
