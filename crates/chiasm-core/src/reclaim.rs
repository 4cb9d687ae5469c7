//! Whether a region's file lives, and whether it may be removed (S9): what is looked at, in which order,
//! and what follows from it. Locks decide, never process ids, which mean nothing in another namespace.
//!
//! Whoever owns files asks for the next [`Look`], takes it, and says what it saw, until there is an
//! outcome. So files and simulated files are judged by the same lines. It must never let a name be
//! removed on the strength of a file that has lost it, or without the exclusive lock.

/// What to do next with the file at one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Open it, if it can be a region of this user's.
    Open,
    /// Try the exclusive lock on what was opened, without waiting.
    LockExclusive,
    /// Try the shared lock on it, without waiting.
    LockShared,
    /// Look whether the name is still that of what was opened.
    IsItsName,
    /// Remove the sockets beside it. Under its lock nobody can make them anew.
    RemoveSockets,
    /// Remove the name.
    Unlink,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is so, or is done.
    Yes,
    /// It is not so, or could not be had.
    No,
    /// The name is not there.
    Absent,
    /// What is there was never a region, or is not this user's.
    Foreign,
}

/// What became of a file that was to be removed if dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// There was none.
    Absent,
    /// It was dead, and is gone.
    Removed,
    /// A process uses it.
    Live,
    /// Somebody else is removing it.
    Busy,
    /// It is none of ours.
    Foreign,
}

/// One try to remove the file at a name if it is dead.
#[derive(Clone, Copy, Debug)]
pub struct Reclaim {
    look: Look,
    leaving: bool,
}

impl Reclaim {
    /// By a process that wants the name, or tidies up.
    #[must_use]
    pub const fn new() -> Self {
        Self { look: Look::Open, leaving: false }
    }

    /// By a process that has just let go of it. Several may leave at once, and one of them removes it.
    #[must_use]
    pub const fn by_the_last() -> Self {
        Self { look: Look::Open, leaving: true }
    }

    /// What is to be done next.
    #[must_use]
    pub const fn look(&self) -> Look {
        self.look
    }

    /// What was seen; the outcome if that settles it.
    #[expect(clippy::match_same_arms, reason = "one line for each thing that can be seen")]
    pub fn saw(&mut self, seen: Seen) -> Option<Removal> {
        self.look = match (self.look, seen) {
            (Look::Open, Seen::Yes) => Look::LockExclusive,
            (Look::Open, Seen::Absent) => return Some(Removal::Absent),
            (Look::Open, Seen::No | Seen::Foreign) => return Some(Removal::Foreign),
            (Look::LockExclusive, Seen::Yes) => Look::IsItsName,
            // The exclusive lock alone: a try for the shared one could stand in the way of another's.
            (Look::LockExclusive, _) if self.leaving => return Some(Removal::Live),
            (Look::LockExclusive, _) => Look::LockShared,
            (Look::LockShared, Seen::Yes) => return Some(Removal::Live),
            (Look::LockShared, _) => return Some(Removal::Busy),
            // The lock is on the file that was opened. Its name may be another's by now: then that one
            // has been made since, and is alive.
            (Look::IsItsName, Seen::Yes) => Look::RemoveSockets,
            (Look::IsItsName, _) => return Some(Removal::Busy),
            (Look::RemoveSockets, _) => Look::Unlink,
            (Look::Unlink, Seen::Yes) => return Some(Removal::Removed),
            (Look::Unlink, _) => return Some(Removal::Absent),
        };
        None
    }
}

impl Default for Reclaim {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether the file at a name is alive, for a process that wants to use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// A process uses it; the shared lock is held by this one too.
    Live,
    /// Nobody does, or it is just being removed, or it has lost the name.
    Dead,
    /// There is none.
    Absent,
    /// It is none of ours.
    Foreign,
}

/// One try to join the file at a name.
#[derive(Clone, Copy, Debug)]
pub struct Join {
    look: Look,
}

impl Join {
    /// From the opening on.
    #[must_use]
    pub const fn new() -> Self {
        Self { look: Look::Open }
    }

