//! What two instances must agree on before bytes move.
//!
//! The compatibility hash is upstream's and travels in every request; it is neither a secret nor a
//! credential. It leaves out the weights' revision, quantisation, processor options, adapters and
//! the encoder's width (hazard A10): the fingerprint stands for those, between Chiasm nodes only.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Block size in bytes where no engine sets one: one page, and one row of 2048 16-bit elements.
pub const DEFAULT_BLOCK_SIZE_BYTES: u64 = 4096;

/// What one instance is, as far as its peers must be the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Version of the engine, for example `0.33.0`.
    pub engine_version: String,
    /// The model as the engine was given it (a name or a path; upstream compares the text).
    pub model: String,
    /// torch's name of the model's element type, for example `torch.bfloat16`.
    pub dtype: String,
    /// Block size of the region in bytes.
    pub block_size_bytes: u64,
    /// [`compatibility_hash`] of the four above.
    pub compat_hash: String,
    /// What the compatibility hash leaves out, as any text that is equal where all of it is. `None`
    /// is not compared.
    pub fingerprint: Option<String>,
}

impl Identity {
    /// The identity of an engine, without a fingerprint.
    #[must_use]
    pub fn new(engine_version: &str, model: &str, dtype: &str, block_size_bytes: u64) -> Self {
        Self {
            engine_version: engine_version.to_owned(),
            model: model.to_owned(),
            dtype: dtype.to_owned(),
            block_size_bytes,
            compat_hash: compatibility_hash(engine_version, model, dtype, block_size_bytes),
            fingerprint: None,
        }
    }

    /// The same with a fingerprint.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: &str) -> Self {
        self.fingerprint = Some(fingerprint.to_owned());
        self
    }
}

impl Default for Identity {
    /// The identity of the `chiasm` command where no flag says otherwise: version `chiasm`, model
    /// `any`, dtype `any`, blocks of [`DEFAULT_BLOCK_SIZE_BYTES`]. So `chiasm produce` and `chiasm
    /// fetch` meet without flags, and no engine takes either for one of its own kind.
    fn default() -> Self {
        Self::new("chiasm", "any", "any", DEFAULT_BLOCK_SIZE_BYTES)
    }
}

/// The compatibility hash of vLLM's connector: SHA-256, in lower-case hexadecimal, over the JSON
/// array `[vllm_version, model, dtype, block_size_bytes]` exactly as Python's
/// `json.dumps(..., separators=(",", ":"))` writes it (PROTOCOL 16). `dtype` is torch's name with its
/// prefix.
#[must_use]
pub fn compatibility_hash(
    vllm_version: &str,
    model: &str,
    dtype: &str,
    block_size_bytes: u64,
) -> String {
    let mut json = String::from("[");
    for text in [vllm_version, model, dtype] {
        push_python_string(&mut json, text);
        json.push(',');
    }
    json.extend([&block_size_bytes.to_string(), "]"]);
    let mut hash = String::with_capacity(64);
    for byte in Sha256::digest(json.as_bytes()) {
        // Writing to a String cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}

/// Appends `text` as a JSON string in Python's default form: whatever is not printable ASCII is
/// escaped as UTF-16 code units. `serde_json` writes such characters as they are.
fn push_python_string(json: &mut String, text: &str) {
    json.push('"');
    for char in text.chars() {
        match char {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            ' '..='~' => json.push(char),
            _ => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    let _ = write!(json, "\\u{unit:04x}");
                }
            }
        }
    }
    json.push('"');
}
