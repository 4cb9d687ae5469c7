//! The first 256 bytes of a region's file, read as hostile input.
//!
//! A region file belongs to this user, but what is in it may be anything: an older Chiasm's file, a
//! torn disk, a joke. Parsing checks every field against what the file really is before anything is
//! mapped, and never indexes, casts or overflows.
//!
//! All numbers little-endian. None of it changes after the file has its name; what changes lies behind
//! it (`header_area`).
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 4 | layout version |
//! | 12 | 4 | blocks |
//! | 16 | 8 | block size in bytes |
//! | 24 | 8 | header area in bytes: where block 0 starts |
//! | 32 | 8 | file size in bytes |
//! | 40 | 8 | epoch |
//! | 48 | 16 | zero |
//! | 64 | 4 | creator's user id, for people |
//! | 68 | 4 | creator's process id in its own namespace, for people |
//! | 72 | 184 | zero |

use crate::geometry::Geometry;

/// Bytes of the header proper.
pub(crate) const HEADER_BYTES: usize = 256;

const MAGIC: [u8; 8] = *b"chiasmRg";

/// Raised by every change of the header or of the place of anything after it.
const LAYOUT_VERSION: u32 = 1;

/// Why a file's header is not one that this version can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The file is shorter than a header.
    #[error("the file is too short for a header")]
    Short,
    /// The file was not written by Chiasm.
    #[error("the file does not start as a region does")]
    Magic,
    /// Another version of Chiasm wrote the file; all processes of an instance must run one version.
    #[error("layout version {version} is not {LAYOUT_VERSION}, the one that this build knows")]
    Version {
        /// The version that the file states.
        version: u32,
    },
    /// Blocks, block size and header size do not make a region.
    #[error("{blocks} blocks of {block_size_bytes} bytes after {header_bytes} are no region")]
    Geometry {
        /// Number of blocks that the file states.
        blocks: u32,
        /// Block size in bytes that the file states.
        block_size_bytes: u64,
        /// Header area in bytes that the file states.
        header_bytes: u64,
    },
    /// The file is not as long as its geometry needs: truncated or grown.
    #[error("the file has {file_bytes} bytes, its geometry needs {needed_bytes}")]
    FileSize {
        /// Real size of the file.
        file_bytes: u64,
        /// Size that follows from the geometry.
        needed_bytes: u64,
    },
    /// A field that this layout leaves zero is not.
    #[error("bytes that this layout keeps zero are in use")]
    Reserved,
}

/// What the header says, all of it checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) geometry: Geometry,
    pub(crate) epoch: u64,
    pub(crate) creator_user: u32,
    pub(crate) creator_process: u32,
}

impl Header {
    /// The header's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&LAYOUT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.geometry.blocks().to_le_bytes());
        bytes.extend_from_slice(&self.geometry.block_size_bytes().to_le_bytes());
        bytes.extend_from_slice(&self.geometry.header_bytes().to_le_bytes());
        bytes.extend_from_slice(&self.geometry.file_bytes().to_le_bytes());
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(&self.creator_user.to_le_bytes());
        bytes.extend_from_slice(&self.creator_process.to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes
    }

    /// Parse the start of a file of `file_bytes` bytes.
    pub(crate) fn parse(
        bytes: &[u8],
        file_bytes: u64,
        page_bytes: u64,
    ) -> Result<Self, HeaderError> {
        let mut fields = Fields(bytes.get(..HEADER_BYTES).ok_or(HeaderError::Short)?);
        fields.known_layout()?;
        let blocks = fields.u32()?;
        let block_size_bytes = fields.u64()?;
        let header_bytes = fields.u64()?;
        let stated_bytes = fields.u64()?;
        let epoch = fields.u64()?;
        let unused: [u8; 16] = fields.take()?;
        let creator_user = fields.u32()?;
        let creator_process = fields.u32()?;

        let geometry = Geometry::with_header(blocks, block_size_bytes, header_bytes, page_bytes)
            .ok_or(HeaderError::Geometry { blocks, block_size_bytes, header_bytes })?;
        let needed_bytes = geometry.file_bytes();
        if file_bytes != needed_bytes || stated_bytes != needed_bytes {
            return Err(HeaderError::FileSize { file_bytes, needed_bytes });
        }
        if unused.iter().chain(fields.0).any(|&byte| byte != 0) {
            return Err(HeaderError::Reserved);
        }
        Ok(Self { geometry, epoch, creator_user, creator_process })
    }
}

