//! The 64 bytes that open a connection, ours and the peer's.
//!
//! Each part is judged when it is complete, so that a peer of another protocol or of an older ZMTP
//! is named before the deadline, and the verdict never depends on how the bytes were cut.

use crate::close_reason::{CloseReason, printable};

/// Our greeting: signature, version 3.1, NULL, not as-server, filler.
#[rustfmt::skip]
pub(crate) const GREETING: [u8; 64] = [
    0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f,
    3, 1,
    b'N', b'U', b'L', b'L', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// A peer's greeting as far as it has arrived.
#[derive(Debug, Default)]
pub(crate) struct GreetingReader {
    position: usize,
    /// The signature, then the mechanism.
    field: Vec<u8>,
    major: u8,
    minor: u8,
}

impl GreetingReader {
    /// Takes one byte; the peer's version (major, minor) once the greeting is complete.
    pub(crate) fn push(&mut self, byte: u8) -> Result<Option<(u8, u8)>, CloseReason> {
        let position = self.position;
        self.position = position.saturating_add(1);
        match position {
            10 => self.major = byte,
            11 => self.minor = byte,
            0..=9 | 12..=31 => self.field.push(byte),
            32 if byte != 0 => return Err(CloseReason::AsServer { seen: byte }),
            // The filler is ignored, as in libzmq.
            _ => {}
        }
        match position {
            9 => self.signature()?,
            10 if byte < 3 => return Err(CloseReason::VersionTooOld { major: byte }),
            31 => self.mechanism()?,
            63 => return Ok(Some((self.major, self.minor))),
            _ => {}
        }
        Ok(None)
    }

    fn signature(&mut self) -> Result<(), CloseReason> {
        if !matches!(self.field.as_slice(), [0xff, .., 0x7f]) {
            return Err(CloseReason::NotZmtp { first: printable(&self.field) });
        }
        self.field.clear();
        Ok(())
    }

    fn mechanism(&self) -> Result<(), CloseReason> {
        let end = self.field.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let name = self.field.get(..end).unwrap_or_default();
        if name == b"NULL" { Ok(()) } else { Err(CloseReason::Mechanism { seen: printable(name) }) }
    }

    /// Heap bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.field.capacity()
    }
}
