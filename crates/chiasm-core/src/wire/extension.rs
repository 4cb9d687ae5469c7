//! The `chiasm` map: the one optional field in which two Chiasm nodes say more than upstream can
//! (PROTOCOL 40, 41).
//!
//! Upstream's decoders ignore it. Here every known key is checked and bounded, and a map that
//! breaks its own rules refuses the whole message, since only our own peers send one. Unknown keys
//! are ignored whatever their value, so that revision N reads revision N + 1. Revisions therefore
//! never change the type or the meaning of a key: they add keys.

use super::error::{Allowed, DecodeError, FieldPath};
use super::reader::Reader;
use super::writer::Writer;
use crate::digest::Digest;
use crate::dtype::Dtype;
use crate::extent::Extent;
use crate::host_hint::HostHint;
use crate::limits::{
    MAX_EXTENTS, MAX_FINGERPRINT_BYTES, MAX_PLANES_OFFERED, MAX_REASON_BYTES, MAX_REGION_NAME_BYTES,
};
use crate::plane::{Plane, PlaneList};

/// The revision of the `chiasm` map that this crate writes. Any higher one is read as this one.
pub const WIRE_REVISION: u32 = 1;

/// The key of the map in both messages.
pub(super) const KEY: &[u8] = b"chiasm";
const KEY_TEXT: &str = "chiasm";

/// Where an unknown field is reported.
pub(super) const UNKNOWN: FieldPath = FieldPath::field("$.(unknown field)");
const UNKNOWN_INSIDE: FieldPath = FieldPath::field("$.chiasm.(unknown field)");

const MAP: FieldPath = FieldPath::field("$.chiasm");
const REV: FieldPath = FieldPath::field("$.chiasm.rev");
const EPOCH: FieldPath = FieldPath::field("$.chiasm.epoch");
const ATTEMPT: FieldPath = FieldPath::field("$.chiasm.attempt");
const PLANES: FieldPath = FieldPath::field("$.chiasm.planes");
const PLANE: FieldPath = FieldPath::field("$.chiasm.plane");
const TOKEN: FieldPath = FieldPath::field("$.chiasm.token");
const EXTENTS: FieldPath = FieldPath::field("$.chiasm.extents");
const DTYPE: FieldPath = FieldPath::field("$.chiasm.dtype");
const SHAPE: FieldPath = FieldPath::field("$.chiasm.shape");
const BYTES: FieldPath = FieldPath::field("$.chiasm.bytes");
const BLOCK_SIZE_BYTES: FieldPath = FieldPath::field("$.chiasm.block_size_bytes");
const LEASE_MS: FieldPath = FieldPath::field("$.chiasm.lease_ms");
const DIGEST: FieldPath = FieldPath::field("$.chiasm.digest");
const FINGERPRINT: FieldPath = FieldPath::field("$.chiasm.fingerprint");
const REASON: FieldPath = FieldPath::field("$.chiasm.reason");
const HOST: FieldPath = FieldPath::field("$.chiasm.host");
const REGION: FieldPath = FieldPath::field("$.chiasm.region");
const AGENT: FieldPath = FieldPath::field("$.chiasm.agent");
const BASE: FieldPath = FieldPath::field("$.chiasm.base");
const REGION_BLOCKS: FieldPath = FieldPath::field("$.chiasm.region_blocks");

/// What a Chiasm consumer adds to its request. Fields at their default are left out on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReqExtension<'a> {
    /// Revision of the map, at least 1. The only required key.
    pub rev: u32,
    /// Random id of the consumer node's life; 0 if not said.
    pub epoch: u64,
    /// Planes that the consumer can read through, in its order of preference. At most
    /// [`MAX_PLANES_OFFERED`] names; unknown ones are ignored.
    pub planes: PlaneList,
    /// Number of this attempt at the transfer; the ack repeats it.
    pub attempt: u32,
    /// What must match beyond the compatibility hash; at most [`MAX_FINGERPRINT_BYTES`].
    pub fingerprint: Option<&'a str>,
    /// Where the consumer looks for regions, if it can read through shm.
    pub host: Option<HostHint>,
    /// File name of the consumer's own region there, whose lock says whether it lives. At most
    /// [`MAX_REGION_NAME_BYTES`]; whoever opens the file checks that it is a region's name.
    pub region: Option<&'a str>,
    /// The producer's NIXL agent whose metadata the consumer has already; 0 if none.
    pub agent: u64,
}

