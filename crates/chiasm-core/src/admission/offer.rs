//! What a request says about one of its items, checked before anything is touched.

use crate::announcement::{Announcement, AnnouncementError, Expectation};
use crate::consumer::Wanted;
use crate::dtype::Dtype;
use crate::entry::EntryMeta;
use crate::mm_hash::MmHash;

/// One media item of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its identifier.
    pub hash: MmHash,
    /// Index of the token after its last one: the item is computed when `num_computed_tokens` has
    /// reached it.
    pub end: u32,
    /// Whether the engine holds real input (pixels, embeddings) and can encode it itself.
    pub local_input: bool,
    /// What an entry must look like to be used for it.
    pub form: Form,
    /// Where it can be had.
    pub offer: Offer,
}

impl Item {
    /// The item with what the request's `ec_transfer_params` say about it. The announcement is
    /// checked as a whole here, against everything that is known about the item.
    #[must_use]
    pub fn new(
        hash: MmHash,
        end: u32,
        local_input: bool,
        announcement: Option<&Result<Announcement, AnnouncementError>>,
        expected: &Expectation,
    ) -> Self {
        let mut form = Form { rows: expected.rows, width: expected.width, dtype: expected.dtype };
        let offer = match announcement {
            None | Some(Ok(Announcement::MetadataOnly)) => Offer::None,
            Some(Err(error)) => Offer::Invalid(error.clone()),
            Some(Ok(Announcement::Remote(remote))) => match remote.check(expected) {
                Err(error) => Offer::Invalid(error),
                Ok(blocks) => {
                    form = Form { rows: Some(remote.rows), width: Some(remote.width), ..form };
                    Offer::Remote(Wanted {
                        hash: hash.clone(),
                        source: remote.source.clone(),
                        rows: remote.rows,
                        width: remote.width,
                        blocks,
                        dtype: expected.dtype,
                    })
                }
            },
        };
        Self { hash, end, local_input, form, offer }
    }
}

/// Where an item can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// There is no announcement, or one without an address: the engine encodes the item unless the
    /// region holds it. If the engine cannot, the request fails.
    None,
    /// The announcement cannot be used.
    Invalid(AnnouncementError),
    /// A producer offers it. Whether the producer is approved is looked up when it matters.
    Remote(Wanted),
}

/// What an entry must look like. `None` is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// Rows.
    pub rows: Option<u32>,
    /// Elements per row.
    pub width: Option<u32>,
    /// Element type.
    pub dtype: Option<Dtype>,
}

impl Form {
    /// Whether an entry of this description can be used. What one side does not know is no reason to
    /// refuse.
    #[must_use]
    pub fn fits(&self, meta: &EntryMeta) -> bool {
        self.rows.is_none_or(|rows| rows == meta.rows)
            && self.width.is_none_or(|width| width == meta.width)
            && (self.dtype.is_none() || meta.dtype.is_none() || self.dtype == meta.dtype)
    }
}
