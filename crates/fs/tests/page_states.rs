//! A page of a data file from its append to its removal, beside readers: loom explores the interleavings.
//!
//! `files/read.rs`, `files/pages.rs`, `files/extents.rs`, `files/streams.rs` and `files/pass_buffer.rs` are compiled a second time here. The page cache, the device, the
//! pins of zones and the locks are models on loom's atomics and locks. [`Mount`] changes the states of a page in the steps of
//! `writeback/write_out.rs` (write-back), `files/writer.rs` (truncation) and `reclaim` (a move to another zone).
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::unused_async,
    reason = "tests may panic, and use a part of each file"
)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cache::PageCache;
use device::{BLOCK, Device, ZONE_BLOCKS};
use files::extents::Extent;
use files::file::{Content, File};
use files::pages::Pages;
use files::streams::Streams;
use loom::thread;
use shared::Shared;
use units::{Blocks, ZoneId};

#[path = "../src/files"]
mod files {
    pub(super) mod extents;
    pub(super) mod pages;
    mod pass_buffer;
    mod read;
    pub(super) mod streams;

    /// Reads `file` at `offset` as a reader whose pages are kept in the page cache.
    pub(super) async fn read_at(
        shared: &crate::shared::Shared,
        file: &file::File,
        streams: &streams::Streams,
        offset: u64,
        into: &mut [u8],
    ) -> usize {
        read::read(shared, file, Some(streams), offset, into).await.unwrap()
    }

    /// The streams of a reader that has announced a pass over its file.
    pub(super) fn pass() -> streams::Streams {
        let streams = streams::Streams::default();
        streams.expect(streams::AccessPattern::Once);
        streams
    }

    pub(super) mod file {
        use crate::files::extents::ExtentMap;
        use crate::files::pages::Pages;
        use crate::sync::RwLock;

        #[derive(Debug, Default)]
        pub(crate) struct Content {
            pub size: u64,
            pub extents: ExtentMap,
            pub truncations: u64,
            pub pages: Pages,
        }

        #[derive(Debug)]
        pub(crate) struct File {
            pub ino: u64,
            pub content: RwLock<Content>,
        }
    }
}

mod error {
    /// An error of the model's device, which has none.
    #[derive(Debug)]
    pub(crate) struct Error;

    pub(crate) type Result<T> = std::result::Result<T, Error>;

    impl Error {
        pub(crate) fn device(_: &str, error: Error) -> Error {
            error
        }
    }
}

mod sync {
    use loom::sync::{RwLockReadGuard, RwLockWriteGuard};

    /// A lock of `parking_lot`, on loom's.
    #[derive(Debug)]
    pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> RwLock<T> {
            RwLock(loom::sync::RwLock::new(value))
        }
        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap()
        }
        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap()
        }
    }
}

mod shared {
    use crate::cache::PageCache;
    use crate::device::{BLOCK, Device};
    use crate::zones::pins::Pins;
    use crate::zones::pool::Pool;

    /// The parts of a mount that a read uses.
    #[derive(Debug)]
    pub(crate) struct Shared {
        pub cache: Option<PageCache>,
        pub device: Device,
        pub pins: Pins,
        pub pool: Pool,
    }

    impl Shared {
        pub(crate) fn block(&self) -> u64 {
            BLOCK as u64
        }

        /// The file system stays mounted.
        pub(crate) fn check_open(&self) -> crate::error::Result<()> {
            Ok(())
        }
    }
}

mod device {
    use loom::sync::Mutex;
    use units::{Blocks, Lba, ZoneId};
    use zoned::BufMut;

    use crate::error::Result;

    pub(crate) const BLOCK: usize = 4;
    pub(crate) const ZONE_BLOCKS: u64 = 2;
    const ZONES: u64 = 2;

    /// The content of a block whose zone was reset.
    pub(crate) const RESET: u8 = 0xEE;

    #[derive(Clone, Copy)]
    pub(crate) enum Purpose {
        Read,
    }

    #[derive(Clone, Copy)]
    pub(crate) struct Geometry {
        pub block_size: u32,
        pub max_transfer: Blocks,
    }

    impl Geometry {
        pub(crate) fn start(self, zone: ZoneId) -> Lba {
            Lba(u64::from(zone.0) * ZONE_BLOCKS)
        }
    }

    /// A model of a device: the content of its blocks, and the number of reads.
    #[derive(Debug)]
    pub(crate) struct Device(Mutex<(Vec<u8>, usize)>);

