//! Frame headers: one flags byte and a length of one byte or of eight.

use crate::close_reason::CloseReason;

const MORE: u8 = 0x01;
const LONG: u8 = 0x02;
const COMMAND: u8 = 0x04;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Command,
    /// A frame of a message that is not its last.
    More,
    Last,
}

/// One frame's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Announced, and not yet believed, length of the body.
    pub(crate) size: u64,
}

impl Header {
    /// Bytes of the header of a frame with a body of `size` bytes.
    pub(crate) fn bytes(size: usize) -> usize {
        if u8::try_from(size).is_ok() { 2 } else { 9 }
    }

    /// Appends the header of a frame of `kind` with a body of `size` bytes.
    pub(crate) fn write(out: &mut Vec<u8>, kind: Kind, size: usize) {
        let flags = match kind {
            Kind::Command => COMMAND,
            Kind::More => MORE,
            Kind::Last => 0,
        };
        if let Ok(short) = u8::try_from(size) {
            out.extend([flags, short]);
        } else {
            let size = u64::try_from(size).expect("a length in memory fits 64 bits");
            out.push(flags | LONG);
            out.extend(size.to_be_bytes());
        }
    }
}

/// A header as far as it has arrived.
#[derive(Debug, Default)]
pub(crate) struct HeaderReader {
    /// The kind and how many length bytes are still to come; `None` before the flags byte.
    open: Option<(Kind, u8)>,
    size: u64,
}

impl HeaderReader {
    /// Takes one byte; the header once it is complete, and then is ready for the next one.
    ///
    /// A long length is accepted for a short frame, as libzmq does.
    pub(crate) fn push(&mut self, byte: u8) -> Result<Option<Header>, CloseReason> {
        let Some((kind, missing)) = self.open else {
            let kind = match byte & !LONG {
                COMMAND => Kind::Command,
                MORE => Kind::More,
                0 => Kind::Last,
                _ => return Err(CloseReason::BadFlags { flags: byte }),
            };
            self.open = Some((kind, if byte & LONG == 0 { 1 } else { 8 }));
            return Ok(None);
        };
        self.size = (self.size << 8) | u64::from(byte);
        if missing > 1 {
            self.open = Some((kind, missing - 1));
            return Ok(None);
        }
        let header = Header { kind, size: self.size };
        *self = Self::default();
        Ok(Some(header))
    }
}
