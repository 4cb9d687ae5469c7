//! A store to put encoder outputs into.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use chiasm_core::dtype::Dtype;
use chiasm_core::excerpt::Excerpt;
use chiasm_core::mm_hash::MmHash;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use super::FILE_NAME;
use super::error::{StoreError, StoreProblem};
use super::header::Header;
use super::temporary;

/// Longest name of an `mm_hash` directory; file systems allow 255.
pub(super) const MAX_DIRECTORY_NAME_BYTES: usize = 200;

/// A store that is written to.
#[derive(Debug)]
pub(crate) struct StoreWriter {
    out: PathBuf,
    force: bool,
}

impl StoreWriter {
    /// Prepares the directory `out`, which is made if it is not there, for `mm_hashes`. With
    /// `force` files that are there are replaced, else they are errors.
    ///
    /// Everything that stands in the way of any of them is reported at once, and then nothing is
    /// made.
    pub(crate) fn create<'a>(
        out: &Path,
        mm_hashes: impl IntoIterator<Item = &'a MmHash>,
        force: bool,
    ) -> Result<Self, Vec<StoreError>> {
        let writer = Self { out: out.to_owned(), force };
        let mm_hashes: BTreeSet<_> = mm_hashes.into_iter().collect();
        let mut folded: BTreeMap<String, u32> = BTreeMap::new();
        for mm_hash in &mm_hashes {
            *folded.entry(mm_hash.as_str().to_ascii_lowercase()).or_default() += 1;
        }
        let mut problems = Vec::new();
        for mm_hash in &mm_hashes {
            if let Err(error) = writer.directory_for(mm_hash) {
                problems.push(error);
            } else if folded.get(&mm_hash.as_str().to_ascii_lowercase()) != Some(&1) {
                let mm_hash = Excerpt::of(mm_hash.as_str());
                problems.push(StoreError::new(out, StoreProblem::Collision { mm_hash }));
            }
        }
        if problems.is_empty() {
            fs::create_dir_all(out).map_err(|error| vec![StoreError::new(out, error)])?;
            temporary::remove_dead(out);
            Ok(writer)
        } else {
            Err(problems)
        }
    }

    /// Begins the file of one encoder output. Nothing is there under its final name before
    /// [`EncodingWriter::finish`].
    pub(crate) fn begin(
        &self,
        mm_hash: &MmHash,
        dtype: Dtype,
        rows: u32,
        width: u32,
    ) -> Result<EncodingWriter, StoreError> {
        let directory = self.directory_for(mm_hash)?;
        let failed = |problem| StoreError::new(&directory, problem);
        let header = Header::encode(dtype, rows, width).zip(dtype.bytes_of(rows, width));
        let Some((header, declared)) = header else {
            let reason = "the tensor is too large for any file".to_owned();
            return Err(failed(StoreProblem::Header { reason }));
        };
        let mut temporary =
            temporary::create(&self.out).map_err(|error| StoreError::new(&self.out, error))?;
        temporary.write_all(&header).map_err(|error| failed(error.into()))?;
        Ok(EncodingWriter { temporary, directory, force: self.force, declared, written: 0 })
    }

    /// The directory of `mm_hash`, if the hash may name one and nothing stands in its place.
    fn directory_for(&self, mm_hash: &MmHash) -> Result<PathBuf, StoreError> {
        if !names_a_directory(mm_hash.as_str()) {
            let mm_hash = Excerpt::of(mm_hash.as_str());
            return Err(StoreError::new(&self.out, StoreProblem::DirectoryName { mm_hash }));
        }
        let directory = self.out.join(mm_hash.as_str());
        if is_missing(&directory)? {
            return Ok(directory);
        }
        let metadata = fs::symlink_metadata(&directory);
        let metadata = metadata.map_err(|error| StoreError::new(&directory, error))?;
        if !metadata.is_dir() {
            return Err(StoreError::new(&directory, StoreProblem::NotADirectory));
        }
        let file = directory.join(FILE_NAME);
        if !self.force && !is_missing(&file)? {
            return Err(StoreError::new(&file, StoreProblem::Exists));
        }
        Ok(directory)
    }
}

/// One file on its way into the store. Takes exactly the bytes of the tensor, in order; dropped
/// before [`EncodingWriter::finish`] it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct EncodingWriter {
    temporary: NamedTempFile,
    directory: PathBuf,
    force: bool,
    declared: u64,
    written: u64,
}

impl EncodingWriter {
    /// Gives the file its name, in one step, and returns its path.
    pub(crate) fn finish(self) -> Result<PathBuf, StoreError> {
        let Self { temporary, directory, force, declared, written } = self;
        if written != declared {
            let problem = StoreProblem::Length { declared, written };
            return Err(StoreError::new(&directory, problem));
        }
        let made = match fs::create_dir(&directory) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(StoreError::new(&directory, error)),
        };
        let path = directory.join(FILE_NAME);
        if let Err(errno) = publish(temporary.path(), &directory, force) {
            if made {
                // Only if it is still empty; if not, somebody else uses it by now.
                let _ = fs::remove_dir(&directory);
            }
            return Err(match errno {
                Errno::EXIST => StoreError::new(&path, StoreProblem::Exists),
                Errno::NOTDIR | Errno::LOOP => {
                    StoreError::new(&directory, StoreProblem::NotADirectory)
                }
                errno => StoreError::new(&path, io::Error::from(errno)),
            });
        }
        // It has left its temporary name: there is nothing to clean up any more.
        let _ = temporary.into_temp_path().keep();
        Ok(path)
    }
}

impl Write for EncodingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.declared.saturating_sub(self.written);
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > room {
            let reason = format!("more than the {} bytes of the tensor", self.declared);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let written = self.temporary.write(bytes)?;
        self.written = self.written.saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.flush()
    }
}

/// Moves `temporary` into `directory` under its final name, in one step. The directory is held open
/// for that, so that a link that takes its place is not followed.
fn publish(temporary: &Path, directory: &Path, force: bool) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    if force {
        return rustix::fs::renameat(CWD, temporary, &directory, FILE_NAME);
    }
    rustix::fs::renameat_with(CWD, temporary, &directory, FILE_NAME, RenameFlags::NOREPLACE)
        .or_else(|errno| match errno {
            // NFS and some others cannot rename without replacing, but they can link.
            Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => {
                let flags = rustix::fs::AtFlags::empty();
                rustix::fs::linkat(CWD, temporary, &directory, FILE_NAME, flags)?;
                rustix::fs::unlink(temporary)
            }
            errno => Err(errno),
        })
}

fn names_a_directory(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_DIRECTORY_NAME_BYTES).contains(&name.len())
        && name.bytes().all(allowed)
        && name != "."
        && name != ".."
}

fn is_missing(path: &Path) -> Result<bool, StoreError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(StoreError::new(path, error)),
    }
}