/// Whether the file starts as a region of a layout that this version knows. That is all that
/// removing a dead one needs: whatever is wrong with the rest, it is ours and nobody can use it.
pub(crate) fn known_layout(bytes: &[u8]) -> Result<(), HeaderError> {
    Fields(bytes).known_layout()
}

/// The bytes that are left to parse.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], HeaderError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(HeaderError::Short)?;
        self.0 = rest;
        Ok(*field)
    }

    fn u32(&mut self) -> Result<u32, HeaderError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, HeaderError> {
        self.take().map(u64::from_le_bytes)
    }

    fn known_layout(&mut self) -> Result<(), HeaderError> {
        if self.take()? != MAGIC {
            return Err(HeaderError::Magic);
        }
        match self.u32()? {
            LAYOUT_VERSION => Ok(()),
            version => Err(HeaderError::Version { version }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_BYTES: u64 = 4096;

    fn header_for_test() -> Header {
        Header {
            geometry: Geometry::new(5, 7168, PAGE_BYTES).unwrap(),
            epoch: 0x0102_0304_0506_0708,
            creator_user: 1000,
            creator_process: 42,
        }
    }

    fn parse_changed(at: usize, field: &[u8]) -> Result<Header, HeaderError> {
        let header = header_for_test();
        let mut bytes = header.encode();
        bytes[at..at + field.len()].copy_from_slice(field);
        Header::parse(&bytes, header.geometry.file_bytes(), PAGE_BYTES)
    }

    #[test]
    fn a_header_reads_as_it_was_written() {
        let header = header_for_test();
        let bytes = header.encode();
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(Header::parse(&bytes, header.geometry.file_bytes(), PAGE_BYTES), Ok(header));
    }

    #[test]
    fn fields_lie_where_the_table_says() {
        let bytes = header_for_test().encode();
        assert_eq!(bytes[..16], *b"chiasmRg\x01\0\0\0\x05\0\0\0");
        assert_eq!(bytes[16..24], 7168_u64.to_le_bytes());
        assert_eq!(bytes[24..32], 65536_u64.to_le_bytes());
        assert_eq!(bytes[32..40], (65536_u64 + 36864).to_le_bytes());
        assert_eq!(bytes[40..48], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[48..64], [0; 16]);
        assert_eq!(bytes[64..72], *b"\xe8\x03\0\0\x2a\0\0\0");
        assert_eq!(bytes[72..], [0; 184]);
    }

    #[test]
    fn each_wrong_field_is_named() {
        let geometry = header_for_test().geometry;
        assert_eq!(parse_changed(0, b"X"), Err(HeaderError::Magic));
        assert_eq!(parse_changed(8, &[2]), Err(HeaderError::Version { version: 2 }));
        assert!(matches!(parse_changed(12, &[0; 4]), Err(HeaderError::Geometry { .. })));
        assert!(matches!(parse_changed(16, &[0; 8]), Err(HeaderError::Geometry { .. })));
        assert!(matches!(parse_changed(16, &[255; 8]), Err(HeaderError::Geometry { .. })));
        assert!(matches!(parse_changed(24, &[1]), Err(HeaderError::Geometry { .. })));
        assert!(matches!(parse_changed(24, &[0; 8]), Err(HeaderError::Geometry { .. })));
        assert!(matches!(parse_changed(12, &[9]), Err(HeaderError::FileSize { .. })));
        assert!(matches!(parse_changed(32, &[255; 8]), Err(HeaderError::FileSize { .. })));
        for reserved in [48, 63, 72, 184, 255] {
            assert_eq!(parse_changed(reserved, &[1]), Err(HeaderError::Reserved), "at {reserved}");
        }
        let bytes = header_for_test().encode();
        assert_eq!(Header::parse(&bytes[..255], 1, PAGE_BYTES), Err(HeaderError::Short));
        assert_eq!(
            Header::parse(&bytes, geometry.file_bytes() - 1, PAGE_BYTES),
            Err(HeaderError::FileSize {
                file_bytes: geometry.file_bytes() - 1,
                needed_bytes: geometry.file_bytes(),
            })
        );
    }
}
