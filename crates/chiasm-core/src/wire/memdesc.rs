//! `mem_descriptor`: upstream's list of `[address, length, device]`, one row per block of a region
//! (PROTOCOL 14).
//!
//! The list of a large region is 14 MB, so nothing here keeps anything per row: a region is blocks
//! of one length at one stride, and a list that is not that is refused.

use super::error::{Allowed, DecodeError, FieldPath};
use super::reader::Reader;
use super::writer::Writer;

/// One block of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorRow {
    /// Address in the producer's process.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// NIXL device id; upstream always says 0.
    pub device_id: u64,
}

/// A whole region in five numbers: block `i` of `count` lies at `base + i * stride`, is `len` bytes
/// long and belongs to `device_id`. Blocks do not overlap and none reaches past address 2^64 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progression {
    base: u64,
    len: u64,
    stride: u64,
    count: u32,
    device_id: u64,
}

/// Why a list describes no region that can be read from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemDescError {
    /// No list of three-element rows of non-negative integers.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// A region has at least one block.
    #[error("the descriptor list is empty")]
    Empty,
    /// More rows than the receiver takes, or than block indices can name.
    #[error("{rows} descriptor rows, more than the limit of {max}")]
    TooManyRows {
        /// Rows in the list.
        rows: usize,
        /// Rows that are allowed.
        max: u32,
    },
    /// A block without bytes.
    #[error("row {row}: a block of zero bytes")]
    ZeroLength {
        /// Index of the row.
        row: u32,
    },
    /// A length or device other than the first row's: NIXL would refuse reads across such rows.
    #[error("row {row}: length or device differs from the first row's")]
    NotUniform {
        /// Index of the row.
        row: u32,
    },
    /// An address off the progression that the first two rows start.
    #[error("row {row}: address is not the next of an ascending arithmetic progression")]
    NotProgression {
        /// Index of the row.
        row: u32,
    },
    /// Blocks that share bytes.
    #[error("blocks of {len} bytes at a stride of {stride} overlap")]
    Overlap {
        /// Length of a block.
        len: u64,
        /// Distance between two blocks.
        stride: u64,
    },
    /// A block that ends past the end of the address space.
    #[error("row {row}: the block ends past address 2^64 - 1")]
    Wraps {
        /// Index of the row.
        row: u32,
    },
}

impl Progression {
    /// `count` blocks of `len` bytes from `base` on, every `stride` bytes. The stride of a single
    /// block is taken to be its length.
    pub fn new(
        base: u64,
        len: u64,
        stride: u64,
        count: u32,
        device_id: u64,
    ) -> Result<Self, MemDescError> {
        let last = count.checked_sub(1).ok_or(MemDescError::Empty)?;
        let reach = len.checked_sub(1).ok_or(MemDescError::ZeroLength { row: 0 })?;
        let stride = if count == 1 { len } else { stride };
        if stride < len {
            return Err(MemDescError::Overlap { len, stride });
        }
        u64::from(last)
            .checked_mul(stride)
            .and_then(|offset| base.checked_add(offset))
            .and_then(|addr| addr.checked_add(reach))
            .ok_or(MemDescError::Wraps { row: last })?;
        Ok(Self { base, len, stride, count, device_id })
    }

    /// Address of block 0.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Bytes of one block, at least one.
    #[must_use]
    pub const fn block_bytes(&self) -> u64 {
        self.len
    }

    /// Bytes from one block's address to the next one's, at least [`Self::block_bytes`].
    #[must_use]
    pub const fn stride(&self) -> u64 {
        self.stride
    }

    /// Number of blocks, at least one.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// NIXL device id of every block.
    #[must_use]
    pub const fn device_id(&self) -> u64 {
        self.device_id
    }

    /// Address of block `index`; `None` outside the region.
    #[must_use]
    pub fn addr(&self, index: u32) -> Option<u64> {
        if index >= self.count {
            return None;
        }
        self.base.checked_add(u64::from(index).checked_mul(self.stride)?)
    }

