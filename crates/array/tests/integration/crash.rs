//! Power cuts at random moments, each drive with an outcome of its own, with and without a failed drive. Durable blocks
//! survive, blocks below the pointer have their acknowledged content, a reset happened wholly or not at all, and a power
//! cut during a mount loses nothing more.

use std::sync::Arc;
use std::time::Duration;

use crate::PLACEMENT;
use array::{Array, BrokenRule, CreateOptions, OpenOptions, Placement, Role, Slot};
use parking_lot::Mutex;
use units::{Driver, SplitMix64, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, FaultOp, FaultSpec, Latency, Media, Seeded};
use zoned::{
    Action, Blocks, Buf, BufMut, Bytes, Done, Durability, ErrorKind, Op, ZoneId, ZoneState, ZonedDevice,
};

const BLOCK_BYTES: u32 = 512;
const ZONES: u32 = 6;

#[derive(Clone, Copy, Debug)]
struct Shape {
    drives: u32,

    capacity: u64,
    cache: bool,
}

/// One generation of a zone's content: block `n` holds the tag `first + n`.
#[derive(Clone, Debug, Default)]
struct ZoneLife {
    tag: u64,
    /// Blocks that a mount found, below the blocks that are written by tag.
    base: Vec<Vec<u8>>,
    submitted: u64,
    acked: u64,
    durable: u64,
    finishing: bool,
    finished: bool,
    /// True if a reset of the zone was submitted, was acknowledged, or is covered by a flush.
    ending: bool,
    ended: bool,
    gone: bool,
}

impl ZoneLife {
    fn expected(&self, n: u64) -> Vec<u8> {
        self.base.get(n as usize).cloned().unwrap_or_else(|| block(self.tag, n))
    }
}

type ZoneLives = Vec<Vec<ZoneLife>>;

fn block(tag: u64, n: u64) -> Vec<u8> {
    let mut rng = SplitMix64::new(tag ^ (n << 32) ^ 0x5eed);
    (0..BLOCK_BYTES / 8).flat_map(|_| rng.draw().to_le_bytes()).collect()
}

fn random_below(rng: &mut SplitMix64, n: u64) -> u64 {
    rng.draw() % n.max(1)
}

fn emulated_drives(shape: Shape, driver: &Arc<dyn Driver>) -> Vec<Arc<Emu>> {
    (0..shape.drives)
        .map(|n| {
            let options = EmuOptions {
                name: format!("emu:{n}"),
                block_size: BLOCK_BYTES,
                zones: ZONES + 3 + crate::RESERVE_ZONES,
                zone_size: Blocks(shape.capacity * u64::from(crate::SHARES)),
                zone_capacity: Blocks(shape.capacity * u64::from(crate::SHARES)),
                max_open: Some(8 + crate::SPARE_ACTIVE),
                max_active: Some(9 + crate::SPARE_ACTIVE),
                volatile_cache: shape.cache,
                track_power_cuts: true,
                latency: Latency::all(Duration::from_micros(10 + u64::from(n))),
                seed: u64::from(n),
                ..EmuOptions::default()
            };
            Emu::memory(options, Arc::clone(driver))
        })
        .collect()
}

fn devices(emus: &[Arc<Emu>]) -> Vec<Arc<dyn ZonedDevice>> {
    emus.iter().map(|emu| Arc::clone(emu) as Arc<dyn ZonedDevice>).collect()
}

