//! A whole `ec_transfer_params` object: announcements by `mm_hash`.

use serde_json::Value;

use super::{Announcement, AnnouncementError};
use crate::excerpt::Excerpt;
use crate::limits::{MAX_PARAMS_BYTES, MAX_PARAMS_ITEMS};
use crate::mm_hash::{MmHash, MmHashError};

/// Bounds of one `ec_transfer_params`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamsLimits {
    /// Most items; [`MAX_PARAMS_ITEMS`] by default.
    pub max_items: usize,
    /// Longest text in bytes; [`MAX_PARAMS_BYTES`] by default.
    pub max_text_bytes: usize,
}

impl Default for ParamsLimits {
    fn default() -> Self {
        Self { max_items: MAX_PARAMS_ITEMS, max_text_bytes: MAX_PARAMS_BYTES }
    }
}

/// The items of one `ec_transfer_params`. A bad one does not spoil the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// Each `mm_hash` with its announcement or what is wrong with that, in the order of the hashes.
    pub items: Vec<(MmHash, Result<Announcement, AnnouncementError>)>,
    /// Keys that are no `mm_hash`. No request can ask for them.
    pub refused_keys: Vec<(Excerpt, MmHashError)>,
}

/// Why nothing could be made of an `ec_transfer_params`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// Longer than the limit; it is not even parsed.
    #[error("ec_transfer_params has {bytes} bytes, more than the limit of {limit}")]
    TooLong {
        /// Length of the text.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The text is no JSON.
    #[error("ec_transfer_params is not JSON: {reason}")]
    NotJson {
        /// What the parser says, with line and column.
        reason: String,
    },
    /// JSON, but no object.
    #[error("ec_transfer_params is a JSON object {{mm_hash: announcement}}, not {found}")]
    NotAnObject {
        /// What stands there.
        found: Excerpt,
    },
    /// More items than the limit.
    #[error("ec_transfer_params has {items} items, more than the limit of {limit}")]
    TooManyItems {
        /// Number of items.
        items: usize,
        /// The limit.
        limit: usize,
    },
}

/// Reads the text of an `ec_transfer_params` object. Nesting is bounded by the JSON parser (128).
pub fn parse_params_text(text: &str, limits: &ParamsLimits) -> Result<Params, ParamsError> {
    if text.len() > limits.max_text_bytes {
        return Err(ParamsError::TooLong { bytes: text.len(), limit: limits.max_text_bytes });
    }
    let value = serde_json::from_str(text)
        .map_err(|reason| ParamsError::NotJson { reason: reason.to_string() })?;
    parse_params(&value, limits)
}

/// Reads an `ec_transfer_params` object that is JSON already.
pub fn parse_params(value: &Value, limits: &ParamsLimits) -> Result<Params, ParamsError> {
    let Value::Object(members) = value else {
        return Err(ParamsError::NotAnObject { found: Excerpt::of_json(value) });
    };
    if members.len() > limits.max_items {
        return Err(ParamsError::TooManyItems { items: members.len(), limit: limits.max_items });
    }
    let mut params = Params::default();
    for (key, value) in members {
        match MmHash::new(key) {
            Ok(mm_hash) => params.items.push((mm_hash, Announcement::parse(value))),
            Err(error) => params.refused_keys.push((Excerpt::of(key), error)),
        }
    }
    Ok(params)
}