    /// What is to be done next.
    #[must_use]
    pub const fn look(&self) -> Look {
        self.look
    }

    /// What was seen; the outcome if that settles it.
    #[expect(clippy::match_same_arms, reason = "one line for each thing that can be seen")]
    pub fn saw(&mut self, seen: Seen) -> Option<Life> {
        self.look = match (self.look, seen) {
            (Look::Open, Seen::Yes) => Look::LockExclusive,
            (Look::Open, Seen::Absent) => return Some(Life::Absent),
            (Look::Open, _) => return Some(Life::Foreign),
            // It is to be had exactly if nobody lives; it goes with the descriptor.
            (Look::LockExclusive, Seen::Yes) => return Some(Life::Dead),
            (Look::LockExclusive, _) => Look::LockShared,
            // Refused both: somebody holds it exclusively, so it is being removed.
            (Look::LockShared, Seen::Yes) => Look::IsItsName,
            (Look::LockShared, _) => return Some(Life::Dead),
            // Removed, and perhaps made anew, between the opening and the lock.
            (Look::IsItsName, Seen::Yes) => return Some(Life::Live),
            (Look::IsItsName | Look::RemoveSockets | Look::Unlink, _) => return Some(Life::Dead),
        };
        None
    }
}

impl Default for Join {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was asked for until the outcome.
    fn reclaimed(mut reclaim: Reclaim, seen: &[Seen]) -> (Vec<Look>, Option<Removal>) {
        let (mut looks, mut outcome) = (Vec::new(), None);
        for seen in seen {
            assert_eq!(outcome, None);
            looks.push(reclaim.look());
            outcome = reclaim.saw(*seen);
        }
        (looks, outcome)
    }

    #[test]
    fn a_dead_region_is_removed_under_its_lock_and_its_sockets_before_it() {
        let all =
            [Look::Open, Look::LockExclusive, Look::IsItsName, Look::RemoveSockets, Look::Unlink];
        for reclaim in [Reclaim::new(), Reclaim::by_the_last()] {
            let (looks, outcome) = reclaimed(reclaim, &[Seen::Yes; 5]);
            assert_eq!((looks.as_slice(), outcome), (all.as_slice(), Some(Removal::Removed)));
        }
    }

    #[test]
    fn what_lives_or_has_another_owner_keeps_its_name() {
        use Seen::{Absent, Foreign, No, Yes};
        let of = |seen: &[Seen]| reclaimed(Reclaim::new(), seen).1;
        assert_eq!(of(&[Absent]), Some(Removal::Absent));
        assert_eq!(of(&[Foreign]), Some(Removal::Foreign));
        assert_eq!(of(&[Yes, No, Yes]), Some(Removal::Live));
        assert_eq!(of(&[Yes, No, No]), Some(Removal::Busy));
        assert_eq!(of(&[Yes, Yes, No]), Some(Removal::Busy), "the name is another's by now");
        assert_eq!(of(&[Yes, Yes, Yes, Yes, Absent]), Some(Removal::Absent));
        let last = reclaimed(Reclaim::by_the_last(), &[Yes, No]).1;
        assert_eq!(last, Some(Removal::Live), "it tries for no shared lock");
    }

    #[test]
    fn only_what_lives_and_has_its_name_is_joined() {
        use Seen::{Absent, Foreign, No, Yes};
        let of = |seen: &[Seen]| {
            let mut join = Join::new();
            seen.iter().fold(None, |_, seen| join.saw(*seen))
        };
        assert_eq!(of(&[Absent]), Some(Life::Absent));
        assert_eq!(of(&[Foreign]), Some(Life::Foreign));
        assert_eq!(of(&[Yes, Yes]), Some(Life::Dead));
        assert_eq!(of(&[Yes, No, No]), Some(Life::Dead));
        assert_eq!(of(&[Yes, No, Yes, No]), Some(Life::Dead));
        assert_eq!(of(&[Yes, No, Yes, Yes]), Some(Life::Live));
    }
}
