//! A synced log record survives a power cut, whatever the drive makes of the rest:
//! cargo run -p furrow-fs --example power_cut

use std::sync::Arc;

use fs::{Bytes, CreateOptions, FileKind, FormatOptions, Fs, MountOptions};
use units::{VirtualDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions, Latency, Seeded};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = VirtualDriver::new(1);
    let drive = Emu::memory(EmuOptions::tiny(), clock.clone());
    let device: Arc<dyn ZonedDevice> = drive.clone();
    let log = CreateOptions { kind: FileKind::Log, ..CreateOptions::default() };

    block_on(&*clock, async {
        Fs::format(&device, &FormatOptions::default()).await?;
        let mounted = Fs::mount(Arc::clone(&device), &MountOptions::default()).await?;
        let writer = mounted.create("/log", &log).await?;
        writer.append(b"acknowledged").await?;
        writer.sync().await?;
        writer.append(b" and this was not").await?;
        writer.flush().await
    })?;

    for seed in 0..5 {
        let clock = VirtualDriver::new(seed);
        let image = drive.power_cut(&mut Seeded::new(seed));
        let device = Emu::from_media(image, "after the cut", Latency::default(), clock.clone());
        let text = block_on(&*clock, async {
            let mounted = Fs::mount(device, &MountOptions::default()).await?;
            let mut text = [0; 64];
            let n = mounted.open("/log")?.read_at(Bytes(0), &mut text).await?;
            Ok::<_, fs::Error>(String::from_utf8_lossy(text.get(..n).unwrap_or_default()).into_owned())
        })?;
        assert!(text.starts_with("acknowledged"));
        println!("seed {seed}: {text}");
    }
    Ok(())
}