impl Default for ReqExtension<'_> {
    fn default() -> Self {
        Self {
            rev: WIRE_REVISION,
            epoch: 0,
            planes: PlaneList::EMPTY,
            attempt: 0,
            fingerprint: None,
            host: None,
            region: None,
            agent: 0,
        }
    }
}

impl<'a> ReqExtension<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut rev = None;
        let mut out = Self::default();
        reader.fields(MAP, |reader, key| {
            match key {
                b"rev" => rev = Some(revision(reader)?),
                b"epoch" => out.epoch = reader.uint(EPOCH)?,
                b"planes" => out.planes = offered_planes(reader)?,
                b"attempt" => out.attempt = reader.uint32(ATTEMPT)?,
                b"fingerprint" => out.fingerprint = Some(fingerprint(reader)?),
                b"host" => out.host = Some(HostHint(sixteen_bytes(reader, HOST)?)),
                b"region" => {
                    out.region = Some(short_text(reader, REGION, MAX_REGION_NAME_BYTES)?);
                }
                b"agent" => out.agent = reader.uint(AGENT)?,
                _ => reader.skip(UNKNOWN_INSIDE)?,
            }
            Ok(())
        })?;
        out.rev = rev.ok_or(DecodeError::Missing { path: REV })?;
        Ok(out)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        let optional = [
            self.epoch != 0,
            !self.planes.is_empty(),
            self.attempt != 0,
            self.fingerprint.is_some(),
            self.host.is_some(),
            self.region.is_some(),
            self.agent != 0,
        ];
        writer.text(KEY_TEXT);
        writer.map(1 + optional.into_iter().filter(|present| *present).count());
        writer.text("rev");
        writer.uint(u64::from(self.rev));
        if self.epoch != 0 {
            writer.text("epoch");
            writer.uint(self.epoch);
        }
        if !self.planes.is_empty() {
            writer.text("planes");
            writer.array(self.planes.len());
            for plane in self.planes.iter() {
                writer.text(plane.name());
            }
        }
        if self.attempt != 0 {
            writer.text("attempt");
            writer.uint(u64::from(self.attempt));
        }
        if let Some(fingerprint) = self.fingerprint {
            writer.text("fingerprint");
            writer.text(fingerprint);
        }
        if let Some(host) = self.host {
            writer.text("host");
            writer.bytes(&host.0);
        }
        if let Some(region) = self.region {
            writer.text("region");
            writer.text(region);
        }
        if self.agent != 0 {
            writer.text("agent");
            writer.uint(self.agent);
        }
    }
}

/// What a Chiasm producer adds to its ack. Fields at their default are left out on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckExtension<'a> {
    /// Revision of the map, at least 1. The only required key.
    pub rev: u32,
    /// Random id of the producer node's life; 0 if not said.
    pub epoch: u64,
    /// The attempt that is answered.
    pub attempt: u32,
    /// The plane that the producer has chosen from the consumer's offer; `None` also for a name that
    /// this revision does not know, which then fails one transfer and not the connection.
    pub plane: Option<Plane>,
    /// Opens a tcp data stream for this grant.
    pub token: Option<[u8; 16]>,
    /// File name of the producer's region, on shm. At most [`MAX_REGION_NAME_BYTES`]; whoever opens
    /// the file checks that it is a region's name.
    pub region: Option<&'a str>,
    /// Where the entry lies, in order, at most [`MAX_EXTENTS`] runs.
    pub extents: Vec<Extent>,
    /// Element type of the entry; `None` also for a name that this revision does not know.
    pub dtype: Option<Dtype>,
    /// Rows and elements per row.
    pub shape: Option<(u32, u32)>,
    /// Exact length of the entry in bytes.
    pub bytes: Option<u64>,
    /// Bytes per block of the producer's region.
    pub block_size_bytes: Option<u64>,
    /// What is left of the grant's lease when the ack was made, in milliseconds.
    pub lease_ms: Option<u64>,
    /// Content digest of the entry.
    pub digest: Option<Digest>,
    /// What must match beyond the compatibility hash; at most [`MAX_FINGERPRINT_BYTES`].
    pub fingerprint: Option<&'a str>,
    /// A short machine-readable word with a refusal; at most [`MAX_REASON_BYTES`].
    pub reason: Option<&'a str>,
    /// Names the producer's NIXL agent, on nixl; 0 if not said. Its metadata is in the ack's own field,
    /// unless the request has named the same agent.
    pub agent: u64,
    /// Where block 0 lies in that agent's process, on nixl.
    pub base: u64,
    /// Blocks of that agent's region, on nixl; one after the other, without gaps.
    pub region_blocks: u32,
}

