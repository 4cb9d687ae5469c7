//! A message on its way out: its bytes, and perhaps a descriptor list behind them that is encoded only
//! when it is written.
//!
//! Such a list is 14 MB for a large region, and goes out with many acks at once: what waits for a slow
//! peer must not be made of copies of it.

use super::memdesc::{Progression, RowsEncoder};

/// One message on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    head: Vec<u8>,
    rows: Option<(RowsEncoder, u64)>,
}

impl Message {
    pub(super) fn with_rows(head: Vec<u8>, region: Progression) -> Self {
        let bytes = region.encoded_bytes();
        Self { head, rows: Some((RowsEncoder::new(region), bytes)) }
    }

    /// Its length in bytes on the wire, the list included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let rows = self.rows.as_ref().map_or(0, |(_, bytes)| *bytes);
        self.head.len().saturating_add(usize::try_from(rows).unwrap_or(usize::MAX))
    }

    /// Whether a descriptor list is part of it.
    #[must_use]
    pub const fn has_rows(&self) -> bool {
        self.rows.is_some()
    }

    /// What is there already, what is still to be encoded, and how many bytes that will be.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u8>, Option<(RowsEncoder, u64)>) {
        (self.head, self.rows)
    }

    /// All of it at once: for tests and tools, not for the way out.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        let mut bytes = self.head;
        if let Some((mut rows, length)) = self.rows {
            bytes.extend(rows.next_bytes(usize::try_from(length).unwrap_or(usize::MAX)));
        }
        bytes
    }
}

impl From<Vec<u8>> for Message {
    fn from(head: Vec<u8>) -> Self {
        Self { head, rows: None }
    }
}
