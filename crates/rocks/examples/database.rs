//! RocksDB in the zones of an emulated drive: cargo run -p furrow-rocks --example database

use std::sync::Arc;

use fs::{FormatOptions, Fs, MountOptions};
use rocks::{Db, DbOptions, WriteBatch};
use units::{Driver, RealDriver, block_on};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let device = zoned::open("emu:mem?zones=64&zone-size=4MiB", Arc::clone(&driver))?;
    let mounted = block_on(&*driver, async {
        Fs::format(&device, &FormatOptions::default()).await?;
        Fs::mount(Arc::clone(&device), &MountOptions::default()).await
    })?;

    let db = Db::open(&mounted, "/db", &DbOptions::default())?;
    let mut batch = WriteBatch::new();
    batch.put(b"greeting", b"hello");
    db.write(&batch, true)?;
    println!("greeting = {}", String::from_utf8_lossy(&db.get(b"greeting")?.ok_or("it is gone")?));
    db.close()?;
    block_on(&*driver, mounted.unmount())?;
    Ok(())
}
