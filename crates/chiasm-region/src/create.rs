//! Making a region's file: reserved, faulted in, locked and written before it gets its name.
//!
//! It must never leave anything behind on a way out that is not success (E2, S9): the file has no
//! name until all is done, or a draft's name that goes with the guard that holds it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{self, AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::RegionError;
use crate::file;
use crate::header::Header;
use crate::mapping::{Access, Mapping};
use crate::options::{RegionOptions, page_bytes};
use crate::random;
use crate::reclaim::{DRAFT_PREFIX, Removal, remove_if_dead};
use crate::region::{Region, mapped_bytes};

/// Bytes per `fallocate`. It starts over after a signal, so one call for gigabytes would never end
/// in a process with a profiling timer; 16 MiB take some 5 ms.
const RESERVE_BYTES: u64 = 16 * 1024 * 1024;

/// How often, a millisecond apart, to look again at a file that another process is just removing.
/// That takes it microseconds; if it does not, it hangs, and the name is in use.
const BUSY_ATTEMPTS: u32 = 100;

/// How often, 10 ms apart, to look again whether there is room. The helper processes of a node that was
/// killed may have its region mapped; they let go of it when its name goes, which takes them milliseconds,
/// and the system half a second for many gigabytes.
const ROOM_ATTEMPTS: u32 = 200;

/// Attempts to get a name that other creators compete for, and a draft's name.
const NAME_ATTEMPTS: u32 = 64;

/// The steps that differ between systems, replaced in tests.
pub(crate) struct Means {
    /// Whether to try `O_TMPFILE`. Sandboxes and some file systems do not have it.
    nameless: bool,
    populate: fn(&Mapping, usize) -> Result<(), Errno>,
}

/// What the system has.
pub(crate) const SYSTEM: Means = Means { nameless: true, populate: Mapping::populate };

/// See [`Region::create`].
pub(crate) fn create(options: &RegionOptions, means: &Means) -> Result<Region, RegionError> {
    let (geometry, path) = options.check()?;
    let header = Header {
        geometry,
        epoch: options.epoch,
        creator_user: rustix::process::geteuid().as_raw(),
        creator_process: std::process::id(),
    };
    let dir = path.parent().expect("a directory and a name");
    // First, so that a dead region's memory is there for the new one, and a live one is reported
    // before any is taken.
    clear(&path)?;
    let draft = Draft::open(dir, means)?;
    // What a mapping asks for holds for memory that is taken after it, so it comes before all memory.
    draft.stretch(geometry.file_bytes(), &path)?;
    let mapping = Mapping::new(draft.file.as_fd(), mapped_bytes(&header), Access::ReadWrite)
        .map_err(|error| RegionError::io("map", &path, error))?;
    if let Some(node) = options.numa_node {
        mapping.bind_to_node(node).map_err(|error| RegionError::Numa { node, source: error })?;
    }
    if options.huge_pages {
        // The reservation below would take small pages. What cannot be faulted in here is reserved
        // there, or is an error there.
        mapping.populate_huge();
    }
    let draft = draft.reserve(dir, geometry.file_bytes())?;
    let page = usize::try_from(page_bytes()).expect("a page fits the address space");
    (means.populate)(&mapping, page).map_err(|error| RegionError::Populate {
        dir: dir.to_owned(),
        needed_bytes: geometry.file_bytes(),
        source: error.into(),
    })?;
    draft.write(&header.encode(), &path)?;
    draft.publish(&path)?;
    Ok(Region::created(path, header, mapping, draft.file))
}

/// Make way for a region at `path`: nothing is there afterwards, or it is not ours to remove.
fn clear(path: &Path) -> Result<(), RegionError> {
    clear_by(path, || thread::sleep(Duration::from_millis(1)))
}

/// As [`clear`], with `wait` called before each new look at a file that is just being removed.
fn clear_by(path: &Path, mut wait: impl FnMut()) -> Result<(), RegionError> {
    for _ in 0..BUSY_ATTEMPTS {
        match remove_if_dead(path)? {
            Removal::Absent | Removal::Removed => return Ok(()),
            Removal::Live => break,
            Removal::Busy => wait(),
            Removal::Foreign(cause) => {
                return Err(RegionError::Foreign { path: path.to_owned(), cause });
            }
        }
    }
    Err(RegionError::Live { path: path.to_owned() })
}

