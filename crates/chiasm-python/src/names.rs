//! Request ids and identifiers between Python and the core.
//!
//! Clients may choose both. Python's text may hold lone surrogates and be of any length; the core's is
//! UTF-8, and an `mm_hash` has at most 1024 bytes. What does not fit gets a name that does, the same one
//! every time: nothing that a client chose is ever an error here.

use std::borrow::Cow;
use std::fmt::Write as _;

use chiasm_core::limits::MAX_MM_HASH_BYTES;
use chiasm_core::mm_hash::MmHash;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use sha2::{Digest as _, Sha256};

/// In front of the hexadecimal digits of a text that is no UTF-8, or that itself starts as one of our names
/// does: one name never stands for two texts.
const SURROGATES: &str = "\0utf-8 with surrogates: ";

/// In front of the digest of an identifier that is too long.
const LONG: &str = "\0sha256: ";

/// The text for the core. Borrowed, and without a copy, for every text that is Unicode.
pub(crate) fn text<'a>(name: &'a Bound<'_, PyString>) -> Cow<'a, str> {
    match name.to_str() {
        Ok(text) if ![SURROGATES, LONG].iter().any(|ours| text.starts_with(ours)) => {
            Cow::Borrowed(text)
        }
        _ => Cow::Owned(escaped(name)),
    }
}

/// The text as Python had it.
pub(crate) fn to_python<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let bytes = text.strip_prefix(SURROGATES).and_then(from_hex);
    match bytes {
        Some(bytes) => PyBytes::new(py, &bytes).call_method1("decode", ("utf-8", "surrogatepass")),
        None => Ok(PyString::new(py, text).into_any()),
    }
}

/// The identifier of an item. One that is longer than an `mm_hash` may be is known by its digest, and so
/// never offered or read under its own name.
pub(crate) fn mm_hash(identifier: &Bound<'_, PyString>) -> MmHash {
    let text = text(identifier);
    MmHash::new(&text).unwrap_or_else(|_| {
        debug_assert!(text.is_empty() || text.len() > MAX_MM_HASH_BYTES);
        let digest = format!("{LONG}{}", hex(&Sha256::digest(text.as_bytes())));
        MmHash::new(&digest).expect("a digest is short")
    })
}

fn escaped(name: &Bound<'_, PyString>) -> String {
    let bytes = name
        .call_method1("encode", ("utf-8", "surrogatepass"))
        .and_then(|bytes| bytes.extract::<Vec<u8>>());
    // Any text can be encoded so; what remains is a lack of memory.
    format!("{SURROGATES}{}", hex(&bytes.unwrap_or_default()))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
