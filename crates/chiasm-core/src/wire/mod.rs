//! Control messages: version 2 of upstream's wire, byte for byte, and the one optional `chiasm` map.
//!
//! The msgpack subset is our own because it has to be exactly as strict as upstream's decoder
//! (msgspec) and bounded besides. Decoding borrows from the input and allocates only for messages
//! that it accepts; no input makes it panic, recurse or reserve memory for bytes that are not there.
//! Nothing here judges a message against a transfer: that is the producer's and the consumer's part.

mod ack;
mod done;
mod error;
mod extension;
mod memdesc;
mod message;
mod reader;
mod req;
mod status;
mod writer;

pub use ack::{AckLimits, XferAck};
pub use done::XferDone;
pub use error::{Allowed, DecodeError, FieldPath, Place};
pub use extension::{AckExtension, ReqExtension, WIRE_REVISION};
pub use memdesc::{
    DescriptorRow, MemDescError, Progression, ProgressionScan, Rows, RowsEncoder,
    decode_progression, decode_rows, encode_rows,
};
pub use message::Message;
pub use req::XferReq;
pub use status::AckStatus;

/// Upstream's `connector_version` in vLLM 0.32 and 0.33. A request that leaves the field out means
/// this one.
pub const CONNECTOR_VERSION: i64 = 2;