/// Submits random operations to the array until the power is cut.
async fn workload(
    dev: Arc<dyn ZonedDevice>,
    lives: Arc<Mutex<ZoneLives>>,
    seed: u64,
    zones: std::ops::Range<u32>,
) {
    let mut rng = SplitMix64::new(seed);
    let geometry = dev.geometry().clone();
    let capacity = geometry.zone_capacity.0;
    let mut next_tag = seed << 20;
    loop {
        let zone = ZoneId(zones.start + random_below(&mut rng, u64::from(zones.end - zones.start)) as u32);
        let at = zone.0 as usize;
        match random_below(&mut rng, 20) {
            0 => {
                let before: Vec<(usize, ZoneLife)> =
                    lives.lock().iter().map(|l| (l.len(), l.last().expect("one").clone())).collect();
                if dev.flush().await.is_ok() {
                    for (all, (count, then)) in lives.lock().iter_mut().zip(before) {
                        let Some(life) = all.get_mut(count - 1) else { continue };
                        life.durable = life.durable.max(then.acked);
                        life.gone |= then.ended;
                        // The next generation of the zone exists, so that older content must not come back.
                        if count > 1 {
                            all[count - 2].gone = true;
                        }
                    }
                }
            }
            1 => {
                {
                    let mut lives = lives.lock();
                    lives[at].last_mut().expect("one").ending = true;
                }
                dev.zone(zone, Action::Reset).await.expect("reset");
                let mut lives = lives.lock();
                let life = lives[at].last_mut().expect("one");
                life.ended = true;
                next_tag += 1;
                lives[at].push(ZoneLife { tag: next_tag, ..ZoneLife::default() });
            }
            2 if random_below(&mut rng, 3) == 0 => {
                lives.lock()[at].last_mut().expect("one").finishing = true;
                dev.zone(zone, Action::Finish).await.expect("finish");
                let mut lives = lives.lock();
                let life = lives[at].last_mut().expect("one");
                // A finish of a full zone changes nothing: blocks that are not durable may still be lost.
                life.finished = life.submitted < capacity;
            }
            _ => {
                // A few writes of the workload are in flight together.
                let mut ios = Vec::new();
                for _ in 0..1 + random_below(&mut rng, 4) {
                    let (tag, from) = {
                        let lives = lives.lock();
                        let life = lives[at].last().expect("one");
                        if life.finishing {
                            break;
                        }
                        (life.tag, life.submitted)
                    };
                    let most = if random_below(&mut rng, 4) == 0 { 24 } else { 3 };
                    let len = (1 + random_below(&mut rng, most)).min(capacity - from);
                    if len == 0 {
                        break;
                    }
                    let data: Vec<u8> = (from..from + len).flat_map(|n| block(tag, n)).collect();
                    let how =
                        if random_below(&mut rng, 6) == 0 { Durability::Durable } else { Durability::Cached };
                    let data = Buf::copy_from(&data);
                    let io = if random_below(&mut rng, 2) == 0 {
                        dev.submit(Op::Append { zone, data, how })
                    } else {
                        let at = geometry.start(zone).plus(Blocks(from));
                        dev.submit(Op::Write { at, data, how })
                    };
                    {
                        let mut lives = lives.lock();
                        lives[at].last_mut().expect("one").submitted = from + len;
                    }
                    ios.push((io, from + len, how));
                }
                for (io, end, how) in ios {
                    match io.await {
                        Ok(Done::Unit | Done::At(_)) => {
                            let mut lives = lives.lock();
                            let life = lives[at].last_mut().expect("one");
                            life.acked = life.acked.max(end);
                            if how == Durability::Durable || !geometry.volatile_cache {
                                life.durable = life.durable.max(end);
                            }
                        }
                        other => panic!("a write: {other:?}"),
                    }
                }
            }
        }
    }
}

/// Moves random parts to other physical zones of their drives until the power is cut.
async fn mover(array: Arc<Array>, seed: u64) {
    let mut rng = SplitMix64::new(seed ^ 0x307e);
    let width = array.superblock().members.len() as u64;
    let driver = Arc::clone(array.driver());
    loop {
        let zone = ZoneId(random_below(&mut rng, u64::from(ZONES)) as u32);
        let role = Role(random_below(&mut rng, width) as u32);
        if let Some((slot, _)) = array.place(zone, role) {
            match array.move_part(zone, role, slot, array::Pace::UNBOUNDED).await {
                Ok(_) => {}
                // The zone has no content, or the drive failed or has no free physical zone.
                Err(e) if matches!(e.kind(), ErrorKind::Invalid | ErrorKind::NoSpace) => {}
                Err(e) if array.superblock().members.iter().any(|member| member.failed) => drop(e),
                Err(e) => panic!("a move of part {role:?} of zone {zone}: {e}"),
            }
        }
        let rest = Duration::from_micros(random_below(&mut rng, 100));
        sleep_until(&*driver, driver.now().after(rest)).await;
    }
}

