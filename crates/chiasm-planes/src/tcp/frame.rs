//! The frames of a data stream: fixed sizes, nothing to parse that could be large.
//!
//! ```text
//! consumer -> producer   preamble  C7 'h' 'i' 'a' 's' 'm' 01 00          once
//!                        READ      01  read id (u32)  token (16 bytes)    21 bytes
//! producer -> consumer   DATA      81  read id (u32)  length (u64)        13 bytes, then the bytes
//!                        REFUSED   82  read id (u32)  0 (u64)             13 bytes
//! ```
//! Numbers are big-endian. Answers come in the order of the requests (PROTOCOL 44).

use chiasm_core::producer::GrantToken;

/// The first byte of a data stream. A ZMTP greeting begins with FF, text protocols with ASCII.
pub const FIRST_BYTE: u8 = 0xC7;

/// READ frames that one stream may have open; a producer reads no further before it has answered.
pub const MAX_PIPELINED: usize = 64;

pub(super) const PREAMBLE: [u8; 8] = [FIRST_BYTE, b'h', b'i', b'a', b's', b'm', 1, 0];
pub(super) const READ_BYTES: usize = 21;
pub(super) const ANSWER_BYTES: usize = 13;
const READ: u8 = 0x01;
const DATA: u8 = 0x81;
const REFUSED: u8 = 0x82;

/// A request for the bytes of one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadFrame {
    pub(super) id: u32,
    pub(super) token: GrantToken,
}

impl ReadFrame {
    pub(super) fn encode(self) -> [u8; READ_BYTES] {
        let mut bytes = [0; READ_BYTES];
        bytes[0] = READ;
        bytes[1..5].copy_from_slice(&self.id.to_be_bytes());
        bytes[5..].copy_from_slice(&self.token.0);
        bytes
    }

    pub(super) fn check_kind(kind: u8) -> Result<(), String> {
        if kind == READ {
            return Ok(());
        }
        Err(format!("frame of kind {kind:#04x} on a data stream, only READ (0x01) is allowed"))
    }

    pub(super) fn decode(bytes: [u8; READ_BYTES]) -> Result<Self, String> {
        let [kind, i0, i1, i2, i3, token @ ..] = bytes;
        Self::check_kind(kind)?;
        Ok(Self { id: u32::from_be_bytes([i0, i1, i2, i3]), token: GrantToken(token) })
    }
}

/// The answer to a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerFrame {
    Data { id: u32, length: u64 },
    Refused { id: u32 },
}

impl AnswerFrame {
    pub(super) fn encode(self) -> [u8; ANSWER_BYTES] {
        let (kind, id, length) = match self {
            Self::Data { id, length } => (DATA, id, length),
            Self::Refused { id } => (REFUSED, id, 0),
        };
        let mut bytes = [0; ANSWER_BYTES];
        bytes[0] = kind;
        bytes[1..5].copy_from_slice(&id.to_be_bytes());
        bytes[5..].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: [u8; ANSWER_BYTES]) -> Result<Self, String> {
        let [kind, i0, i1, i2, i3, length @ ..] = bytes;
        let id = u32::from_be_bytes([i0, i1, i2, i3]);
        match kind {
            DATA => Ok(Self::Data { id, length: u64::from_be_bytes(length) }),
            REFUSED => Ok(Self::Refused { id }),
            _ => Err(format!(
                "answer of kind {kind:#04x}, only DATA (0x81) and REFUSED (0x82) are allowed"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_documented_bytes_and_come_back() {
        let read = ReadFrame { id: 0x0102_0304, token: GrantToken([7; 16]) };
        let bytes = read.encode();
        assert_eq!(bytes[..6], [1, 1, 2, 3, 4, 7]);
        assert_eq!(ReadFrame::decode(bytes), Ok(read));
        let data = AnswerFrame::Data { id: 9, length: 0x0A0B };
        assert_eq!(data.encode(), [0x81, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0x0A, 0x0B]);
        assert_eq!(AnswerFrame::decode(data.encode()), Ok(data));
        let refused = AnswerFrame::Refused { id: 9 };
        assert_eq!(AnswerFrame::decode(refused.encode()), Ok(refused));
    }

    #[test]
    fn frames_of_other_kinds_are_refused_by_name() {
        assert!(ReadFrame::decode([0; READ_BYTES]).unwrap_err().contains("0x00"));
        assert!(AnswerFrame::decode([1; ANSWER_BYTES]).unwrap_err().contains("0x01"));
    }
}
