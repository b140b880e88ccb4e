//! Writes of an array's zones at addresses of the callers' own, behind a stage (`array:...?stage=SIZE`).

use std::sync::Arc;

use array::{Array, Slot};
use units::{SplitMix64, block_on};
use zoned::{
    Action, Blocks, BufMut, Bytes, Durability, ErrorKind, Io, Lba, Stage, ZoneId, ZoneInfo, ZoneState,
    ZonedDevice, join_all,
};

use crate::common::{BLOCK_BYTES, Bench, blocks, device, verify};

const ZONE: u32 = 1;
/// The window of the stage in blocks.
const WINDOW: u64 = 32;
/// Blocks of a write.
const PIECE: u64 = 3;

fn stage(array: &Arc<Array>) -> Arc<dyn ZonedDevice> {
    Stage::over(device(array), Bytes(WINDOW * BLOCK_BYTES as u64)).expect("a stage")
}

fn write(device: &Arc<dyn ZonedDevice>, at: u64, blocks_of: u64, how: Durability) -> Io<()> {
    let start = device.geometry().start(ZoneId(ZONE)).plus(Blocks(at));
    device.write(start, blocks(ZONE, at, at + blocks_of), how)
}

async fn info(device: &Arc<dyn ZonedDevice>) -> ZoneInfo {
    device.report(ZONE..ZONE + 1).await.expect("reported")[0]
}

/// The first blocks of the pieces of `0..pieces`, in an order in which each piece lies within the window.
fn shuffled_pieces(pieces: u64, seed: u64) -> Vec<u64> {
    let mut rng = SplitMix64::new(seed);
    let mut order: Vec<u64> = (0..pieces).collect();
    for part in order.chunks_mut((WINDOW / PIECE) as usize) {
        for n in (1..part.len()).rev() {
            part.swap(n, (rng.draw() % (n as u64 + 1)) as usize);
        }
    }
    order.into_iter().map(|piece| piece * PIECE).collect()
}

/// Writes the first `pieces` of the zone in shuffled order, all in flight at once.
async fn write_shuffled(device: &Arc<dyn ZonedDevice>, pieces: u64, seed: u64) {
    let order = shuffled_pieces(pieces, seed);
    let ios = order.into_iter().map(|at| write(device, at, PIECE, Durability::Cached)).collect();
    for done in join_all(ios).await {
        done.expect("written");
    }
}

#[test]
fn a_zone_takes_writes_in_any_order_and_shows_them_through_reads_and_reports() {
    for seed in 0..8 {
        let bench = Bench::new(seed);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let staged = stage(&array);
            write_shuffled(&staged, 60, seed).await;
            assert_eq!(info(&staged).await.pointer, Blocks(60 * PIECE));
            verify(&staged, ZONE, 0, 60 * PIECE).await;
            let past = staged.geometry().start(ZoneId(ZONE)).plus(Blocks(60 * PIECE));
            if !staged.geometry().read_past_pointer {
                let error = staged.read(past, BufMut::zeroed(BLOCK_BYTES)).await.expect_err("not written");
                assert_eq!(error.kind(), ErrorKind::ReadPastPointer);
            }
        });
    }
}

#[test]
fn a_finish_and_a_reset_fail_what_waits_and_the_zone_has_a_next_life() {
    for action in [Action::Finish, Action::Reset] {
        let bench = Bench::new(1);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let staged = stage(&array);
            write_shuffled(&staged, 10, 1).await;
            let ahead = write(&staged, 10 * PIECE + 4, 1, Durability::Cached);
            staged.zone(ZoneId(ZONE), action).await.expect("done");
            let error = ahead.await.expect_err("a gap");
            let missing = staged.geometry().start(ZoneId(ZONE)).plus(Blocks(10 * PIECE));
            assert_eq!(error.kind(), ErrorKind::Gap, "{error}");
            assert!(error.to_string().contains(&format!("the first missing block is {missing}")), "{error}");
            if action == Action::Finish {
                assert_eq!(info(&staged).await.state, ZoneState::Full);
                verify(&staged, ZONE, 0, 10 * PIECE).await;
                staged.zone(ZoneId(ZONE), Action::Reset).await.expect("reset");
            }
            assert_eq!(
                (info(&staged).await.state, info(&staged).await.pointer),
                (ZoneState::Empty, Blocks(0))
            );
            write_shuffled(&staged, 20, 2).await;
            verify(&staged, ZONE, 0, 20 * PIECE).await;
        });
    }
}

#[test]
fn a_drive_that_fails_beside_waiting_writes_costs_none() {
    let bench = Bench::new(3);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let staged = stage(&array);
        let order = shuffled_pieces(60, 3);
        let (first, rest) = order.split_at(25);
        let submit =
            |part: &[u64]| part.iter().map(|at| write(&staged, *at, PIECE, Durability::Cached)).collect();
        let first: Vec<Io<()>> = submit(first);
        array.fail(Slot(2)).await.expect("failed");
        let rest: Vec<Io<()>> = submit(rest);
        for done in join_all(first.into_iter().chain(rest).collect()).await {
            done.expect("written");
        }
        verify(&staged, ZONE, 0, 60 * PIECE).await;
    });
}

/// After a power cut of all drives the zone holds a prefix of the writes, with every write that was acknowledged as durable.
#[test]
fn durable_writes_behind_a_stage_survive_a_power_cut() {
    for seed in 0..24 {
        let bench = Bench::new(seed);
        let durable = block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let staged = stage(&array);
            let order = shuffled_pieces(40, seed);
            let (done, in_flight) = order.split_at(20);
            let how = |at: u64| if at.is_multiple_of(2) { Durability::Durable } else { Durability::Cached };
            let ios: Vec<Io<()>> = done.iter().map(|at| write(&staged, *at, PIECE, how(*at))).collect();
            for done in join_all(ios).await {
                done.expect("written");
            }
            for at in in_flight {
                drop(write(&staged, *at, PIECE, how(*at)));
            }
            done.iter().filter(|at| how(**at) == Durability::Durable).map(|at| at + PIECE).max().unwrap_or(0)
        });
        let cut = bench.cut(seed);
        block_on(&*cut.driver, async {
            let array = device(&cut.open(&[]).await);
            let end = info(&array).await.pointer.0.min(40 * PIECE);
            assert!(end >= durable, "seed {seed}: the pointer is {end}, and {durable} blocks are durable");
            verify(&array, ZONE, 0, durable).await;
        });
    }
}

#[test]
fn a_write_below_the_pointer_is_refused_with_its_address() {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let staged = stage(&array);
        write_shuffled(&staged, 4, 1).await;
        let error = write(&staged, 2, 1, Durability::Cached).await.expect_err("written before");
        let at: Lba = staged.geometry().start(ZoneId(ZONE)).plus(Blocks(2));
        assert_eq!((error.kind(), error.address()), (ErrorKind::NotAtWritePointer, Some(at)), "{error}");
        write_shuffled_rest(&staged).await;
    });
}

/// The zone goes on at its pointer after a refusal.
async fn write_shuffled_rest(staged: &Arc<dyn ZonedDevice>) {
    let ios = [5, 4].map(|piece| write(staged, piece * PIECE, PIECE, Durability::Cached));
    for done in join_all(ios.into()).await {
        done.expect("written");
    }
    verify(staged, ZONE, 0, 6 * PIECE).await;
}
