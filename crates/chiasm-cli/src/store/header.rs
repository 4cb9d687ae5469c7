//! The header of a safetensors file that holds one encoder output.

use std::io::Read;

use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::excerpt::Excerpt;
use safetensors::tensor::{Metadata, TensorInfo};

use super::error::StoreProblem;
use super::{MAX_HEADER_BYTES, TENSOR_NAME};

/// The file begins with the header's length, a little-endian `u64`.
const LENGTH_BYTES: u64 = 8;

/// The header is padded with spaces to a multiple of this.
const ALIGNMENT: usize = 8;

/// Most tensor names that an error repeats.
const MAX_NAMES_SHOWN: usize = 8;

/// Most characters of the parser's reason that an error repeats.
const MAX_REASON_CHARS: usize = 200;

/// Where the tensor lies in its file and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) meta: EntryMeta,
    /// Offset of the tensor's first byte from the start of the file.
    pub(super) offset: u64,
}

impl Header {
    /// Reads and checks the header of a file of `file_bytes`: every tensor in it lies within the
    /// file, they cover it without gaps, and the one that counts is a matrix.
    pub(super) fn read(file: &mut impl Read, file_bytes: u64) -> Result<Self, StoreProblem> {
        let truncated = |needed| StoreProblem::Truncated { needed, actual: file_bytes };
        if file_bytes < LENGTH_BYTES {
            return Err(truncated(LENGTH_BYTES));
        }
        let mut length = [0; 8];
        file.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER_BYTES {
            return Err(StoreProblem::HeaderTooLong { bytes: length });
        }
        let data_start = LENGTH_BYTES + length;
        if file_bytes < data_start {
            return Err(truncated(data_start));
        }
        let mut json = Vec::new();
        file.take(length).read_to_end(&mut json)?;
        let metadata: Metadata = serde_json::from_slice(&json)
            .map_err(|reason| StoreProblem::Header { reason: one_line(&reason.to_string()) })?;
        let described = size(metadata.data_len()).and_then(|bytes| data_start.checked_add(bytes));
        let described = described.ok_or_else(overflow)?;
        if file_bytes < described {
            return Err(truncated(described));
        }
        if file_bytes > described {
            return Err(StoreProblem::TrailingBytes { described, actual: file_bytes });
        }
        let Some(info) = metadata.info(TENSOR_NAME) else {
            return Err(StoreProblem::NoTensor { present: names(&metadata) });
        };
        let meta = read_info(info)?;
        let offset = size(info.data_offsets.0).and_then(|start| data_start.checked_add(start));
        Ok(Self { meta, offset: offset.ok_or_else(overflow)? })
    }

    /// The bytes in front of the tensor, exactly as safetensors' own `save_file` writes them for a
    /// file with this one tensor. `None` where the size of the tensor overflows.
    pub(super) fn encode(dtype: Dtype, rows: u32, width: u32) -> Option<Vec<u8>> {
        let bytes = usize::try_from(dtype.bytes_of(rows, width)?).ok()?;
        let info = TensorInfo {
            dtype: serde_json::from_value(dtype.safetensors_name().into()).ok()?,
            shape: vec![usize::try_from(rows).ok()?, usize::try_from(width).ok()?],
            data_offsets: (0, bytes),
        };
        let metadata = Metadata::new(None, vec![(TENSOR_NAME.to_owned(), info)]).ok()?;
        let mut json = serde_json::to_vec(&metadata).ok()?;
        json.resize(json.len().next_multiple_of(ALIGNMENT), b' ');
        let mut header = size(json.len())?.to_le_bytes().to_vec();
        header.append(&mut json);
        Some(header)
    }
}

fn read_info(info: &TensorInfo) -> Result<EntryMeta, StoreProblem> {
    let [rows, width] = *info.shape.as_slice() else {
        return Err(StoreProblem::Rank { dims: info.shape.len() });
    };
    let name = info.dtype.to_string();
    let Some(dtype) = Dtype::from_safetensors_name(&name) else {
        return Err(StoreProblem::Dtype { found: name });
    };
    let dim = |dim: usize| {
        u32::try_from(dim).ok().filter(|dim| *dim > 0).ok_or(StoreProblem::Shape { rows, width })
    };
    let meta = EntryMeta::new(dim(rows)?, dim(width)?, dtype).ok_or_else(overflow)?;
    // The parser has held the offsets against shape and type; this is what the reader relies on.
    let (start, end) = info.data_offsets;
    if size(end.saturating_sub(start)) != Some(meta.bytes) {
        return Err(overflow());
    }
    Ok(meta)
}

fn size(bytes: usize) -> Option<u64> {
    u64::try_from(bytes).ok()
}

fn overflow() -> StoreProblem {
    StoreProblem::Header { reason: "sizes and offsets do not fit together".to_owned() }
}

fn names(metadata: &Metadata) -> String {
    let all = metadata.offset_keys();
    let mut shown: Vec<_> =
        all.iter().take(MAX_NAMES_SHOWN).map(|name| Excerpt::of(name).to_string()).collect();
    match all.len().saturating_sub(MAX_NAMES_SHOWN) {
        0 if all.is_empty() => "nothing".to_owned(),
        0 => shown.join(", "),
        more => {
            shown.push(format!("{more} more"));
            shown.join(", ")
        }
    }
}

/// The parser repeats parts of the file in its reasons.
fn one_line(reason: &str) -> String {
    let printable = |char: char| if char.is_control() { ' ' } else { char };
    reason.chars().take(MAX_REASON_CHARS).map(printable).collect()
}