/// A file that is not a region yet, locked from before anybody could find it.
struct Draft {
    /// Where there is no `O_TMPFILE`; removed when dropped, also after success. Before `file`, whose lock
    /// goes with it.
    name: Option<DraftName>,
    file: OwnedFd,
}

/// No other file ever has this name, before or after: whoever removes it late removes nothing else. So
/// its maker may remove it while another process, which has found it without a lock, is doing that too.
struct DraftName(PathBuf);

impl Drop for DraftName {
    fn drop(&mut self) {
        // What cannot be removed now, the next `reclaim_stale` removes.
        let _ = fs::unlink(&self.0);
    }
}

const MODE: Mode = Mode::from_raw_mode(0o600);

impl Draft {
    /// An empty file in `dir`, without a name if the file system can do that.
    fn open(dir: &Path, means: &Means) -> Result<Self, RegionError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        // Whatever is wrong without a name is either no fault, or wrong with a name too and
        // reported then.
        if means.nameless
            && let Ok(file) = fs::open(dir, flags | OFlags::TMPFILE, MODE)
            && file::lock(&file, FlockOperation::NonBlockingLockShared, dir)?
        {
            return Ok(Self { name: None, file });
        }
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        for _ in 0..NAME_ATTEMPTS {
            let number = random::number(dir)?;
            let path = dir.join(format!("{DRAFT_PREFIX}{}-{number:016x}", std::process::id()));
            let file = match fs::open(&path, flags, MODE) {
                Ok(file) => file,
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(RegionError::io("create a file in", dir, error)),
            };
            let name = Some(DraftName(path.clone()));
            // Found without a lock by a `reclaim_stale`, it looked dead and goes or is gone.
            if file::lock(&file, FlockOperation::NonBlockingLockShared, &path)?
                && file::is_at(file.as_fd(), &path)
            {
                return Ok(Self { name, file });
            }
        }
        Err(RegionError::io("create a file in", dir, Errno::EXIST))
    }

    /// Give the file its size and no memory yet. Its only change of size, while nobody else can know it.
    fn stretch(&self, bytes: u64, path: &Path) -> Result<(), RegionError> {
        rustix::io::retry_on_intr(|| fs::ftruncate(&self.file, bytes))
            .map_err(|error| RegionError::io("give a size to", path, error))
    }

    /// Give the file all its memory now: later, a missing page would be a SIGBUS (E6).
    fn reserve(self, dir: &Path, needed_bytes: u64) -> Result<Self, RegionError> {
        let no_space =
            |free_bytes| RegionError::NoSpace { dir: dir.to_owned(), needed_bytes, free_bytes };
        // Looked at first, or all that is left would be taken before the attempt fails: memory that
        // the rest of the machine needs.
        let found =
            space_by(needed_bytes, || space(dir), || thread::sleep(Duration::from_millis(10)))?;
        if let Some(space) = found
            && space.free_bytes < needed_bytes
        {
            return Err(no_space(space.free_bytes));
        }
        let mut at = 0;
        while at < needed_bytes {
            let len = RESERVE_BYTES.min(needed_bytes - at);
            let reserved = rustix::io::retry_on_intr(|| {
                fs::fallocate(&self.file, FallocateFlags::empty(), at, len)
            });
            match reserved {
                Ok(()) => at += len,
                Err(Errno::NOSPC | Errno::DQUOT) => {
                    drop(self);
                    return Err(no_space(space(dir)?.map_or(0, |space| space.free_bytes)));
                }
                Err(error @ Errno::NOMEM) => {
                    let (dir, source) = (dir.to_owned(), error.into());
                    return Err(RegionError::Populate { dir, needed_bytes, source });
                }
                Err(error) => return Err(RegionError::io("reserve memory in", dir, error)),
            }
        }
        Ok(self)
    }

    fn write(&self, header: &[u8], path: &Path) -> Result<(), RegionError> {
        // 256 bytes into memory that is there: written whole or not at all.
        let written = rustix::io::retry_on_intr(|| rustix::io::pwrite(&self.file, header, 0))
            .map_err(|error| RegionError::io("write the header of", path, error))?;
        if written == header.len() {
            Ok(())
        } else {
            Err(RegionError::io("write the header of", path, Errno::IO))
        }
    }

    /// Give the file its name, never another file's.
    fn publish(&self, path: &Path) -> Result<(), RegionError> {
        for _ in 0..NAME_ATTEMPTS {
            let linked = if let Some(draft) = &self.name {
                fs::linkat(CWD, &draft.0, CWD, path, AtFlags::empty())
            } else {
                let file = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                fs::linkat(CWD, file, CWD, path, AtFlags::SYMLINK_FOLLOW)
            };
            match linked {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => clear(path)?,
                Err(error) => return Err(RegionError::io("name the file", path, error)),
            }
        }
        Err(RegionError::Live { path: path.to_owned() })
    }
}