impl Default for AckExtension<'_> {
    fn default() -> Self {
        Self {
            rev: WIRE_REVISION,
            epoch: 0,
            attempt: 0,
            plane: None,
            token: None,
            region: None,
            extents: Vec::new(),
            dtype: None,
            shape: None,
            bytes: None,
            block_size_bytes: None,
            lease_ms: None,
            digest: None,
            fingerprint: None,
            reason: None,
            agent: 0,
            base: 0,
            region_blocks: 0,
        }
    }
}

impl<'a> AckExtension<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut rev = None;
        let mut out = Self::default();
        reader.fields(MAP, |reader, key| {
            match key {
                b"rev" => rev = Some(revision(reader)?),
                b"epoch" => out.epoch = reader.uint(EPOCH)?,
                b"attempt" => out.attempt = reader.uint32(ATTEMPT)?,
                b"plane" => out.plane = Plane::from_name(reader.text(PLANE)?),
                b"token" => out.token = Some(sixteen_bytes(reader, TOKEN)?),
                b"region" => {
                    out.region = Some(short_text(reader, REGION, MAX_REGION_NAME_BYTES)?);
                }
                b"extents" => out.extents = extents(reader)?,
                b"dtype" => out.dtype = wire_dtype(reader.text(DTYPE)?),
                b"shape" => out.shape = Some(shape(reader)?),
                b"bytes" => out.bytes = Some(reader.uint(BYTES)?),
                b"block_size_bytes" => {
                    out.block_size_bytes = Some(reader.uint(BLOCK_SIZE_BYTES)?);
                }
                b"lease_ms" => out.lease_ms = Some(reader.uint(LEASE_MS)?),
                b"digest" => out.digest = Some(Digest(sixteen_bytes(reader, DIGEST)?)),
                b"fingerprint" => out.fingerprint = Some(fingerprint(reader)?),
                b"reason" => out.reason = Some(short_text(reader, REASON, MAX_REASON_BYTES)?),
                b"agent" => out.agent = reader.uint(AGENT)?,
                b"base" => out.base = reader.uint(BASE)?,
                b"region_blocks" => out.region_blocks = reader.uint32(REGION_BLOCKS)?,
                _ => reader.skip(UNKNOWN_INSIDE)?,
            }
            Ok(())
        })?;
        out.rev = rev.ok_or(DecodeError::Missing { path: REV })?;
        Ok(out)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        let optional = [
            self.epoch != 0,
            self.attempt != 0,
            self.plane.is_some(),
            self.token.is_some(),
            self.region.is_some(),
            !self.extents.is_empty(),
            self.dtype.is_some(),
            self.shape.is_some(),
            self.bytes.is_some(),
            self.block_size_bytes.is_some(),
            self.lease_ms.is_some(),
            self.digest.is_some(),
            self.fingerprint.is_some(),
            self.reason.is_some(),
            self.agent != 0,
            self.base != 0,
            self.region_blocks != 0,
        ];
        writer.text(KEY_TEXT);
        writer.map(1 + optional.into_iter().filter(|present| *present).count());
        let mut number = |key: &str, value: Option<u64>| {
            if let Some(value) = value {
                writer.text(key);
                writer.uint(value);
            }
        };
        number("rev", Some(u64::from(self.rev)));
        number("epoch", Some(self.epoch).filter(|epoch| *epoch != 0));
        number("attempt", Some(u64::from(self.attempt)).filter(|attempt| *attempt != 0));
        number("bytes", self.bytes);
        number("block_size_bytes", self.block_size_bytes);
        number("lease_ms", self.lease_ms);
        number("agent", Some(self.agent).filter(|agent| *agent != 0));
        number("base", Some(self.base).filter(|base| *base != 0));
        number("region_blocks", Some(u64::from(self.region_blocks)).filter(|blocks| *blocks != 0));
        let mut text = |key: &str, value: Option<&str>| {
            if let Some(value) = value {
                writer.text(key);
                writer.text(value);
            }
        };
        text("plane", self.plane.map(Plane::name));
        text("dtype", self.dtype.map(Dtype::name));
        text("fingerprint", self.fingerprint);
        text("reason", self.reason);
        text("region", self.region);
        let mut binary = |key: &str, value: Option<[u8; 16]>| {
            if let Some(value) = value {
                writer.text(key);
                writer.bytes(&value);
            }
        };
        binary("token", self.token);
        binary("digest", self.digest.map(|digest| digest.0));
        if let Some((rows, width)) = self.shape {
            writer.text("shape");
            writer.array(2);
            writer.uint(u64::from(rows));
            writer.uint(u64::from(width));
        }
        if !self.extents.is_empty() {
            writer.text("extents");
            writer.array(2 * self.extents.len());
            for extent in &self.extents {
                writer.uint(u64::from(extent.first()));
                writer.uint(u64::from(extent.count()));
            }
        }
    }
}

