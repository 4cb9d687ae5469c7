//! What an entry holds, as far as it can be said without looking at its bytes.

use crate::dtype::Dtype;

/// Shape, element type and exact size of one encoder output.
///
/// `bytes` is the exact length of the tensor; the blocks that hold it may be a little longer. `dtype`
/// is `None` only for an entry read from an upstream producer, whose acks do not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryMeta {
    /// Number of rows (embedding vectors, one per placeholder token).
    pub rows: u32,
    /// Elements per row.
    pub width: u32,
    /// Element type, where known.
    pub dtype: Option<Dtype>,
    /// Exact length in bytes.
    pub bytes: u64,
}

impl EntryMeta {
    /// The description of a `rows` x `width` tensor of `dtype`; `None` where its size overflows.
    #[must_use]
    pub fn new(rows: u32, width: u32, dtype: Dtype) -> Option<Self> {
        let bytes = dtype.bytes_of(rows, width)?;
        Some(Self { rows, width, dtype: Some(dtype), bytes })
    }

    /// Blocks of `block_size_bytes` that hold `bytes`; `None` where the number overflows 32 bits or
    /// the block size is zero.
    #[must_use]
    pub fn blocks(&self, block_size_bytes: u64) -> Option<u32> {
        if block_size_bytes == 0 {
            return None;
        }
        u32::try_from(self.bytes.div_ceil(block_size_bytes)).ok()
    }
}
