//! Choices out of an input's bytes, from the first to the last.
//!
//! The layout is made to be written by hand: a choice among at most 256 is one byte, a length too, a
//! number eight bytes, little-endian. Past the end everything is zero.

/// What is left of an input.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `end`, which is from 1 to 256.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        bytes.fill_with(|| self.byte());
        u64::from_le_bytes(bytes)
    }

    /// Any number, most of them near a power of two or small.
    pub(crate) fn size(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=127 => u64::from(small),
            power @ 128..=191 => 1 << (power - 128),
            power @ 192..=254 => (1 << (power - 191)) - 1,
            255 => self.number(),
        }
    }

    /// At most `longest` bytes, as many as the next byte says.
    pub(crate) fn bytes(&mut self, longest: usize) -> &'a [u8] {
        let count = usize::from(self.byte()).min(longest);
        self.take(count)
    }

    /// Bytes as [`Input::bytes`] gives them, what is no UTF-8 replaced.
    pub(crate) fn text(&mut self, longest: usize) -> String {
        String::from_utf8_lossy(self.bytes(longest)).into_owned()
    }

    /// The next `count` bytes, fewer at the end.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// One of `all`, which has 1 to 256.
    pub(crate) fn pick<'b, T>(&mut self, all: &'b [T]) -> &'b T {
        &all[self.below(all.len())]
    }
}