/// Of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Space {
    all_bytes: u64,
    free_bytes: u64,
}

/// Bytes free in the file system of `dir`; `None` where it has no limit of its own (a `tmpfs` with
/// `size=0` says that it has no blocks at all).
fn space(dir: &Path) -> Result<Option<Space>, RegionError> {
    let stat = fs::statvfs(dir).map_err(|error| RegionError::io("look at", dir, error))?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    let (all_bytes, free_bytes) = (bytes(stat.f_blocks), bytes(stat.f_bavail));
    Ok((stat.f_blocks > 0).then_some(Space { all_bytes, free_bytes }))
}

/// What `look` sees as soon as so many bytes are free; what it sees last if they never are, or can never be.
/// `wait` is called before each new look.
fn space_by(
    needed_bytes: u64,
    mut look: impl FnMut() -> Result<Option<Space>, RegionError>,
    mut wait: impl FnMut(),
) -> Result<Option<Space>, RegionError> {
    let mut seen = look()?;
    for _ in 0..ROOM_ATTEMPTS {
        let may_come =
            |space: Space| space.free_bytes < needed_bytes && needed_bytes <= space.all_bytes;
        if !seen.is_some_and(may_come) {
            break;
        }
        wait();
        seen = look()?;
    }
    Ok(seen)
}

