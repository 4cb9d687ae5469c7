//! Reads msgpack values one after another, as strict as msgspec and bounded besides
//! (PROTOCOL 15).
//!
//! It never recurses, never allocates and never trusts a length: a container's or a text's bytes
//! are proven present before its length is handed on.

use super::error::{DecodeError, FieldPath, Place};
use crate::limits::MAX_NESTING;

/// A cursor over one message. A copy is a bookmark.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

/// One value; of a container, the number of its entries.
enum Item<'a> {
    Nil,
    Bool,
    Int(i128),
    Float,
    Str(&'a [u8]),
    Bin(&'a [u8]),
    Ext,
    Array(usize),
    Map(usize),
}

impl Item<'_> {
    const fn name(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool => "bool",
            Self::Int(_) => "int",
            Self::Float => "float",
            Self::Str(_) => "str",
            Self::Bin(_) => "bytes",
            Self::Ext => "ext",
            Self::Array(_) => "array",
            Self::Map(_) => "map",
        }
    }
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// A reader that has consumed the first `offset` bytes already.
    pub(super) fn resume(bytes: &'a [u8], offset: usize) -> Self {
        Self { rest: bytes.get(offset..).unwrap_or_default(), total: bytes.len() }
    }

    /// Bytes consumed so far.
    pub(super) fn offset(&self) -> usize {
        self.total.saturating_sub(self.rest.len())
    }

    /// Where the next value starts.
    pub(super) fn place(&self, path: FieldPath) -> Place {
        Place { path, offset: self.offset() }
    }

    /// Refuses bytes after the message.
    pub(super) fn end(&self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            extra => Err(DecodeError::Trailing { offset: self.offset(), extra }),
        }
    }

    /// An integer of any of msgpack's widths: `i64::MIN` to `u64::MAX`.
    pub(super) fn int(&mut self, path: FieldPath) -> Result<i128, DecodeError> {
        let at = self.place(path);
        match self.item(path)? {
            Item::Int(value) => Ok(value),
            other => Err(wrong(at, "int", &other)),
        }
    }

    /// An integer that is not negative.
    #[inline]
    pub(super) fn uint(&mut self, path: FieldPath) -> Result<u64, DecodeError> {
        // Descriptors of large regions are millions of these three forms.
        match self.rest.split_first() {
            Some((&small @ 0x00..=0x7f, rest)) => {
                self.rest = rest;
                return Ok(u64::from(small));
            }
            Some((0xce, rest)) => {
                if let Some((bytes, rest)) = rest.split_first_chunk() {
                    self.rest = rest;
                    return Ok(u64::from(u32::from_be_bytes(*bytes)));
                }
            }
            Some((0xcf, rest)) => {
                if let Some((bytes, rest)) = rest.split_first_chunk() {
                    self.rest = rest;
                    return Ok(u64::from_be_bytes(*bytes));
                }
            }
            _ => {}
        }
        let at = self.place(path);
        let found = self.int(path)?;
        u64::try_from(found).map_err(|_| DecodeError::Range { at, found, min: 0, max: u64::MAX })
    }

    /// An integer from 0 to 2^32 - 1.
    pub(super) fn uint32(&mut self, path: FieldPath) -> Result<u32, DecodeError> {
        let at = self.place(path);
        let found = self.int(path)?;
        u32::try_from(found).map_err(|_| DecodeError::Range {
            at,
            found,
            min: 0,
            max: u64::from(u32::MAX),
        })
    }

    /// Text, checked to be UTF-8.
    pub(super) fn text(&mut self, path: FieldPath) -> Result<&'a str, DecodeError> {
        let at = self.place(path);
        match self.item(path)? {
            Item::Str(bytes) => std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8 { at }),
            other => Err(wrong(at, "str", &other)),
        }
    }

    /// A byte string.
    pub(super) fn bytes(&mut self, path: FieldPath) -> Result<&'a [u8], DecodeError> {
        let at = self.place(path);
        match self.item(path)? {
            Item::Bin(bytes) => Ok(bytes),
            other => Err(wrong(at, "bytes", &other)),
        }
    }

    /// The length of an array; at least one byte per element follows.
    #[inline]
    pub(super) fn array(&mut self, path: FieldPath) -> Result<usize, DecodeError> {
        // The head of every descriptor row.
        if let Some((&marker @ 0x90..=0x9f, rest)) = self.rest.split_first() {
            let count = usize::from(marker & 0x0f);
            if count <= rest.len() {
                self.rest = rest;
                return Ok(count);
            }
        }
        let at = self.place(path);
        match self.item(path)? {
            Item::Array(count) => Ok(count),
            other => Err(wrong(at, "array", &other)),
        }
    }

    /// A map with text keys. `field` gets each key and reads its value.
    ///
    /// Keys are compared as bytes: like msgspec, an unknown one need not even be UTF-8.
    pub(super) fn fields(
        &mut self,
        path: FieldPath,
        mut field: impl FnMut(&mut Self, &'a [u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let at = self.place(path);
        let count = match self.item(path)? {
            Item::Map(count) => count,
            other => return Err(wrong(at, "map", &other)),
        };
        for _ in 0..count {
            let at = self.place(path);
            match self.item(path)? {
                Item::Str(key) => field(self, key)?,
                other => return Err(DecodeError::Key { at, found: other.name() }),
            }
        }
        Ok(())
    }

    /// The value of the `type` key.
    pub(super) fn tag(&mut self, expected: &'static str) -> Result<(), DecodeError> {
        let path = FieldPath::field("$.type");
        let at = self.place(path);
        if self.text(path)? == expected { Ok(()) } else { Err(DecodeError::Tag { at, expected }) }
    }

    /// One value of an unknown field, whatever it is.
    pub(super) fn skip(&mut self, path: FieldPath) -> Result<(), DecodeError> {
        // Per open container, the values that are still to come in it.
        let mut pending = [0_usize; MAX_NESTING];
        let mut depth = 0_usize;
        loop {
            let at = self.place(path);
            let values = match self.item(path)? {
                Item::Array(count) => Some(count),
                Item::Map(count) => Some(count.saturating_mul(2)),
                _ => None,
            };
            if let Some(values) = values {
                let slot = pending.get_mut(depth).ok_or(DecodeError::Nesting { at })?;
                *slot = values;
                depth = depth.saturating_add(1);
            }
            // Close what has ended, then go on with the innermost container that has not.
            loop {
                let Some(top) = depth.checked_sub(1) else { return Ok(()) };
                let Some(slot) = pending.get_mut(top) else { return Ok(()) };
                if let Some(left) = slot.checked_sub(1) {
                    *slot = left;
                    break;
                }
                depth = top;
            }
        }
    }

    fn item(&mut self, path: FieldPath) -> Result<Item<'a>, DecodeError> {
        let at = self.place(path);
        let [marker] = self.chunk::<1>(path)?;
        Ok(match marker {
            0x00..=0x7f => Item::Int(i128::from(marker)),
            0x80..=0x8f => self.map(path, u32::from(marker & 0x0f))?,
            0x90..=0x9f => self.list(path, u32::from(marker & 0x0f))?,
            0xa0..=0xbf => Item::Str(self.take(path, u32::from(marker & 0x1f))?),
            0xc0 => Item::Nil,
            0xc1 => return Err(DecodeError::Reserved { at }),
            0xc2 | 0xc3 => Item::Bool,
            0xc4..=0xc6 => {
                let length = self.length(path, marker, 0xc4)?;
                Item::Bin(self.take(path, length)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(path, marker, 0xc7)?;
                self.ext(path, length)?
            }
            0xca => self.chunk::<4>(path).map(|_| Item::Float)?,
            0xcb => self.chunk::<8>(path).map(|_| Item::Float)?,
            0xcc => Item::Int(i128::from(u8::from_be_bytes(self.chunk(path)?))),
            0xcd => Item::Int(i128::from(u16::from_be_bytes(self.chunk(path)?))),
            0xce => Item::Int(i128::from(u32::from_be_bytes(self.chunk(path)?))),
            0xcf => Item::Int(i128::from(u64::from_be_bytes(self.chunk(path)?))),
            0xd0 => Item::Int(i128::from(i8::from_be_bytes(self.chunk(path)?))),
            0xd1 => Item::Int(i128::from(i16::from_be_bytes(self.chunk(path)?))),
            0xd2 => Item::Int(i128::from(i32::from_be_bytes(self.chunk(path)?))),
            0xd3 => Item::Int(i128::from(i64::from_be_bytes(self.chunk(path)?))),
            0xd4 => self.ext(path, 1)?,
            0xd5 => self.ext(path, 2)?,
            0xd6 => self.ext(path, 4)?,
            0xd7 => self.ext(path, 8)?,
            0xd8 => self.ext(path, 16)?,
            0xd9..=0xdb => {
                let length = self.length(path, marker, 0xd9)?;
                Item::Str(self.take(path, length)?)
            }
            0xdc => {
                let count = u32::from(u16::from_be_bytes(self.chunk(path)?));
                self.list(path, count)?
            }
            0xdd => {
                let count = u32::from_be_bytes(self.chunk(path)?);
                self.list(path, count)?
            }
            0xde => {
                let count = u32::from(u16::from_be_bytes(self.chunk(path)?));
                self.map(path, count)?
            }
            0xdf => {
                let count = u32::from_be_bytes(self.chunk(path)?);
                self.map(path, count)?
            }
            0xe0..=0xff => Item::Int(i128::from(i8::from_be_bytes([marker]))),
        })
    }

    /// A length of one, two or four bytes: `first` marks the one-byte form, the next two the others.
    fn length(&mut self, path: FieldPath, marker: u8, first: u8) -> Result<u32, DecodeError> {
        Ok(match marker.saturating_sub(first) {
            0 => u32::from(u8::from_be_bytes(self.chunk(path)?)),
            1 => u32::from(u16::from_be_bytes(self.chunk(path)?)),
            _ => u32::from_be_bytes(self.chunk(path)?),
        })
    }

    fn list(&self, path: FieldPath, count: u32) -> Result<Item<'a>, DecodeError> {
        let count = self.present(path, count, 1)?;
        Ok(Item::Array(count))
    }

    fn map(&self, path: FieldPath, count: u32) -> Result<Item<'a>, DecodeError> {
        let count = self.present(path, count, 2)?;
        Ok(Item::Map(count))
    }

    /// `count` entries of at least `bytes_each` bytes must still fit into the message.
    fn present(
        &self,
        path: FieldPath,
        count: u32,
        bytes_each: usize,
    ) -> Result<usize, DecodeError> {
        let truncated = || DecodeError::Truncated { at: self.place(path) };
        let count = usize::try_from(count).map_err(|_| truncated())?;
        match count.checked_mul(bytes_each) {
            Some(bytes) if bytes <= self.rest.len() => Ok(count),
            _ => Err(truncated()),
        }
    }

    fn ext(&mut self, path: FieldPath, length: u32) -> Result<Item<'a>, DecodeError> {
        self.chunk::<1>(path)?;
        self.take(path, length)?;
        Ok(Item::Ext)
    }

    fn take(&mut self, path: FieldPath, length: u32) -> Result<&'a [u8], DecodeError> {
        usize::try_from(length)
            .ok()
            .and_then(|length| self.rest.split_at_checked(length))
            .map(|(taken, rest)| {
                self.rest = rest;
                taken
            })
            .ok_or(DecodeError::Truncated { at: self.place(path) })
    }

    fn chunk<const N: usize>(&mut self, path: FieldPath) -> Result<[u8; N], DecodeError> {
        match self.rest.split_first_chunk() {
            Some((chunk, rest)) => {
                self.rest = rest;
                Ok(*chunk)
            }
            None => Err(DecodeError::Truncated { at: self.place(path) }),
        }
    }
}

const fn wrong(at: Place, expected: &'static str, found: &Item<'_>) -> DecodeError {
    DecodeError::Type { at, expected, found: found.name() }
}
