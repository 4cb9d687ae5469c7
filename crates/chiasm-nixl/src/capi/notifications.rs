//! Notifications that have come in, by the agents that sent them: all of it a peer's.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::slice;

use super::agent::{NixlError, check};
use super::table::{Handle, SUCCESS, Table};

/// NIXL's map from an agent's name to its texts.
pub(super) struct NotificationMap {
    functions: &'static Table,
    map: Handle,
}

impl NotificationMap {
    pub(super) fn new(functions: &'static Table) -> Result<Self, NixlError> {
        let mut map = ptr::null_mut();
        // SAFETY: an out-pointer.
        let status = unsafe { (functions.create_notif_map)(&raw mut map) };
        check("make a map of notifications", status)?;
        Ok(Self { functions, map })
    }

    pub(super) fn map(&self) -> Handle {
        self.map
    }

    /// Hand out what is in the map, and empty it.
    pub(super) fn take(&mut self, mut take: impl FnMut(&str, &[u8])) {
        let functions = self.functions;
        let mut agents = 0;
        // SAFETY: the live map and an out-pointer.
        if unsafe { (functions.notif_map_size)(self.map, &raw mut agents) } != SUCCESS
            || agents == 0
        {
            return;
        }
        for index in 0..agents {
            let mut name: *const c_char = ptr::null();
            // SAFETY: as above; the index is below the map's size.
            let status =
                unsafe { (functions.notif_map_get_agent_at)(self.map, index, &raw mut name) };
            if status != SUCCESS || name.is_null() {
                continue;
            }
            // SAFETY: a C string that belongs to the map, which is not changed before the end of this
            // function.
            let name = unsafe { CStr::from_ptr(name) };
            self.take_of(name, &mut take);
        }
        // SAFETY: the live map; nothing borrows from it any more.
        unsafe { (functions.notif_map_clear)(self.map) };
    }

    fn take_of(&self, name: &CStr, take: &mut impl FnMut(&str, &[u8])) {
        let functions = self.functions;
        let mut texts = 0;
        // SAFETY: the live map, a C string, an out-pointer. A name with a NUL in it is not found: nothing.
        let status = unsafe {
            (functions.notif_map_get_notifs_size)(self.map, name.as_ptr(), &raw mut texts)
        };
        if status != SUCCESS {
            return;
        }
        let shown = name.to_string_lossy();
        for index in 0..texts {
            let mut data: *const c_void = ptr::null();
            let mut len = 0;
            // SAFETY: as above, with two out-pointers; the index is below the number of texts.
            let status = unsafe {
                (functions.notif_map_get_notif)(
                    self.map,
                    name.as_ptr(),
                    index,
                    &raw mut data,
                    &raw mut len,
                )
            };
            if status == SUCCESS && !data.is_null() {
                // SAFETY: `len` bytes that belong to the map, which is not changed meanwhile, and that
                // nobody writes to.
                take(&shown, unsafe { slice::from_raw_parts(data.cast(), len) });
            }
        }
    }
}
