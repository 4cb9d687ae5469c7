//! Removing what dead creators left (E1, S9), and only that.
//!
//! It must never remove a file that a process uses, one of another user's, or one of our name that was
//! never a region, and never change a file in place.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use chiasm_core::reclaim::{self, Look, Reclaim, Seen};
use rustix::fs::{self, FlockOperation};
use rustix::io::Errno;

use crate::beside::{self, status_socket, wake_socket};
use crate::error::{ForeignCause, RegionError};
use crate::file;
use crate::geometry::HEADER_AREA_BYTES;
use crate::header::{self, HeaderError};
use crate::mapping::Access;
use crate::options::{absolute, is_region_name, page_bytes};

/// File names of regions that are being made on file systems without `O_TMPFILE` start so. A region's
/// own name never starts with a dot.
pub(crate) const DRAFT_PREFIX: &str = ".chiasm-draft-";

/// Remove the regions in `dir` whose creators died without removing them, half-made ones, damaged ones,
/// and the sockets of regions that are gone; the files that were removed, in order of name.
///
/// Live regions, files of other users, regions of an unknown layout and anything else that can never
/// have been a region stay as they are, silently. Fails only if `dir` cannot be listed.
pub fn reclaim_stale(dir: &Path) -> Result<Vec<PathBuf>, RegionError> {
    let dir = absolute(dir)?;
    let list = |source| RegionError::io("list", &dir, source);
    let mut removed = Vec::new();
    for entry in std::fs::read_dir(&dir).map_err(list)? {
        let name = entry.map_err(list)?.file_name();
        let Some(name) = name.to_str() else { continue };
        if !is_region_name(name) && !name.starts_with(DRAFT_PREFIX) {
            continue;
        }
        let path = dir.join(name);
        if beside::remove_if_orphan(&path) {
            removed.push(path);
            continue;
        }
        // An error concerns that one file, which then stays; its own creator's start will report it.
        if let Ok(Removal::Removed) = remove_if_dead(&path) {
            removed.push(path);
        }
    }
    removed.sort_unstable();
    Ok(removed)
}

/// What became of a file that was to be removed if dead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Absent,
    Removed,
    /// A process uses it.
    Live,
    /// Somebody else is removing it.
    Busy,
    Foreign(ForeignCause),
}

/// Remove the file at `path` if it is a region of this user's, of a known layout, that nobody uses.
pub(crate) fn remove_if_dead(path: &Path) -> Result<Removal, RegionError> {
    follow(Reclaim::new(), path)
}

/// Remove the region at `path` if no process is left that uses it; of several that leave at once, one
/// does. Whatever is in the way, the next start removes what is left.
pub(crate) fn remove_if_unused(path: &Path) {
    let _ = follow(Reclaim::by_the_last(), path);
}

/// Does what the decision asks for, until there is an outcome.
fn follow(mut reclaim: Reclaim, path: &Path) -> Result<Removal, RegionError> {
    let mut file = None;
    loop {
        let seen = match reclaim.look() {
            Look::Open => match open(path)? {
                Opened::File(opened) => {
                    file = Some(opened);
                    Seen::Yes
                }
                Opened::Absent => Seen::Absent,
                Opened::Foreign(cause) => return Ok(Removal::Foreign(cause)),
            },
            look => see(look, file.as_ref(), path)?,
        };
        match reclaim.saw(seen) {
            None => {}
            Some(reclaim::Removal::Removed) => return Ok(Removal::Removed),
            Some(reclaim::Removal::Live) => return Ok(Removal::Live),
            Some(reclaim::Removal::Busy) => return Ok(Removal::Busy),
            Some(reclaim::Removal::Absent | reclaim::Removal::Foreign) => {
                return Ok(Removal::Absent);
            }
        }
    }
}

enum Opened {
    File(OwnedFd),
    Absent,
    Foreign(ForeignCause),
}

/// Opens what may be removed. The content first: a foreign file is not even locked.
fn open(path: &Path) -> Result<Opened, RegionError> {
    let file = match file::open_ours(path, Access::ReadOnly) {
        Ok(Ok(file)) => file,
        Ok(Err(cause)) => return Ok(Opened::Foreign(cause)),
        Err(Errno::NOENT) => return Ok(Opened::Absent),
        Err(error) => return Err(RegionError::io("open", path, error)),
    };
    Ok(match foreign_content(&file, path)? {
        Some(cause) => Opened::Foreign(cause),
        None => Opened::File(file),
    })
}