/// True if parts are moved beside the workload of a seed. Where a rule is broken, nothing else than the rule's own subject goes on.
fn moves_parts(seed: u64, broken: Option<BrokenRule>) -> bool {
    let of_moves =
        |rule| matches!(rule, BrokenRule::MovedMapAwaited | BrokenRule::MoveEnd | BrokenRule::MovedPart);
    let may_move = crate::PLACEMENT == Placement::Stored && crate::SHARES == 1;
    may_move && broken.map_or(seed % 2 == 1, of_moves)
}

/// The fault of a zone whose content should be that of `life`; `None` if there is none.
fn zone_fault(
    life: &ZoneLife,
    state: ZoneState,
    pointer: u64,
    content: &[Vec<u8>],
    strict: bool,
) -> Result<(), String> {
    if life.gone {
        return Err("a life that is over for good".into());
    }
    let full = state == ZoneState::Full;
    if state == ZoneState::Empty {
        return if life.durable == 0 { Ok(()) } else { Err(format!("empty, {} durable", life.durable)) };
    }
    if !full && (pointer < life.durable || pointer > life.submitted) {
        return Err(format!("the pointer is at {pointer}: {life:?}"));
    }
    if !full && life.finished {
        return Err(format!("not full, though finished: {life:?}"));
    }
    let must = if full || !strict { life.durable } else { life.acked.min(pointer) };
    for n in 0..must {
        if content.get(n as usize).is_none_or(|found| *found != life.expected(n)) {
            return Err(format!("block {n} is wrong, pointer {pointer} {state:?}: {life:?}"));
        }
    }
    Ok(())
}

/// Compares the content of an array with the contents that the model allows.
async fn check_contents(
    dev: &Arc<dyn ZonedDevice>,
    lives: &ZoneLives,
    strict: bool,
) -> Result<Vec<(ZoneState, u64, Vec<Vec<u8>>)>, String> {
    let mut seen = Vec::new();
    for info in dev.report(0..ZONES).await.expect("report") {
        let mut content = Vec::new();
        let start = dev.geometry().start(info.zone);
        for n in 0..info.pointer.0 {
            let into = BufMut::zeroed(BLOCK_BYTES as usize);
            let buf = dev.read(start.plus(Blocks(n)), into).await.map_err(|e| format!("a read: {e}"))?;
            content.push(buf.to_vec());
        }
        let all = &lives[info.zone.index()];
        let verdicts: Vec<Result<(), String>> = all
            .iter()
            .rev()
            .take(3)
            .map(|life| zone_fault(life, info.state, info.pointer.0, &content, strict))
            .collect();
        // A reset that was submitted before the power cut may have happened.
        let reset = info.state == ZoneState::Empty && all.last().is_some_and(|life| life.ending);
        if !reset && verdicts.iter().all(Result::is_err) {
            return Err(format!("zone {}: {verdicts:?}", info.zone));
        }
        seen.push((info.state, info.pointer.0, content));
    }
    Ok(seen)
}

fn drives_over(media: Vec<Media>, seed: u64) -> (Arc<dyn Driver>, Vec<Arc<Emu>>) {
    let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
    let latency = Latency::all(Duration::from_micros(10));
    let emus = media
        .into_iter()
        .enumerate()
        .map(|(n, media)| Emu::from_media(media, &format!("emu:{n}"), latency, Arc::clone(&driver)))
        .collect();
    (driver, emus)
}

fn cut(emus: &[Arc<Emu>], seed: u64) -> Vec<Media> {
    emus.iter().zip(0..).map(|(emu, n)| emu.power_cut(&mut Seeded::new(seed ^ (n << 17)))).collect()
}

/// The drive that fails in a crash test, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DriveFailure {
    None,
    Before(usize),
    /// The drive fails while the workload runs, and is present at the mount (true) or not.
    During(usize, bool),
    At(usize),
    After(usize),
}

