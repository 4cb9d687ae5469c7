//! The run as it can be compared and read: a running hash over everything that happened, and the lines
//! themselves where somebody wants to read them.

use std::fmt::Write as _;

use crate::random::mix;

/// Records what happens. Equal hashes mean equal runs (S10): times, events, messages byte for byte,
/// and decisions go into it.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// A trace that keeps its lines if `keeps` says so.
    #[must_use]
    pub(crate) fn new(keeps: bool) -> Self {
        Self { hash: 0, events: 0, lines: keeps.then(Vec::new) }
    }

    /// One thing that happened: its name and the numbers that tell it from others.
    pub(crate) fn note(&mut self, at: u64, what: &'static str, numbers: &[u64]) {
        self.events += 1;
        self.absorb(at);
        self.absorb_bytes(what.as_bytes());
        for number in numbers {
            self.absorb(*number);
        }
        if let Some(lines) = &mut self.lines {
            let mut line = stamp(at);
            let _ = write!(line, " {what}");
            for number in numbers {
                let _ = write!(line, " {number}");
            }
            lines.push(line);
        }
    }

    /// More for people about what has just been noted. Only made where lines are kept.
    pub(crate) fn say(&mut self, at: u64, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{}   {}", stamp(at), text()));
        }
    }

    /// Bytes that were on their way.
    pub(crate) fn absorb_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.absorb(u64::from_le_bytes(word));
        }
        self.absorb(bytes.len() as u64);
    }

    fn absorb(&mut self, word: u64) {
        self.hash = mix(self.hash.rotate_left(7) ^ word);
    }

    /// The hash of everything so far.
    #[must_use]
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// How many things happened.
    #[must_use]
    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// The lines, where they were kept.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }
}

fn stamp(at: u64) -> String {
    format!("{:>4}.{:09}", at / 1_000_000_000, at % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_and_every_byte_counts() {
        let hash = |at, what, number, bytes: &[u8]| {
            let mut trace = Trace::default();
            trace.note(at, what, &[number]);
            trace.absorb_bytes(bytes);
            trace.hash()
        };
        let base = hash(1, "a", 2, b"x");
        assert_eq!(base, hash(1, "a", 2, b"x"));
        for other in [
            hash(2, "a", 2, b"x"),
            hash(1, "b", 2, b"x"),
            hash(1, "a", 3, b"x"),
            hash(1, "a", 2, b""),
        ] {
            assert_ne!(base, other);
        }
    }
}