/// Takes one look at a file of ours that has been opened.
pub(crate) fn see(look: Look, file: Option<&OwnedFd>, path: &Path) -> Result<Seen, RegionError> {
    let yes = |is_so| if is_so { Seen::Yes } else { Seen::No };
    let Some(file) = file else { return Ok(Seen::No) };
    Ok(match look {
        Look::Open => Seen::No,
        Look::LockExclusive => {
            yes(file::lock(file, FlockOperation::NonBlockingLockExclusive, path)?)
        }
        Look::LockShared => yes(file::lock(file, FlockOperation::NonBlockingLockShared, path)?),
        Look::IsItsName => yes(file::is_at(file.as_fd(), path)),
        Look::RemoveSockets => {
            beside::remove(&status_socket(path));
            beside::remove(&wake_socket(path));
            Seen::Yes
        }
        Look::Unlink => match fs::unlink(path) {
            Ok(()) => Seen::Yes,
            Err(Errno::NOENT) => Seen::Absent,
            Err(error) => return Err(RegionError::io("remove", path, error)),
        },
    })
}

/// What in the content says that this is none of ours; `None` if nothing does.
fn foreign_content(file: &OwnedFd, path: &Path) -> Result<Option<ForeignCause>, RegionError> {
    let bytes = file::first_bytes(file.as_fd(), path)?;
    let is_draft = path
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with(DRAFT_PREFIX));
    // A draft has a name before it has a header.
    if is_draft && bytes.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    match header::known_layout(&bytes) {
        Err(HeaderError::Short | HeaderError::Magic) if was_damaged(file, path)? => Ok(None),
        outcome => Ok(outcome.err().map(ForeignCause::Content)),
    }
}

/// Whether a private file of ours with a region's name, which does not start as a region does, can have
/// been one: cut to nothing, or as long as a region can be, in whole pages, with its first bytes
/// overwritten. Chiasm itself does neither. Nobody can attach to such a file, and its lock still says whether one uses it.
fn was_damaged(file: &OwnedFd, path: &Path) -> Result<bool, RegionError> {
    let stat = fs::fstat(file).map_err(|error| RegionError::io("stat", path, error))?;
    let file_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    Ok(file_bytes == 0
        || file_bytes >= HEADER_AREA_BYTES && file_bytes.is_multiple_of(page_bytes()))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::options::RegionOptions;
    use crate::region::Region;

    #[test]
    fn a_name_that_was_taken_anew_in_between_is_left_to_its_new_owner() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = RegionOptions::new("chiasm-unit", 10, 1000);
        options.dir = dir.path().to_owned();
        // A dead one, opened by somebody who wants to remove it or to attach to it ...
        let dead = Region::create(&options).unwrap();
        let path = dead.path().to_owned();
        let kept = dir.path().join("kept");
        std::fs::hard_link(&path, &kept).unwrap();
        drop(dead);
        std::fs::rename(&kept, &path).unwrap();
        let removing = file::open_ours(&path, Access::ReadOnly).unwrap().unwrap();
        let attaching = file::open_ours(&path, Access::ReadOnly).unwrap().unwrap();
        // ... is replaced before that one gets any further.
        let live = Region::create(&options).unwrap();

        let mut reclaim = Reclaim::new();
        assert_eq!(reclaim.saw(Seen::Yes), None, "it was opened before");
        let outcome = std::iter::repeat_with(|| {
            let seen = see(reclaim.look(), Some(&removing), &path).unwrap();
            reclaim.saw(seen)
        });
        assert_eq!(outcome.flatten().next(), Some(reclaim::Removal::Busy));
        assert!(path.exists());
        assert!(matches!(file::hold(attaching, &path).unwrap(), file::Found::Dead));
        drop(live);
    }

    #[test]
    fn a_file_that_lost_its_name_while_it_was_alive_is_not_attached_to() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = RegionOptions::new("chiasm-unit", 10, 1000);
        options.dir = dir.path().to_owned();
        let region = Region::create(&options).unwrap();
        let path = region.path().to_owned();
        let survivor = Region::attach(&path).unwrap();
        let attaching = file::open_ours(&path, Access::ReadOnly).unwrap().unwrap();
        drop(region);
        assert!(matches!(file::hold(attaching, &path).unwrap(), file::Found::Dead));
        drop(survivor);
    }
}