impl DriveFailure {
    /// The failure of one drive of `drives`, a function of the random numbers.
    fn draw(rng: &mut SplitMix64, drives: u32) -> DriveFailure {
        let lost = random_below(rng, u64::from(drives)) as usize;
        match random_below(rng, 5) {
            0 => DriveFailure::None,
            1 => DriveFailure::Before(lost),
            2 => DriveFailure::At(lost),
            3 => DriveFailure::During(lost, random_below(rng, 2) == 0),
            _ => DriveFailure::After(lost),
        }
    }

    fn drive(self) -> Option<usize> {
        match self {
            DriveFailure::None => None,
            DriveFailure::Before(lost) | DriveFailure::At(lost) | DriveFailure::After(lost) => Some(lost),
            DriveFailure::During(lost, _) => Some(lost),
        }
    }
}

/// `all` without the entries with these numbers.
fn without<T>(all: Vec<T>, lost: &[usize]) -> Vec<T> {
    all.into_iter().enumerate().filter(|(n, _)| !lost.contains(n)).map(|(_, one)| one).collect()
}

/// One crash test, a function of the seed: as many drives may fail as there are parities.
fn run(seed: u64, parities: u32, broken: Option<BrokenRule>) -> Result<(), String> {
    let mut rng = SplitMix64::new(seed);
    let shapes = match parities {
        1 => [(3, 1, 48), (4, 2, 61), (5, 2, 64), (5, 4, 90), (3, 5, 93)],
        _ => [(4, 1, 48), (4, 2, 61), (5, 2, 64), (6, 4, 90), (5, 5, 93)],
    };
    let (drives, unit, capacity) = shapes[random_below(&mut rng, shapes.len() as u64) as usize];
    let shape = Shape { drives, capacity, cache: random_below(&mut rng, 4) != 0 };
    let mut losses: Vec<DriveFailure> = Vec::new();
    for _ in 0..parities {
        let loss = DriveFailure::draw(&mut rng, drives);
        if loss.drive().is_some_and(|drive| losses.iter().all(|other| other.drive() != Some(drive))) {
            losses.push(loss);
        }
    }
    let lost = |when: fn(&DriveFailure) -> bool| -> Vec<usize> {
        losses.iter().filter(|loss| when(loss)).filter_map(|loss| loss.drive()).collect()
    };
    let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
    let drives = emulated_drives(shape, &driver);
    let lives: Arc<Mutex<ZoneLives>> = Arc::new(Mutex::new(
        (0..ZONES).map(|z| vec![ZoneLife { tag: u64::from(z) << 40, ..ZoneLife::default() }]).collect(),
    ));
    let until = Duration::from_micros(300 + random_below(&mut rng, 8_000));
    // The mount relocates content of stale rows as far as the logs have room, or rewrites every zone with
    // stale rows.
    let rebuild_above = Bytes(if random_below(&mut rng, 2) == 0 { 0 } else { 1 << 20 });
    let options = OpenOptions { broken_rule: broken, rebuild_above, ..OpenOptions::default() };
    let what = format!("seed {seed}: {shape:?}, unit {unit}, {losses:?}, {until:?}");
    block_on(&*driver, async {
        let stripe_unit = Bytes(unit * u64::from(BLOCK_BYTES));
        let create = CreateOptions {
            stripe_unit,
            parities,
            placement: crate::PLACEMENT,
            shares: crate::SHARES,
            ..CreateOptions::default()
        };
        let devices = devices(&drives);
        array::create(&devices, &create).await.expect("created");
        let devices = without(devices, &lost(|loss| matches!(loss, DriveFailure::Before(_))));
        let array = Array::open(devices, options.clone()).await.expect("opened");
        if moves_parts(seed, broken) {
            drop(spawn(&*driver, "mover", mover(Arc::clone(&array), seed)));
        }
        let dev: Arc<dyn ZonedDevice> = array;
        for task in 0..2_u32 {
            let zones = task * ZONES / 2..(task + 1) * ZONES / 2;
            drop(spawn(
                &*driver,
                "workload",
                workload(Arc::clone(&dev), Arc::clone(&lives), seed * 2 + u64::from(task), zones),
            ));
        }
        let half = until / 2;
        sleep_until(&*driver, driver.now().after(half)).await;
        for lost in lost(|loss| matches!(loss, DriveFailure::During(..))) {
            for op in [FaultOp::Write, FaultOp::Zone, FaultOp::Flush, FaultOp::Read] {
                drives[lost].fail(FaultSpec::all(op));
            }
        }
        sleep_until(&*driver, driver.now().after(until - half)).await;
    });
    let lives = lives.lock().clone();
    let away = |loss: &DriveFailure| {
        matches!(loss, DriveFailure::Before(_) | DriveFailure::At(_) | DriveFailure::During(_, false))
    };
    let away = lost(away);
    let mut media = without(cut(&drives, seed ^ 0xc0de), &away);
    // The power is also cut during a few mounts.
    let failed = losses.iter().filter(|loss| !matches!(loss, DriveFailure::After(_))).count();
    let strict = failed == 0;
    for round in 0..random_below(&mut rng, 3) {
        let (driver, emus) = drives_over(media, seed ^ round);
        let time = Duration::from_micros(random_below(&mut rng, 2_000));
        let (d, devs, options) = (Arc::clone(&driver), devices(&emus), options.clone());
        block_on(&*driver, async move {
            drop(spawn(&*d, "mount", async move {
                let _opened_or_not = Array::open(devs, options).await;
            }));
            sleep_until(&*d, d.now().after(time)).await;
        });
        media = cut(&emus, seed ^ 0xf00d ^ round);
    }
    let (driver, emus) = drives_over(media, seed ^ 7);
    let check_all = |devs: Vec<Arc<dyn ZonedDevice>>, strict: bool| {
        block_on(&*driver, async {
            let dev: Arc<dyn ZonedDevice> =
                Array::open(devs, options.clone()).await.map_err(|e| format!("{what}: mount: {e}"))?;
            let seen = check_contents(&dev, &lives, strict).await.map_err(|e| format!("{what}: {e}"))?;
            Ok::<_, String>((dev, seen))
        })
    };
    let (dev, seen) = check_all(devices(&emus), strict)?;
    let after = lost(|loss| matches!(loss, DriveFailure::After(_)));
    if after.is_empty() && random_below(&mut rng, 2) == 0 {
        let left = parities as usize - failed;
        return write_and_cut_again(dev, &emus, seen, (strict, left), &options, &mut rng, &what);
    }
    drop(dev);
    if !after.is_empty() {
        // The drives that are present have the numbers of the recording, less the drives that are away.
        let number = |lost: &usize| lost - away.iter().filter(|gone| *gone < lost).count();
        let after: Vec<usize> = after.iter().map(number).collect();
        let (_dev, again) = check_all(without(devices(&emus), &after), strict)?;
        for (zone, (a, b)) in seen.iter().zip(&again).enumerate() {
            // Later mounts must find the same content as the first one.
            if a != b {
                return Err(format!(
                    "{what}: zone {zone} changed when a drive was lost: {:?} {:?}",
                    (a.0, a.1),
                    (b.0, b.1)
                ));
            }
        }
    }
    Ok(())
}

