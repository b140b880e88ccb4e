//! Tests of the role of each zone after a mount.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::time::Duration;

use crate::common::{Drive, bytes, log, read, write};
use fs::{ZoneId, ZoneRole};
use units::{Driver, sleep_until};
use zoned::emu::EmuOptions;

#[test]
fn a_log_zone_reused_for_data_is_a_data_zone_after_a_mount() {
    let (drive, fs) = Drive::formatted(EmuOptions::tiny());
    let content = bytes(12 * 14 * 4096, 3);
    let was_log: Vec<ZoneId> = drive.run(async {
        let writer = fs.create("/log", &log()).await.unwrap();
        for part in content.chunks(4000) {
            writer.append(part).await.unwrap();
        }
        writer.sync().await.unwrap();
        let map = fs.zone_map();
        let logs = map.iter().filter(|z| z.role == ZoneRole::Log && z.live.0 > 0).map(|z| z.zone).collect();
        writer.close().await.unwrap();
        drop(writer);
        fs.unlink("/log").await.unwrap();
        fs.sync().await.unwrap();
        // The cleaner resets the removed log's zones during the pause.
        let later = drive.driver.now().after(Duration::from_millis(10));
        sleep_until(&*drive.driver, later).await;
        write(&fs, "/data", &content).await.unwrap();
        fs.sync().await.unwrap();
        logs
    });
    let reused = |map: &[fs::ZoneUse]| -> Vec<ZoneRole> {
        let held = map.iter().filter(|z| was_log.contains(&z.zone) && z.live.0 > 0);
        held.map(|z| z.role).collect()
    };
    let before = reused(&fs.zone_map());
    assert!(!before.is_empty(), "some zones must have been log zones before");
    drive.run(fs.unmount()).unwrap();

    let fs = drive.mount();
    let after = reused(&fs.zone_map());
    assert!(after.iter().all(|role| matches!(role, ZoneRole::Data { .. })), "{after:?}");
    assert_eq!(drive.run(read(&fs, "/data")).unwrap(), content);
    drive.run(fs.unmount()).unwrap();
    drive.check();
}
