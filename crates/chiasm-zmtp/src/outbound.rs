//! Bytes waiting to be written: a queue of chunks, of which large payloads are moved, not copied, and
//! descriptor lists are not even made before it is their turn.

use std::collections::VecDeque;

use chiasm_core::wire::RowsEncoder;

/// Small pieces are gathered into chunks of this many bytes, so that a header and its payload, or
/// many acks, are one write. Copying so much is cheaper than a second system call.
const GATHER_BYTES: usize = 8 << 10;

/// A descriptor list is encoded in pieces of so many bytes: some 10 us of work.
pub(crate) const ENCODE_BYTES: usize = 64 << 10;

/// The output queue of one connection.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// The front one is always bytes.
    chunks: VecDeque<Chunk>,
    /// How much of the front chunk is written.
    written: usize,
    queued: usize,
    unencoded: usize,
}

#[derive(Debug)]
enum Chunk {
    Bytes(Vec<u8>),
    Rows { encoder: RowsEncoder, left: usize },
}

impl Outbound {
    /// Bytes queued and not yet written.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// How many of these have not even been made.
    pub(crate) fn unencoded(&self) -> usize {
        self.unencoded
    }

    /// What to write next; empty when there is nothing.
    pub(crate) fn front(&self) -> &[u8] {
        match self.chunks.front() {
            Some(Chunk::Bytes(bytes)) => bytes.get(self.written..).unwrap_or_default(),
            Some(Chunk::Rows { .. }) | None => &[],
        }
    }

    /// Queues `head` bytes, which `write` appends, and `body` after them.
    pub(crate) fn push_after(
        &mut self,
        head: usize,
        write: impl FnOnce(&mut Vec<u8>),
        body: Vec<u8>,
    ) {
        let bytes = head.saturating_add(body.len());
        if bytes > GATHER_BYTES {
            let mut alone = Vec::with_capacity(head);
            write(&mut alone);
            self.push(alone);
            return self.push(body);
        }
        self.queued = self.queued.saturating_add(bytes);
        if let Some(Chunk::Bytes(tail)) = self.chunks.back_mut()
            && tail.len().saturating_add(bytes) <= GATHER_BYTES
        {
            tail.reserve_exact(GATHER_BYTES.saturating_sub(tail.len()));
            write(tail);
            tail.extend_from_slice(&body);
        } else {
            let mut chunk = Vec::with_capacity(GATHER_BYTES);
            write(&mut chunk);
            chunk.extend_from_slice(&body);
            self.chunks.push_back(Chunk::Bytes(chunk));
        }
    }

    /// Queues `bytes`.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        self.queued = self.queued.saturating_add(bytes.len());
        match self.chunks.back_mut() {
            Some(Chunk::Bytes(tail)) if tail.len().saturating_add(bytes.len()) <= GATHER_BYTES => {
                tail.reserve_exact(GATHER_BYTES.saturating_sub(tail.len()));
                tail.extend_from_slice(&bytes);
            }
            _ if bytes.is_empty() => {}
            _ => self.chunks.push_back(Chunk::Bytes(bytes)),
        }
    }

    /// Queues a list that will be `bytes` long.
    pub(crate) fn push_rows(&mut self, encoder: RowsEncoder, bytes: usize) {
        self.queued = self.queued.saturating_add(bytes);
        self.unencoded = self.unencoded.saturating_add(bytes);
        self.chunks.push_back(Chunk::Rows { encoder, left: bytes });
        self.encode();
    }

    /// Makes bytes of a list whose turn it is.
    fn encode(&mut self) {
        while let Some(Chunk::Rows { encoder, left }) = self.chunks.front_mut() {
            let bytes = encoder.next_bytes(ENCODE_BYTES);
            let made = bytes.len().min(*left);
            self.unencoded = self.unencoded.saturating_sub(made);
            *left = left.saturating_sub(made);
            if *left == 0 {
                self.chunks.pop_front();
            }
            if made > 0 {
                self.chunks.push_front(Chunk::Bytes(bytes));
            }
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
                self.encode();
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
        let queue = self.chunks.capacity().saturating_mul(size_of::<Chunk>());
        let bytes = self.chunks.iter().map(|chunk| match chunk {
            Chunk::Bytes(bytes) => bytes.capacity(),
            Chunk::Rows { .. } => 0,
        });
        bytes.fold(queue, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use chiasm_core::wire::Progression;

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

    #[test]
    fn a_list_is_made_while_it_is_written() {
        let region = Progression::new(0x7f00_0000_0000, 4096, 4096, 100_000, 0).unwrap();
        let expected = region.encode();
        let mut outbound = Outbound::default();
        outbound.push(vec![1; 3]);
        for _ in 0..2 {
            outbound.push_rows(RowsEncoder::new(region), expected.len());
            outbound.push(vec![2; 3]);
        }
        let all = 3 + 2 * (expected.len() + 3);
        assert_eq!(outbound.queued(), all);
        let (mut written, mut most) = (Vec::new(), 0);
        while !outbound.front().is_empty() {
            most = most.max(outbound.memory_bytes());
            let count = outbound.front().len().min(10_000);
            written.extend_from_slice(&outbound.front()[..count]);
            assert_eq!(outbound.consume(count), count);
            assert_eq!(outbound.queued(), all - written.len());
            assert!(outbound.unencoded() <= outbound.queued());
        }
        let wanted = [&[1; 3], &expected[..], &[2; 3], &expected[..], &[2; 3]].concat();
        assert!(written == wanted, "the same bytes as at once");
        assert!(most < 2 * ENCODE_BYTES, "{most} bytes held of {all}");
        assert_eq!((outbound.queued(), outbound.unencoded()), (0, 0));
    }
}