/// Writes after a mount, cuts the power again, perhaps with a drive less, and mounts the array again;
/// twice. `whole`: the array lacks no drive; `left`: how many may still fail.
fn write_and_cut_again(
    mut dev: Arc<dyn ZonedDevice>,
    emus: &[Arc<Emu>],
    mut seen: Vec<(ZoneState, u64, Vec<Vec<u8>>)>,
    (mut whole, mut left): (bool, usize),
    options: &OpenOptions,
    rng: &mut SplitMix64,
    what: &str,
) -> Result<(), String> {
    let mut emus = emus.to_vec();
    for round in 1..3_u64 {
        let driver = Arc::clone(dev.driver());
        let life = |(zone, (state, pointer, content)): (u64, (ZoneState, u64, Vec<Vec<u8>>))| {
            let full = state == ZoneState::Full;
            // The content that a mount found is final, also that of a full zone.
            vec![ZoneLife {
                tag: (round << 50) | (zone << 40),
                base: content,
                submitted: pointer,
                acked: pointer,
                durable: pointer,
                finishing: full,
                finished: full,
                ..ZoneLife::default()
            }]
        };
        let lives: Arc<Mutex<ZoneLives>> = Arc::new(Mutex::new((0..).zip(seen).map(life).collect()));
        let until = Duration::from_micros(random_below(rng, 5_000));
        block_on(&*driver, async {
            for task in 0..2_u32 {
                let zones = task * ZONES / 2..(task + 1) * ZONES / 2;
                let work = workload(Arc::clone(&dev), Arc::clone(&lives), rng.draw() >> 30, zones);
                drop(spawn(&*driver, "workload", work));
            }
            sleep_until(&*driver, driver.now().after(until)).await;
        });
        let mut media = cut(&emus, rng.draw());
        let loses = left > 0 && random_below(rng, 2) == 0;
        let lost = random_below(rng, media.len() as u64) as usize;
        if loses {
            media.remove(lost);
            left -= 1;
        }
        whole &= !loses;
        let what = format!("{what}, written on for {until:?}, round {round}, lost {lost}: {loses}");
        let (driver, next) = drives_over(media, rng.draw());
        let lives = lives.lock().clone();
        (dev, seen) = block_on(&*driver, async {
            let dev: Arc<dyn ZonedDevice> = Array::open(devices(&next), options.clone())
                .await
                .map_err(|e| format!("{what}: mount: {e}"))?;
            let seen = check_contents(&dev, &lives, whole).await.map_err(|e| format!("{what}: {e}"))?;
            Ok::<_, String>((dev, seen))
        })?;
        emus = next;
    }
    Ok(())
}

