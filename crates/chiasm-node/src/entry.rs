//! Handles on entries: bytes go in through one that is being saved, and out of one that is loaded.

use chiasm_core::cache::{EntryKey, StateError};
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use chiasm_region::{LandedDigest, RangeError};

use crate::shared::Shared;

/// An encoder output on its way into the region.
#[derive(Debug)]
pub struct Saving<'a> {
    shared: &'a Shared,
    /// `None` once it is ready.
    key: Option<EntryKey>,
    extents: Vec<Extent>,
    bytes: u64,
    written: u64,
    /// `None` if none is wanted.
    digest: Option<LandedDigest>,
}

/// Why a save did not become an entry. Its room is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaveError {
    /// More bytes than the shape and type say, or a range outside the region.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// Fewer bytes than the shape and type say.
    #[error("{written} bytes were written of {bytes}")]
    Incomplete {
        /// Bytes that came.
        written: u64,
        /// Bytes that were announced.
        bytes: u64,
    },
    /// The cache has given the entry up meanwhile.
    #[error(transparent)]
    State(#[from] StateError),
}

impl<'a> Saving<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        key: EntryKey,
        extents: Vec<Extent>,
        bytes: u64,
        digested: bool,
    ) -> Self {
        let digest = digested.then(LandedDigest::new);
        Self { shared, key: Some(key), extents, bytes, written: 0, digest }
    }

    /// Appends bytes. More than the entry's exact length are refused.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), SaveError> {
        let end = self.written.saturating_add(bytes.len() as u64);
        if end > self.bytes {
            return Err(SaveError::Incomplete { written: end, bytes: self.bytes });
        }
        let region = &self.shared.region;
        match &mut self.digest {
            Some(digest) => region.copy_in_digested(&self.extents, self.written, bytes, digest)?,
            None => region.copy_in(&self.extents, self.written, bytes)?,
        }
        self.written = end;
        Ok(())
    }

    /// All bytes are there: from now on the entry can be read, and evicted.
    pub fn finish(mut self) -> Result<(), SaveError> {
        if self.written != self.bytes {
            return Err(SaveError::Incomplete { written: self.written, bytes: self.bytes });
        }
        if let Some(key) = self.key.take() {
            let digest = self.digest.take().map(LandedDigest::finish);
            self.shared.act(|core, now| core.mark_ready(now, key, digest))?;
            self.shared.notify();
        }
        Ok(())
    }
}

impl Drop for Saving<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let _ = self.shared.act(|core, now| core.discard(now, key));
            self.shared.notify();
        }
    }
}

/// An entry that can be read: pinned until this is dropped.
#[derive(Debug)]
pub struct Loaded<'a> {
    shared: &'a Shared,
    key: EntryKey,
    meta: EntryMeta,
    extents: Vec<Extent>,
}

impl<'a> Loaded<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        key: EntryKey,
        meta: EntryMeta,
        extents: Vec<Extent>,
    ) -> Self {
        Self { shared, key, meta, extents }
    }

    /// Shape, type and exact length.
    #[must_use]
    pub fn meta(&self) -> &EntryMeta {
        &self.meta
    }

    /// Copies bytes `offset ..` of the entry into all of `out`.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), RangeError> {
        self.shared.region.copy_out(&self.extents, offset, out)
    }
}

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        let _ = self.shared.act(|core, now| core.unpin(now, self.key));
    }
}
