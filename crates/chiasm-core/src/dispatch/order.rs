//! What a worker is told to do: plain data, on its way through whatever carries an engine's messages
//! to its workers.

use super::rank::RankSet;
use super::report::Receipt;
use crate::cache::EntryKey;
use crate::dtype::Dtype;
use crate::entry::EntryMeta;
use crate::extent::{Extent, blocks_in};
use crate::limits::MAX_EXTENTS;

/// The number of one dispatch. Never used again in the life of a node; where the numbers of a life
/// begin is random, so that what is left of an earlier life means nothing in this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DispatchId(u64);

impl DispatchId {
    /// The id with this number, as a record carries it. It need not be anybody's.
    #[must_use]
    pub const fn from_u64(id: u64) -> Self {
        Self(id)
    }

    /// Its number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// Which way an order's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OrderKind {
    /// From the device into the region.
    Save,
    /// From the region to the device, on each rank.
    Load,
}

/// One dispatch, as its workers need to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Save or load.
    pub kind: OrderKind,
    /// Which dispatch.
    pub dispatch: DispatchId,
    /// Which entry.
    pub key: EntryKey,
    /// Who is to act: one rank for a save, every rank that needs the bytes for a load.
    pub ranks: RankSet,
    /// Shape, type and exact length of the encoder output.
    pub meta: EntryMeta,
    /// Where its bytes lie in the region, in order.
    pub extents: Vec<Extent>,
}

/// Why bytes are no [`Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Another version of Chiasm wrote it; all processes of an instance must run one version.
    #[error("the order has format {0}, this build knows {FORMAT}")]
    Format(u8),
    /// Cut short, too long, or a field that no order has.
    #[error("these bytes are no order: {0}")]
    Malformed(&'static str),
}

/// First byte of an order's bytes. Raised by every change of the format.
const FORMAT: u8 = 1;

impl Order {
    /// What a worker needs to keep to report the end of this order.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        Receipt { dispatch: self.dispatch, key: self.key, bytes: self.meta.bytes }
    }

    /// The order as bytes, at most 579: little-endian, in the order of the fields.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let kind = match self.kind {
            OrderKind::Save => 0,
            OrderKind::Load => 1,
        };
        let dtypes = (1..).zip(Dtype::ALL);
        let dtype = self.meta.dtype.map_or(0, |dtype| {
            dtypes.clone().find_map(|(code, &known)| (known == dtype).then_some(code)).unwrap_or(0)
        });
        let count = u8::try_from(self.extents.len()).unwrap_or(u8::MAX);
        let mut bytes = vec![FORMAT, kind];
        bytes.extend(self.dispatch.0.to_le_bytes());
        bytes.extend(self.key.index().to_le_bytes());
        bytes.extend(self.key.generation().to_le_bytes());
        bytes.extend(self.ranks.bits().to_le_bytes());
        bytes.extend(self.meta.rows.to_le_bytes());
        bytes.extend(self.meta.width.to_le_bytes());
        bytes.push(dtype);
        bytes.extend(self.meta.bytes.to_le_bytes());
        bytes.push(count);
        for extent in &self.extents {
            bytes.extend(extent.first().to_le_bytes());
            bytes.extend(extent.count().to_le_bytes());
        }
        bytes
    }

    /// The order that [`Order::to_bytes`] wrote. Bytes that came to harm on their way are refused or
    /// are an order for other blocks of the region, never for anything outside it: the copy checks
    /// its range.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, OrderError> {
        let mut fields = Fields(bytes);
        match fields.u8()? {
            FORMAT => {}
            other => return Err(OrderError::Format(other)),
        }
        let kind = match fields.u8()? {
            0 => OrderKind::Save,
            1 => OrderKind::Load,
            _ => return Err(OrderError::Malformed("neither save nor load")),
        };
        let dispatch = DispatchId(fields.u64()?);
        let key = {
            let index = fields.u32()?;
            EntryKey::from_parts(index, fields.u64()?)
        };
        let ranks = RankSet::from_bits(fields.u16()?);
        let (rows, width) = (fields.u32()?, fields.u32()?);
        let dtype = match fields.u8()? {
            0 => None,
            code => {
                let place = usize::from(code).saturating_sub(1);
                let known = Dtype::ALL.get(place).copied();
                Some(known.ok_or(OrderError::Malformed("an unknown element type"))?)
            }
        };
        let meta = EntryMeta { rows, width, dtype, bytes: fields.u64()? };
        let count = usize::from(fields.u8()?);
        if count > MAX_EXTENTS {
            return Err(OrderError::Malformed("too many extents"));
        }
        let mut extents = Vec::with_capacity(count);
        for _ in 0..count {
            let (first, blocks) = (fields.u32()?, fields.u32()?);
            let extent = Extent::new(first, blocks);
            extents.push(extent.ok_or(OrderError::Malformed("an extent of no blocks"))?);
        }
        if ranks.is_empty() {
            return Err(OrderError::Malformed("no rank"));
        }
        if !fields.0.is_empty() {
            return Err(OrderError::Malformed("bytes after its end"));
        }
        Ok(Self { kind, dispatch, key, ranks, meta, extents })
    }

    /// Blocks that it names.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        blocks_in(&self.extents)
    }
}

/// The bytes that are left to read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], OrderError> {
        let split = self.0.split_first_chunk();
        let (field, rest) = split.ok_or(OrderError::Malformed("cut short"))?;
        self.0 = rest;
        Ok(*field)
    }

    fn u8(&mut self) -> Result<u8, OrderError> {
        self.take().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, OrderError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, OrderError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, OrderError> {
        self.take().map(u64::from_le_bytes)
    }
}
