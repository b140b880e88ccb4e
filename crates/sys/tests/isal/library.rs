//! Intel's ISA-L (Debian's libisal-dev), loaded at run time: the oracle and the yardstick of `sys::gf256`.

use std::ffi::{CStr, c_int, c_uchar, c_void};

/// Set where the library must be there, as in CI.
pub const REQUIRED: &str = "FURROW_REQUIRE_ISAL";
/// Bytes of the tables of one factor.
const TABLE_BYTES: usize = 32;
/// The alignment in bytes that [`Isal::parities`] demands, also of lengths.
pub const ALIGN: usize = 64;

/// `int pq_gen(int vects, int len, void **array)`: 0 for success.
type PqGen = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;
/// `void ec_init_tables(int k, int rows, unsigned char *a, unsigned char *tables)`.
type InitTables = unsafe extern "C" fn(c_int, c_int, *mut c_uchar, *mut c_uchar);
/// `void ec_encode_data(int len, int k, int rows, unsigned char *tables, unsigned char **data, unsigned char **coding)`.
type EncodeData =
    unsafe extern "C" fn(c_int, c_int, c_int, *mut c_uchar, *mut *mut c_uchar, *mut *mut c_uchar);

/// The functions of the library.
pub struct Isal {
    pq_gen: PqGen,
    init_tables: InitTables,
    encode_data: EncodeData,
}

fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the library is open, and the name ends in zero.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "libisal.so.2 has no {name:?}");
    found
}

impl Isal {
    /// The library, or `None` with a line on stderr where the machine lacks it.
    ///
    /// Panics if the machine lacks the library although [`REQUIRED`] is set.
    pub fn load() -> Option<Isal> {
        // SAFETY: the initialisers of this library choose functions for the processor and nothing else.
        let library = unsafe { libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            let why =
                "NOT COMPARED WITH ISA-L: this machine has no libisal.so.2 (apt-get install libisal-dev)";
            assert!(std::env::var_os(REQUIRED).is_none_or(|set| set == "0"), "{REQUIRED} is set. {why}");
            eprintln!("{why}");
            return None;
        }
        // SAFETY: the types are those of isa-l/raid.h and isa-l/erasure_code.h. The library stays loaded.
        unsafe {
            Some(Isal {
                pq_gen: std::mem::transmute::<*mut c_void, PqGen>(symbol(library, c"pq_gen")),
                init_tables: std::mem::transmute::<*mut c_void, InitTables>(symbol(
                    library,
                    c"ec_init_tables",
                )),
                encode_data: std::mem::transmute::<*mut c_void, EncodeData>(symbol(
                    library,
                    c"ec_encode_data",
                )),
            })
        }
    }

    /// Computes P and Q of `units`, which are as long as the parities. ISA-L's Q is the sum of unit `n` times the power `n` of 2, where
    /// ours ends with the last unit times 1: the units are handed over in reverse.
    ///
    /// Panics unless lengths and addresses are multiples of [`ALIGN`].
    pub fn parities(&self, units: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
        let len = p.len();
        let mut vectors: Vec<*mut c_void> =
            units.iter().rev().map(|unit| unit.as_ptr().cast_mut().cast()).collect();
        assert!(
            units.iter().all(|unit| unit.len() == len) && q.len() == len,
            "units as long as the parities"
        );
        vectors.extend([p.as_mut_ptr().cast::<c_void>(), q.as_mut_ptr().cast()]);
        let aligned = vectors.iter().all(|vector| vector.addr().is_multiple_of(ALIGN));
        assert!(aligned && len.is_multiple_of(ALIGN), "{len} bytes");
        let [count, len] = [vectors.len(), len].map(|n| c_int::try_from(n).expect("a small number"));
        // SAFETY: `count` vectors of `len` bytes, aligned; only the last two are written.
        let result = unsafe { (self.pq_gen)(count, len, vectors.as_mut_ptr()) };
        assert_eq!(result, 0, "pq_gen of {count} vectors of {len} bytes");
    }

    /// The tables of sums of products: `factors` of all sources for each sum.
    pub fn tables(&self, sources: usize, factors: &mut [u8]) -> Vec<u8> {
        let mut tables = vec![0; factors.len() * TABLE_BYTES];
        let [k, rows] =
            [sources, factors.len() / sources].map(|n| c_int::try_from(n).expect("a small number"));
        // SAFETY: `k * rows` factors are read and 32 bytes for each are written.
        unsafe { (self.init_tables)(k, rows, factors.as_mut_ptr(), tables.as_mut_ptr()) };
        tables
    }

    /// Computes sums of products of sources. All sources and sums have the same length.
    pub fn sums(&self, tables: &mut [u8], sources: &[&[u8]], sums: &mut [&mut [u8]]) {
        assert_eq!(tables.len(), sources.len() * sums.len() * TABLE_BYTES);
        let len = sums.first().map_or(0, |sum| sum.len());
        assert!(sources.iter().all(|source| source.len() == len) && sums.iter().all(|sum| sum.len() == len));
        let mut from: Vec<*mut c_uchar> = sources.iter().map(|source| source.as_ptr().cast_mut()).collect();
        let mut to: Vec<*mut c_uchar> = sums.iter_mut().map(|sum| sum.as_mut_ptr()).collect();
        let [len, k, rows] = [len, from.len(), to.len()].map(|n| c_int::try_from(n).expect("a small number"));
        // SAFETY: `k` sources and `rows` sums of `len` bytes, and tables for each pair of them; only the sums are written.
        unsafe {
            (self.encode_data)(len, k, rows, tables.as_mut_ptr(), from.as_mut_ptr(), to.as_mut_ptr());
        }
    }
}
