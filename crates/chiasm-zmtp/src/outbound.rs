//! Bytes waiting to be written: a queue of chunks, of which large payloads are moved, not copied.

use std::collections::VecDeque;

/// Small pieces are gathered into chunks of this many bytes, so that a header and its payload, or
/// many acks, are one write. Copying so much is cheaper than a second system call.
const GATHER_BYTES: usize = 8 << 10;

/// The output queue of one connection.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    chunks: VecDeque<Vec<u8>>,
    /// How much of the front chunk is written.
    written: usize,
    queued: usize,
}

impl Outbound {
    /// Bytes queued and not yet written.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// What to write next; empty when there is nothing.
    pub(crate) fn front(&self) -> &[u8] {
        self.chunks.front().and_then(|chunk| chunk.get(self.written..)).unwrap_or_default()
    }

    /// Queues `bytes`.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        self.queued = self.queued.saturating_add(bytes.len());
        match self.chunks.back_mut() {
            Some(tail) if tail.len().saturating_add(bytes.len()) <= GATHER_BYTES => {
                tail.reserve_exact(GATHER_BYTES.saturating_sub(tail.len()));
                tail.extend_from_slice(&bytes);
            }
            _ if bytes.is_empty() => {}
            _ => self.chunks.push_back(bytes),
        }
    }

    /// Forgets the first `count` bytes: they are written. Returns how many there were, `count` or
    /// fewer.
    pub(crate) fn consume(&mut self, count: usize) -> usize {
        let mut missing = count;
        while missing > 0 {
            let front = self.front().len();
            if missing < front {
                self.written = self.written.saturating_add(missing);
                missing = 0;
            } else if self.chunks.pop_front().is_some() {
                self.written = 0;
                missing = missing.saturating_sub(front);
            } else {
                break;
            }
        }
        let consumed = count.saturating_sub(missing);
        self.queued = self.queued.saturating_sub(consumed);
        consumed
    }

    /// Heap bytes held: the queue and what is written of its front chunk.
    pub(crate) fn memory_bytes(&self) -> usize {
        let queue = self.chunks.capacity().saturating_mul(size_of::<Vec<u8>>());
        self.chunks.iter().map(Vec::capacity).fold(queue, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_piece_never_hides_what_is_behind_it() {
        let mut outbound = Outbound::default();
        outbound.push(Vec::new());
        outbound.push(vec![1; GATHER_BYTES + 1]);
        outbound.push(Vec::new());
        outbound.push(vec![2; GATHER_BYTES + 1]);
        assert_eq!(outbound.front().len(), GATHER_BYTES + 1);
        assert_eq!(outbound.consume(GATHER_BYTES + 1), GATHER_BYTES + 1);
        assert_eq!(outbound.front(), [2; GATHER_BYTES + 1]);
    }
}
