//! Content of a zone, in chunks that clones share until one of them writes (copy-on-write).

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

/// Bytes in a chunk of a zone of at least [`LARGE_ZONE`] bytes.
const LARGE_CHUNK: usize = 256 << 10;
/// Zone size in bytes from which chunks are large. Smaller zones have one chunk per block, so that a clone of
/// a small drive copies little.
const LARGE_ZONE: u64 = 4 << 20;

const _: () = assert!(LARGE_CHUNK >= 65_536, "no chunk is longer than this");

/// Content of a chunk that was never written.
static ZEROS: [u8; LARGE_CHUNK] = [0; LARGE_CHUNK];

/// A chunk: a piece of a zone's content.
#[derive(Debug)]
pub(super) struct Chunk {
    bytes: Box<[u8]>,
    hash: OnceLock<u128>,
}

/// A pool of unused chunks: allocating fresh memory costs more than copying into a reused chunk.
#[derive(Debug)]
pub(super) struct Pool {
    chunk: usize,
    free: Mutex<Vec<Arc<Chunk>>>,
}

/// A zone's content. Unwritten bytes read as zeros or as the old content of a reused chunk; the zone's pointer decides
/// which bytes may be read. Zeros written where no chunk exists take no memory, so benchmarks can fill whole drives
/// with zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    chunks: Vec<Option<Arc<Chunk>>>,
}

impl Pool {
    pub(super) fn new(block_size: u32, zone_bytes: u64) -> Pool {
        let chunk = if zone_bytes < LARGE_ZONE { block_size as usize } else { LARGE_CHUNK };
        Pool { chunk, free: Mutex::default() }
    }

    /// Bytes in a chunk: a power of two, at least a block.
    pub(super) fn chunk(&self) -> usize {
        self.chunk
    }

    fn take(&self, zeroed: bool) -> Arc<Chunk> {
        if !zeroed && let Some(chunk) = self.free.lock().pop() {
            return chunk;
        }
        Arc::new(Chunk { bytes: vec![0; self.chunk].into_boxed_slice(), hash: OnceLock::new() })
    }
}

impl Content {
    /// Copies `data` to byte `at` of the zone. With `zeroed`, fresh chunks hold zeros around the data.
    pub(super) fn write(&mut self, pool: &Pool, mut at: usize, mut data: &[u8], zeroed: bool) {
        while !data.is_empty() {
            let (index, offset) = (at / pool.chunk, at % pool.chunk);
            let n = data.len().min(pool.chunk - offset);
            let (head, tail) = data.split_at(n);
            if self.chunks.len() <= index {
                self.chunks.resize(index + 1, None);
            }
            let slot = self.chunks.get_mut(index).expect("just made");
            if slot.is_none() && is_zeros(head) {
                (data, at) = (tail, at + n);
                continue;
            }
            // The chunk's bytes before `offset` may be zeros that were not stored.
            let chunk = slot.get_or_insert_with(|| pool.take(zeroed || offset > 0));
            if Arc::get_mut(chunk).is_none() {
                let mut own = pool.take(false);
                let fresh = Arc::get_mut(&mut own).expect("nobody else has it yet");
                fresh.bytes.copy_from_slice(&chunk.bytes);
                *chunk = own;
            }
            let chunk = Arc::get_mut(chunk).expect("not shared any more");
            chunk.hash.take();
            chunk.bytes.get_mut(offset..offset + n).expect("within the chunk").copy_from_slice(head);
            data = tail;
            at += n;
        }
    }

    /// Copies the zone's content from byte `at` into a buffer; missing chunks read as zeros.
    pub(super) fn read(&self, pool: &Pool, mut at: usize, mut into: &mut [u8]) {
        while !into.is_empty() {
            let (index, offset) = (at / pool.chunk, at % pool.chunk);
            let n = into.len().min(pool.chunk - offset);
            let (head, tail) = into.split_at_mut(n);
            match self.chunks.get(index).and_then(Option::as_ref) {
                Some(chunk) => head.copy_from_slice(chunk.bytes.get(offset..offset + n).expect("within")),
                None => head.fill(0),
            }
            into = tail;
            at += n;
        }
    }

    /// The part of the chunk at byte `at`, up to `end`, without a copy.
    pub(super) fn chunk_part(&self, pool: &Pool, at: usize, end: usize) -> &[u8] {
        let (index, offset) = (at / pool.chunk, at % pool.chunk);
        let n = (end - at).min(pool.chunk - offset);
        match self.chunks.get(index).and_then(Option::as_ref) {
            Some(chunk) => chunk.bytes.get(offset..offset + n).unwrap_or_default(),
            None => ZEROS.get(..n).unwrap_or_default(),
        }
    }

