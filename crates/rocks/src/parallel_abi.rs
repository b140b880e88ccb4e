//! The functions of `cpp/parallel_abi.h`: the parallel WAL engine above a database that a program opened by itself.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use abi::{Failure, FurrowFs, FurrowStatus, StatusCode, path, run_entry, run_infallible_entry};

use crate::db::Db;
use crate::engine::{Asked, Engine, EngineError, EngineErrorKind, FamilyFacts, installed};
use crate::ffi::{FlushCalls, RocksDb, RocksMark};
use crate::flush_events::FlushHub;
use crate::unlogged::AppliedMark;

/// A parallel WAL engine, owned by the C++ shim.
pub struct FurrowEngine {
    engine: Box<dyn Engine>,
}

/// The receiver of a database's flush events, owned by the C++ shim.
pub struct FurrowHub {
    hub: Arc<FlushHub>,
}

/// Rust side of `FurrowFamily` in `cpp/parallel_abi.h`: a column family's properties that the engine needs.
#[repr(C)]
pub struct FurrowFamily {
    id: u32,
    merges: u8,
    one_stripe: u8,
    reserved: [u8; 2],
}

impl FurrowFamily {
    fn facts(&self) -> FamilyFacts {
        FamilyFacts { id: self.id, merges: self.merges != 0, one_stripe: self.one_stripe != 0 }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        let code = match error.kind {
            EngineErrorKind::Apply => StatusCode::Applying,
            EngineErrorKind::Invalid => StatusCode::Invalid,
            EngineErrorKind::NoSpace => StatusCode::NoSpace,
            EngineErrorKind::Busy => StatusCode::Busy,
            EngineErrorKind::Corrupt | EngineErrorKind::Io => StatusCode::IoError,
        };
        let data_loss = error.kind == EngineErrorKind::Corrupt;
        Failure { code, data_loss, message: error.text }
    }
}

/// Makes a hub of flush events, and writes to `calls` the callbacks for RocksDB's listener.
///
/// # Safety
/// `calls` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_hub_new(calls: *mut FlushCalls) -> *mut FurrowHub {
    let hub = Arc::new(FlushHub::default());
    // SAFETY: the caller guarantees that `calls` can be written.
    unsafe { calls.write(hub.callbacks()) };
    Box::into_raw(Box::new(FurrowHub { hub }))
}

/// Frees a hub of flush events.
///
/// # Safety
/// `hub` is from [`furrow_hub_new`], is freed once, and no database calls it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_hub_free(hub: *mut FurrowHub) {
    // SAFETY: the caller guarantees that `hub` came from this library and is freed once.
    drop(unsafe { Box::from_raw(hub) });
}

/// Opens the parallel WAL engine above a database. Takes over `db`, on failure too.
///
/// # Safety
/// The pointers are alive, `families` has `n` elements, and nothing else owns `db`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_engine_open(
    hub: *const FurrowHub,
    fs: *const FurrowFs,
    dir: *const c_char,
    len: usize,
    db: *mut RocksDb,
    families: *const FurrowFamily,
    n: usize,
    out: *mut *mut FurrowEngine,
) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `hub` and `fs` are alive and that `dir` has `len` readable bytes.
        let (hub, fs, dir) = unsafe { (&*hub, &*fs, path(dir, len)) };
        // Adopt the database before any step can fail, because the caller gave it away.
        let db = Arc::new(Db::adopted(db, dir.as_deref().unwrap_or_default(), Arc::clone(&hub.hub)));
        let dir = dir?;
        // SAFETY: the caller guarantees that `families` has `n` elements.
        let families = unsafe { std::slice::from_raw_parts(families, n) };
        let facts: Vec<FamilyFacts> = families.iter().map(FurrowFamily::facts).collect();
        let Some(engines) = installed() else {
            return Err(Failure::new(StatusCode::Invalid, "this build has no engine for a parallel log"));
        };
        let engine = engines.open(fs.fs(), &dir, db, &facts)?;
        // SAFETY: the caller guarantees that `out` can be written.
        unsafe { out.write(Box::into_raw(Box::new(FurrowEngine { engine }))) };
        Ok(())
    })
}