/// The seeds of a test: `FURROW_SEED=N` selects one seed, `FURROW_RUNS=N` the first N. The crash explorer has far more states of arrays.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let asked = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    match (asked("FURROW_SEED"), asked("FURROW_RUNS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(usual),
    }
}

/// The failed runs as text, each with the command that replays it.
fn failure_text(failures: &[String], of: usize, test: &str) -> String {
    let shown: Vec<String> = failures
        .iter()
        .take(8)
        .map(|why| {
            let seed = why.trim_start_matches("seed ").split(':').next().unwrap_or_default().to_owned();
            format!("{why}\n  again: FURROW_SEED={seed} cargo test -p furrow-array --test integration crash::{test}")
        })
        .collect();
    format!("{} of {of}:\n{}", failures.len(), shown.join("\n"))
}

#[test]
fn nothing_durable_is_lost_at_any_cut_without_any_drive() {
    let seeds = seeds(150);
    let of = (seeds.end - seeds.start) as usize;
    let failures: Vec<String> = seeds.filter_map(|seed| run(seed, 1, None).err()).collect();
    assert!(failures.is_empty(), "{}", failure_text(&failures, of, "nothing_durable_is_lost"));
}

#[test]
fn with_two_parities_nothing_durable_is_lost_at_any_cut_without_any_two_drives() {
    let seeds = seeds(120);
    let of = (seeds.end - seeds.start) as usize;
    let failures: Vec<String> = seeds.filter_map(|seed| run(seed, 2, None).err()).collect();
    assert!(failures.is_empty(), "{}", failure_text(&failures, of, "with_two_parities"));
}

#[test]
fn a_second_parity_that_is_not_logged_is_found() {
    let rule = BrokenRule::SecondParity;
    let broken = |seed: &u64| {
        let result = std::panic::catch_unwind(|| run(*seed, 2, Some(rule)));
        result.is_ok_and(|result| result.is_err())
    };
    let found = (0..3000).find(broken).expect("found");
    assert_eq!(run(found, 2, None), Ok(()), "seed {found}, with the rule intact");
    println!("{rule:?} is found by seed {found}");
}