    impl Device {
        pub(crate) fn new() -> Device {
            Device(Mutex::new((vec![RESET; BLOCK * usize::try_from(ZONE_BLOCKS * ZONES).unwrap()], 0)))
        }
        pub(crate) fn purpose(&self, _: Purpose) -> &Device {
            self
        }
        pub(crate) fn geometry(&self) -> Geometry {
            Geometry { block_size: u32::try_from(BLOCK).unwrap(), max_transfer: Blocks(ZONE_BLOCKS) }
        }
        pub(crate) async fn read_as(&self, _: zoned::IoClass, at: Lba, mut into: BufMut) -> Result<BufMut> {
            let mut state = self.0.lock().unwrap();
            let at = usize::try_from(at.0).unwrap() * BLOCK;
            let len = into.len();
            into.copy_from_slice(&state.0[at..at + len]);
            state.1 += 1;
            Ok(into)
        }
        pub(crate) fn raise(&self, _: zoned::IoClass, _: std::ops::Range<Lba>) {}
        pub(crate) fn write(&self, at: Lba, data: &[u8]) {
            let at = usize::try_from(at.0).unwrap() * BLOCK;
            self.0.lock().unwrap().0[at..at + data.len()].copy_from_slice(data);
        }
        pub(crate) fn reads(&self) -> usize {
            self.0.lock().unwrap().1
        }
    }
}

mod zones {
    pub(crate) mod pins {
        use loom::sync::atomic::{AtomicU32, Ordering};
        use units::ZoneId;

        /// `zones/pins.rs` on loom's atomics.
        #[derive(Debug)]
        pub(crate) struct Pins([AtomicU32; 2]);

        pub(crate) struct Pin<'a>(&'a AtomicU32);

        impl Pins {
            pub(crate) fn new() -> Pins {
                Pins([AtomicU32::new(0), AtomicU32::new(0)])
            }
            pub(crate) fn pin(&self, zone: ZoneId) -> Pin<'_> {
                let count = &self.0[zone.index()];
                count.fetch_add(1, Ordering::AcqRel);
                Pin(count)
            }
            pub(crate) fn is_pinned(&self, zone: ZoneId) -> bool {
                self.0[zone.index()].load(Ordering::Acquire) > 0
            }
        }

        impl Drop for Pin<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    pub(crate) mod pool {
        use zoned::BufMut;

        use crate::device::BLOCK;

        pub(crate) const MAX_POOLED_BLOCKS: usize = 2;

        #[derive(Debug)]
        pub(crate) struct Pool;

        impl Pool {
            pub(crate) fn get(&self, blocks: usize) -> BufMut {
                let mut buffer = BufMut::with_capacity(blocks * BLOCK);
                buffer.resize(blocks * BLOCK, 0);
                buffer
            }
            pub(crate) fn put(&self, _: BufMut) {}
        }
    }
}

/// A model of `cache`: the same calls on one lock, without eviction.
mod cache {
    use std::collections::HashMap;
    use std::sync::Arc;

    use loom::sync::{Condvar, Mutex};

    use crate::device::BLOCK;

    /// Each page is a block.
    const PAGE: u64 = BLOCK as u64;

    #[derive(Clone, Debug)]
    enum Slot {
        /// A reader reads the page; each such read has a number of its own.
        Loading(u64),
        InMemory(Arc<[u8]>),
    }

    #[derive(Debug, Default)]
    struct Slots {
        pages: HashMap<u64, Slot>,
        loads: u64,
    }

    #[derive(Debug)]
    pub(crate) struct PageCache {
        slots: Mutex<Slots>,
        changed: Condvar,
    }

