//! One shared mapping of a region's whole file, from `mmap` to `munmap`.
//!
//! It must never outlive its own range: the bytes it gives out are valid while it lives.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::memory::SharedBytes;

/// Whether a mapping may be written through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    ReadWrite,
    ReadOnly,
}

/// The mapping. It keeps the open file, and with it the file's lock, alive on its own.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; it is unmapped once, by the one
// owner's drop.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` only gives out `SharedBytes`, whose copies and system calls touch the memory
// through raw pointers; no reference into it exists on any thread. Two threads that copy into one
// block at once are kept apart by the cache (one writer per block), as two processes are.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Map the first `len` bytes of `file` (the caller has checked that it is that long) and keep
    /// them out of core dumps.
    pub(crate) fn new(file: BorrowedFd<'_>, len: usize, access: Access) -> Result<Self, Errno> {
        let protection = match access {
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
            Access::ReadOnly => ProtFlags::READ,
        };
        // SAFETY: a new mapping at an address of the kernel's choice: it replaces nothing.
        let base = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(base.cast()).expect("mmap chooses no null address");
        let mapping = Self { base, len };
        mapping.advise(len, Advice::LinuxDontDump)?;
        Ok(mapping)
    }

    /// The mapped bytes.
    pub(crate) fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: the mapping is one allocation of `len` bytes, mapped until the drop below, which
        // cannot come before the borrow ends; readable, and writable if mapped so (`Region` refuses to store
        // otherwise); nobody makes references into it. Its pages exist as long as the file is not
        // truncated, which nothing of Chiasm ever does.
        unsafe { SharedBytes::new(self.base, self.len) }
    }

    /// Fault every page in for writing, so that no later copy stops for one.
    pub(crate) fn populate(&self, page_bytes: usize) -> Result<(), Errno> {
        self.populate_by(page_bytes, |len| self.advise(len, Advice::LinuxPopulateWrite))
    }

    /// As [`Mapping::populate`], with `advise` in place of `madvise(MADV_POPULATE_WRITE)` over the
    /// first bytes of the mapping. One call over the first page tells whether the kernel knows it
    /// (5.14 and later do); an older one, or a sandbox, says `EINVAL`, and the pages are touched one
    /// by one. Any other error is one.
    fn populate_by(
        &self,
        page_bytes: usize,
        advise: impl Fn(usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        match advise(page_bytes.min(self.len)) {
            Ok(()) => advise(self.len),
            Err(Errno::INVAL) => {
                self.bytes().touch(page_bytes);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Ask for huge pages, and fault in what can be had of them now. Nothing comes of it on file systems
    /// that have none, or where the mount does not allow them.
    pub(crate) fn populate_huge(&self) {
        if self.advise(self.len, Advice::LinuxHugepage).is_ok() {
            // Never by touch: the memory is not reserved yet, and what is missing would be a fault.
            let _ = self.advise(self.len, Advice::LinuxPopulateWrite);
        }
    }

    /// Take all memory that the file does not have yet from NUMA node `node`, in this process and in
    /// every other.
    pub(crate) fn bind_to_node(&self, node: u32) -> io::Result<()> {
        const BITS: u32 = libc::c_ulong::BITS;
        let word = usize::try_from(node / BITS).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut nodes = [0 as libc::c_ulong; 16];
        let bits = nodes.get_mut(word).ok_or(io::ErrorKind::InvalidInput)?;
        *bits = 1 << (node % BITS);
        let base = self.bytes().pointer(0, self.len);
        // SAFETY: the range is our own mapping, the mask has as many bits as are named (the kernel reads
        // one less than it is told), and a policy changes no byte of memory.
        let status = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                base,
                self.len,
                libc::MPOL_BIND,
                nodes.as_ptr(),
                libc::c_ulong::from(BITS) * 16 + 1,
                0,
            )
        };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Bytes of it that this process reaches through huge pages now.
    pub(crate) fn huge_page_bytes(&self) -> io::Result<u64> {
        let maps = std::fs::read_to_string("/proc/self/smaps")?;
        let start = format!("{:x}-", self.base.as_ptr().addr());
        let lines = maps.lines().skip_while(|line| !line.starts_with(&start));
        let field = |line: &str| {
            let rest = line.strip_prefix("ShmemPmdMapped:")?;
            rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        };
        Ok(lines.take(40).find_map(field).unwrap_or(0) * 1024)
    }

    /// Number of mapped bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Fault the pages of `len` bytes from byte `at` on in for reading; `at` lies on a page.
    pub(crate) fn populate_read(&self, at: usize, len: usize) -> Result<(), Errno> {
        self.advise_from(at, len, Advice::LinuxPopulateRead)
    }

    /// As [`Mapping::populate_read`], for writing.
    pub(crate) fn populate_write(&self, at: usize, len: usize) -> Result<(), Errno> {
        self.advise_from(at, len, Advice::LinuxPopulateWrite)
    }

    fn advise(&self, len: usize, advice: Advice) -> Result<(), Errno> {
        self.advise_from(0, len, advice)
    }

    fn advise_from(&self, at: usize, len: usize, advice: Advice) -> Result<(), Errno> {
        let base = self.bytes().pointer(at, len);
        // SAFETY: the range is inside our own mapping, and no advice that is used here changes a byte
        // of it.
        unsafe { madvise(base.cast(), len, advice) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped, once; whoever holds `SharedBytes` of it holds
        // a borrow of `self`, so nobody does. The call fails only for ranges that are not mappings.
        let outcome = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(outcome.is_ok(), "munmap of our own mapping: {outcome:?}");
    }
}

// Miri knows neither files that are mapped nor their locks.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::cell::RefCell;
    use std::os::fd::AsFd;

    use super::*;

    const PAGE_BYTES: usize = 4096;

    fn mapping_for_test(pages: usize) -> (std::fs::File, Mapping) {
        let file = tempfile::tempfile().unwrap();
        let len = pages * rustix::param::page_size();
        file.set_len(len as u64).unwrap();
        let mapping = Mapping::new(file.as_fd(), len, Access::ReadWrite).unwrap();
        (file, mapping)
    }

    /// Number of the mapping's pages that this process has faulted in.
    fn resident_pages(mapping: &Mapping) -> u64 {
        let base = mapping.bytes().pointer(0, 0) as usize;
        let pagemap = std::fs::read("/proc/self/smaps").unwrap();
        let smaps = String::from_utf8_lossy(&pagemap);
        let start = smaps.find(&format!("{base:x}-")).expect("the mapping is listed");
        let line = smaps[start..].lines().find(|line| line.starts_with("Rss:")).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib * 1024 / rustix::param::page_size() as u64
    }

    #[test]
    fn one_probe_over_the_first_page_then_one_call_over_all() {
        let (_file, mapping) = mapping_for_test(8);
        let calls = RefCell::new(Vec::new());
        let advise = |len| {
            calls.borrow_mut().push(len);
            Ok(())
        };
        mapping.populate_by(PAGE_BYTES, advise).unwrap();
        assert_eq!(*calls.borrow(), [PAGE_BYTES, mapping.len]);
        assert_eq!(resident_pages(&mapping), 0, "the fallback was not used");
    }

    #[test]
    fn the_systems_own_call_faults_every_page_in() {
        let (_file, mapping) = mapping_for_test(8);
        assert_eq!(resident_pages(&mapping), 0);
        mapping.populate(rustix::param::page_size()).unwrap();
        assert_eq!(resident_pages(&mapping), 8);
    }

    #[test]
    fn einval_at_the_probe_falls_back_to_touching_every_page() {
        let (file, mapping) = mapping_for_test(8);
        std::os::unix::fs::FileExt::write_all_at(&file, b"kept", 4096).unwrap();
        mapping.populate_by(rustix::param::page_size(), |_| Err(Errno::INVAL)).unwrap();
        assert_eq!(resident_pages(&mapping), 8);
        let mut seen = [0; 4];
        mapping.bytes().load(4096, &mut seen);
        assert_eq!(seen, *b"kept");
    }

    #[test]
    fn any_other_error_is_passed_on() {
        let (_file, mapping) = mapping_for_test(2);
        assert_eq!(mapping.populate_by(PAGE_BYTES, |_| Err(Errno::IO)), Err(Errno::IO));
        let second = |len| if len == PAGE_BYTES { Ok(()) } else { Err(Errno::NOMEM) };
        assert_eq!(mapping.populate_by(PAGE_BYTES, second), Err(Errno::NOMEM));
    }

    #[test]
    fn the_mapping_is_kept_out_of_core_dumps() {
        let (_file, mapping) = mapping_for_test(2);
        let base = mapping.bytes().pointer(0, 0) as usize;
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = smaps.find(&format!("{base:x}-")).unwrap();
        let flags = smaps[start..].lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
    }
}