#[test]
fn each_broken_rule_is_found() {
    let rules = match PLACEMENT {
        Placement::Fixed => [
            BrokenRule::ResetIntent,
            BrokenRule::PartialParity,
            BrokenRule::Generation,
            BrokenRule::DurableWrite,
            BrokenRule::Resync,
            BrokenRule::StaleRows,
            BrokenRule::ZoneRewrite,
        ]
        .as_slice(),
        Placement::Stored if crate::SHARES > 1 => {
            // The explorer shows that a part must not go behind rows that are not durable (`sim`, broken_rules).
            &[BrokenRule::MapEnd, BrokenRule::MapCopies]
        }
        // The explorer shows that a move must wait for its map (`sim`, broken_rules): few cuts fall between the two.
        Placement::Stored => {
            &[BrokenRule::MapEnd, BrokenRule::MapCopies, BrokenRule::MoveEnd, BrokenRule::MovedPart]
        }
    };
    for rule in rules.iter().copied() {
        let broken = |seed: &u64| {
            let result = std::panic::catch_unwind(|| run(*seed, 1, Some(rule)));
            result.is_ok_and(|result| result.is_err())
        };
        let found = (0..3000).find(broken).unwrap_or_else(|| panic!("{rule:?} was not found"));
        // The crash test passes with the same seed if no rule is broken.
        assert_eq!(run(found, 1, None), Ok(()), "{rule:?}, seed {found}, with the rule intact");
        println!("{rule:?} is found by seed {found}");
    }
}

