//! Executes requests by blocking system calls: on helper threads, and for requests that a ring does not support.

use std::fs::File;
use std::io::{self, IoSlice};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::{Errno, ReadWriteFlags};

use crate::bounce::{Bounce, are_aligned_for_direct_io, is_aligned_for_direct_io};
use crate::nvme::{Data, submit_and_wait};
use crate::priority::call_with_priority;
use crate::{Buf, BufMut, Finished, Request};

/// Runs a request to its end.
pub(crate) fn perform(request: Request) -> Finished {
    call_with_priority(request.priority(), || perform_now(request))
}

fn perform_now(request: Request) -> Finished {
    match request {
        Request::Read { file, at, mut into, .. } => {
            let result = read(&file, at, &mut into);
            Finished { result, status: 0, buffer: Some(into) }
        }
        Request::Write { file, at, data, durable, .. } => {
            finished_with_result(write(&file, at, &data, durable))
        }
        Request::Sync { file } => finished_with_result(sync(&file)),
        Request::NvmeOut { file, command, data } => {
            let result = match data.as_slice() {
                [] => submit_and_wait(&file, &command, Data::None),
                [one] => submit_and_wait(&file, &command, Data::Out(one)),
                parts => submit_and_wait(&file, &command, Data::Out(Bounce::gather(parts).bytes())),
            };
            finished_nvme(result, None)
        }
        Request::NvmeIn { file, command, mut into } => {
            let data = if into.is_empty() { Data::None } else { Data::In(&mut into) };
            let result = submit_and_wait(&file, &command, data);
            finished_nvme(result, Some(into))
        }
        Request::Call(call) => {
            let result = catch_unwind(AssertUnwindSafe(call));
            finished_with_result(result.unwrap_or_else(|_| Err(io::Error::other("the call panicked"))))
        }
    }
}

fn finished_with_result(result: io::Result<u64>) -> Finished {
    Finished { result, status: 0, buffer: None }
}

fn finished_nvme(result: io::Result<(u16, u64)>, buffer: Option<BufMut>) -> Finished {
    let (result, status) = match result {
        Ok((status, value)) => (Ok(value), status),
        Err(error) => (Err(error), 0),
    };
    Finished { result, status, buffer }
}

/// Reads until the buffer is full or the file ends. An error after some bytes returns the number of those bytes; the
/// caller gets the error when it reads the rest.
fn read(file: &File, at: u64, into: &mut [u8]) -> io::Result<u64> {
    if !is_aligned_for_direct_io(into) {
        let mut bounce = Bounce::new(into.len());
        let done = read_aligned(file, at, bounce.bytes_mut())?;
        let read = bounce.bytes().get(..done).expect("no more than was asked for");
        into.get_mut(..done).expect("no more than was asked for").copy_from_slice(read);
        return Ok(done as u64);
    }
    read_aligned(file, at, into).map(|done| done as u64)
}

fn read_aligned(file: &File, at: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file, rest, at.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(error) if done == 0 => return Err(error.into()),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Writes all parts of the data in one call, and after a short write the rest in further calls. An error
/// after some bytes returns the number of those bytes.
fn write(file: &File, at: u64, data: &[Buf], durable: bool) -> io::Result<u64> {
    if are_aligned_for_direct_io(data) {
        let parts: Vec<_> = data.iter().map(|part| IoSlice::new(part)).collect();
        write_aligned(file, at, parts, durable)
    } else {
        let bounce = Bounce::gather(data);
        write_aligned(file, at, vec![IoSlice::new(bounce.bytes())], durable)
    }
}

fn write_aligned(file: &File, at: u64, mut parts: Vec<IoSlice<'_>>, durable: bool) -> io::Result<u64> {
    let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    let mut rest = parts.as_mut_slice();
    let mut done = 0;
    while rest.iter().any(|part| !part.is_empty()) {
        match rustix::io::pwritev2(file, rest, at.saturating_add(done), flags) {
            Ok(0) => break,
            Ok(n) => {
                done += n as u64;
                IoSlice::advance_slices(&mut rest, n);
            }
            Err(Errno::INTR) => {}
            Err(error) if done == 0 => return Err(error.into()),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn sync(file: &File) -> io::Result<u64> {
    loop {
        match rustix::fs::fdatasync(file) {
            Ok(()) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
