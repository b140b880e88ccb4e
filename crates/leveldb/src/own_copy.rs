//! Whether this process's program has LevelDB linked into itself, where a preloaded library cannot reach it.

use std::fs::File;
use std::io::{self, Read};

/// A name that each copy of LevelDB contains, and no other engine: it is what LevelDB calls its comparator of internal keys.
const LEVELDB_NAME: &[u8] = b"leveldb.InternalKeyComparator";
const CHUNK: usize = 1 << 20;

/// Whether this process's program has LevelDB linked into itself. False if the program's file cannot be read.
pub(crate) fn is_linked_in() -> bool {
    File::open("/proc/self/exe").is_ok_and(|program| contains_leveldb(program).unwrap_or(false))
}

fn contains_leveldb(mut program: impl Read) -> io::Result<bool> {
    let mut window = Vec::new();
    loop {
        let read = program.by_ref().take(CHUNK as u64).read_to_end(&mut window)?;
        if window.windows(LEVELDB_NAME.len()).any(|bytes| bytes == LEVELDB_NAME) {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
        // The name may begin at the end of this chunk.
        window.drain(..window.len().saturating_sub(LEVELDB_NAME.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_found_across_chunks_too() {
        for before in [0, 17, CHUNK - 1, CHUNK - LEVELDB_NAME.len(), CHUNK - LEVELDB_NAME.len() / 2, CHUNK] {
            let program = [vec![b'l'; before], LEVELDB_NAME.to_vec(), vec![0; 9]].concat();
            assert!(contains_leveldb(&*program).unwrap(), "{before}");
        }
        let other = b"rocksdb.InternalKeyComparator leveldb.BytewiseComparator".repeat(CHUNK / 40);
        assert!(!contains_leveldb(&*other).unwrap());
    }
}
