//! Tests of the plan.

use super::*;

fn options(block: u32, room: u64, buffer: u64) -> Options {
    Options { block, room, buffer, ..Options::default() }
}

fn entries(next: Option<(u64, Request)>) -> (u64, u64, Vec<u8>) {
    match next {
        Some((id, Request::Entries { at, data })) => (id, at, data.to_vec()),
        other => panic!("entries were expected: {other:?}"),
    }
}

#[test]
fn pending_bytes_wait_for_a_sync_and_go_with_zeros_behind_them() {
    let mut plan = Plan::new(&options(512, 0, 8 << 20), 0, &[]);
    assert_eq!(plan.append(&[7; 100]), 100);
    assert!(plan.next().is_none(), "nobody waits");
    plan.want(100);
    let (id, at, data) = entries(plan.next());
    assert_eq!((at, data.len(), &data[..100], &data[100..]), (0, 512, &[7; 100][..], &[0; 412][..]));
    assert_eq!(plan.durable(), 0);
    plan.done(id);
    assert_eq!(plan.durable(), 100);
}

#[test]
fn the_last_block_is_written_again_with_its_bytes_and_only_when_its_write_is_done() {
    let mut plan = Plan::new(&options(512, 0, 8 << 20), 0, &[]);
    plan.append(&[1; 100]);
    plan.want(100);
    let (first, ..) = entries(plan.next());
    plan.append(&[2; 500]);
    plan.want(600);
    assert!(plan.next().is_none(), "the block's first write is in flight");
    plan.done(first);
    let (second, at, data) = entries(plan.next());
    let wanted: Vec<u8> = [vec![1; 100], vec![2; 500], vec![0; 424]].concat();
    assert_eq!((at, data), (0, wanted));
    plan.append(&[3; 10]);
    plan.want(610);
    plan.done(second);
    let (_, at, data) = entries(plan.next());
    assert_eq!(
        (at, &data[..88], &data[88..98], &data[98..]),
        (512, &[2; 88][..], &[3; 10][..], &[0; 414][..])
    );
}

#[test]
fn full_blocks_go_side_by_side_and_count_in_order() {
    let mut plan = Plan::new(&options(512, 0, 8 << 20), 0, &[]);
    plan.append(&[1; 512]);
    plan.want(512);
    let (first, ..) = entries(plan.next());
    plan.append(&[2; 512]);
    plan.want(1024);
    let (second, at, _) = entries(plan.next());
    assert_eq!(at, 512);
    plan.done(second);
    assert_eq!(plan.durable(), 0, "the lower write is in flight");
    plan.done(first);
    assert_eq!(plan.durable(), 1024);
}

#[test]
fn much_goes_in_several_writes_that_end_with_blocks() {
    let mut plan = Plan::new(&options(4096, 0, 8 << 20), 5000, &[9; 904]);
    plan.append(&vec![4; (3 << 20) - 2000]);
    let mut ends = Vec::new();
    while let Some((_, request)) = plan.next() {
        match request {
            Request::Entries { at, data } => ends.push((at, at + data.len() as u64)),
            zeros => panic!("{zeros:?}"),
        }
    }
    assert_eq!(
        ends,
        [(4096, 4096 + (1 << 20)), (4096 + (1 << 20), 4096 + (2 << 20))],
        "less is pending than the longest write"
    );
    plan.want(plan.end());
    let (_, at, data) = entries(plan.next());
    let bytes = 904 + (1 << 20) - 2000;
    assert_eq!((at, data.len(), data[bytes - 1], data[bytes]), (4096 + (2 << 20), 1 << 20, 4, 0));
}

#[test]
fn room_is_zeroed_ahead_by_parts_and_entries_wait_for_zeros_of_their_blocks() {
    let mut plan = Plan::new(&options(512, 4096, 8 << 20), 0, &[]);
    let zeros = |plan: &mut Plan| match plan.next() {
        Some((id, Request::Zeros { at, len, durable, urgent })) => {
            assert!(urgent, "a longest write reaches all of this room");
            (id, at, len, durable)
        }
        other => panic!("zeros were expected: {other:?}"),
    };
    let (id, at, len, durable) = zeros(&mut plan);
    assert_eq!((at, len, durable), (0, 1024, false));
    plan.append(&[1; 10]);
    plan.want(10);
    assert!(plan.next().is_none(), "the zeros of the block are in flight");
    plan.done(id);
    let (_, at, _) = entries(plan.next());
    assert_eq!(at, 0);
    for (n, last) in [(1, false), (2, false), (3, true)] {
        let (id, at, len, durable) = zeros(&mut plan);
        assert_eq!((at, len, durable), (n * 1024, 1024, last));
        plan.done(id);
    }
    assert!(plan.next().is_none(), "more than half of the room is left");
}

#[test]
fn entries_go_on_where_no_room_is_to_be_had() {
    let mut plan = Plan::new(&options(512, 4096, 8 << 20), 0, &[]);
    let (id, _) = plan.next().expect("zeros");
    assert!(!plan.failed(id), "zeros that fail poison no log");
    plan.append(&[1; 10]);
    plan.want(10);
    let (id, ..) = entries(plan.next());
    assert!(plan.failed(id), "entries that fail do");
    assert!(plan.next().is_none());
}

#[test]
fn only_zeros_that_the_next_write_may_reach_are_urgent() {
    let mut plan = Plan::new(&options(4096, 4 << 20, 1 << 20), 0, &[]);
    let mut urgent = Vec::new();
    while let Some((id, Request::Zeros { urgent: is, .. })) = plan.next() {
        urgent.push(is);
        plan.done(id);
    }
    // The longest write has an eighth of the buffer, 128 KiB; zeros go 256 KiB at a time.
    assert_eq!((urgent.len(), urgent.iter().filter(|is| **is).count(), urgent[0]), (16, 1, true));
}
