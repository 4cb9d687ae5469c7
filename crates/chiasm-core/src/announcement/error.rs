//! Why an announcement is refused.

use crate::dtype::Dtype;
use crate::endpoint::EndpointError;
use crate::excerpt::Excerpt;

/// What is wrong with one announcement. The request that carries it is answered from local input
/// or fails; no other request is touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnouncementError {
    /// The value for this `mm_hash` is no JSON object; usually the params of another connector.
    #[error("an announcement is a JSON object, not {found}")]
    NotAnObject {
        /// What stands there.
        found: Excerpt,
    },
    /// `peer_host` is there and a field that must come with it is not; usually a proxy that copies
    /// only the fields that it knows.
    #[error("{field} is missing next to peer_host")]
    Missing {
        /// The missing field.
        field: &'static str,
    },
    /// A field has a value of another type or range.
    #[error("{field} is {found}, expected {expected}")]
    WrongType {
        /// The field.
        field: &'static str,
        /// What may stand there.
        expected: &'static str,
        /// What stands there.
        found: Excerpt,
    },
    /// `peer_host` is neither an address nor a host name.
    #[error("peer_host: {0}")]
    PeerHost(#[from] EndpointError),
    /// `shape` has not two dimensions.
    #[error("shape has {dims} dimensions, expected 2: [rows, width]")]
    ShapeLength {
        /// Dimensions that were sent.
        dims: usize,
    },
    /// Another row count than the request has placeholders for: the announcement belongs to
    /// another image, or the two sides process images with different options.
    #[error("announced {announced} rows, the request has {expected} placeholders for it")]
    Rows {
        /// Rows announced.
        announced: u32,
        /// Rows that the request needs.
        expected: u32,
    },
    /// Another width than the model takes: the two sides run different models.
    #[error("announced rows of {announced} elements, the model takes {expected}")]
    Width {
        /// Width announced.
        announced: u32,
        /// Width of the model's encoder outputs.
        expected: u32,
    },
    /// The size is not that of a tensor of the announced shape in whole blocks.
    #[error(
        "size_bytes {announced} is not the size of [{rows}, {width}] elements of {} in whole \
         blocks of {block_size_bytes} bytes",
        dtype.map_or("any type", Dtype::name)
    )]
    Size {
        /// Bytes announced.
        announced: u64,
        /// Rows announced.
        rows: u32,
        /// Width announced.
        width: u32,
        /// The element type that the size was held against, where known.
        dtype: Option<Dtype>,
        /// The block size that the size was held against.
        block_size_bytes: u64,
    },
    /// More blocks than the whole local region has.
    #[error(
        "the entry takes {blocks} blocks, the region here has {region_blocks}; raise ec_cpu_bytes"
    )]
    TooLarge {
        /// Blocks that the entry takes.
        blocks: u64,
        /// Blocks of the region.
        region_blocks: u32,
    },
}

impl AnnouncementError {
    /// One short word for this kind of error, for counters and machine-readable output. Released
    /// words do not change.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NotAnObject { .. } => "not_an_object",
            Self::Missing { .. } => "missing",
            Self::WrongType { .. } => "type",
            Self::PeerHost(_) => "peer_host",
            Self::ShapeLength { .. } => "shape",
            Self::Rows { .. } => "rows",
            Self::Width { .. } => "width",
            Self::Size { .. } => "size",
            Self::TooLarge { .. } => "too_large",
        }
    }
}
