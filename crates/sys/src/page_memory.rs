//! Memory for a cache's pages, all of one length.
//!
//! An allocator for any length and thread keeps what is freed for the thread that allocated it: a cache whose pages are taken by some threads and freed by others
//! grew to three times its size (glibc's arenas). Here a page that is freed is the next one that is taken, whichever threads do so.
//!
//! ```text
//!   slab of 256 pages   [ in use | kept | in use | returned | ... ]
//!   in use     a Page
//!   kept       free, with memory: taken first. At most as many as the limit leaves beside those in use
//!   returned   free, without memory: the kernel has it back, and gives zeros when the page is taken again
//! ```
//!
//! The handles of a page are counted in an array beside the slab, not in an allocation for each page: a processor's caches hold the counts of many pages, and a look-up
//! of a page in a large cache waits for one memory access less.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use parking_lot::Mutex;
use rustix::io::Result;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Pages of a slab.
const SLAB_PAGES: usize = 256;

/// The most handles of a page: far from the end of the count, which nothing but forgotten handles could reach.
const MOST_HANDLES: u32 = u32::MAX / 2;

/// Memory for pages of one length. Dropped pages return to it; the kernel gets all of it back when the last page and the last handle are gone.
pub struct PageMemory {
    page_bytes: usize,
    free: Mutex<Free>,
}

struct Free {
    in_use: usize,
    /// Pages that may have memory beside those in use, with these together.
    limit: usize,
    kept: Vec<PageSlot>,
    returned: Vec<PageSlot>,
    slabs: Vec<Slab>,
}

/// The memory of [`SLAB_PAGES`] pages.
struct Slab {
    bytes: NonNull<u8>,
    /// The number of handles of each page: a leaked box, which slots point into.
    handles: NonNull<[AtomicU32; SLAB_PAGES]>,
}

/// The place of a page in a slab.
#[derive(Clone, Copy)]
struct PageSlot {
    bytes: NonNull<u8>,
    /// The number of the page's handles, an element of [`Slab::handles`].
    handles: NonNull<AtomicU32>,
}

// SAFETY: pointers to memory that belongs to no thread and lives as long as the `PageMemory`.
unsafe impl Send for Slab {}
// SAFETY: as above; the pointers alone give no access.
unsafe impl Sync for Slab {}
// SAFETY: as for `Slab`; a page whose slot is in a free list has no handles.
unsafe impl Send for PageSlot {}
// SAFETY: as above.
unsafe impl Sync for PageSlot {}

/// A handle of bytes in a page of a [`PageMemory`]. The page is free when its last handle is dropped.
pub struct Page {
    slot: PageSlot,
    len: usize,
    /// The memory that the page belongs to. All handles of a page have one strong count of the `Arc` together.
    memory: NonNull<PageMemory>,
}