/// Frees a parallel WAL engine and the `RocksDb` that [`furrow_engine_open`] took over.
///
/// # Safety
/// `engine` is from [`furrow_engine_open`], is freed once, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_engine_free(engine: *mut FurrowEngine) {
    // SAFETY: the caller guarantees that `engine` came from this library and is freed once.
    run_infallible_entry((), || drop(unsafe { Box::from_raw(engine) }));
}

/// Writes a batch through the parallel log. Bits of `flags`: 1 synced, 2 logged, 4 records of missing families are
/// skipped. `apply` returns 0 if RocksDB refused the batch.
///
/// # Safety
/// The engine is alive, and so is the batch during the call; `apply` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_engine_write(
    engine: *const FurrowEngine,
    batch: *const c_char,
    len: usize,
    flags: u8,
    context: *mut c_void,
    apply: extern "C" fn(*mut c_void, *const RocksMark, *mut u64) -> u8,
) -> FurrowStatus {
    run_entry(|| {
        // SAFETY: the caller guarantees that `engine` is alive and that `batch` has `len` readable bytes; a batch has a
        // header, so its pointer is not null.
        let (engine, batch) = unsafe { (&*engine, std::slice::from_raw_parts(batch.cast::<u8>(), len)) };
        let asked = Asked { synced: flags & 1 != 0, logged: flags & 2 != 0, ignore_missing: flags & 4 != 0 };
        engine.engine.write(batch, asked, &mut |mark: Option<AppliedMark>| {
            let mark = mark.map(RocksMark::from);
            let mut last = 0;
            let applied = apply(context, mark.as_ref().map_or(ptr::null(), ptr::from_ref), &raw mut last);
            (applied != 0).then_some(last)
        })?;
        Ok(())
    })
}

/// Makes every acknowledged write of the engine durable.
///
/// # Safety
/// The engine is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_engine_sync(engine: *const FurrowEngine) -> FurrowStatus {
    // SAFETY: the caller guarantees that `engine` is alive.
    run_entry(|| Ok(unsafe { &*engine }.engine.sync()?))
}

/// From this call on, no recovery applies again a batch that is in tables.
///
/// # Safety
/// The engine is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_engine_exactly_once(engine: *const FurrowEngine) -> FurrowStatus {
    // SAFETY: the caller guarantees that `engine` is alive.
    run_entry(|| Ok(unsafe { &*engine }.engine.exactly_once()?))
}

/// Calls `run` while no batch is being written.
///
/// # Safety
/// The engine is alive, and `run` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_engine_exclusive(
    engine: *const FurrowEngine,
    context: *mut c_void,
    run: extern "C" fn(*mut c_void),
) {
    // SAFETY: the caller guarantees that `engine` is alive.
    run_infallible_entry((), || unsafe { &*engine }.engine.exclusive(&mut || run(context)));
}

/// Adds a column family that was just created. Call within [`furrow_engine_exclusive`].
///
/// # Safety
/// The engine and the family's facts are alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_engine_add_family(engine: *const FurrowEngine, family: *const FurrowFamily) {
    // SAFETY: the caller guarantees that `engine` and `family` are alive.
    run_infallible_entry((), || unsafe { (&*engine).engine.add_family((*family).facts()) });
}

/// Removes a column family that was dropped. Call within [`furrow_engine_exclusive`].
///
/// # Safety
/// The engine is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_engine_remove_family(engine: *const FurrowEngine, id: u32) {
    // SAFETY: the caller guarantees that `engine` is alive.
    run_infallible_entry((), || unsafe { &*engine }.engine.remove_family(id));
}

/// Writes all memtables to tables, removes the parallel log and closes the engine.
///
/// # Safety
/// The engine is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn furrow_engine_close(engine: *const FurrowEngine) -> FurrowStatus {
    // SAFETY: the caller guarantees that `engine` is alive.
    run_entry(|| Ok(unsafe { &*engine }.engine.close()?))
}
