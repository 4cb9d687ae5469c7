//! An agent: NIXL's object that has memory registered, knows peers, and moves bytes.
//!
//! It must never register, or hand out addresses of, anything but the region's blocks.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use chiasm_region::LentRegion;

use super::notifications::NotificationMap;
use super::table::{AgentConfig, HOST_MEMORY, Handle, IN_PROGRESS, SUCCESS, Status, Table};
use super::transfer::{Local, Transfer, TransferState};
use crate::limits::MAX_METADATA_BYTES;
use crate::piece::Piece;
use crate::settings::Settings;

/// How long the self test may take: it takes some milliseconds, and a thousand times that on a starved machine.
const TEST_LIMIT: Duration = Duration::from_secs(10);

/// How long it looks without a pause, and the pauses after that.
const TEST_BUSY: Duration = Duration::from_millis(20);
const TEST_PAUSE: Duration = Duration::from_millis(1);

/// Bytes that the self test moves.
const TEST_BYTES: usize = 4096;

/// A loaded library.
#[derive(Clone, Copy)]
pub(crate) struct Functions(pub(super) &'static Table);

/// A call of NIXL's that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("NIXL could not {what} (status {status})")]
pub(crate) struct NixlError {
    /// What it was asked for.
    pub(crate) what: &'static str,
    /// Its answer.
    pub(crate) status: i32,
}

pub(super) fn check(what: &'static str, status: Status) -> Result<(), NixlError> {
    if status == SUCCESS { Ok(()) } else { Err(NixlError { what, status }) }
}

/// The agent. It is never destroyed: the process ends with it.
///
/// Neither `Send` nor `Sync` (it has raw pointers): one thread has it.
pub(crate) struct Agent {
    pub(super) functions: &'static Table,
    pub(super) raw: Handle,
    backend: Handle,
    name: CString,
    notifications: NotificationMap,
}

impl Agent {
    /// Make an agent, with the backend of the settings. The name has no NUL and is not empty.
    pub(crate) fn new(
        Functions(functions): Functions,
        name: &str,
        settings: &Settings,
    ) -> Result<Self, NixlError> {
        let name = CString::new(name).unwrap_or_default();
        let config = AgentConfig {
            // Progress is made by whoever polls: 0 % of a core while nobody does, where the thread takes 9
            // to 15.
            progress_thread: false,
            listen_thread: false,
            listen_port: 0,
            thread_sync: 0,
            workers: 1,
            progress_delay_us: 0,
            listen_delay_us: 100_000,
            telemetry: false,
            reserved: [0; 8],
        };
        let mut agent = ptr::null_mut();
        // SAFETY: a C string and a struct that live across the call, which copies them; an out-pointer.
        let status = unsafe {
            (functions.create_configured_agent)(name.as_ptr(), &raw const config, &raw mut agent)
        };
        check("make an agent", status)?;
        let backend = create_backend(functions, agent, settings.backend.name())?;
        let notifications = NotificationMap::new(functions)?;
        Ok(Self { functions, raw: agent, backend, name, notifications })
    }

    /// Names of the backends that this installation has.
    pub(crate) fn available_backends(&self) -> Vec<String> {
        let functions = self.functions;
        let mut list = ptr::null_mut();
        // SAFETY: a live agent and an out-pointer.
        if unsafe { (functions.get_available_plugins)(self.raw, &raw mut list) } != SUCCESS {
            return Vec::new();
        }
        let mut names = Vec::new();
        let mut size = 0;
        // SAFETY: the list that was just made, and an out-pointer.
        unsafe { (functions.string_list_size)(list, &raw mut size) };
        for index in 0..size {
            let mut name: *const c_char = ptr::null();
            // SAFETY: as above; the index is below the list's size.
            let status = unsafe { (functions.string_list_get)(list, index, &raw mut name) };
            if status == SUCCESS && !name.is_null() {
                // SAFETY: a C string that belongs to the list, which lives until below.
                names.push(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
            }
        }
        // SAFETY: the list, once; nothing borrows from it any more.
        unsafe { (functions.destroy_string_list)(list) };
        names
    }

    /// Register the blocks of a region with the backend.
    pub(crate) fn register(&self, region: &LentRegion) -> Result<(), NixlError> {
        // SAFETY: `blocks_bytes` bytes from there on are mapped as long as the region lives, which the
        // caller keeps until the process ends. NIXL reads them (and writes them, where the mapping may be
        // written) through raw pointers of its own; no reference into them exists anywhere.
        unsafe { self.register_range(region.blocks_address(), region.blocks_bytes()) }.map(drop)
    }

    /// # Safety
    ///
    /// The range is mapped until it is deregistered or the process ends, and no reference into it lives
    /// meanwhile.
    unsafe fn register_range(&self, address: usize, bytes: usize) -> Result<Registered, NixlError> {
        let functions = self.functions;
        let mut list = ptr::null_mut();
        // SAFETY: an out-pointer.
        let status = unsafe { (functions.create_reg_dlist)(HOST_MEMORY, &raw mut list) };
        check("make a list of ranges", status)?;
        let list = Registered { functions, list };
        // SAFETY: the list that was just made; the range is only noted; no metadata.
        let status =
            unsafe { (functions.reg_dlist_add_desc)(list.list, address, bytes, 0, ptr::null(), 0) };
        check("note a range", status)?;
        let options = Options::new(self)?;
        // SAFETY: live objects; the range is mapped, as the caller promises.
        let status = unsafe { (functions.register_mem)(self.raw, list.list, options.options) };
        check("register memory", status)?;
        Ok(list)
    }

    /// What peers load to reach this agent, with all that is registered now.
    pub(crate) fn metadata(&self) -> Result<Vec<u8>, NixlError> {
        let mut data: *mut c_void = ptr::null_mut();
        let mut len = 0;
        // SAFETY: a live agent and two out-pointers.
        let status =
            unsafe { (self.functions.get_local_md)(self.raw, &raw mut data, &raw mut len) };
        check("give its metadata", status)?;
        let mut metadata = vec![0; len.min(MAX_METADATA_BYTES)];
        // SAFETY: NIXL has allocated `len` bytes for the caller, of which no more are copied.
        unsafe { ptr::copy_nonoverlapping(data.cast(), metadata.as_mut_ptr(), metadata.len()) };
        // SAFETY: by `malloc`, for the caller to free, once.
        unsafe { libc::free(data) };
        if len > MAX_METADATA_BYTES {
            return Err(NixlError { what: "give metadata of a length that peers take", status });
        }
        Ok(metadata)
    }

    /// Load a peer's metadata; its name. The bytes have been looked at as far as they can be; what NIXL
    /// and UCX make of the rest may still end this process.
    pub(crate) fn load(&self, metadata: &[u8]) -> Result<String, NixlError> {
        let mut name: *mut c_char = ptr::null_mut();
        let data = metadata.as_ptr().cast();
        // SAFETY: a live agent; `metadata` lives across the call, which copies it; an out-pointer.
        let status = unsafe {
            (self.functions.load_remote_md)(self.raw, data, metadata.len(), &raw mut name)
        };
        check("load a peer's metadata", status)?;
        // SAFETY: a C string that NIXL has allocated for the caller.
        let loaded = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        // SAFETY: by `strdup`, for the caller to free, once.
        unsafe { libc::free(name.cast()) };
        Ok(loaded)
    }

    /// Forget a peer.
    pub(crate) fn forget(&self, name: &CStr) -> Result<(), NixlError> {
        // SAFETY: a live agent and a C string that lives across the call.
        let status = unsafe { (self.functions.invalidate_remote_md)(self.raw, name.as_ptr()) };
        check("forget a peer", status)
    }

    /// Start a read. Its pieces have been checked against `local` and the peer's blocks.
    pub(crate) fn read(
        &self,
        peer: &CStr,
        local: Local,
        pieces: &[Piece],
        notification: &[u8],
    ) -> Result<Transfer, NixlError> {
        let options = Options::new(self)?;
        if !notification.is_empty() {
            let (data, len) = (notification.as_ptr().cast(), notification.len());
            // SAFETY: the options, and bytes that live across the call, which copies them.
            let status =
                unsafe { (self.functions.opt_args_set_notif_msg)(options.options, data, len) };
            check("note a notification", status)?;
            // SAFETY: the options.
            let status = unsafe { (self.functions.opt_args_set_has_notif)(options.options, true) };
            check("note a notification", status)?;
        }
        Transfer::start(self, peer, local, pieces, options.options)
    }

    /// Make progress, and hand every notification that has come to `take` (agent's name, text).
    pub(crate) fn progress(&mut self, take: impl FnMut(&str, &[u8])) -> Result<(), NixlError> {
        let options = ptr::null_mut();
        let map = self.notifications.map();
        // SAFETY: live objects; no options are allowed.
        let status = unsafe { (self.functions.get_notifs)(self.raw, map, options) };
        check("look for notifications", status)?;
        self.notifications.take(take);
        Ok(())
    }

    /// Read some bytes from this very agent and notify it: whether the library is what it is taken for.
    /// `false` if that took too long to say.
    pub(crate) fn test(&mut self) -> Result<bool, NixlError> {
        const TEXT: &[u8] = b"chiasm self test";
        let wrong = |what| NixlError { what, status: SUCCESS };
        // Leaked: also a test that fails leaves nothing registered that is gone. Touched by raw pointers.
        let from: *mut u8 = Box::leak(Box::new([0x5A_u8; TEST_BYTES])).as_mut_ptr();
        let to: *mut u8 = Box::leak(Box::new([0_u8; TEST_BYTES])).as_mut_ptr();
        // SAFETY: leaked memory is there for ever, and nothing refers to it from here on.
        let source = unsafe { self.register_range(from.addr(), TEST_BYTES) }?;
        // SAFETY: as above.
        let target = unsafe { self.register_range(to.addr(), TEST_BYTES) }?;
        let local = Local { address: to.addr(), bytes: TEST_BYTES };
        let piece =
            Piece { local_offset: 0, remote_address: from.addr() as u64, bytes: TEST_BYTES as u64 };
        let own_name = self.name.clone();
        let mut transfer = self.read(&own_name, local, &[piece], TEXT)?;
        let start = Instant::now();
        let mut notified = false;
        while !notified || transfer.poll() == TransferState::Running {
            if transfer.poll() == TransferState::Failed {
                return Err(wrong("read from itself"));
            }
            self.progress(|agent, text| {
                notified |= agent.as_bytes() == own_name.as_bytes() && text == TEXT;
            })?;
            let took = start.elapsed();
            if took > TEST_LIMIT {
                return Ok(false);
            }
            if took > TEST_BUSY {
                thread::sleep(TEST_PAUSE);
            }
        }
        if transfer.poll() != TransferState::Done {
            return Err(wrong("read from itself"));
        }
        transfer.release()?;
        let mut landed = [0_u8; TEST_BYTES];
        // SAFETY: leaked memory, readable; the transfer has ended and nobody writes to it.
        unsafe { ptr::copy_nonoverlapping(to, landed.as_mut_ptr(), TEST_BYTES) };
        if landed != [0x5A; TEST_BYTES] {
            return Err(wrong("bring the bytes that it was asked for"));
        }
        for range in [source, target] {
            let options = Options::new(self)?;
            // SAFETY: live objects; no transfer of the range is left.
            let status =
                unsafe { (self.functions.deregister_mem)(self.raw, range.list, options.options) };
            check("deregister memory", status)?;
        }
        Ok(true)
    }
}

fn create_backend(functions: &Table, agent: Handle, name: &str) -> Result<Handle, NixlError> {
    let name = CString::new(name).unwrap_or_default();
    let (mut memories, mut parameters) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a live agent, a C string that lives across the call, two out-pointers.
    let status = unsafe {
        (functions.get_plugin_params)(agent, name.as_ptr(), &raw mut memories, &raw mut parameters)
    };
    check("find the backend", status)?;
    let mut backend = ptr::null_mut();
    // SAFETY: as above; the parameters were just made.
    let status =
        unsafe { (functions.create_backend)(agent, name.as_ptr(), parameters, &raw mut backend) };
    // SAFETY: made above, destroyed once, not used again.
    unsafe { (functions.destroy_mem_list)(memories) };
    // SAFETY: as above.
    unsafe { (functions.destroy_params)(parameters) };
    check("start the backend", status)?;
    Ok(backend)
}

/// A list of registered ranges. The ranges stay registered when the list goes.
struct Registered {
    functions: &'static Table,
    list: Handle,
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: made by `create_reg_dlist`, destroyed once.
        unsafe { (self.functions.destroy_reg_dlist)(self.list) };
    }
}

/// Options of one call, with the backend in them.
struct Options {
    functions: &'static Table,
    options: Handle,
}

impl Options {
    fn new(agent: &Agent) -> Result<Self, NixlError> {
        let functions = agent.functions;
        let mut options = ptr::null_mut();
        // SAFETY: an out-pointer.
        let status = unsafe { (functions.create_opt_args)(&raw mut options) };
        check("make options", status)?;
        let made = Self { functions, options };
        // SAFETY: the options that were just made, and the agent's backend.
        let status = unsafe { (functions.opt_args_add_backend)(options, agent.backend) };
        check("note the backend", status)?;
        Ok(made)
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: made by `create_opt_args`, destroyed once.
        unsafe { (self.functions.destroy_opt_args)(self.options) };
    }
}

/// Whether a status means that a transfer goes on.
pub(super) fn goes_on(status: Status) -> bool {
    status == IN_PROGRESS
}
