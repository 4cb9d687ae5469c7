//! `XferReq`: a consumer asks a producer for one entry (PROTOCOL 11).

use super::CONNECTOR_VERSION;
use super::error::{DecodeError, FieldPath};
use super::extension::{self, ReqExtension};
use super::reader::Reader;
use super::writer::Writer;

const MM_HASH: FieldPath = FieldPath::field("$.mm_hash");
const COMPATIBILITY_HASH: FieldPath = FieldPath::field("$.compatibility_hash");
const SESSION_ID: FieldPath = FieldPath::field("$.session_id");
const CONNECTOR_VERSION_FIELD: FieldPath = FieldPath::field("$.connector_version");

/// A consumer's request for one entry. Texts are as long as the peer made them: the message as a
/// whole is bounded by whoever received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XferReq<'a> {
    /// The entry that is asked for.
    pub mm_hash: &'a str,
    /// Digest of what both sides must agree on.
    pub compatibility_hash: &'a str,
    /// Names the consumer to NIXL notifications; empty if left out.
    pub session_id: &'a str,
    /// [`CONNECTOR_VERSION`] if left out. Any integer of msgpack: `i64::MIN` to `u64::MAX`.
    pub connector_version: i128,
    /// What only Chiasm peers say.
    pub chiasm: Option<ReqExtension<'a>>,
}

impl<'a> XferReq<'a> {
    /// Reads a request that fills `bytes` exactly.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (mut mm_hash, mut compatibility_hash) = (None, None);
        let mut session_id = "";
        let mut connector_version = i128::from(CONNECTOR_VERSION);
        let mut chiasm = None;
        reader.fields(FieldPath::ROOT, |reader, key| {
            match key {
                b"type" => reader.tag("req")?,
                b"mm_hash" => mm_hash = Some(reader.text(MM_HASH)?),
                b"compatibility_hash" => {
                    compatibility_hash = Some(reader.text(COMPATIBILITY_HASH)?);
                }
                b"session_id" => session_id = reader.text(SESSION_ID)?,
                b"connector_version" => connector_version = reader.int(CONNECTOR_VERSION_FIELD)?,
                extension::KEY => chiasm = Some(ReqExtension::read(reader)?),
                _ => reader.skip(extension::UNKNOWN)?,
            }
            Ok(())
        })?;
        reader.end()?;
        Ok(Self {
            mm_hash: mm_hash.ok_or(DecodeError::Missing { path: MM_HASH })?,
            compatibility_hash: compatibility_hash
                .ok_or(DecodeError::Missing { path: COMPATIBILITY_HASH })?,
            session_id,
            connector_version,
            chiasm,
        })
    }

    /// The bytes that msgspec makes of the same request, followed by the `chiasm` map if there is
    /// one. A version outside msgpack's range is written as the nearer end of that range.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let default_version = self.connector_version == i128::from(CONNECTOR_VERSION);
        let optional = [!self.session_id.is_empty(), !default_version, self.chiasm.is_some()];
        let mut writer = Writer::with_capacity(512);
        writer.map(3 + optional.into_iter().filter(|present| *present).count());
        writer.text("type");
        writer.text("req");
        writer.text("mm_hash");
        writer.text(self.mm_hash);
        writer.text("compatibility_hash");
        writer.text(self.compatibility_hash);
        if !self.session_id.is_empty() {
            writer.text("session_id");
            writer.text(self.session_id);
        }
        if !default_version {
            writer.text("connector_version");
            writer.int(self.connector_version);
        }
        if let Some(chiasm) = &self.chiasm {
            chiasm.write(&mut writer);
        }
        writer.finish()
    }
}
