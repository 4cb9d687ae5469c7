//! What can be wrong with a store, by cause.

use std::io;
use std::path::{Path, PathBuf};

use chiasm_core::dtype::Dtype;
use chiasm_core::excerpt::Excerpt;
use chiasm_core::mm_hash::MmHashError;

use super::{FILE_NAME, MAX_ENCODINGS, MAX_HEADER_BYTES, TENSOR_NAME};

/// A problem with the file or directory at `path`.
#[derive(Debug, thiserror::Error)]
#[error("{path:?}: {problem}")]
pub(crate) struct StoreError {
    /// Where.
    pub(crate) path: PathBuf,
    /// What.
    pub(crate) problem: StoreProblem,
}

impl StoreError {
    pub(super) fn new(path: &Path, problem: impl Into<StoreProblem>) -> Self {
        Self { path: path.to_owned(), problem: problem.into() }
    }
}

/// What is wrong, and where it helps what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreProblem {
    /// The system says no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Nothing that belongs to a store is there.
    #[error(
        "no store: looked for <mm_hash>/{FILE_NAME} in it, for {FILE_NAME} in it, and for a file \
         of that name"
    )]
    NotAStore,
    /// A pipe, a socket or a device where a file should be.
    #[error("not a regular file")]
    NotAFile,
    /// The name of the directory identifies nothing.
    #[error("the directory's name is no mm_hash: {0}")]
    MmHash(#[from] MmHashError),
    /// As before: names here are UTF-8.
    #[error("the directory's name is no mm_hash: not UTF-8")]
    NotUtf8,
    /// The file ends too early; usually a copy or a save that was interrupted.
    #[error("truncated: {actual} bytes of {needed}")]
    Truncated {
        /// Bytes that the file must have, as far as is known.
        needed: u64,
        /// Bytes that it has.
        actual: u64,
    },
    /// The file goes on after its last tensor.
    #[error("the header describes {described} bytes, the file has {actual}")]
    TrailingBytes {
        /// Bytes of the header and all of its tensors.
        described: u64,
        /// Bytes of the file.
        actual: u64,
    },
    /// A length that no header has: some other kind of file.
    #[error(
        "no safetensors file, or one with a header of {bytes} bytes, more than the limit of \
         {MAX_HEADER_BYTES}"
    )]
    HeaderTooLong {
        /// Length that the first eight bytes give.
        bytes: u64,
    },
    /// The header is no safetensors header, or contradicts itself.
    #[error("the header is wrong: {reason}")]
    Header {
        /// What the parser says.
        reason: String,
    },
    /// Some other tensors are there.
    #[error("no tensor named {TENSOR_NAME}; the file has: {present}")]
    NoTensor {
        /// Names of the first few tensors that are there.
        present: String,
    },
    /// Not `[rows, width]`.
    #[error("{TENSOR_NAME} has {dims} dimensions, expected 2: [rows, width]")]
    Rank {
        /// Dimensions of the tensor.
        dims: usize,
    },
    /// A dimension of zero, or one past 32 bits.
    #[error("{TENSOR_NAME} has shape [{rows}, {width}], both must be from 1 to {}", u32::MAX)]
    Shape {
        /// Rows.
        rows: usize,
        /// Elements per row.
        width: usize,
    },
    /// An element type that encoder outputs do not have.
    #[error("{TENSOR_NAME} has element type {found}; supported are {}", supported())]
    Dtype {
        /// Its name in the header.
        found: String,
    },
    /// Larger than the caller can take.
    #[error("the tensor has {bytes} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Bytes of the tensor.
        bytes: u64,
        /// The limit that the caller gave.
        limit: u64,
    },
    /// Another file now than when it was scanned.
    #[error("the file has changed since it was looked at")]
    Changed,
    /// More than one `ec_transfer_params` announces; none was looked at.
    #[error("more than {MAX_ENCODINGS} encodings; name the directories that are meant")]
    TooMany,
    /// A hash that would be a dangerous or odd name on some file system.
    #[error(
        "mm_hash {mm_hash} cannot name a directory: allowed are 1 to {} of A-Z a-z 0-9 . _ -",
        super::writer::MAX_DIRECTORY_NAME_BYTES
    )]
    DirectoryName {
        /// The hash.
        mm_hash: Excerpt,
    },
    /// Two hashes that are one name where case does not count.
    #[error("mm_hash {mm_hash} differs from another only in case; file systems may mix them up")]
    Collision {
        /// The hash.
        mm_hash: Excerpt,
    },
    /// There is an encoding already.
    #[error("exists already (--force replaces it)")]
    Exists,
    /// A link or a file where the directory should be; links are not followed.
    #[error("exists and is no directory (links are not followed here)")]
    NotADirectory,
    /// More or fewer bytes than the tensor has.
    #[error("the tensor has {declared} bytes, {written} were written")]
    Length {
        /// Bytes that shape and type give.
        declared: u64,
        /// Bytes that came.
        written: u64,
    },
}

fn supported() -> String {
    let names: Vec<_> = Dtype::ALL.iter().map(|dtype| dtype.safetensors_name()).collect();
    names.join(", ")
}