// SAFETY: all handles of a page read the same bytes, which nothing changes while there is a handle; `PageMemory` is `Send` and `Sync`.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl PageMemory {
    /// Memory for pages of `page_bytes`, a multiple of 4096. Free pages keep their memory as long as they and the pages in use are not more than `limit`.
    pub fn new(page_bytes: usize, limit: usize) -> Arc<PageMemory> {
        assert!(page_bytes > 0 && page_bytes.is_multiple_of(4096), "pages of {page_bytes} bytes");
        let free = Free { in_use: 0, limit, kept: Vec::new(), returned: Vec::new(), slabs: Vec::new() };
        Arc::new(PageMemory { page_bytes, free: Mutex::new(free) })
    }

    /// Changes the limit. Free pages beyond a lower one give their memory back.
    pub fn set_limit(&self, limit: usize) {
        let mut free = self.free.lock();
        free.limit = limit;
        while free.in_use + free.kept.len() > limit
            && let Some(slot) = free.kept.pop()
        {
            if !self.return_to_kernel(slot) {
                free.kept.push(slot);
                return;
            }
            free.returned.push(slot);
        }
    }

    /// Bytes of memory that each page takes, however few of them it holds.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// A page with a copy of `bytes`.
    ///
    /// # Panics
    /// If `bytes` are more than a page, or if the kernel has no memory left.
    pub fn page(self: &Arc<Self>, bytes: &[u8]) -> Page {
        assert!(bytes.len() <= self.page_bytes, "{} bytes in a page of {}", bytes.len(), self.page_bytes);
        let slot = self.take();
        // SAFETY: `take` gave a page of `page_bytes` bytes that nothing else refers to.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), slot.bytes.as_ptr(), bytes.len()) };
        // SAFETY: the count lives as long as `self`.
        unsafe { slot.handles.as_ref() }.store(1, Ordering::Relaxed);
        let memory = NonNull::new(Arc::into_raw(Arc::clone(self)).cast_mut()).expect("an Arc is not null");
        Page { slot, len: bytes.len(), memory }
    }

    fn take(&self) -> PageSlot {
        let mut free = self.free.lock();
        if free.kept.is_empty() && free.returned.is_empty() {
            let slab = self.map_slab().expect("the system has memory left for a page");
            let slots = (0..SLAB_PAGES).map(|page| {
                // SAFETY: the slab has SLAB_PAGES pages of `page_bytes` bytes, and as many counts.
                unsafe {
                    PageSlot {
                        bytes: slab.bytes.add(page * self.page_bytes),
                        handles: slab.handles.cast::<AtomicU32>().add(page),
                    }
                }
            });
            free.returned.extend(slots);
            free.slabs.push(slab);
        }
        free.in_use += 1;
        free.kept.pop().or_else(|| free.returned.pop()).expect("a page of the new slab")
    }

    fn map_slab(&self) -> Result<Slab> {
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                SLAB_PAGES * self.page_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        // With huge pages the first page that is used would take the memory of 512. A kernel without them refuses the advice.
        // SAFETY: the mapping is new, and nothing refers to it.
        let _advised =
            unsafe { rustix::mm::madvise(at, SLAB_PAGES * self.page_bytes, Advice::LinuxNoHugepage) };
        let bytes = NonNull::new(at.cast()).expect("the kernel maps nothing at address 0");
        let handles = Box::new([const { AtomicU32::new(0) }; SLAB_PAGES]);
        Ok(Slab { bytes, handles: NonNull::from(Box::leak(handles)) })
    }

    fn give(&self, slot: PageSlot) {
        let mut free = self.free.lock();
        free.in_use -= 1;
        if free.in_use + free.kept.len() >= free.limit && self.return_to_kernel(slot) {
            free.returned.push(slot);
        } else {
            free.kept.push(slot);
        }
    }

    /// Gives the memory of a free page back, and says whether the kernel took it.
    fn return_to_kernel(&self, slot: PageSlot) -> bool {
        // SAFETY: the page is mapped, private and anonymous, and nothing refers to it.
        unsafe { rustix::mm::madvise(slot.bytes.as_ptr().cast(), self.page_bytes, Advice::LinuxDontNeed) }
            .is_ok()
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        for slab in &self.free.get_mut().slabs {
            // SAFETY: the slab was mapped with this length. Each page's handles hold an Arc of `self`, so that no page is left.
            let unmapped =
                unsafe { rustix::mm::munmap(slab.bytes.as_ptr().cast(), SLAB_PAGES * self.page_bytes) };
            debug_assert!(unmapped.is_ok(), "a slab is a mapping");
            // SAFETY: the counts were leaked from a box, and no page is left.
            drop(unsafe { Box::from_raw(slab.handles.as_ptr()) });
        }
    }
}

impl Page {
    /// True if both are handles of the same page.
    pub fn is_same(&self, other: &Page) -> bool {
        self.slot.bytes == other.slot.bytes
    }

    fn handles(&self) -> &AtomicU32 {
        // SAFETY: the count lives as long as the `PageMemory`, which the page's handles keep.
        unsafe { self.slot.handles.as_ref() }
    }
}