    pub(crate) struct LoadGuard<'a> {
        cache: &'a PageCache,
        page: u64,
        load: u64,
    }

    pub(crate) enum TryLoad<'a> {
        Absent(LoadGuard<'a>),
        InMemory,
        ReadByAnother,
    }

    impl PageCache {
        pub(crate) fn new() -> PageCache {
            PageCache { slots: Mutex::new(Slots::default()), changed: Condvar::new() }
        }

        pub(crate) fn page_bytes(&self) -> u64 {
            PAGE
        }

        pub(crate) fn longest_window(&self) -> u64 {
            PAGE
        }

        pub(crate) fn copy(&self, _: u64, offset: u64, into: &mut [u8]) -> usize {
            match self.slots.lock().unwrap().pages.get(&(offset / PAGE)) {
                Some(Slot::InMemory(page)) => copy_from(page, offset, into),
                _ => 0,
            }
        }

        /// Blocks the thread while another reader reads the page.
        pub(crate) async fn load(
            &self,
            _: u64,
            offset: u64,
            before_waiting: impl FnOnce(),
        ) -> Option<LoadGuard<'_>> {
            let mut before_waiting = Some(before_waiting);
            let page = offset / PAGE;
            let mut slots = self.slots.lock().unwrap();
            loop {
                match slots.pages.get(&page) {
                    None => return Some(self.begin(&mut slots, page)),
                    Some(Slot::InMemory(held)) if copy_from(held, offset, &mut [0]) > 0 => return None,
                    Some(Slot::InMemory(_)) => drop(slots.pages.remove(&page)),
                    Some(Slot::Loading(_)) => {
                        if let Some(before_waiting) = before_waiting.take() {
                            before_waiting();
                        }
                        slots = self.changed.wait(slots).unwrap();
                    }
                }
            }
        }

        pub(crate) fn try_load(&self, _: u64, offset: u64) -> TryLoad<'_> {
            let mut slots = self.slots.lock().unwrap();
            match slots.pages.get(&(offset / PAGE)) {
                None => TryLoad::Absent(self.begin(&mut slots, offset / PAGE)),
                Some(Slot::InMemory(_)) => TryLoad::InMemory,
                Some(Slot::Loading(_)) => TryLoad::ReadByAnother,
            }
        }

        fn begin(&self, slots: &mut Slots, page: u64) -> LoadGuard<'_> {
            slots.loads += 1;
            slots.pages.insert(page, Slot::Loading(slots.loads));
            LoadGuard { cache: self, page, load: slots.loads }
        }

        pub(crate) fn loaded(&self, guard: LoadGuard<'_>, bytes: &[u8]) {
            guard.end(Some(bytes));
        }

        pub(crate) fn store(&self, offset: u64, bytes: &[u8]) {
            let mut slots = self.slots.lock().unwrap();
            for (page, bytes) in (offset / PAGE..).zip(bytes.chunks(BLOCK)) {
                slots.pages.insert(page, Slot::InMemory(bytes.into()));
            }
            self.changed.notify_all();
        }

        pub(crate) fn remove(&self, bytes: u64) {
            let mut slots = self.slots.lock().unwrap();
            for page in 0..bytes.div_ceil(PAGE) {
                slots.pages.remove(&page);
            }
            self.changed.notify_all();
        }
    }

    impl LoadGuard<'_> {
        /// Ends the read: stores the page, unless the page was stored or removed meanwhile.
        fn end(&self, bytes: Option<&[u8]>) {
            let mut slots = self.cache.slots.lock().unwrap();
            if matches!(slots.pages.get(&self.page), Some(Slot::Loading(load)) if *load == self.load) {
                match bytes {
                    Some(bytes) => slots.pages.insert(self.page, Slot::InMemory(bytes.into())),
                    None => slots.pages.remove(&self.page),
                };
                self.cache.changed.notify_all();
            }
        }
    }

    impl Drop for LoadGuard<'_> {
        fn drop(&mut self) {
            self.end(None);
        }
    }

    fn copy_from(page: &[u8], offset: u64, into: &mut [u8]) -> usize {
        let held = page.get(usize::try_from(offset % PAGE).unwrap()..).unwrap_or_default();
        let len = held.len().min(into.len());
        into[..len].copy_from_slice(&held[..len]);
        len
    }
}

/// Runs a future that blocks its thread instead of waiting.
fn run<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future waits"),
    }
}

/// The rules of the file system that a test breaks on purpose, each of which loom must find. The default breaks none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Broken {
    /// A truncation leaves the pages in the cache.
    keeps_truncated_pages: bool,
    /// A truncation removes the pages from the cache before it cuts the extents.
    removes_before_cut: bool,
    /// Pages in memory are dropped before an extent names their bytes.
    drops_before_extent: bool,
    /// A zone is reset while it is read.
    ignores_pins: bool,
}

/// A mount with one data file.
struct Mount {
    shared: Shared,
    file: File,
    /// True if pages stay in the cache when they are written.
    buffered: bool,
    broken: Broken,
}

/// Bytes of a full buffer of appended bytes.
const FULL: usize = 2 * BLOCK;

impl Mount {
    fn new(buffered: bool, broken: Broken) -> Arc<Mount> {
        Mount::over(Some(PageCache::new()), buffered, broken)
    }

    fn over(cache: Option<PageCache>, buffered: bool, broken: Broken) -> Arc<Mount> {
        let shared =
            Shared { cache, device: Device::new(), pins: zones::pins::Pins::new(), pool: zones::pool::Pool };
        let file = File { ino: 7, content: sync::RwLock::new(Content::default()) };
        Arc::new(Mount { shared, file, buffered, broken })
    }

    fn cache(&self) -> &PageCache {
        self.shared.cache.as_ref().unwrap()
    }

