//! A bounded list of what was found: the first ones, and how many more there were.

use super::limits::MAX_FINDINGS;

/// The first [`MAX_FINDINGS`] findings in the order in which they came, and the number of the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings<T> {
    listed: Vec<T>,
    omitted: usize,
}

impl<T> Default for Findings<T> {
    fn default() -> Self {
        Self { listed: Vec::new(), omitted: 0 }
    }
}

impl<T> Findings<T> {
    /// Those that were kept.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.listed.iter()
    }

    /// How many were not kept.
    #[must_use]
    pub const fn omitted(&self) -> usize {
        self.omitted
    }

    /// All of them, kept or not.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.listed.len() + self.omitted
    }

    /// Whether nothing was found.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    pub(super) fn push(&mut self, finding: T) {
        if self.listed.len() < MAX_FINDINGS {
            self.listed.push(finding);
        } else {
            self.omitted += 1;
        }
    }
}

impl<'a, T> IntoIterator for &'a Findings<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