    /// The list as upstream's encoder writes it, about 16 bytes per block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = RowsEncoder::new(*self);
        let bytes = usize::try_from(self.encoded_bytes()).unwrap_or(usize::MAX);
        encoder.next_bytes(bytes)
    }

    /// Length of [`Progression::encode`]'s result, without making it.
    #[must_use]
    pub fn encoded_bytes(&self) -> u64 {
        let count = u64::from(self.count);
        let header = match self.count {
            0..=0xf => 1,
            0x10..=0xffff => 3,
            _ => 5,
        };
        // Addresses ascend, so those of one length are next to each other: each threshold that an
        // address reaches makes it longer.
        let longer = |threshold: u64| {
            let below = threshold
                .checked_sub(self.base)
                .map_or(0, |room| room.div_ceil(self.stride).min(count));
            count.saturating_sub(below)
        };
        let addresses = [(0x80, 1), (0x100, 1), (0x1_0000, 2), (0x1_0000_0000, 4)]
            .into_iter()
            .fold(count, |bytes, (threshold, more)| {
                bytes.saturating_add(longer(threshold).saturating_mul(more))
            });
        let rest =
            1_u64.saturating_add(uint_bytes(self.len)).saturating_add(uint_bytes(self.device_id));
        addresses.saturating_add(count.saturating_mul(rest)).saturating_add(header)
    }

    fn row(&self, index: u32) -> DescriptorRow {
        let offset = u64::from(index).wrapping_mul(self.stride);
        // No block ends past the address space, so this cannot wrap.
        let addr = self.base.wrapping_add(offset);
        DescriptorRow { addr, len: self.len, device_id: self.device_id }
    }
}

/// Bytes that an unsigned number takes in its shortest form.
const fn uint_bytes(value: u64) -> u64 {
    match value {
        0..=0x7f => 1,
        0x80..=0xff => 2,
        0x100..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

/// A progression's list, encoded as it is written: the list of a large region is 14 MB, and nobody has
/// to hold all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsEncoder {
    progression: Progression,
    /// Rows that have been encoded; `None` before the list's header.
    row: Option<u32>,
}

/// Longest row: its header and three numbers of nine bytes.
const MAX_ROW_BYTES: usize = 28;

impl RowsEncoder {
    /// Nothing has been encoded yet.
    #[must_use]
    pub const fn new(progression: Progression) -> Self {
        Self { progression, row: None }
    }

    /// The next bytes, about `max` at most and one row at least; empty after the last row.
    pub fn next_bytes(&mut self, max: usize) -> Vec<u8> {
        let count = self.progression.count;
        let first = self.row.unwrap_or(0);
        let room = u32::try_from(max / MAX_ROW_BYTES).unwrap_or(u32::MAX).max(1);
        let room = if u64::try_from(max).unwrap_or(u64::MAX) >= self.progression.encoded_bytes() {
            count
        } else {
            room
        };
        let end = first.saturating_add(room).min(count);
        let rows = usize::try_from(end.saturating_sub(first)).unwrap_or(0);
        let mut writer = Writer::with_capacity(rows.saturating_mul(MAX_ROW_BYTES).min(max));
        if self.row.is_none() {
            writer.array(usize::try_from(count).unwrap_or(usize::MAX));
        }
        for index in first..end {
            write_row(&mut writer, self.progression.row(index));
        }
        self.row = Some(end);
        writer.finish()
    }
}

/// Any list of rows, as upstream's encoder writes it.
#[must_use]
pub fn encode_rows(rows: &[DescriptorRow]) -> Vec<u8> {
    encode(rows.len(), rows.iter().copied())
}

fn encode(count: usize, rows: impl Iterator<Item = DescriptorRow>) -> Vec<u8> {
    let mut writer = Writer::with_capacity(count.saturating_mul(16).saturating_add(5));
    writer.array(count);
    for row in rows {
        write_row(&mut writer, row);
    }
    writer.finish()
}

fn write_row(writer: &mut Writer, row: DescriptorRow) {
    writer.array(3);
    writer.uint(row.addr);
    writer.uint(row.len);
    writer.uint(row.device_id);
}

/// Reads a list row by row. The iterator ends after the first error; bytes after the list are one.
pub fn decode_rows(bytes: &[u8]) -> Result<Rows<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let count = reader.array(FieldPath::ROOT)?;
    Ok(Rows { reader, row: 0, count, ended: false })
}

/// The rows of a list, each read when it is asked for.
#[derive(Clone)]
pub struct Rows<'a> {
    reader: Reader<'a>,
    row: usize,
    count: usize,
    ended: bool,
}

