//! One value of `ec_transfer_params`.
//!
//! A producer's response carries it, and it comes back through clients and proxies: every byte of
//! it is untrusted. It is validated as a whole before anything is touched: first by itself
//! ([`Announcement::parse`]), then against what the request, the model and the local region demand
//! ([`RemoteAnnouncement::check`]). Nothing here allocates blocks, resolves names or connects.

mod error;
mod outgoing;
mod params;

use std::num::NonZeroU16;

use serde_json::{Map, Value};

pub use error::AnnouncementError;
pub use outgoing::OutgoingAnnouncement;
pub use params::{Params, ParamsError, ParamsLimits, parse_params, parse_params_text};

use crate::dtype::Dtype;
use crate::endpoint::{Endpoint, Host};
use crate::entry::EntryMeta;
use crate::excerpt::Excerpt;

/// What a consumer makes of one value of `ec_transfer_params`.
///
/// `modality`, `metadata` and `item_indices` are for the engine and are not looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// No `peer_host`: the producer holds no entry and nothing is to be read.
    MetadataOnly,
    /// An entry that a producer offers.
    Remote(RemoteAnnouncement),
}

/// The offer of one entry: where it is and what it claims to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteAnnouncement {
    /// The producer's control socket, canonical. Not yet approved by the allowlist.
    pub source: Endpoint,
    /// Bytes of the blocks that hold the entry: blocks x block size, at least 1.
    pub size_bytes: u64,
    /// Rows of the tensor, at least 1.
    pub rows: u32,
    /// Elements per row, at least 1.
    pub width: u32,
}

/// What this side knows of an entry before it reads it. `None` is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Rows that the request has placeholders for.
    pub rows: Option<u32>,
    /// Elements per row that the model takes.
    pub width: Option<u32>,
    /// Element type of the model's encoder outputs.
    pub dtype: Option<Dtype>,
    /// Block size of the local region in bytes; the producer's is the same, the compatibility hash
    /// sees to that.
    pub block_size_bytes: u64,
    /// Blocks of the local region.
    pub region_blocks: u32,
}

impl Announcement {
    /// Reads one announcement. Integers must be JSON integers: `5601.0`, `true` and `"5601"`, which
    /// upstream converts, are refused. `peer_host` is an address or a name as in [`Host::parse`]
    /// (IPv6 with or without brackets: upstream sends host and port apart). A missing or null
    /// `peer_host` means that there is nothing to read, and then no other field is looked at.
    pub fn parse(value: &Value) -> Result<Self, AnnouncementError> {
        let Value::Object(fields) = value else {
            return Err(AnnouncementError::NotAnObject { found: Excerpt::of_json(value) });
        };
        let host = match fields.get("peer_host") {
            None | Some(Value::Null) => return Ok(Self::MetadataOnly),
            Some(Value::String(host)) => Host::parse(host)?,
            Some(other) => return Err(wrong_type("peer_host", "a string", other)),
        };
        let port = required(fields, "peer_port")?;
        let port = port
            .as_u64()
            .and_then(|port| u16::try_from(port).ok())
            .and_then(NonZeroU16::new)
            .ok_or_else(|| wrong_type("peer_port", "an integer from 1 to 65535", port))?;
        let size = required(fields, "size_bytes")?;
        let size_bytes = size
            .as_u64()
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| wrong_type("size_bytes", "a positive integer", size))?;
        let (rows, width) = read_shape(required(fields, "shape")?)?;
        let source = Endpoint::new(host, port);
        Ok(Self::Remote(RemoteAnnouncement { source, size_bytes, rows, width }))
    }
}

impl RemoteAnnouncement {
    /// The offer of the entry `meta`, held by `source` in blocks of `block_size_bytes`. `None`
    /// where the size overflows or the block size is zero.
    #[must_use]
    pub fn of_entry(source: Endpoint, meta: &EntryMeta, block_size_bytes: u64) -> Option<Self> {
        let blocks = meta.blocks(block_size_bytes)?;
        let size_bytes = u64::from(blocks).checked_mul(block_size_bytes)?;
        Some(Self { source, size_bytes, rows: meta.rows, width: meta.width })
    }

    /// Holds the offer against what this side knows and returns the number of blocks that it takes.
    ///
    /// The size must be exactly the padded size of `rows` x `width` elements of the expected type,
    /// or of some element type ([`Dtype::ALL`]) where the type is not known: a size that no tensor
    /// of this shape has is a lie about one of the two.
    pub fn check(&self, expected: &Expectation) -> Result<u32, AnnouncementError> {
        if let Some(rows) = expected.rows
            && rows != self.rows
        {
            return Err(AnnouncementError::Rows { announced: self.rows, expected: rows });
        }
        if let Some(width) = expected.width
            && width != self.width
        {
            return Err(AnnouncementError::Width { announced: self.width, expected: width });
        }
        let padded = |dtype: Dtype| {
            let bytes = dtype.bytes_of(self.rows, self.width)?;
            bytes.checked_next_multiple_of(expected.block_size_bytes)
        };
        let size_fits = match expected.dtype {
            Some(dtype) => padded(dtype) == Some(self.size_bytes),
            None => Dtype::ALL.iter().any(|dtype| padded(*dtype) == Some(self.size_bytes)),
        };
        if !size_fits {
            return Err(AnnouncementError::Size {
                announced: self.size_bytes,
                rows: self.rows,
                width: self.width,
                dtype: expected.dtype,
                block_size_bytes: expected.block_size_bytes,
            });
        }
        let blocks = self.size_bytes.checked_div(expected.block_size_bytes).unwrap_or(u64::MAX);
        match u32::try_from(blocks) {
            Ok(blocks) if blocks <= expected.region_blocks => Ok(blocks),
            _ => Err(AnnouncementError::TooLarge { blocks, region_blocks: expected.region_blocks }),
        }
    }
}

fn required<'a>(
    fields: &'a Map<String, Value>,
    field: &'static str,
) -> Result<&'a Value, AnnouncementError> {
    fields.get(field).ok_or(AnnouncementError::Missing { field })
}

fn wrong_type(field: &'static str, expected: &'static str, found: &Value) -> AnnouncementError {
    AnnouncementError::WrongType { field, expected, found: Excerpt::of_json(found) }
}

/// `[rows, width]`. The length is judged before any element is looked at (hazard D5: upstream
/// converts three million elements first, inside the scheduler).
fn read_shape(value: &Value) -> Result<(u32, u32), AnnouncementError> {
    let Value::Array(dims) = value else {
        return Err(wrong_type("shape", "an array [rows, width]", value));
    };
    let [rows, width] = dims.as_slice() else {
        return Err(AnnouncementError::ShapeLength { dims: dims.len() });
    };
    let dim = |dim: &Value| {
        dim.as_u64()
            .and_then(|dim| u32::try_from(dim).ok())
            .filter(|dim| *dim > 0)
            .ok_or_else(|| wrong_type("shape", "integers from 1 to 4294967295", dim))
    };
    Ok((dim(rows)?, dim(width)?))
}
