//! `XferAck`: a producer answers one request (PROTOCOL 12).

use super::error::{Allowed, DecodeError, FieldPath};
use super::extension::{self, AckExtension};
use super::memdesc::Progression;
use super::message::Message;
use super::reader::Reader;
use super::status::AckStatus;
use super::writer::Writer;
use crate::mm_hash::MmHash;

const MM_HASH: FieldPath = FieldPath::field("$.mm_hash");
const STATUS: FieldPath = FieldPath::field("$.status");
const SESSION_ID: FieldPath = FieldPath::field("$.session_id");
const SRC_BLOCK_INDICES: FieldPath = FieldPath::field("$.src_block_indices");
const AGENT_METADATA: FieldPath = FieldPath::field("$.agent_metadata");
const MEM_DESCRIPTOR: FieldPath = FieldPath::field("$.mem_descriptor");

/// What a receiver is willing to take from an ack, beyond the size of the whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckLimits {
    /// Most `src_block_indices`; each costs eight bytes once the ack is accepted. A consumer knows
    /// the number to expect from the announcement.
    pub max_blocks: usize,
}

impl Default for AckLimits {
    /// 2^20 blocks, 8 MiB of indices: as many as the largest region that upstream was measured with.
    fn default() -> Self {
        Self { max_blocks: 1 << 20 }
    }
}

/// A producer's answer. Everything but the list of indices borrows from the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XferAck<'a> {
    /// The entry that was asked for.
    pub mm_hash: &'a str,
    /// Granted, or why not.
    pub status: AckStatus,
    /// The request's session id; upstream leaves it out of refusals.
    pub session_id: &'a str,
    /// Where the entry lies, one index per block, in order. Empty between Chiasm peers, who send
    /// extents.
    pub src_block_indices: Vec<u64>,
    /// The producer's NIXL agent, opaque here.
    pub agent_metadata: &'a [u8],
    /// The producer's region, see [`super::decode_progression`]. Empty if the peer has it already.
    pub mem_descriptor: &'a [u8],
    /// What only Chiasm peers say.
    pub chiasm: Option<AckExtension<'a>>,
}

impl<'a> XferAck<'a> {
    /// An answer that consists of a hash and a status, which is all that upstream's refusals carry.
    #[must_use]
    pub const fn bare(mm_hash: &'a str, status: AckStatus) -> Self {
        Self {
            mm_hash,
            status,
            session_id: "",
            src_block_indices: Vec::new(),
            agent_metadata: &[],
            mem_descriptor: &[],
            chiasm: None,
        }
    }

    /// Reads an ack that fills `bytes` exactly and stays within `limits`.
    ///
    /// A status that is not known is [`DecodeError::UnknownStatus`], but only if everything else is
    /// in order. Negative block indices are refused, which msgspec does not do.
    pub fn decode(bytes: &'a [u8], limits: &AckLimits) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (mut mm_hash, mut status, mut unknown_status) = (None, None, None);
        let mut session_id = "";
        let mut indices = Indices { start: reader, count: 0 };
        let (mut agent_metadata, mut mem_descriptor): (&[u8], &[u8]) = (&[], &[]);
        let mut chiasm = None;
        reader.fields(FieldPath::ROOT, |reader, key| {
            match key {
                b"type" => reader.tag("ack")?,
                b"mm_hash" => mm_hash = Some(reader.text(MM_HASH)?),
                b"status" => {
                    let code = reader.int(STATUS)?;
                    status = AckStatus::from_code(code);
                    // Of two statuses the last one counts, but msgspec refuses an unknown first one.
                    unknown_status = unknown_status.or(status.is_none().then_some(code));
                }
                b"session_id" => session_id = reader.text(SESSION_ID)?,
                b"src_block_indices" => indices = Indices::check(reader, limits.max_blocks)?,
                b"agent_metadata" => agent_metadata = reader.bytes(AGENT_METADATA)?,
                b"mem_descriptor" => mem_descriptor = reader.bytes(MEM_DESCRIPTOR)?,
                extension::KEY => chiasm = Some(AckExtension::read(reader)?),
                _ => reader.skip(extension::UNKNOWN)?,
            }
            Ok(())
        })?;
        reader.end()?;
        let mm_hash = mm_hash.ok_or(DecodeError::Missing { path: MM_HASH })?;
        if let Some(status) = unknown_status {
            let attempt = chiasm.as_ref().map(|chiasm| chiasm.attempt);
            let mm_hash = MmHash::new(mm_hash).ok();
            return Err(DecodeError::UnknownStatus { mm_hash, status, attempt });
        }
        let status = status.ok_or(DecodeError::Missing { path: STATUS })?;
        let src_block_indices = indices.collect()?;
        Ok(Self {
            mm_hash,
            status,
            session_id,
            src_block_indices,
            agent_metadata,
            mem_descriptor,
            chiasm,
        })
    }