impl Rows<'_> {
    /// Rows that the list says it has; so many bytes follow, but not yet so many valid rows.
    #[must_use]
    pub const fn announced(&self) -> usize {
        self.count
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<DescriptorRow, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = if self.row < self.count {
            let row = read_row(&mut self.reader, self.row);
            self.row = self.row.saturating_add(1);
            Some(row)
        } else {
            self.reader.end().err().map(Err)
        };
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

fn read_row(reader: &mut Reader<'_>, row: usize) -> Result<DescriptorRow, DecodeError> {
    let path = FieldPath::ROOT.index(row);
    let at = reader.place(path);
    let found = reader.array(path)?;
    if found != 3 {
        let allowed = Allowed::Exactly(3);
        return Err(DecodeError::Length { at, found, unit: "elements", allowed });
    }
    Ok(DescriptorRow {
        addr: reader.uint(path.column(0))?,
        len: reader.uint(path.column(1))?,
        device_id: reader.uint(path.column(2))?,
    })
}

/// Reads a whole list of at most `max_rows` rows as a progression.
pub fn decode_progression(bytes: &[u8], max_rows: u32) -> Result<Progression, MemDescError> {
    let mut scan = ProgressionScan::new(bytes, max_rows)?;
    loop {
        if let Some(progression) = scan.advance(bytes, u32::MAX)? {
            return Ok(progression);
        }
    }
}

/// [`decode_progression`] in slices, for a thread that must not be away for long: a list of 14 MB
/// takes milliseconds. It keeps five numbers and an offset, and no reference to the bytes.
#[derive(Clone, Debug)]
pub struct ProgressionScan {
    offset: usize,
    rows: u32,
    row: u32,
    first: DescriptorRow,
    stride: u64,
    previous_addr: u64,
}

impl ProgressionScan {
    /// Reads the length of the list and nothing else.
    pub fn new(bytes: &[u8], max_rows: u32) -> Result<Self, MemDescError> {
        let mut reader = Reader::new(bytes);
        let found = reader.array(FieldPath::ROOT)?;
        let rows = u32::try_from(found)
            .ok()
            .filter(|rows| *rows <= max_rows)
            .ok_or(MemDescError::TooManyRows { rows: found, max: max_rows })?;
        if rows == 0 {
            reader.end()?;
            return Err(MemDescError::Empty);
        }
        let first = DescriptorRow { addr: 0, len: 0, device_id: 0 };
        Ok(Self { offset: reader.offset(), rows, row: 0, first, stride: 0, previous_addr: 0 })
    }

    /// Checks at most `rows` more rows of the same `bytes`; the progression after the last one.
    pub fn advance(
        &mut self,
        bytes: &[u8],
        rows: u32,
    ) -> Result<Option<Progression>, MemDescError> {
        let mut reader = Reader::resume(bytes, self.offset);
        let until = self.row.saturating_add(rows).min(self.rows);
        while self.row < until {
            let index = usize::try_from(self.row).unwrap_or(usize::MAX);
            let row = read_row(&mut reader, index)?;
            self.check(row)?;
            self.row = self.row.saturating_add(1);
        }
        self.offset = reader.offset();
        if self.row < self.rows {
            return Ok(None);
        }
        reader.end()?;
        let DescriptorRow { addr, len, device_id } = self.first;
        Progression::new(addr, len, self.stride, self.rows, device_id).map(Some)
    }

    fn check(&mut self, next: DescriptorRow) -> Result<(), MemDescError> {
        let row = self.row;
        if next.len == 0 {
            return Err(MemDescError::ZeroLength { row });
        }
        match row {
            0 => self.first = next,
            1 => {
                self.stride = next
                    .addr
                    .checked_sub(self.previous_addr)
                    .filter(|stride| *stride > 0)
                    .ok_or(MemDescError::NotProgression { row })?;
            }
            _ => {
                let expected = self.previous_addr.checked_add(self.stride);
                if expected != Some(next.addr) {
                    return Err(MemDescError::NotProgression { row });
                }
            }
        }
        if (next.len, next.device_id) != (self.first.len, self.first.device_id) {
            return Err(MemDescError::NotUniform { row });
        }
        self.previous_addr = next.addr;
        Ok(())
    }
}
