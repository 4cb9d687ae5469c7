//! `XferDone`: a consumer has let go of a grant (PROTOCOL 50). Ours alone: it is sent only to a peer
//! that has shown the `chiasm` field, so upstream never sees one.

use super::error::{DecodeError, FieldPath};
use super::extension;
use super::reader::Reader;
use super::writer::Writer;

const TAG: FieldPath = FieldPath::field("$.type");
const MM_HASH: FieldPath = FieldPath::field("$.mm_hash");
const SESSION_ID: FieldPath = FieldPath::field("$.session_id");
const ATTEMPT: FieldPath = FieldPath::field("$.attempt");

/// Names one grant, by all that tells it from others. Every field is required, the tag included.
/// Texts are as long as the peer made them: the message as a whole is bounded by whoever received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XferDone<'a> {
    /// The entry that was granted.
    pub mm_hash: &'a str,
    /// The session that it was granted to.
    pub session_id: &'a str,
    /// The request that it answered, never 0.
    pub attempt: u32,
}

impl<'a> XferDone<'a> {
    /// Reads a message that fills `bytes` exactly.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (mut tagged, mut mm_hash, mut session_id, mut attempt) = (false, None, None, None);
        reader.fields(FieldPath::ROOT, |reader, key| {
            match key {
                b"type" => {
                    reader.tag("done")?;
                    tagged = true;
                }
                b"mm_hash" => mm_hash = Some(reader.text(MM_HASH)?),
                b"session_id" => session_id = Some(reader.text(SESSION_ID)?),
                b"attempt" => {
                    let at = reader.place(ATTEMPT);
                    attempt = Some(match reader.uint32(ATTEMPT)? {
                        0 => {
                            let max = u64::from(u32::MAX);
                            return Err(DecodeError::Range { at, found: 0, min: 1, max });
                        }
                        number => number,
                    });
                }
                _ => reader.skip(extension::UNKNOWN)?,
            }
            Ok(())
        })?;
        reader.end()?;
        // A map without a tag is a request, as with upstream.
        if !tagged {
            return Err(DecodeError::Missing { path: TAG });
        }
        Ok(Self {
            mm_hash: mm_hash.ok_or(DecodeError::Missing { path: MM_HASH })?,
            session_id: session_id.ok_or(DecodeError::Missing { path: SESSION_ID })?,
            attempt: attempt.ok_or(DecodeError::Missing { path: ATTEMPT })?,
        })
    }

    /// The message's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(256);
        writer.map(4);
        writer.text("type");
        writer.text("done");
        writer.text("mm_hash");
        writer.text(self.mm_hash);
        writer.text("session_id");
        writer.text(self.session_id);
        writer.text("attempt");
        writer.uint(u64::from(self.attempt));
        writer.finish()
    }
}