    /// The bytes that msgspec makes of the same ack, followed by the `chiasm` map if there is one.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = self.write_fields(!self.mem_descriptor.is_empty());
        if !self.mem_descriptor.is_empty() {
            writer.text("mem_descriptor");
            writer.bytes(self.mem_descriptor);
        }
        if let Some(chiasm) = &self.chiasm {
            chiasm.write(&mut writer);
        }
        writer.finish()
    }

    /// The same with `region`'s list as the `mem_descriptor`, and without a `chiasm` map: upstream is
    /// the only one that needs the list. `None` if the list is longer than msgpack can say.
    #[must_use]
    pub fn encode_with_region(&self, region: &Progression) -> Option<Message> {
        let bytes = u32::try_from(region.encoded_bytes()).ok()?;
        let without = Self { chiasm: None, ..self.clone() };
        let mut writer = without.write_fields(true);
        writer.text("mem_descriptor");
        writer.bytes_header(usize::try_from(bytes).ok()?);
        Some(Message::with_rows(writer.finish(), *region))
    }

    /// Everything before the descriptor list.
    fn write_fields(&self, described: bool) -> Writer {
        let optional = [
            !self.session_id.is_empty(),
            !self.src_block_indices.is_empty(),
            !self.agent_metadata.is_empty(),
            described,
            self.chiasm.is_some(),
        ];
        let variable = self.mem_descriptor.len() + self.agent_metadata.len();
        let mut writer = Writer::with_capacity(512 + variable + 5 * self.src_block_indices.len());
        writer.map(3 + optional.into_iter().filter(|present| *present).count());
        writer.text("type");
        writer.text("ack");
        writer.text("mm_hash");
        writer.text(self.mm_hash);
        writer.text("status");
        writer.uint(u64::from(self.status.code()));
        if !self.session_id.is_empty() {
            writer.text("session_id");
            writer.text(self.session_id);
        }
        if !self.src_block_indices.is_empty() {
            writer.text("src_block_indices");
            writer.array(self.src_block_indices.len());
            for index in &self.src_block_indices {
                writer.uint(*index);
            }
        }
        if !self.agent_metadata.is_empty() {
            writer.text("agent_metadata");
            writer.bytes(self.agent_metadata);
        }
        writer
    }
}

/// A list of indices that has been checked and not yet been copied: an ack that is refused for what
/// comes after it costs no memory.
struct Indices<'a> {
    start: Reader<'a>,
    count: usize,
}

impl<'a> Indices<'a> {
    fn check(reader: &mut Reader<'a>, max_blocks: usize) -> Result<Self, DecodeError> {
        let at = reader.place(SRC_BLOCK_INDICES);
        let count = reader.array(SRC_BLOCK_INDICES)?;
        if count > max_blocks {
            let allowed = Allowed::AtMost(max_blocks);
            return Err(DecodeError::Length { at, found: count, unit: "blocks", allowed });
        }
        let start = *reader;
        for index in 0..count {
            reader.uint(SRC_BLOCK_INDICES.index(index))?;
        }
        Ok(Self { start, count })
    }

    fn collect(mut self) -> Result<Vec<u64>, DecodeError> {
        let mut indices = Vec::with_capacity(self.count);
        for _ in 0..self.count {
            indices.push(self.start.uint(SRC_BLOCK_INDICES)?);
        }
        Ok(indices)
    }
}
