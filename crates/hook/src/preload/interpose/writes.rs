//! Functions that write and sync.

use libc::{c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};

use crate::preload::calls::{Call, around};

// The sum of the lengths of a gather list is not read: the result says how much was written.
interpose! {
    fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t =
        |real| around(fd, Call::Write, real);
    fn pwrite(fd: c_int, from: *const c_void, bytes: size_t, offset: off_t) -> ssize_t =
        |real| around(fd, Call::WriteAt(offset), real);
    fn pwrite64(fd: c_int, from: *const c_void, bytes: size_t, offset: off_t) -> ssize_t =
        |real| around(fd, Call::WriteAt(offset), real);
    fn writev(fd: c_int, from: *const iovec, parts: c_int) -> ssize_t =
        |real| around(fd, Call::Write, real);
    fn pwritev(fd: c_int, from: *const iovec, parts: c_int, offset: off_t) -> ssize_t =
        |real| around(fd, Call::WriteAt(offset), real);
    fn pwritev64(fd: c_int, from: *const iovec, parts: c_int, offset: off_t) -> ssize_t =
        |real| around(fd, Call::WriteAt(offset), real);
    fn pwritev64v2(fd: c_int, from: *const iovec, parts: c_int, offset: off_t, flags: c_int) -> ssize_t =
        |real| around(fd, flagged(offset, flags), real);
    fn pwritev2(fd: c_int, from: *const iovec, parts: c_int, offset: off_t, flags: c_int) -> ssize_t =
        |real| around(fd, flagged(offset, flags), real);
    fn copy_file_range(
        from: c_int,
        from_offset: *mut off_t,
        to: c_int,
        to_offset: *mut off_t,
        bytes: size_t,
        flags: c_uint,
    ) -> ssize_t = |real| {
        let call = if to_offset.is_null() { Call::Write } else { Call::WriteMoving(to_offset) };
        around(to, call, real)
    };
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t =
        |real| around(to, Call::Write, real);
    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t =
        |real| around(to, Call::Write, real);
    fn fsync(fd: c_int) -> c_int = |real| around(fd, Call::Sync, || real() as isize) as c_int;
    fn fdatasync(fd: c_int) -> c_int = |real| around(fd, Call::Sync, || real() as isize) as c_int;
    fn sync_file_range(fd: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int =
        |real| around(fd, Call::WriteBack, || real() as isize) as c_int;
}

fn flagged(offset: off_t, flags: c_int) -> Call {
    let synced = flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
    if flags & libc::RWF_NOWAIT != 0 {
        return Call::WriteNoWait { synced };
    }
    // Such a write goes to the file's end, whatever the offset.
    if flags & libc::RWF_APPEND != 0 && offset != -1 {
        return Call::Append { synced };
    }
    match (offset == -1, synced) {
        (true, true) => Call::SyncedWrite,
        (true, false) => Call::Write,
        (false, true) => Call::SyncedWriteAt(offset),
        (false, false) => Call::WriteAt(offset),
    }
}
