//! The items of a request as the engine names them.

use chiasm_core::admission::Item;
use chiasm_core::admission::limits::MAX_ITEMS_PER_REQUEST;
use chiasm_core::announcement::{Announcement, AnnouncementError, Expectation};
use chiasm_core::dtype::Dtype;
use pyo3::prelude::*;
use pyo3::types::{PySequence, PyString};

use crate::announced::announcement;
use crate::names;

/// What this instance knows about every item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) dtype: Dtype,
    pub(crate) block_size_bytes: u64,
    pub(crate) region_blocks: u32,
}

impl Known {
    /// Where the width is not known, a row is at least a whole number of blocks: the embeddings of one
    /// token, or of one token and some layers (hazard A8).
    fn of_whole_blocks(
        &self,
        announced: Announcement,
        width: Option<u64>,
    ) -> Result<Announcement, AnnouncementError> {
        let Announcement::Remote(remote) = &announced else { return Ok(announced) };
        let row_bytes = self.dtype.bytes_of(1, remote.width).unwrap_or(u64::MAX);
        if width.is_none() && !row_bytes.is_multiple_of(self.block_size_bytes) {
            let expected = self.block_size_bytes * 8 / self.dtype.bits();
            let (announced, expected) = (remote.width, saturated(expected));
            return Err(AnnouncementError::Width { announced, expected });
        }
        Ok(announced)
    }
}

/// (identifier, end, rows, width, `local_input`), as in the stub.
type Named<'py> = (Bound<'py, PyString>, u64, Option<u64>, Option<u64>, bool);

/// The items with what `params` announce about them. An exception is a mistake in the plug-in: the form
/// of `items` is its own.
///
/// Past the limit of items, which the core then refuses the request for, no further announcement is
/// looked at; whether all of them have local input still is.
pub(crate) fn items(
    items: &Bound<'_, PySequence>,
    params: &Bound<'_, PyAny>,
    known: &Known,
) -> PyResult<Vec<Item>> {
    let mut found: Vec<Item> = Vec::new();
    for item in items.try_iter()? {
        let (identifier, end, rows, width, local_input) = item?.extract::<Named<'_>>()?;
        if found.len() > MAX_ITEMS_PER_REQUEST {
            if let Some(last) = found.last_mut() {
                last.local_input &= local_input;
            }
            continue;
        }
        let expected = Expectation {
            rows: rows.map(saturated),
            width: width.map(saturated),
            dtype: Some(known.dtype),
            block_size_bytes: known.block_size_bytes,
            region_blocks: known.region_blocks,
        };
        let hash = names::mm_hash(&identifier);
        // Under the name that stands for another one nothing is offered.
        let announced = (names::text(&identifier) == hash.as_str())
            .then(|| announcement(params, &identifier))
            .flatten()
            .map(|announced| {
                announced.and_then(|announced| known.of_whole_blocks(announced, width))
            });
        found.push(Item::new(hash, saturated(end), local_input, announced.as_ref(), &expected));
    }
    Ok(found)
}

/// What does not fit 32 bits is as good as the largest number that does: no entry has so many rows, and no
/// request so many tokens.
pub(crate) fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
