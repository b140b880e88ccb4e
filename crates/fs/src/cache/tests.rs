use units::block_on;

use super::*;

fn cache() -> PageCache {
    PageCache::new(Bytes(8 << 20), 512).unwrap()
}

fn byte_at(cache: &PageCache, ino: u64, offset: u64) -> Option<u8> {
    let mut into = [0];
    (cache.copy(ino, offset, &mut into) > 0).then_some(into[0])
}

#[test]
fn stored_pages_are_copied_up_to_the_end_of_each_page() {
    let cache = cache();
    let data: Vec<u8> = (0..10_000_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    cache.store(7, 0, &data);
    let mut into = vec![0; 10_000];
    assert_eq!(cache.copy(7, 100, &mut into), 3996);
    assert_eq!(&into[..3996], &data[100..4096]);
    assert_eq!(cache.copy(7, 8192, &mut into), 10_000 - 8192, "the last page ends with the file");
    assert_eq!(cache.copy(7, 10_000, &mut into), 0);
    assert_eq!(cache.copy(8, 0, &mut into), 0, "another file");
}

#[test]
fn only_pages_that_begin_within_the_bytes_are_stored() {
    let cache = cache();
    cache.store(7, 1024, &[1; 8192]);
    assert_eq!(byte_at(&cache, 7, 1024), None);
    assert_eq!(byte_at(&cache, 7, 4096), Some(1));
    assert_eq!(byte_at(&cache, 7, 9215), Some(1));
    assert_eq!(byte_at(&cache, 7, 9216), None);
}

#[test]
fn a_page_is_read_by_one_reader_at_a_time() {
    let cache = cache();
    let driver = units::RealDriver::new();
    let guard = block_on(&*driver, cache.load(7, 5000, || ())).unwrap();
    assert!(matches!(cache.try_load(7, 4096), TryLoad::ReadByAnother));
    assert!(matches!(cache.try_load(7, 8192), TryLoad::Absent(_)));
    cache.loaded(guard, &[3; 4096]);
    assert!(block_on(&*driver, cache.load(7, 5000, || ())).is_none());
    assert!(matches!(cache.try_load(7, 4096), TryLoad::InMemory));
    assert_eq!(byte_at(&cache, 7, 5000), Some(3));
}

#[test]
fn a_page_that_is_removed_while_it_is_read_is_not_stored() {
    let cache = cache();
    let driver = units::RealDriver::new();
    let guard = block_on(&*driver, cache.load(7, 0, || ())).unwrap();
    cache.remove(7, std::slice::from_ref(&(0..1)));
    cache.loaded(guard, &[3; 4096]);
    assert_eq!(byte_at(&cache, 7, 0), None);
}

#[test]
fn a_page_that_ends_before_the_byte_is_read_again() {
    let cache = cache();
    let driver = units::RealDriver::new();
    cache.store(7, 0, &[1; 100]);
    let guard = block_on(&*driver, cache.load(7, 100, || ())).unwrap();
    cache.loaded(guard, &[2; 4096]);
    assert_eq!(byte_at(&cache, 7, 0), Some(2));
}

#[test]
fn the_cache_stays_within_its_size() {
    let cache = cache();
    for page in 0..10_000 {
        cache.store(1, page * 4096, &[0; 4096]);
    }
    let stats = cache.stats();
    assert!(stats.used <= stats.capacity && stats.capacity <= Bytes(8 << 20), "{stats:?}");
    assert!(stats.pages > 1500, "{stats:?}");
}

#[test]
fn bytes_that_come_and_go_outside_of_the_cache_push_no_pages_out_each_time() {
    let (cache, step) = (cache(), (8 << 20) / LEFT_STEPS);
    let left = |bytes| {
        cache.leave(bytes);
        ((8 << 20) - cache.pages.capacity()) / step
    };
    assert_eq!([1, 0, step, 0].map(left), [1, 1, 1, 1]);
    assert_eq!([step + 1, step, 10 * step, 9 * step, 8 * step, 0].map(left), [2, 2, 10, 10, 9, 1]);
}

#[test]
fn sizes_below_the_least_are_refused() {
    assert!(check_cache_size(Bytes::ZERO).is_ok());
    assert!(check_cache_size(LEAST_CACHE).is_ok());
    let error = check_cache_size(Bytes(4096)).unwrap_err();
    assert!(error.to_string().contains("too few"), "{error}");
    let error = check_cache_size(Bytes(1 << 60)).unwrap_err();
    assert!(error.to_string().contains("larger than"), "{error}");
}

#[test]
fn the_default_size_is_a_sixteenth_of_the_memory_within_bounds() {
    let mib = |memory: u64| default_size_within(Some(memory << 20)).0 >> 20;
    assert_eq!([512, 1024, 4096, 16 << 10, 1 << 20].map(mib), [32, 64, 256, 1024, 1024]);
    assert_eq!([4, 7, 8, 32, 64, 80].map(mib), [0, 0, 4, 16, 32, 32], "half of little memory");
    assert_eq!(default_size_within(None), Bytes(32 << 20));
}