/// A new drive replaces a missing one while the workload runs; the power is cut before, during or after the rebuild. With two
/// parities a second drive may be missing all the time.
fn run_with_rebuild(seed: u64, parities: u32) -> Result<(bool, bool), String> {
    let mut rng = SplitMix64::new(seed ^ 0x9e1);
    let shapes = match parities {
        1 => [(3, 1, 48), (4, 2, 61), (5, 2, 64), (5, 4, 90), (3, 5, 93)],
        _ => [(4, 1, 48), (4, 2, 61), (5, 2, 64), (6, 4, 90), (5, 5, 93)],
    };
    let (drives, unit, capacity) = shapes[random_below(&mut rng, shapes.len() as u64) as usize];
    let shape = Shape { drives, capacity, cache: random_below(&mut rng, 4) != 0 };
    let lost = random_below(&mut rng, u64::from(drives)) as usize;
    let away = (parities > 1 && random_below(&mut rng, 2) == 0)
        .then(|| (lost + 1 + random_below(&mut rng, u64::from(drives) - 1) as usize) % drives as usize);
    let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
    let drives = emulated_drives(shape, &driver);
    let new = emulated_drives(shape, &driver).remove(0);
    let lives: Arc<Mutex<ZoneLives>> = Arc::new(Mutex::new(
        (0..ZONES).map(|z| vec![ZoneLife { tag: u64::from(z) << 40, ..ZoneLife::default() }]).collect(),
    ));
    let done = Arc::new(Mutex::new(None));
    let before = Duration::from_micros(300 + random_below(&mut rng, 4_000));
    let until = Duration::from_micros(random_below(&mut rng, 30_000));
    block_on(&*driver, async {
        let stripe_unit = Bytes(unit * u64::from(BLOCK_BYTES));
        let create = CreateOptions {
            stripe_unit,
            parities,
            placement: crate::PLACEMENT,
            shares: crate::SHARES,
            ..CreateOptions::default()
        };
        let devices = devices(&drives);
        array::create(&devices, &create).await.expect("created");
        let devices = without(devices, &[lost, away.unwrap_or(lost)]);
        let array = Array::open(devices, OpenOptions::default()).await.expect("opened");
        let dev: Arc<dyn ZonedDevice> = Arc::clone(&array) as Arc<dyn ZonedDevice>;
        for task in 0..2_u32 {
            let zones = task * ZONES / 2..(task + 1) * ZONES / 2;
            let work = workload(Arc::clone(&dev), Arc::clone(&lives), seed * 2 + u64::from(task), zones);
            drop(spawn(&*driver, "workload", work));
        }
        sleep_until(&*driver, driver.now().after(before)).await;
        let (flag, device) = (Arc::clone(&done), Arc::clone(&new) as Arc<dyn ZonedDevice>);
        drop(spawn(&*driver, "replace", async move {
            let result = array.replace(Slot(lost as u32), device).await;
            *flag.lock() = Some(result);
        }));
        sleep_until(&*driver, driver.now().after(until)).await;
    });
    let replaced = match done.lock().take() {
        Some(Err(e)) => return Err(format!("seed {seed}: {shape:?}: the replacement: {e}")),
        Some(Ok(())) => true,
        None => false,
    };
    let lives = lives.lock().clone();
    let mut media: Vec<Option<Media>> = cut(&drives, seed ^ 0xc0de).into_iter().map(Some).collect();
    // The drive that was missing before the rebuild may be present again.
    let stale = media[lost].take().expect("cut");
    away.into_iter().for_each(|away| media[away] = None);
    let mut media: Vec<Media> = media.into_iter().flatten().collect();
    media.push(new.power_cut(&mut Seeded::new(seed ^ 0xbeef)));
    let mut what =
        format!("seed {seed}: {shape:?}, replaced {lost}: {replaced}, {away:?} away, {before:?} {until:?}");
    let mut left = parities as usize - usize::from(!replaced) - usize::from(away.is_some());
    if random_below(&mut rng, 3) == 0 {
        what += ", the old one is back";
        media.push(stale);
    } else if left > 0 && random_below(&mut rng, 2) == 0 {
        left -= 1;
        let other = random_below(&mut rng, media.len() as u64 - 1) as usize;
        what += &format!(", another is lost: {other}");
        media.remove(other);
    }
    let (driver, emus) = drives_over(media, seed ^ 7);
    let goes_on = block_on(&*driver, async {
        let array = Array::open(devices(&emus), OpenOptions::default());
        let array = array.await.map_err(|e| format!("{what}: mount: {e}"))?;
        let dev: Arc<dyn ZonedDevice> = Arc::clone(&array) as Arc<dyn ZonedDevice>;
        check_contents(&dev, &lives, false).await.map_err(|e| format!("{what}: {e}"))?;
        let Some(rebuild) = array.rebuild() else { return Ok::<bool, String>(false) };
        rebuild.wait().await.map_err(|e| format!("{what}: the rebuild goes on: {e}"))?;
        Ok(true)
    })?;
    if goes_on {
        // The new drive holds all its content: the array can work without another drive.
        let mut devices = devices(&emus);
        // The new drive is a member, so that one drive more may be missing.
        left += usize::from(!replaced);
        let other = random_below(&mut rng, 2) as usize;
        if left > 0 {
            devices.remove(other);
        }
        block_on(&*driver, async {
            let array = Array::open(devices, OpenOptions::default());
            let dev: Arc<dyn ZonedDevice> =
                array.await.map_err(|e| format!("{what}: without {other}: {e}"))?;
            check_contents(&dev, &lives, false).await.map_err(|e| format!("{what}: without {other}: {e}"))
        })?;
    }
    Ok((replaced, goes_on))
}

#[test]
fn a_new_drive_holds_all_content_after_any_cut() {
    a_new_drive_holds_all_content(1, "a_new_drive_holds");
}

#[test]
fn with_two_parities_a_new_drive_holds_all_content_after_any_cut_beside_another_missing_one() {
    a_new_drive_holds_all_content(2, "with_two_parities_a_new_drive");
}

fn a_new_drive_holds_all_content(parities: u32, test: &str) {
    let results: Vec<Result<(bool, bool), String>> =
        seeds(120 / u64::from(parities)).map(|seed| run_with_rebuild(seed, parities)).collect();
    let failures: Vec<String> = results.iter().filter_map(|result| result.clone().err()).collect();
    assert!(failures.is_empty(), "{}", failure_text(&failures, results.len(), test));
    let replaced = results.iter().filter(|result| matches!(result, Ok((true, _)))).count();
    let resumed = results.iter().filter(|result| matches!(result, Ok((_, true)))).count();
    let of = results.len();
    println!("{replaced} of {of} were replaced before the cut, {resumed} went on after it");
    assert!(of == 1 || replaced * 5 > of, "only {replaced} of {of}");
    assert!(of == 1 || resumed * 10 > of, "only {resumed} of {of} went on");
}
