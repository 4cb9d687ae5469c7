//! Planes that are not offered to a producer: those that have turned out not to reach it in this life
//! of it (PROTOCOL 49), and the one over which an entry has just arrived wrong.
//!
//! Forgetting either costs one attempt at most, so the tables are bounded without harm.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Wanted;
use crate::endpoint::Endpoint;
use crate::limits::MAX_LINKS;
use crate::plane::{Plane, PlaneList};

#[derive(Debug, Default)]
pub(super) struct Away {
    by_life: BTreeMap<Endpoint, Life>,
    /// For the next attempt only.
    wrong: BTreeMap<Wanted, Plane>,
}

/// What does not reach one life of a producer, and why.
#[derive(Debug)]
struct Life {
    epoch: u64,
    away: Vec<(Plane, String)>,
}

impl Away {
    /// `plane` does not reach the producer that lives as `epoch`, for the reason `why`.
    pub(super) fn note(&mut self, endpoint: &Endpoint, epoch: u64, plane: Plane, why: &str) {
        self.seen(endpoint, epoch);
        make_room(&mut self.by_life, endpoint);
        let none = Life { epoch, away: Vec::new() };
        let life = self.by_life.entry(endpoint.clone()).or_insert(none);
        if !life.away.iter().any(|(known, _)| *known == plane) {
            life.away.push((plane, why.to_owned()));
        }
    }

    /// Every plane that is known not to reach the producer, with its reason. To be appended to a
    /// sentence: it begins with a semicolon, or is empty.
    pub(super) fn reasons(&self, endpoint: &Endpoint) -> String {
        let mut text = String::new();
        for (plane, why) in self.by_life.get(endpoint).iter().flat_map(|life| &life.away) {
            let _ = write!(text, "; {plane} does not reach it: {why}");
        }
        text
    }

    /// The producer says that it lives as `epoch`: what was found out about another life of it is no
    /// use any more.
    pub(super) fn seen(&mut self, endpoint: &Endpoint, epoch: u64) {
        if self.by_life.get(endpoint).is_some_and(|life| life.epoch != epoch) {
            self.by_life.remove(endpoint);
        }
    }

    /// The bytes that came over `plane` were wrong: the next attempt goes another way if there is one.
    pub(super) fn next_time(&mut self, wanted: &Wanted, plane: Plane) {
        make_room(&mut self.wrong, wanted);
        self.wrong.insert(wanted.clone(), plane);
    }

    /// Those of `planes` that are offered in an attempt to read this.
    pub(super) fn left(&mut self, wanted: &Wanted, planes: PlaneList) -> PlaneList {
        let away = self.by_life.get(&wanted.source).map_or(&[][..], |life| &life.away);
        let left = away.iter().fold(planes, |left, (plane, _)| left.without(*plane));
        let wrong = self.wrong.remove(wanted);
        // Last, not out: the others may not reach this producer, and then it is the one that is left.
        let Some(plane) = wrong.filter(|plane| left.contains(*plane)) else { return left };
        let mut others_first = left.without(plane);
        others_first.push(plane);
        others_first
    }
}

fn make_room<K: Ord, V>(table: &mut BTreeMap<K, V>, key: &K) {
    if !table.contains_key(key) && table.len() >= MAX_LINKS {
        table.pop_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm_hash::MmHash;

    fn wanted(port: u32) -> Wanted {
        let source = format!("10.0.{}.5:{}", port >> 8, 1 + (port & 255));
        let (rows, width, blocks, dtype) = (1, 1, 1, None);
        let (hash, source) = (MmHash::new("a").unwrap(), Endpoint::parse(&source).unwrap());
        Wanted { hash, source, rows, width, blocks, dtype }
    }

    fn all() -> PlaneList {
        Plane::ALL.into_iter().collect()
    }

    #[test]
    fn a_plane_is_away_for_one_life_of_one_producer() {
        let mut away = Away::default();
        let (one, other) = (wanted(1), wanted(2));
        away.note(&one.source, 7, Plane::Shm, "another host");
        assert_eq!(away.left(&one, all()), all().without(Plane::Shm));
        assert_eq!(away.left(&other, all()), all());
        away.seen(&one.source, 7);
        away.note(&one.source, 7, Plane::Nixl, "no library");
        away.note(&one.source, 7, Plane::Shm, "said already");
        assert_eq!(away.left(&one, all()).iter().collect::<Vec<_>>(), [Plane::Tcp]);
        let reasons = "; shm does not reach it: another host; nixl does not reach it: no library";
        assert_eq!(away.reasons(&one.source), reasons);
        assert_eq!(away.reasons(&other.source), "");
        away.seen(&one.source, 8);
        assert_eq!(away.left(&one, all()), all());
        assert_eq!(away.reasons(&one.source), "");
    }

    #[test]
    fn wrong_bytes_make_one_attempt_go_another_way() {
        let mut away = Away::default();
        away.next_time(&wanted(1), Plane::Shm);
        assert_eq!(away.left(&wanted(2), all()), all());
        let order: Vec<Plane> = away.left(&wanted(1), all()).iter().collect();
        assert_eq!(order, [Plane::Nixl, Plane::Tcp, Plane::Shm]);
        assert_eq!(away.left(&wanted(1), all()), all(), "once");
        let only: PlaneList = [Plane::Tcp].into_iter().collect();
        away.next_time(&wanted(1), Plane::Tcp);
        assert_eq!(away.left(&wanted(1), only), only, "the same again where there is no other");
    }

    #[test]
    fn the_tables_are_bounded() {
        let mut away = Away::default();
        for port in 0..5000 {
            away.note(&wanted(port).source, 7, Plane::Shm, "another host");
            away.next_time(&wanted(port), Plane::Shm);
        }
        assert_eq!((away.by_life.len(), away.wrong.len()), (MAX_LINKS, MAX_LINKS));
        assert!(!away.left(&wanted(4999), all()).contains(Plane::Shm));
    }
}
