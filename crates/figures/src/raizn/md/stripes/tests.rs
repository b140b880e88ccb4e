use super::*;

/// Runs all requests to the stripe cache to their end; returns the commands as (drive, rows, true for a write) and the finished
/// requests.
fn run(stripes: &mut Stripes) -> (Vec<(usize, Rows, bool)>, Vec<u64>) {
    let (mut commands, mut finished) = (Vec::new(), Vec::new());
    loop {
        let outcome = stripes.handle();
        finished.extend(outcome.finished);
        if outcome.commands.is_empty() {
            finished.sort_unstable();
            return (commands, finished);
        }
        for command in outcome.commands {
            commands.push((command.drive, command.rows, command.write));
            finished.extend(stripes.done(&command));
        }
    }
}

#[test]
fn parity_goes_round_and_data_begins_behind_it() {
    assert_eq!([0, 1, 4, 5].map(|stripe| place(stripe, None)), [4, 3, 0, 4]);
    assert_eq!([0, 1, 2, 3].map(|chunk| place(1, Some(chunk))), [4, 0, 1, 2]);
    assert_eq!(runs_of_rows(0b1011_0110).collect::<Vec<_>>(), [0b110, 0b11_0000, 0b1000_0000]);
    assert_eq!(runs_of_rows(Rows::MAX).collect::<Vec<_>>(), [Rows::MAX]);
}

#[test]
fn whole_rows_are_written_without_a_read() {
    let mut stripes = Stripes::new(16, None);
    for drive in 0..4 {
        stripes.request(7, true, 0, drive, 0xFFFF);
    }
    let (commands, finished) = run(&mut stripes);
    assert_eq!(commands, [0, 1, 2, 3, 4].map(|drive| (drive, 0xFFFF, true)));
    assert_eq!(finished, [7; 4]);
}

#[test]
fn a_partial_row_is_read_by_the_way_that_takes_fewer_drives_and_is_cached() {
    let mut stripes = Stripes::new(16, None);
    // A write of one block reads the old data and parity. Parity for a write of the next block is then in the cache.
    stripes.request(1, true, 0, 0, 1);
    assert_eq!(run(&mut stripes).0, [(0, 1, false), (4, 1, false), (0, 1, true), (4, 1, true)]);
    stripes.request(2, true, 0, 1, 1);
    assert_eq!(run(&mut stripes).0, [(1, 1, false), (1, 1, true), (4, 1, true)]);
    // Three of a stripe's four data blocks are written: the fourth is read.
    for drive in 0..3 {
        stripes.request(3, true, 5, drive, 1);
    }
    let (commands, finished) = run(&mut stripes);
    assert_eq!(commands[0], (3, 1, false));
    assert!(commands[1..].iter().all(|(_, _, write)| *write) && commands.len() == 5, "{commands:?}");
    assert_eq!(finished, [3; 3]);
}

#[test]
fn rows_wait_for_their_neighbours_while_whole_ones_are_written() {
    let mut stripes = Stripes::new(16, None);
    (0..4).for_each(|drive| stripes.request(1, true, 0, drive, 1));
    let whole = stripes.handle().commands;
    stripes.request(2, true, 1, 0, 1);
    assert_eq!(stripes.handle().commands, []);
    // The rest of the stripe arrives in time: nothing is read.
    [1, 2, 4].into_iter().for_each(|drive| stripes.request(2, true, 1, drive, 1));
    let next = stripes.handle().commands;
    assert_eq!(next.len(), 5);
    assert!(next.iter().all(|command| command.write));
    // A stripe that too many later stripes overtook is read.
    stripes.request(3, true, 2, 0, 1);
    assert_eq!(stripes.handle().commands, []);
    for stripe in [5, 6] {
        (0..5)
            .filter(|drive| *drive != place(stripe, None))
            .for_each(|drive| stripes.request(4, true, stripe, drive, 1));
    }
    assert_eq!(stripes.handle().commands.iter().filter(|command| !command.write).count(), 2);
    let over: usize = whole.iter().chain(&next).map(|command| stripes.done(command).len()).sum();
    assert_eq!(over, 8);
}

#[test]
fn a_lost_drives_blocks_are_read_once_from_all_others() {
    let mut stripes = Stripes::new(16, Some(2));
    stripes.request(1, false, 0, 0, 0b11);
    assert_eq!(run(&mut stripes), (vec![(0, 0b11, false)], vec![1]));
    stripes.request(2, false, 0, 2, 0b111);
    let (commands, finished) = run(&mut stripes);
    assert_eq!(commands, [(0, 0b100, false), (1, 0b111, false), (3, 0b111, false), (4, 0b111, false)]);
    assert_eq!(finished, [2]);
    stripes.request(3, false, 0, 2, 0b111);
    assert_eq!(run(&mut stripes), (vec![], vec![3]));
}

#[test]
fn the_cache_evicts_the_oldest_entry() {
    let mut stripes = Stripes::new(16, None);
    for stripe in 0..=stripes.most as u64 {
        stripes.request(stripe, false, stripe, 0, 1);
        run(&mut stripes);
    }
    assert_eq!(stripes.stripes.len(), stripes.most);
    stripes.request(0, false, 0, 0, 1);
    assert_eq!(run(&mut stripes).0.len(), 1);
}
