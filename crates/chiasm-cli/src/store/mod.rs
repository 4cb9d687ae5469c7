//! Stores of encoder outputs as vLLM's `ECExampleConnector` keeps them: one directory per `mm_hash`
//! with one safetensors file in it, and in that one tensor.
//!
//! Files come from anywhere: headers are bounded and checked against the file before a byte of the
//! tensor is used, and tensors are streamed, never held whole. Writing never follows a link in
//! place of an `mm_hash` directory and never leaves half a file under its final name.

mod error;
mod header;
mod reader;
mod temporary;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use reader::{StoredEncoding, scan};
pub(crate) use writer::StoreWriter;

/// The file of one encoder output, in the directory that is named after its `mm_hash`.
pub(crate) const FILE_NAME: &str = "encoder_cache.safetensors";

/// The tensor in that file.
pub(crate) const TENSOR_NAME: &str = "ec_cache";

/// Longest header in bytes. That of one tensor has about 80; the rest is room for metadata.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Most encodings at one path: as many as one `ec_transfer_params` announces.
const MAX_ENCODINGS: usize = chiasm_core::limits::MAX_PARAMS_ITEMS;
