//! Messages over a stream: 4 bytes of length, little-endian, then the message.
//!
//! It must never hold more than its bounds: one frame that is coming in, and what waits to go out.

use std::collections::VecDeque;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::{MAX_FRAME_BYTES, MAX_QUEUED_BYTES};

/// Bytes before each message.
const HEAD_BYTES: usize = 4;

/// Why what came in is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame of {0} bytes, at most {MAX_FRAME_BYTES}")]
    TooLong(usize),
    #[error("a frame that is no message")]
    Malformed,
}

/// What has come in and is not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    /// Bytes at the front that have been taken.
    taken: usize,
}

impl Incoming {
    /// Add what was read. The caller takes every whole message before it reads again, so this stays
    /// below one frame and one read.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        let Some((head, rest)) = rest.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let len = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
        if len > MAX_FRAME_BYTES {
            return Err(FrameError::TooLong(len));
        }
        let Some(frame) = rest.get(..len) else { return Ok(None) };
        let (message, left) =
            postcard::take_from_bytes(frame).map_err(|_| FrameError::Malformed)?;
        if !left.is_empty() {
            return Err(FrameError::Malformed);
        }
        self.taken += HEAD_BYTES + len;
        Ok(Some(message))
    }
}

/// What waits to go out.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    frames: VecDeque<Vec<u8>>,
    /// Bytes of the first frame that have gone.
    sent: usize,
    bytes: usize,
}

impl Outgoing {
    /// Append a message; false if too many bytes wait already, or it is longer than a frame may be.
    pub(crate) fn push<T: Serialize>(&mut self, message: &T) -> bool {
        if self.is_full() {
            return false;
        }
        let Ok(frame) = postcard::to_extend(message, vec![0; HEAD_BYTES]) else { return false };
        let len = frame.len() - HEAD_BYTES;
        let Some(head) = u32::try_from(len).ok().filter(|_| len <= MAX_FRAME_BYTES) else {
            return false;
        };
        let mut frame = frame;
        frame.splice(..HEAD_BYTES, head.to_le_bytes());
        self.bytes += frame.len();
        self.frames.push_back(frame);
        true
    }

    /// Whether no more is taken for now.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= MAX_QUEUED_BYTES
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The bytes to write next; empty if nothing waits.
    pub(crate) fn front(&self) -> &[u8] {
        self.frames.front().and_then(|frame| frame.get(self.sent..)).unwrap_or_default()
    }

    /// So many bytes of [`Outgoing::front`] have gone.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.frames.front().is_some_and(|frame| self.sent >= frame.len()) {
            let frame = self.frames.pop_front();
            self.bytes -= frame.map_or(0, |frame| frame.len());
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::command::{Command, PeerId, ReadId};
    use crate::limits::{MAX_NOTIFICATION_BYTES, MAX_PIECES};
    use crate::piece::{Piece, Span};

    fn written(outgoing: &mut Outgoing) -> Vec<u8> {
        let mut all = Vec::new();
        while !outgoing.is_empty() {
            let front = outgoing.front().to_vec();
            outgoing.advance(front.len());
            all.extend(front);
        }
        all
    }

    fn load_for_test(len: usize) -> Command {
        Command::LoadPeer {
            peer: PeerId(7),
            agent_name: "a".into(),
            metadata: vec![0x5A; len],
            span: Span { address: 1, bytes: 2 },
        }
    }

    #[test]
    fn the_longest_read_fits_a_frame() {
        let piece = Piece { local_offset: u64::MAX, remote_address: u64::MAX, bytes: u64::MAX };
        let longest = Command::Read {
            read: ReadId(u64::MAX),
            peer: PeerId(u64::MAX),
            pieces: vec![piece; MAX_PIECES],
            notification: vec![0; MAX_NOTIFICATION_BYTES],
        };
        let mut outgoing = Outgoing::default();
        assert!(outgoing.push(&longest));
        let mut incoming = Incoming::default();
        incoming.extend(&written(&mut outgoing));
        assert_eq!(incoming.next::<Command>(), Ok(Some(longest)));
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_its_bytes_come() {
        let mut incoming = Incoming::default();
        incoming.extend(&u32::try_from(MAX_FRAME_BYTES + 1).unwrap().to_le_bytes());
        let refused = incoming.next::<Command>();
        assert_eq!(refused, Err(FrameError::TooLong(MAX_FRAME_BYTES + 1)));
    }

    #[test]
    fn no_more_waits_than_the_limit_and_one_frame() {
        let mut outgoing = Outgoing::default();
        let pushed = (0..1000).take_while(|_| outgoing.push(&load_for_test(60_000))).count();
        assert_eq!(pushed, MAX_QUEUED_BYTES.div_ceil(60_000 + 4 + 10));
        assert!(outgoing.is_full());
        assert_eq!(written(&mut outgoing).len(), outgoing_bytes(pushed));
        assert!(outgoing.push(&load_for_test(1)), "there is room again");
    }

    fn outgoing_bytes(frames: usize) -> usize {
        let mut one = Outgoing::default();
        one.push(&load_for_test(60_000));
        written(&mut one).len() * frames
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_however_they_are_cut(
            lens in proptest::collection::vec(0_usize..300, 1..10),
            cuts in proptest::collection::vec(1_usize..50, 1..100),
        ) {
            let mut outgoing = Outgoing::default();
            for &len in &lens {
                prop_assert!(outgoing.push(&load_for_test(len)));
            }
            let bytes = written(&mut outgoing);
            let mut incoming = Incoming::default();
            let mut found = Vec::new();
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                incoming.extend(now);
                while let Some(command) = incoming.next::<Command>().unwrap() {
                    found.push(command);
                }
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            let sent: Vec<_> = lens.into_iter().map(load_for_test).collect();
            prop_assert_eq!(found, sent);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut incoming = Incoming::default();
            let len = u32::try_from(bytes.len()).unwrap();
            incoming.extend(&len.to_le_bytes());
            incoming.extend(&bytes);
            let _ = incoming.next::<Command>();
        }
    }
}
