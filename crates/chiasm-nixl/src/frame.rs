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
