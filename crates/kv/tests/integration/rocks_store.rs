//! Tests of the engine on RocksDB on an emulated drive.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests with real threads and files"
)]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use kv::parallel_wal::WalMode;
use kv::*;
use units::{Driver, RealDriver};
use zoned::ZonedDevice;
use zoned::emu::{Emu, Latency, Seeded};

#[test]
fn keys_survive_a_restart_in_order_and_deleted_keys_stay_deleted() {
    for wal in WalMode::ALL {
        restart(wal);
    }
}

fn restart(wal: WalMode) {
    let emu: Arc<dyn ZonedDevice> = Emu::memory(drive(64, 4), RealDriver::new());
    let fs = mount(Arc::clone(&emu), true);
    let first = engine(&fs, wal);
    let long = "k".repeat(1000);
    assert_eq!(
        ask(&first, &["MSET b 2 a 1 c 3", &format!("SET {long} long"), "DEL c"])[2],
        Reply::Integer(1)
    );
    assert_eq!(ask(&first, &["SET gone x PX 1", "SET later x EXAT 4102444800"]), [ok(), ok()]);
    first.close().unwrap();
    unmount(&fs);
    let fs = mount(emu, false);
    let second = engine(&fs, wal);
    std::thread::sleep(Duration::from_millis(5));
    let replies =
        ask(&second, &["KEYS *", "MGET a b c", &format!("GET {long}"), "DBSIZE", "EXPIRETIME later"]);
    assert_eq!(replies[..5], [Reply::Array(4), bulk("a"), bulk("b"), bulk(&long), bulk("later")]);
    assert_eq!(replies[5..9], [Reply::Array(3), bulk("1"), bulk("2"), Reply::Null]);
    assert_eq!(replies[9..], [bulk("long"), Reply::Integer(4), Reply::Integer(4_102_444_800)]);
    assert_eq!(ask(&second, &["FLUSHALL", "SET only 1", "KEYS *"])[2..], [Reply::Array(1), bulk("only")]);
    let room = second.room().unwrap();
    assert!(!room.is_short(), "{room:?}");
    assert!(second.describe_store().iter().any(|(name, value)| name == "keys_estimate" && value != "0"));
    second.close().unwrap();
    unmount(&fs);
}

#[test]
fn acknowledged_writes_survive_a_power_cut_and_pipelines_survive_whole() {
    for (seed, wal) in (0..6).zip(WalMode::ALL.into_iter().cycle()) {
        let emu = Emu::memory(drive(64, 4), RealDriver::new());
        let fs = mount(Arc::clone(&emu) as Arc<dyn ZonedDevice>, true);
        let engine = engine(&fs, wal);
        for n in 0..50 {
            assert_eq!(ask(&engine, &[&format!("SET a{n} {n}"), &format!("SET b{n} {n}")]), [ok(), ok()]);
        }
        // The last pipelines are in flight when the power is cut.
        let in_flight: Vec<_> =
            (50..70).map(|n| send(&engine, &[&format!("SET a{n} {n}"), &format!("SET b{n} {n}")])).collect();
        let after = emu.media().cut(&mut Seeded::new(seed));
        drop(in_flight);
        engine.close().unwrap();
        unmount(&fs);
        let driver: Arc<dyn Driver> = RealDriver::new();
        let emu = Emu::from_media(after, "after", Latency::default(), driver);
        let fs = mount(emu, false);
        let store = store(&fs, wal);
        let mut found = Vec::new();
        store
            .scan(b"", &mut |key, record| {
                let value = RecordRef::decode(record).unwrap().value.to_vec();
                found.push((String::from_utf8(key.to_vec()).unwrap(), String::from_utf8(value).unwrap()));
                ControlFlow::Continue(())
            })
            .unwrap();
        let has = |key: String, n: i32| found.contains(&(key, n.to_string()));
        for n in 0..70 {
            let (a, b) = (has(format!("a{n}"), n), has(format!("b{n}"), n));
            assert_eq!(a, b, "seed {seed}: pipeline {n} is stored in part");
            assert!(a || n >= 50, "seed {seed}: pipeline {n} was acknowledged and is lost");
        }
        store.close().unwrap();
        unmount(&fs);
    }
}

#[test]
fn a_full_drive_refuses_writes_serves_reads_and_takes_writes_again_after_deletes() {
    for wal in WalMode::ALL {
        fill(wal);
    }
}

fn fill(wal: WalMode) {
    let emu: Arc<dyn ZonedDevice> = Emu::memory(drive(48, 2), RealDriver::new());
    let fs = mount(emu, true);
    let engine = engine(&fs, wal);
    let mut full = None;
    let value = |n: i32| {
        // Random digits, which RocksDB cannot compress.
        let mut state = n as u64 + 1;
        let mut text = String::new();
        while text.len() < 100_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            text.push_str(&format!("{state:016x}"));
        }
        text
    };
    for n in 0..2000 {
        match &ask(&engine, &[&format!("SET key:{n} {}", value(n))])[0] {
            Reply::Simple(_) => {}
            Reply::Error(text) => {
                assert!(text.starts_with("OOM no space left on the device"), "{text}");
                full = Some(n);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let full = full.expect("a 96 MiB drive holds no 200 MB");
    assert!(full > 100, "full after {full} values of 100 kB on 96 MiB");
    assert_eq!(engine.failure(), None);
    for n in [0, full / 2, full - 1] {
        assert_eq!(ask(&engine, &[&format!("GET key:{n}")]), [bulk(&value(n))]);
    }
    for n in 0..full * 3 / 4 {
        assert_eq!(ask(&engine, &[&format!("DEL key:{n}")]), [Reply::Integer(1)], "key:{n}");
    }
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        match &ask(&engine, &["SET again 1"])[0] {
            Reply::Simple(_) => break,
            Reply::Error(text) => {
                assert!(Instant::now() < until, "never again: {text}; {:?}", engine.describe_store());
            }
            other => panic!("{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(ask(&engine, &[&format!("GET key:{}", full - 1)]), [bulk(&value(full - 1))]);
    engine.close().unwrap();
    unmount(&fs);
}

#[test]
fn a_database_of_another_program_or_version_is_refused() {
    let emu: Arc<dyn ZonedDevice> = Emu::memory(drive(64, 4), RealDriver::new());
    let fs = mount(emu, true);
    let db = rocks::Db::open(&fs, "/db", &rocks::DbOptions::default()).unwrap();
    let mut batch = rocks::WriteBatch::new();
    batch.put(b"someone's", b"data");
    db.write(&batch, true).unwrap();
    db.close().unwrap();
    let open = || RocksStore::open(&fs, "/db", &RocksStoreOptions::default()).unwrap_err();
    assert!(open().to_string().contains("another program"), "{}", open());
    let db = rocks::Db::open(&fs, "/db", &rocks::DbOptions::default()).unwrap();
    batch.put(b"mformat", &[0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0]);
    db.write(&batch, true).unwrap();
    db.close().unwrap();
    assert!(matches!(open(), Error::Version { found: 9, known: 1 }), "{}", open());
    unmount(&fs);
}
