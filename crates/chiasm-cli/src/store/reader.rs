//! What a store holds, and its tensors as streams.

use std::fs::{self, File};
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;
use std::path::PathBuf;

use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use rustix::fs::{Mode, OFlags};

use super::error::{StoreError, StoreProblem};
use super::header::Header;
use super::{FILE_NAME, MAX_ENCODINGS};

/// One encoder output of a store. Its header has been checked.
#[derive(Clone, Debug)]
pub(crate) struct StoredEncoding {
    /// The name of its directory.
    pub(crate) mm_hash: MmHash,
    /// Its file.
    pub(crate) path: PathBuf,
    /// Shape, element type (always known) and exact size.
    pub(crate) meta: EntryMeta,
    header: Header,
}

/// All that was found at one path. A bad file does not hide the good ones.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The encodings, in the order of their hashes.
    pub(crate) encodings: Vec<StoredEncoding>,
    /// Everything that is wrong, each with its path.
    pub(crate) problems: Vec<StoreError>,
}

/// Looks at `path`: a store, the directory of one `mm_hash`, or one file in such a directory.
/// Tensors of more than `max_bytes` are problems. Directories of a store without a file are passed
/// over: vLLM 0.32 makes them when it only looks for an encoding.
pub(crate) fn scan(path: &Path, max_bytes: u64) -> Scan {
    let mut scan = Scan::default();
    let files = match files_at(path) {
        Ok(files) => files,
        Err(error) => {
            scan.problems.push(error);
            return scan;
        }
    };
    for file in &files {
        match StoredEncoding::look_at(file, max_bytes) {
            Ok(encoding) => scan.encodings.push(encoding),
            Err(problem) => scan.problems.push(StoreError::new(file, problem)),
        }
    }
    scan.encodings.sort_by(|left, right| left.mm_hash.cmp(&right.mm_hash));
    scan
}

fn files_at(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let failed = |error: io::Error| StoreError::new(path, error);
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return match path.file_name() {
            Some(name) if name == FILE_NAME => Ok(vec![path.to_owned()]),
            _ => Err(StoreError::new(path, StoreProblem::NotAStore)),
        };
    }
    let own = path.join(FILE_NAME);
    if fs::symlink_metadata(&own).is_ok() {
        return Ok(vec![own]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path().join(FILE_NAME);
        if fs::symlink_metadata(&file).is_ok() {
            files.push(file);
        }
        // Which are left out would be chance: directories have no order.
        if files.len() > MAX_ENCODINGS {
            return Err(StoreError::new(path, StoreProblem::TooMany));
        }
    }
    if files.is_empty() {
        return Err(StoreError::new(path, StoreProblem::NotAStore));
    }
    files.sort();
    Ok(files)
}

impl StoredEncoding {
    fn look_at(path: &Path, max_bytes: u64) -> Result<Self, StoreProblem> {
        let mm_hash = mm_hash_of(path)?;
        let (_, header) = open_checked(path)?;
        let meta = header.meta;
        if meta.bytes > max_bytes {
            return Err(StoreProblem::TooLarge { bytes: meta.bytes, limit: max_bytes });
        }
        Ok(Self { mm_hash, path: path.to_owned(), meta, header })
    }

    /// Opens the file again and returns its tensor's bytes as a stream. An error if the header is
    /// another than it was.
    pub(crate) fn open(&self) -> Result<TensorReader, StoreError> {
        let failed = |problem| StoreError::new(&self.path, problem);
        let (mut file, header) = open_checked(&self.path).map_err(failed)?;
        if header != self.header {
            return Err(failed(StoreProblem::Changed));
        }
        file.seek(SeekFrom::Start(header.offset)).map_err(|error| failed(error.into()))?;
        Ok(TensorReader { file, left: header.meta.bytes })
    }
}

/// The exact bytes of one tensor, in order. The end is reported only after all of them; a file that
/// has become shorter meanwhile is an error.
#[derive(Debug)]
pub(crate) struct TensorReader {
    file: File,
    left: u64,
}

impl Read for TensorReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else {
            return Ok(0);
        };
        let read = self.file.read(buffer)?;
        if read == 0 {
            let reason = "the file has become shorter while it was read";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
        }
        self.left = self.left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
        Ok(read)
    }
}

fn open_checked(path: &Path) -> Result<(File, Header), StoreProblem> {
    // Without O_NONBLOCK the opening of a pipe would wait for a writer for ever.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?;
    let mut file = File::from(file);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(StoreProblem::NotAFile);
    }
    let header = Header::read(&mut file, metadata.len())?;
    Ok((file, header))
}

fn mm_hash_of(file: &Path) -> Result<MmHash, StoreProblem> {
    let directory = std::path::absolute(file)?.parent().map(Path::to_owned).unwrap_or_default();
    // A path that ends in `..` has to be resolved before it has a name.
    let directory = match directory.file_name() {
        Some(_) => directory,
        None => fs::canonicalize(directory)?,
    };
    let name = directory.file_name().unwrap_or_default();
    Ok(MmHash::new(name.to_str().ok_or(StoreProblem::NotUtf8)?)?)
}