    fn append(&self, bytes: &[u8]) {
        let mut content = self.file.content.write();
        assert_eq!(content.pages.append(bytes, FULL, zoned::BufMut::with_capacity), bytes.len());
        content.size += bytes.len() as u64;
    }

    /// Writes the appended bytes that no extent names yet to `zone`, from block `start` on.
    fn write_back(&self, zone: u32, start: u64) {
        let block = BLOCK as u64;
        let Some(piece) = self.file.content.write().pages.next_piece(true, FULL, BLOCK, usize::MAX) else {
            return;
        };
        let zone = ZoneId(zone);
        self.shared.device.write(self.shared.device.geometry().start(zone).plus(Blocks(start)), &piece.data);
        let end = piece.at + piece.bytes;
        if self.broken.drops_before_extent {
            self.file.content.write().pages.drop_below(end - end % block, FULL);
        }
        {
            let mut content = self.file.content.write();
            content.extents.cut(piece.at, block);
            let extent = Extent { offset: piece.at, bytes: piece.bytes, start: Blocks(start), zone };
            content.extents.push(extent, block);
            content.pages.drop_below(end - end % block, FULL);
        }
        if self.buffered {
            self.cache().store(piece.at, &piece.data[..usize::try_from(piece.bytes).unwrap()]);
        }
    }

    /// Removes what memory holds of the file's bytes up to `end` that are on the device.
    fn forget(&self, end: u64) {
        self.file.content.write().truncations += 1;
        if let Some(cache) = &self.shared.cache {
            cache.remove(end);
        }
    }

    /// Cuts the file, which has bytes up to `end`, to nothing.
    fn truncate(&self, end: u64) {
        if self.broken.removes_before_cut {
            self.forget(end);
        }
        {
            let mut content = self.file.content.write();
            content.extents.cut(0, BLOCK as u64);
            (content.pages, content.size) = (Pages::default(), 0);
        }
        if !self.broken.removes_before_cut && !self.broken.keeps_truncated_pages {
            self.forget(end);
        }
    }

    /// Moves the first block of zone 0 to zone 1, and resets zone 0 once nobody reads it.
    fn reclaim(&self) {
        let (from, to) = (ZoneId(0), ZoneId(1));
        let geometry = self.shared.device.geometry();
        let block = run(self.shared.device.read_as(
            zoned::IoClass::Read,
            geometry.start(from),
            self.shared.pool.get(1),
        ))
        .unwrap();
        self.shared.device.write(geometry.start(to), &block);
        {
            let mut content = self.file.content.write();
            let moved =
                content.extents.as_slice().iter().map(|e| Extent { zone: to, ..*e }).collect::<Vec<_>>();
            content.extents.cut(0, BLOCK as u64);
            moved.into_iter().for_each(|extent| content.extents.push(extent, BLOCK as u64));
        }
        while self.shared.pins.is_pinned(from) && !self.broken.ignores_pins {
            thread::yield_now();
        }
        let reset = [device::RESET; BLOCK * ZONE_BLOCKS as usize];
        self.shared.device.write(geometry.start(from), &reset);
    }

    fn read(&self, len: usize) -> Vec<u8> {
        self.read_by(&Streams::default(), 0, len)
    }

    fn read_by(&self, streams: &Streams, offset: u64, len: usize) -> Vec<u8> {
        let mut into = vec![0; len];
        let read = run(files::read_at(&self.shared, &self.file, streams, offset, &mut into));
        into.truncate(read);
        into
    }
}

/// Explores all interleavings with up to three preemptions.
fn explore(case: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(case);
}

/// True if some interleaving of the case panics.
fn finds_fault(case: impl Fn() + Send + Sync + 'static) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore(case))).is_err()
}

/// A page is written back beside a reader of the page.
fn write_back(buffered: bool, broken: Broken) {
    let mount = Mount::new(buffered, broken);
    mount.append(&[1; BLOCK]);
    let written = Arc::clone(&mount);
    let writer = thread::spawn(move || written.write_back(0, 0));
    assert_eq!(mount.read(BLOCK), [1; BLOCK]);
    writer.join().unwrap();
    assert_eq!(mount.read(BLOCK), [1; BLOCK]);
}

#[test]
fn a_page_is_whole_while_it_is_written_back() {
    explore(|| write_back(true, Broken::default()));
    explore(|| write_back(false, Broken::default()));
    let broken = Broken { drops_before_extent: true, ..Broken::default() };
    assert!(finds_fault(move || write_back(true, broken)));
}

