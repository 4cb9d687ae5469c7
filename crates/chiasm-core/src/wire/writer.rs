//! Writes msgpack exactly as msgspec does: every value in its shortest form (PROTOCOL 10).

/// Appends values to a buffer. It writes what it is told: bounds are the caller's part.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn uint(&mut self, value: u64) {
        if let Ok(value @ 0x00..=0x7f) = u8::try_from(value) {
            self.0.push(value);
        } else if let Ok(value) = u8::try_from(value) {
            self.marked(0xcc, &value.to_be_bytes());
        } else if let Ok(value) = u16::try_from(value) {
            self.marked(0xcd, &value.to_be_bytes());
        } else if let Ok(value) = u32::try_from(value) {
            self.marked(0xce, &value.to_be_bytes());
        } else {
            self.marked(0xcf, &value.to_be_bytes());
        }
    }

    /// msgpack ends at `i64::MIN` and `u64::MAX`; what lies outside is written as the nearer end.
    pub(super) fn int(&mut self, value: i128) {
        if value >= 0 {
            return self.uint(u64::try_from(value).unwrap_or(u64::MAX));
        }
        let value = i64::try_from(value).unwrap_or(i64::MIN);
        if let Ok(value @ -32..) = i8::try_from(value) {
            self.0.extend(value.to_be_bytes());
        } else if let Ok(value) = i8::try_from(value) {
            self.marked(0xd0, &value.to_be_bytes());
        } else if let Ok(value) = i16::try_from(value) {
            self.marked(0xd1, &value.to_be_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.marked(0xd2, &value.to_be_bytes());
        } else {
            self.marked(0xd3, &value.to_be_bytes());
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        match u8::try_from(text.len()) {
            Ok(length @ 0..=31) => self.0.push(0xa0 | length),
            _ => self.length(text.len(), 0xd9),
        }
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes_header(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// Says that `length` bytes follow.
    pub(super) fn bytes_header(&mut self, length: usize) {
        self.length(length, 0xc4);
    }

    pub(super) fn array(&mut self, count: usize) {
        self.container(count, 0x90, 0xdc);
    }

    pub(super) fn map(&mut self, count: usize) {
        self.container(count, 0x80, 0xde);
    }

    /// A length in one, two or four bytes; `first` marks the one-byte form.
    fn length(&mut self, length: usize, first: u8) {
        if let Ok(length) = u8::try_from(length) {
            self.marked(first, &length.to_be_bytes());
        } else if let Ok(length) = u16::try_from(length) {
            self.marked(first.saturating_add(1), &length.to_be_bytes());
        } else {
            self.marked(first.saturating_add(2), &long(length).to_be_bytes());
        }
    }

    fn container(&mut self, count: usize, short: u8, first: u8) {
        if let Ok(count @ 0..=15) = u8::try_from(count) {
            self.0.push(short | count);
        } else if let Ok(count) = u16::try_from(count) {
            self.marked(first, &count.to_be_bytes());
        } else {
            self.marked(first.saturating_add(1), &long(count).to_be_bytes());
        }
    }

    fn marked(&mut self, marker: u8, bytes: &[u8]) {
        self.0.push(marker);
        self.0.extend_from_slice(bytes);
    }
}

fn long(length: usize) -> u32 {
    u32::try_from(length).expect("no part of a message comes near 4 GiB")
}