    /// Returns the zone's chunks that lie wholly below byte `end` to the pool.
    pub(super) fn release(&mut self, pool: &Pool, end: usize) {
        let count = (end / pool.chunk).min(self.chunks.len());
        let unshared = self.chunks.iter_mut().take(count).filter_map(Option::take);
        let mut unshared: Vec<_> =
            unshared.filter_map(|mut c| Arc::get_mut(&mut c).is_some().then_some(c)).collect();
        if !unshared.is_empty() {
            pool.free.lock().append(&mut unshared);
        }
    }

    /// Returns all chunks of the zone to the pool.
    pub(super) fn clear(&mut self, pool: &Pool) {
        self.release(pool, usize::MAX);
        self.chunks.clear();
    }

    /// A hash of the zone's first `len` bytes, independent of the bytes above.
    pub(super) fn hash(&self, pool: &Pool, len: usize) -> u128 {
        let mut sum = Hash128::default();
        let mut at = 0;
        while at < len {
            let n = (len - at).min(pool.chunk);
            let value = match self.chunks.get(at / pool.chunk).and_then(Option::as_ref) {
                Some(chunk) if n == pool.chunk => *chunk.hash.get_or_init(|| hash_bytes(&chunk.bytes)),
                Some(chunk) => hash_bytes(chunk.bytes.get(..n).expect("within the chunk")),
                None => 0,
            };
            sum.add(value);
            at += n;
        }
        sum.finish()
    }
}

fn is_zeros(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    // Data that is not all zeros nearly always has a non-zero first word.
    words.first().is_none_or(|word| *word == [0; 8])
        && words.chunks(64).all(|some| some.iter().fold(0, |sum, word| sum | u64::from_ne_bytes(*word)) == 0)
        && rest.iter().all(|byte| *byte == 0)
}

/// A hash of `bytes`; 0 for all zeros, so that a missing chunk and a chunk of zeros have equal hashes.
fn hash_bytes(bytes: &[u8]) -> u128 {
    if is_zeros(bytes) {
        return 0;
    }
    let mut hash = Hash128::default();
    let mut words = bytes.chunks_exact(16);
    for word in &mut words {
        hash.add(u128::from_le_bytes(word.try_into().expect("sixteen bytes")));
    }
    let mut last = [0; 16];
    last.iter_mut().zip(words.remainder()).for_each(|(to, from)| *to = *from);
    hash.add(u128::from_le_bytes(last));
    hash.finish().max(1)
}

/// A hash of two 64-bit lanes of multiply and fold. Not cryptographic; accidental collisions are negligible.
#[derive(Debug)]
pub(super) struct Hash128 {
    low: u64,
    high: u64,
}

impl Default for Hash128 {
    fn default() -> Hash128 {
        Hash128 { low: 0x243f_6a88_85a3_08d3, high: 0x1319_8a2e_0370_7344 }
    }
}

impl Hash128 {
    pub(super) fn add(&mut self, value: u128) {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            (product as u64) ^ (product >> 64) as u64
        };
        let (a, b) = (value as u64, (value >> 64) as u64);
        self.low = fold(self.low ^ a, 0x9e37_79b9_7f4a_7c15 ^ b).wrapping_add(self.low.rotate_left(23));
        self.high = fold(self.high ^ b, 0xc2b2_ae3d_27d4_eb4f ^ a).wrapping_add(self.high.rotate_left(41));
    }

    pub(super) fn finish(self) -> u128 {
        u128::from(self.low) | u128::from(self.high) << 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_take_no_memory_and_read_as_zeros_whatever_chunks_held_before() {
        let pool = Pool::new(4096, 64 << 20);
        let mut used = Content::default();
        used.write(&pool, 0, &vec![7; LARGE_CHUNK], false);
        used.clear(&pool);
        let mut content = Content::default();
        content.write(&pool, 0, &vec![0; 2 * LARGE_CHUNK + 4096], false);
        assert!(content.chunks.iter().all(Option::is_none));
        content.write(&pool, 2 * LARGE_CHUNK + 4096, &[9; 4096], false);
        let mut found = vec![1; 2 * LARGE_CHUNK + 8192];
        content.read(&pool, 0, &mut found);
        let (zeros, rest) = found.split_at(2 * LARGE_CHUNK + 4096);
        assert!(zeros.iter().all(|byte| *byte == 0) && rest.iter().all(|byte| *byte == 9));
    }
}