// Miri knows neither files that are mapped nor their locks.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::path::Path;

    use chiasm_core::reclaim::{Look, Seen};

    use super::*;
    use crate::reclaim::{self, reclaim_stale};

    fn options_for_test(dir: &Path) -> RegionOptions {
        RegionOptions { dir: dir.to_owned(), ..RegionOptions::new("chiasm-unit", 10, 1000) }
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Open files and mappings of this process in `dir`, those without a name included.
    fn held(dir: &Path) -> usize {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        descriptors
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .filter(|target| target.starts_with(dir))
            .count()
            + maps.lines().filter(|line| line.contains(dir.to_str().unwrap())).count()
    }

    #[test]
    fn room_that_a_dead_nodes_helper_gives_back_is_waited_for_and_no_other() {
        let seen = |all_bytes, free| {
            let free = std::cell::RefCell::new(std::collections::VecDeque::from(free));
            let look = || {
                let free_bytes = free.borrow_mut().pop_front().unwrap_or(5);
                Ok(Some(Space { all_bytes, free_bytes }))
            };
            let mut waits = 0;
            let space = space_by(10, look, || waits += 1).unwrap().unwrap();
            (space.free_bytes, waits)
        };
        assert_eq!(seen(20, vec![12, 5]), (12, 0));
        assert_eq!(seen(20, vec![0, 5, 10]), (10, 2));
        assert_eq!(seen(20, vec![0]), (5, ROOM_ATTEMPTS), "what others keep");
        assert_eq!(seen(9, vec![0, 5]), (0, 0), "it could never fit");
    }

    #[test]
    fn pages_that_cannot_be_faulted_in_leave_nothing() {
        for nameless in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let means = Means { nameless, populate: |_, _| Err(Errno::NOMEM) };
            let error = create(&options_for_test(dir.path()), &means).unwrap_err();
            assert!(error.to_string().contains("memory limit"), "{error}");
            assert!(matches!(error, RegionError::Populate { .. }));
            assert_eq!(names(dir.path()), [""; 0]);
            assert_eq!(held(dir.path()), 0);
        }
    }

    #[test]
    fn the_name_comes_last_and_the_lock_before() {
        for nameless in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            // A half-made region is looked for from inside the making.
            let populate = |_: &Mapping, _| {
                let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
                let line = maps.lines().find(|line| line.contains("chiasm-look-here")).unwrap();
                let path = line.split_whitespace().nth(5).unwrap();
                let dir = Path::new(path).parent().unwrap();
                assert!(!dir.join("chiasm-unit").exists());
                assert_eq!(reclaim_stale(dir).unwrap(), [""; 0].map(PathBuf::from));
                Ok(())
            };
            let inside = dir.path().join("chiasm-look-here");
            std::fs::create_dir(&inside).unwrap();
            let region = create(&options_for_test(&inside), &Means { nameless, populate }).unwrap();
            assert_eq!(names(&inside), ["chiasm-unit"]);
            drop(region);
            assert_eq!(held(dir.path()), 0);
        }
    }

    #[test]
    fn without_nameless_files_a_region_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let means = Means { nameless: false, ..SYSTEM };
        let region = create(&options_for_test(dir.path()), &means).unwrap();
        assert_eq!(names(dir.path()), ["chiasm-unit"], "the draft's name is gone");
        let second = create(&options_for_test(dir.path()), &means).unwrap_err();
        assert!(matches!(second, RegionError::Live { .. }));
        assert_eq!(Region::attach(region.path()).unwrap().blocks(), 10);
        drop(region);
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn drafts_that_others_left_do_not_stand_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        for attempt in 0..3 {
            let name = format!("{DRAFT_PREFIX}{}-{attempt}", std::process::id());
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        let means = Means { nameless: false, ..SYSTEM };
        drop(create(&options_for_test(dir.path()), &means).unwrap());
        assert_eq!(names(dir.path()).len(), 3);
    }

    #[test]
    fn who_removes_a_draft_late_does_not_take_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let means = Means { nameless: false, ..SYSTEM };
        // Another process has decided to remove the first one, and takes its time; meanwhile its maker
        // removes it too, and tries again.
        let first = Draft::open(dir.path(), &means).unwrap();
        let file = first.file.try_clone().unwrap();
        let path = first.name.as_ref().unwrap().0.clone();
        drop(first);
        assert!(!path.exists());
        let second = Draft::open(dir.path(), &means).unwrap();
        assert_eq!(reclaim::see(Look::Unlink, Some(&file), &path).unwrap(), Seen::Absent);
        second.publish(&dir.path().join("chiasm-unit")).unwrap();
        drop(second);
        assert_eq!(names(dir.path()), ["chiasm-unit"]);
    }

    #[test]
    fn a_removal_by_another_is_waited_for_but_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let region = create(&options_for_test(dir.path()), &SYSTEM).unwrap();
        let path = region.path().to_owned();
        let kept = dir.path().join("kept");
        std::fs::hard_link(&path, &kept).unwrap();
        drop(region);
        std::fs::rename(&kept, &path).unwrap();
        let remover = std::fs::File::open(&path).unwrap();
        fs::flock(&remover, FlockOperation::LockExclusive).unwrap();

        let mut waits = 0;
        let outcome = clear_by(&path, || waits += 1);
        assert!(matches!(outcome, Err(RegionError::Live { .. })));
        assert_eq!(waits, BUSY_ATTEMPTS);
        assert!(path.exists());

        // Another process is done with it, or has died at it.
        let mut remover = Some(remover);
        let outcome = clear_by(&path, || drop(remover.take()));
        assert!(outcome.is_ok());
        assert!(!path.exists());
    }
}