/// The wire knows one spelling of a type.
fn wire_dtype(name: &str) -> Option<Dtype> {
    Dtype::from_name(name).filter(|dtype| dtype.name() == name)
}

fn revision(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let at = reader.place(REV);
    match reader.uint32(REV)? {
        0 => Err(DecodeError::Range { at, found: 0, min: 1, max: u64::from(u32::MAX) }),
        rev => Ok(rev),
    }
}

fn offered_planes(reader: &mut Reader<'_>) -> Result<PlaneList, DecodeError> {
    let count = bounded_array(reader, PLANES, "planes", Allowed::AtMost(MAX_PLANES_OFFERED))?;
    let mut planes = PlaneList::EMPTY;
    for index in 0..count {
        if let Some(plane) = Plane::from_name(reader.text(PLANES.index(index))?) {
            planes.push(plane);
        }
    }
    Ok(planes)
}

fn fingerprint<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    short_text(reader, FINGERPRINT, MAX_FINGERPRINT_BYTES)
}

fn short_text<'a>(
    reader: &mut Reader<'a>,
    path: FieldPath,
    max_bytes: usize,
) -> Result<&'a str, DecodeError> {
    let at = reader.place(path);
    let text = reader.text(path)?;
    check_length(at, text.len(), "bytes", Allowed::AtMost(max_bytes))?;
    Ok(text)
}

fn sixteen_bytes(reader: &mut Reader<'_>, path: FieldPath) -> Result<[u8; 16], DecodeError> {
    let at = reader.place(path);
    let bytes = reader.bytes(path)?;
    <[u8; 16]>::try_from(bytes).map_err(|_| DecodeError::Length {
        at,
        found: bytes.len(),
        unit: "bytes",
        allowed: Allowed::Exactly(16),
    })
}

fn shape(reader: &mut Reader<'_>) -> Result<(u32, u32), DecodeError> {
    bounded_array(reader, SHAPE, "elements", Allowed::Exactly(2))?;
    Ok((reader.uint32(SHAPE.index(0))?, reader.uint32(SHAPE.index(1))?))
}

/// Runs as one flat list: first, count, first, count, ...
fn extents(reader: &mut Reader<'_>) -> Result<Vec<Extent>, DecodeError> {
    let allowed = Allowed::EvenUpTo(2 * MAX_EXTENTS);
    let elements = bounded_array(reader, EXTENTS, "elements", allowed)?;
    let mut extents = Vec::with_capacity(elements / 2);
    for index in (0..elements).step_by(2) {
        let path = EXTENTS.index(index);
        let at = reader.place(path);
        let first = reader.uint32(path)?;
        let count = reader.uint32(EXTENTS.index(index.saturating_add(1)))?;
        let extent = Extent::new(first, count);
        extents.push(extent.ok_or(DecodeError::Extent { at, first, count })?);
    }
    Ok(extents)
}

fn bounded_array(
    reader: &mut Reader<'_>,
    path: FieldPath,
    unit: &'static str,
    allowed: Allowed,
) -> Result<usize, DecodeError> {
    let at = reader.place(path);
    let count = reader.array(path)?;
    check_length(at, count, unit, allowed)?;
    Ok(count)
}

fn check_length(
    at: super::Place,
    found: usize,
    unit: &'static str,
    allowed: Allowed,
) -> Result<(), DecodeError> {
    if allowed.permits(found) {
        return Ok(());
    }
    Err(DecodeError::Length { at, found, unit, allowed })
}
