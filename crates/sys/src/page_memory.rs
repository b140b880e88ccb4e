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

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Result;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Pages of a slab.
const SLAB_PAGES: usize = 256;

/// Memory for pages of one length. Dropped pages return to it; the kernel gets all of it back when the last page and the last handle are gone.
pub struct PageMemory {
    page_bytes: usize,
    free: Mutex<Free>,
}

struct Free {
    in_use: usize,
    /// Pages that may have memory beside those in use, with these together.
    limit: usize,
    kept: Vec<PagePointer>,
    returned: Vec<PagePointer>,
    slabs: Vec<PagePointer>,
}

/// The first byte of a page or a slab.
#[derive(Clone, Copy)]
struct PagePointer(NonNull<u8>);

// SAFETY: a pointer to mapped memory that belongs to no thread; who holds the pointer of a page has the page to itself.
unsafe impl Send for PagePointer {}
// SAFETY: as above; the pointer alone gives no access.
unsafe impl Sync for PagePointer {}

/// Bytes in a page of a [`PageMemory`].
pub struct Page {
    at: PagePointer,
    len: usize,
    memory: Arc<PageMemory>,
}

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
            && let Some(page) = free.kept.pop()
        {
            if !self.return_to_kernel(page) {
                free.kept.push(page);
                return;
            }
            free.returned.push(page);
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
        let at = self.take();
        // SAFETY: `take` gave a page of `page_bytes` bytes that nothing else refers to.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.0.as_ptr(), bytes.len()) };
        Page { at, len: bytes.len(), memory: Arc::clone(self) }
    }

    fn take(&self) -> PagePointer {
        let mut free = self.free.lock();
        if let Some(page) = free.kept.pop().or_else(|| free.returned.pop()) {
            free.in_use += 1;
            return page;
        }
        let slab = self.map_slab().expect("the system has memory left for a page");
        free.in_use += 1;
        free.slabs.push(slab);
        for page in 1..SLAB_PAGES {
            // SAFETY: the slab has SLAB_PAGES pages of `page_bytes` bytes.
            let at = unsafe { slab.0.add(page * self.page_bytes) };
            free.returned.push(PagePointer(at));
        }
        slab
    }

    fn map_slab(&self) -> Result<PagePointer> {
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
        Ok(PagePointer(NonNull::new(at.cast()).expect("the kernel maps nothing at address 0")))
    }

    fn give(&self, page: PagePointer) {
        let mut free = self.free.lock();
        free.in_use -= 1;
        if free.in_use + free.kept.len() >= free.limit && self.return_to_kernel(page) {
            free.returned.push(page);
        } else {
            free.kept.push(page);
        }
    }

    /// Gives the memory of a free page back, and says whether the kernel took it.
    fn return_to_kernel(&self, page: PagePointer) -> bool {
        // SAFETY: the page is mapped, private and anonymous, and nothing refers to it.
        unsafe { rustix::mm::madvise(page.0.as_ptr().cast(), self.page_bytes, Advice::LinuxDontNeed) }.is_ok()
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        for slab in &self.free.get_mut().slabs {
            // SAFETY: the slab was mapped with this length. Each page holds an Arc of `self`, so that no page is left.
            let unmapped =
                unsafe { rustix::mm::munmap(slab.0.as_ptr().cast(), SLAB_PAGES * self.page_bytes) };
            debug_assert!(unmapped.is_ok(), "a slab is a mapping");
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.memory.give(self.at);
    }
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the page has `len` bytes that were written, and belongs to `self`.
        unsafe { std::slice::from_raw_parts(self.at.0.as_ptr(), self.len) }
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
