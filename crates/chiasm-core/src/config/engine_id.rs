//! The engine's own name, as the operator has chosen it.

use std::fmt;

use super::limits::MAX_ENGINE_ID_BYTES;

/// `engine_id`: at most [`MAX_ENGINE_ID_BYTES`] letters, digits, `.`, `_` and `-`, and no dot in
/// front. It goes into names that peers and the system see, so it can never be a path (hazard E5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EngineId(Box<str>);

impl EngineId {
    /// The id, if it is one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let length = (1..=MAX_ENGINE_ID_BYTES).contains(&text.len());
        (length && text.bytes().all(plain) && !text.starts_with('.')).then(|| Self(text.into()))
    }

    /// The id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of this engine's NIXL agent: two ranks of one engine must not have one name (hazard
    /// C15).
    #[must_use]
    pub fn agent_name(&self, data_parallel_index: u32) -> String {
        format!("{}_dp{data_parallel_index}", self.0)
    }
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