impl Clone for Page {
    fn clone(&self) -> Page {
        // A handle exists, so that the page cannot be freed meanwhile.
        let before = self.handles().fetch_add(1, Ordering::Relaxed);
        assert!(before < MOST_HANDLES, "handles of a page were forgotten");
        Page { slot: self.slot, len: self.len, memory: self.memory }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.handles().fetch_sub(1, Ordering::Release) > 1 {
            return;
        }
        // All reads by other handles come before the page is taken again.
        fence(Ordering::Acquire);
        // SAFETY: the page's last handle gives back the strong count that the first one took.
        let memory = unsafe { Arc::from_raw(self.memory.as_ptr().cast_const()) };
        memory.give(self.slot);
    }
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the page has `len` bytes that were written, and nothing writes them while `self` is a handle of the page.
        unsafe { std::slice::from_raw_parts(self.slot.bytes.as_ptr(), self.len) }
    }
}

impl fmt::Debug for PageMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.free.lock();
        let (slabs, kept, returned) = (free.slabs.len(), free.kept.len(), free.returned.len());
        write!(f, "{slabs} slabs of {SLAB_PAGES} pages, {kept} kept, {returned} returned")
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page of {} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_keep_their_bytes_apart() {
        let memory = PageMemory::new(4096, 8);
        let pages: Vec<Page> = (0..1000_u32).map(|n| memory.page(&n.to_le_bytes().repeat(1024))).collect();
        for (n, page) in (0_u32..).zip(&pages) {
            assert!(page.len() == 4096 && page.chunks(4).all(|chunk| chunk == n.to_le_bytes()), "page {n}");
        }
        assert_eq!(&*memory.page(b"short"), b"short");
        assert!(memory.page(b"").is_empty());
    }

    #[test]
    fn freed_pages_are_used_again_whichever_thread_took_and_freed_them() {
        let memory = PageMemory::new(4096, 64);
        for _ in 0..8 {
            let m = Arc::clone(&memory);
            let taken = std::thread::scope(|scope| {
                let take = || (0..4096).map(|_| m.page(&[7; 4096])).collect::<Vec<Page>>();
                scope.spawn(take).join().expect("taken")
            });
            std::thread::scope(|scope| {
                // Every other page is freed first: no slab is ever free as a whole.
                scope.spawn(move || drop(taken.into_iter().step_by(2).collect::<Vec<Page>>()));
            });
        }
        let counts = |memory: &PageMemory| {
            let free = memory.free.lock();
            (free.in_use, free.kept.len(), free.slabs.len())
        };
        assert_eq!(counts(&memory), (0, 64, 16), "the slabs of 4096 pages are used again");
        let page = memory.page(&[1; 4096]);
        memory.set_limit(10);
        assert_eq!(counts(&memory), (1, 9, 16));
        memory.set_limit(0);
        drop(page);
        assert_eq!(counts(&memory), (0, 0, 16));
    }

    #[test]
    fn a_page_stays_until_its_last_handle_is_dropped_whichever_thread_drops_it() {
        let memory = PageMemory::new(4096, 0);
        for round in 0..200_u8 {
            let page = memory.page(&[round; 4096]);
            let other = memory.page(&[round; 4096]);
            assert!(page.is_same(&page.clone()) && !page.is_same(&other));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    let page = page.clone();
                    scope.spawn(move || assert!(page.clone().iter().all(|byte| *byte == round)));
                }
                scope.spawn(move || drop((page, other)));
            });
            assert_eq!(memory.free.lock().in_use, 0);
        }
        // Pages outlive the last handle of their memory.
        let page = memory.page(b"last");
        let clone = page.clone();
        drop((memory, page));
        assert_eq!(&*clone, b"last");
    }

    #[test]
    fn a_page_that_is_taken_again_has_the_new_bytes_alone() {
        let memory = PageMemory::new(8192, 1);
        let (one, two) = (memory.page(&[1; 8192]), memory.page(&[2; 8192]));
        drop((one, two));
        for byte in [3, 4, 5] {
            let page = memory.page(&[byte; 100]);
            assert!(page.len() == 100 && page.iter().all(|b| *b == byte));
        }
    }
}
