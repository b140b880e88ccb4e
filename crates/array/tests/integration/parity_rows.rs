//! Rows of parity that are final before their stripe is whole, and wait for writes in flight below.
//!
//! Stripes have 16 blocks, and the last data unit of a stripe has its last four: 30 blocks in flight at once end in the middle of the
//! last unit of stripe 1.

use std::sync::Arc;

use crate::common::{Bench, blocks, device, verify, write};
use array::Slot;
use units::block_on;
use zoned::{Blocks, Durability, ZoneId, ZoneState, ZonedDevice, join_all};

const ZONE: ZoneId = ZoneId(1);

/// Writes the blocks `from..to` of the zone one by one, all in flight at once.
async fn write_at_once(dev: &Arc<dyn ZonedDevice>, from: u64, to: u64) {
    let start = dev.geometry().start(ZONE);
    let one = |n: u64| dev.write(start.plus(Blocks(n)), blocks(ZONE.0, n, n + 1), Durability::Cached);
    join_all((from..to).map(one).collect::<Vec<_>>())
        .await
        .into_iter()
        .for_each(|done| done.expect("written"));
}

#[test]
fn blocks_whose_parity_rows_wait_survive_a_power_cut_and_the_loss_of_any_drive() {
    let mut open = 0;
    for seed in 0..40 {
        let bench = Bench::new(seed);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            write_at_once(&dev, 0, 30).await;
            dev.flush().await.expect("flushed");
        });
        for lost in 0..5 {
            let after = bench.cut(seed);
            block_on(&*after.driver, async {
                let array = after.open(&[lost]).await;
                let dev = device(&array);
                verify(&dev, ZONE.0, 0, 30).await;
                // A power cut may leave an open zone full.
                let zone = dev.report(ZONE.0..ZONE.0 + 1).await.expect("reported")[0];
                if zone.state != ZoneState::Full {
                    write_at_once(&dev, 30, 35).await;
                    verify(&dev, ZONE.0, 0, 35).await;
                    open += 1;
                }
            });
        }
    }
    assert!(open > 20, "{open} of 200 zones take writes after the cut");
}

#[test]
fn a_new_drive_gets_the_parity_rows_that_wait() {
    for lost in (0..5).map(Slot) {
        let bench = Bench::new(1);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            write_at_once(&dev, 0, 30).await;
            array.fail(lost).await.expect("failed");
            let new = Bench::drive(&bench.driver, 9);
            array.replace(lost, Arc::clone(&new) as Arc<dyn ZonedDevice>).await.expect("rebuilt");
            write(&dev, ZONE.0, 30, 31).await;
            write_at_once(&dev, 31, 60).await;
            verify(&dev, ZONE.0, 0, 60).await;
            array.fail(Slot((lost.0 + 1) % 5)).await.expect("failed");
            verify(&dev, ZONE.0, 0, 60).await;
        });
    }
}
