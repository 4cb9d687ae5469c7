//! The functions of `libnixl_capi.so` that are used here, by their own names.
//!
//! The interface has no version. What can be found out is: every symbol is looked for before the first
//! call, the library must not be the stub that aborts at each call, and a loop-back transfer has to bring
//! the right bytes before anything else happens ([`Agent::test`](super::Agent::test)).
//!
//! Signatures were taken from NIXL's public C header and tried on the wheels of 1.5.1. Objects are opaque.
//! Every function gives a [`Status`]; what it makes it writes through its last pointer or pointers.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

/// 0 success, 1 in progress, negative: a failure. Backend errors of all kinds are -2.
pub(super) type Status = c_int;

pub(super) const SUCCESS: Status = 0;
pub(super) const IN_PROGRESS: Status = 1;

/// Host memory among NIXL's kinds of memory.
pub(super) const HOST_MEMORY: c_int = 0;

/// Reading among NIXL's operations.
pub(super) const READ: c_int = 0;

/// A pointer to an object of NIXL's.
pub(super) type Handle = *mut c_void;

/// How an agent is to work.
#[repr(C)]
pub(super) struct AgentConfig {
    pub(super) progress_thread: bool,
    pub(super) listen_thread: bool,
    pub(super) listen_port: c_int,
    /// 0: no locks.
    pub(super) thread_sync: c_uint,
    pub(super) workers: c_uint,
    pub(super) progress_delay_us: u64,
    pub(super) listen_delay_us: u64,
    pub(super) telemetry: bool,
    /// What a later version may read behind its own last field: all of it "no".
    pub(super) reserved: [u64; 8],
}

/// A symbol that the library lacks: another version, or another library.
#[derive(Debug)]
pub(super) struct MissingSymbol(pub(super) &'static str);

macro_rules! table {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// Pointers to the functions, valid as long as the library is loaded: for ever, since NIXL and
        /// UCX leave threads behind that run its code.
        pub(super) struct Table {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Table {
            /// Look every symbol up, and leave the library loaded for good.
            pub(super) fn of(library: Library) -> Result<&'static Self, MissingSymbol> {
                let library: &'static Library = Box::leak(Box::new(library));
                let table = Self {
                    $($name: {
                        let symbol = concat!("nixl_capi_", stringify!($name));
                        // SAFETY: the type is the one that NIXL's header gives this name; nobody can
                        // check that, so the self test follows before the first real transfer. The
                        // pointer is copied out of a library that is never unloaded.
                        unsafe { library.get(symbol) }
                            .map(|found| *found)
                            .map_err(|_| MissingSymbol(symbol))?
                    },)*
                };
                Ok(Box::leak(Box::new(table)))
            }
        }
    };
}

table! {
    is_stub() -> bool;

    create_configured_agent(*const c_char, *const AgentConfig, *mut Handle) -> Status;
    get_local_md(Handle, *mut *mut c_void, *mut usize) -> Status;
    load_remote_md(Handle, *const c_void, usize, *mut *mut c_char) -> Status;
    invalidate_remote_md(Handle, *const c_char) -> Status;

    get_available_plugins(Handle, *mut Handle) -> Status;
    string_list_size(Handle, *mut usize) -> Status;
    string_list_get(Handle, usize, *mut *const c_char) -> Status;
    destroy_string_list(Handle) -> Status;
    get_plugin_params(Handle, *const c_char, *mut Handle, *mut Handle) -> Status;
    destroy_mem_list(Handle) -> Status;
    destroy_params(Handle) -> Status;
    create_backend(Handle, *const c_char, Handle, *mut Handle) -> Status;

    create_opt_args(*mut Handle) -> Status;
    destroy_opt_args(Handle) -> Status;
    opt_args_add_backend(Handle, Handle) -> Status;
    opt_args_set_notif_msg(Handle, *const c_void, usize) -> Status;
    opt_args_set_has_notif(Handle, bool) -> Status;

    create_reg_dlist(c_int, *mut Handle) -> Status;
    reg_dlist_add_desc(Handle, usize, usize, u64, *const c_void, usize) -> Status;
    destroy_reg_dlist(Handle) -> Status;
    register_mem(Handle, Handle, Handle) -> Status;
    deregister_mem(Handle, Handle, Handle) -> Status;

    create_xfer_dlist(c_int, *mut Handle) -> Status;
    xfer_dlist_add_desc(Handle, usize, usize, u64) -> Status;
    destroy_xfer_dlist(Handle) -> Status;
    create_xfer_req(Handle, c_int, Handle, Handle, *const c_char, *mut Handle, Handle) -> Status;
    post_xfer_req(Handle, Handle, Handle) -> Status;
    get_xfer_status(Handle, Handle) -> Status;
    release_xfer_req(Handle, Handle) -> Status;
    destroy_xfer_req(Handle) -> Status;

    get_notifs(Handle, Handle, Handle) -> Status;
    create_notif_map(*mut Handle) -> Status;
    notif_map_size(Handle, *mut usize) -> Status;
    notif_map_get_agent_at(Handle, usize, *mut *const c_char) -> Status;
    notif_map_get_notifs_size(Handle, *const c_char, *mut usize) -> Status;
    notif_map_get_notif(Handle, *const c_char, usize, *mut *const c_void, *mut usize) -> Status;
    notif_map_clear(Handle) -> Status;
}
