//! The memory of this library: each allocation is a mapping of its own.
//!
//! The C library's `malloc` is not for us: a bulk write may come from a signal handler that interrupted it. Few allocations are made: the rules at the start, the controllers of drives beside a log, and the line of counters at the end.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;

use libc::{MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, MREMAP_MAYMOVE, PROT_READ, PROT_WRITE};

/// The smallest page of the machines that Linux runs on. Mappings are aligned to it.
const PAGE: usize = 4096;

/// Memory of the kernel's. It has no lock and no state.
pub struct Mappings;

#[cfg(not(test))]
#[global_allocator]
static MEMORY: Mappings = Mappings;

// SAFETY: a mapping is not part of another one, is aligned to pages, is as long as was asked for, and stays until it is unmapped. Memory that is asked for with
// a greater alignment is refused.
unsafe impl GlobalAlloc for Mappings {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE {
            return null_mut();
        }
        let (access, kind) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of the program.
        let address = unsafe { libc::mmap(null_mut(), layout.size(), access, kind, -1, 0) };
        if address == MAP_FAILED { null_mut() } else { address.cast() }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's own argument. A new mapping is of zeros.
        unsafe { self.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller answers for it that the memory is `alloc`'s, of this layout. The kernel rounds the size up to pages, as it did then.
        unsafe { libc::munmap(memory.cast(), layout.size()) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`.
        let address = unsafe { libc::mremap(memory.cast(), layout.size(), size, MREMAP_MAYMOVE) };
        if address == MAP_FAILED { null_mut() } else { address.cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_its_content_when_it_grows() {
        let layout = Layout::from_size_align(100, 8).unwrap();
        // SAFETY: the memory is used within its size, and given back with its layout.
        unsafe {
            let memory = Mappings.alloc_zeroed(layout);
            assert_eq!(*memory.add(99), 0);
            memory.add(99).write(7);
            let memory = Mappings.realloc(memory, layout, 1 << 20);
            assert_eq!((*memory.add(99), *memory.add((1 << 20) - 1)), (7, 0));
            Mappings.dealloc(memory, Layout::from_size_align(1 << 20, 8).unwrap());
            assert!(Mappings.alloc(Layout::from_size_align(1, 8192).unwrap()).is_null());
        }
    }
}