/// The last page grows, and is written anew, beside a reader.
fn growth(buffered: bool) {
    let mount = Mount::new(buffered, Broken::default());
    mount.append(&[1, 2]);
    mount.write_back(0, 0);
    let grown = Arc::clone(&mount);
    let writer = thread::spawn(move || {
        grown.append(&[3]);
        grown.write_back(0, 1);
    });
    let read = mount.read(BLOCK);
    assert!(read == [1, 2] || read == [1, 2, 3], "{read:?}");
    writer.join().unwrap();
    assert_eq!(mount.read(BLOCK), [1, 2, 3]);
}

#[test]
fn a_page_grows_beside_a_reader() {
    explore(|| growth(true));
    explore(|| growth(false));
}

/// A file whose page is on the device only is cut and written anew beside a reader.
fn truncation(buffered: bool, broken: Broken) {
    let mount = Mount::new(false, broken);
    mount.append(&[1; BLOCK]);
    mount.write_back(0, 0);
    let cut = Arc::clone(&mount);
    let writer = thread::spawn(move || {
        cut.truncate(BLOCK as u64);
        cut.append(&[2; BLOCK]);
        cut.write_back(1, 0);
        if buffered {
            cut.cache().store(0, &[2; BLOCK]);
        }
    });
    let read = mount.read(BLOCK);
    assert!(read.is_empty() || read == [1; BLOCK] || read == [2; BLOCK], "{read:?}");
    writer.join().unwrap();
    assert_eq!(mount.read(BLOCK), [2; BLOCK]);
}

#[test]
fn no_stale_page_is_left_by_a_truncation() {
    explore(|| truncation(true, Broken::default()));
    explore(|| truncation(false, Broken::default()));
    for broken in [
        Broken { keeps_truncated_pages: true, ..Broken::default() },
        Broken { removes_before_cut: true, ..Broken::default() },
    ] {
        assert!(finds_fault(move || truncation(false, broken)));
    }
}

/// A file of two blocks is cut and written anew beside a pass over it, without a page cache. The reader has two blocks of the device's in memory once it reads the first one.
fn truncation_beside_a_pass(broken: Broken) {
    let mount = Mount::over(None, false, broken);
    mount.append(&[1; 2 * BLOCK]);
    mount.write_back(0, 0);
    let cut = Arc::clone(&mount);
    let writer = thread::spawn(move || {
        cut.truncate(2 * BLOCK as u64);
        cut.append(&[2; 2 * BLOCK]);
        cut.write_back(1, 0);
    });
    let streams = files::pass();
    mount.read_by(&streams, 0, BLOCK);
    let read = mount.read_by(&streams, BLOCK as u64, BLOCK / 2);
    assert!(read.is_empty() || read == [1; BLOCK / 2] || read == [2; BLOCK / 2], "{read:?}");
    writer.join().unwrap();
    assert_eq!(mount.read_by(&streams, BLOCK as u64 * 3 / 2, BLOCK / 2), [2; BLOCK / 2]);
    assert!(mount.shared.device.reads() <= 3);
}

#[test]
fn a_pass_has_no_bytes_from_before_a_truncation() {
    explore(|| truncation_beside_a_pass(Broken::default()));
    for broken in [
        Broken { keeps_truncated_pages: true, ..Broken::default() },
        Broken { removes_before_cut: true, ..Broken::default() },
    ] {
        assert!(finds_fault(move || truncation_beside_a_pass(broken)));
    }
}

#[test]
fn two_readers_read_a_page_from_the_device_once() {
    explore(|| {
        let mount = Mount::new(false, Broken::default());
        mount.append(&[1; BLOCK]);
        mount.write_back(0, 0);
        let other = Arc::clone(&mount);
        let reader = thread::spawn(move || assert_eq!(other.read(BLOCK), [1; BLOCK]));
        assert_eq!(mount.read(BLOCK), [1; BLOCK]);
        reader.join().unwrap();
        assert_eq!(mount.shared.device.reads(), 1);
    });
}

/// The page's block moves to another zone beside a reader.
fn moved(broken: Broken) {
    let mount = Mount::new(false, broken);
    mount.append(&[1; BLOCK]);
    mount.write_back(0, 0);
    let from = Arc::clone(&mount);
    let cleaner = thread::spawn(move || from.reclaim());
    assert_eq!(mount.read(BLOCK), [1; BLOCK]);
    cleaner.join().unwrap();
    assert_eq!(mount.read(BLOCK), [1; BLOCK]);
}

#[test]
fn a_page_is_read_while_its_block_moves() {
    explore(|| moved(Broken::default()));
    assert!(finds_fault(|| moved(Broken { ignores_pins: true, ..Broken::default() })));
}
