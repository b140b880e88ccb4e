//! Replays a trace on a medium, one event at a time.
//!
//! A drive gives appends in flight their addresses in any order. The replay therefore executes an append when the medium's
//! write pointer reaches the address that the drive gave, and keeps the append in flight until then. A power cut may also find
//! an append in flight landed, at an address that the cut chooses.

use std::borrow::Cow;
use std::collections::BTreeMap;

use zoned::emu::{Media, Moment, OpId};
use zoned::{Blocks, Buf, Done, Durability, Lba, Op, ZoneId, ZoneState};

use crate::trace::{Event, OpNumber};

/// The outcome of each operation of a trace.
#[derive(Debug, Default)]
pub(crate) struct Completions(BTreeMap<OpNumber, Completion>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Completion {
    /// The operation is an append that got this address.
    At(Lba),
    /// The operation succeeded and has no result of its own.
    Done,
    /// The drive refused the operation, which had no effect.
    Refused,
}

impl Completions {
    pub(crate) fn of<'e>(events: impl IntoIterator<Item = &'e Event>) -> Completions {
        let fate = |event: &Event| match event {
            Event::Acked { op, at: Some(at) } => Some((*op, Completion::At(*at))),
            Event::Acked { op, at: None } => Some((*op, Completion::Done)),
            Event::Refused { op } => Some((*op, Completion::Refused)),
            _ => None,
        };
        Completions(events.into_iter().filter_map(fate).collect())
    }

    fn get(&self, op: OpNumber) -> Option<Completion> {
        self.0.get(&op).copied()
    }
}

/// A medium on which a trace is replayed.
pub(crate) struct Replay<'a> {
    media: Media,
    completions: &'a Completions,
    pending: BTreeMap<ZoneId, Vec<PendingAppend>>,
}

/// An append that the replay has not executed yet.
struct PendingAppend {
    id: OpId,
    /// The address that the drive gave the append; `None` where the trace has no completion of it.
    at: Option<Lba>,
    data: Buf,
    how: Durability,
    submitted: Moment,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(media: Media, completions: &'a Completions) -> Replay<'a> {
        Replay { media, completions, pending: BTreeMap::new() }
    }

    /// The medium after the replayed events, with the appends in flight.
    pub(crate) fn image(&self) -> Cow<'_, Media> {
        if self.pending.is_empty() {
            return Cow::Borrowed(&self.media);
        }
        let image = self.media.clone();
        for (zone, appends) in &self.pending {
            appends.iter().for_each(|append| append.execute(&image, *zone));
        }
        Cow::Owned(image)
    }

    /// Makes a zone of the replayed medium read-only or offline.
    pub(crate) fn wear(&self, zone: ZoneId, state: ZoneState) {
        self.media.wear(zone, state);
    }

    /// Replays one event of the trace.
    pub(crate) fn step(&mut self, event: &Event) {
        match event {
            Event::Submit { op, what: Op::Append { zone, data, how } } => {
                let at = match self.completions.get(*op) {
                    Some(Completion::Refused) => return,
                    Some(Completion::At(at)) => Some(at),
                    // A trace without the addresses of appends has the order of submission alone.
                    Some(Completion::Done) => {
                        let _address =
                            self.media.append_late(OpId(op.0), *zone, data, *how, self.media.moment());
                        return;
                    }
                    None => None,
                };
                let (id, submitted) = (OpId(op.0), self.media.moment());
                let append = PendingAppend { id, at, data: data.clone(), how: *how, submitted };
                self.pending.entry(*zone).or_default().push(append);
                self.execute(*zone);
            }
            Event::Submit { op, what } => {
                let zone = match what {
                    Op::Write { at, .. } => self.media.geometry().zone_of(*at),
                    Op::Zone { zone, .. } => Some(*zone),
                    _ => None,
                };
                // The drive executed the earlier appends to the zone before this operation.
                for append in zone.and_then(|zone| self.execute_possible(zone)).into_iter().flatten() {
                    append.execute(&self.media, zone.expect("of this zone"));
                }
                let _an_operation_that_the_drive_refuses_changes_nothing =
                    self.media.submit(OpId(op.0), what);
            }
            Event::Acked { op, at } => {
                let zone = at.and_then(|at| self.media.geometry().zone_of(at));
                let held = |appends: &Vec<PendingAppend>| appends.iter().any(|append| append.id.0 == op.0);
                if let Some(zone) = zone.filter(|zone| self.pending.get(zone).is_some_and(held)) {
                    let left = self.execute_possible(zone);
                    let missing = left.iter().flatten().any(|append| append.id.0 == op.0);
                    assert!(!missing, "{op:?} was acknowledged at {at:?}, which the medium has not come to");
                    self.pending.extend(left.map(|left| (zone, left)));
                }
                self.media.acknowledge(OpId(op.0));
            }
            _ => {}
        }
    }

    /// Executes the appends whose addresses the write pointer has reached.
    fn execute(&mut self, zone: ZoneId) {
        while let Some(appends) = self.pending.get_mut(&zone) {
            let pointer = next_append_address(&self.media, zone);
            let Some(next) = appends.iter().position(|append| append.at == Some(pointer)) else { return };
            let append = appends.remove(next);
            if appends.is_empty() {
                self.pending.remove(&zone);
            }
            append.execute(&self.media, zone);
        }
    }

    /// Executes the appends whose addresses the write pointer has reached, and appends without an address as far as later
    /// addresses need them. Gives the remaining appends.
    fn execute_possible(&mut self, zone: ZoneId) -> Option<Vec<PendingAppend>> {
        loop {
            self.execute(zone);
            let mut left = self.pending.remove(&zone)?;
            let Some(unknown) = left.iter().position(|append| append.at.is_none()) else { return Some(left) };
            if left.iter().all(|append| append.at.is_none()) {
                return Some(left);
            }
            left.remove(unknown).execute(&self.media, zone);
            self.pending.insert(zone, left);
        }
    }
}

impl PendingAppend {
    fn execute(&self, media: &Media, zone: ZoneId) {
        let _an_append_that_no_longer_fits =
            media.append_late(self.id, zone, &self.data, self.how, self.submitted);
    }
}

/// The address of a zone's next append.
fn next_append_address(media: &Media, zone: ZoneId) -> Lba {
    let zones = zone.0..zone.0.saturating_add(1);
    let reported = match media.submit(OpId::default(), &Op::Report { zones }) {
        Ok(Done::Zones(zones)) => zones.first().map(|info| info.pointer),
        _ => None,
    };
    media.geometry().start(zone).plus(reported.unwrap_or(Blocks::ZERO))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use units::{Driver, VirtualDriver, block_on};
    use zoned::emu::{Emu, Latency, Seeded};
    use zoned::{Action, BufMut, ZonedDevice, join_all};

    use super::*;
    use crate::Recorder;
    use crate::trace::Drive;

    /// Makes appends to two zones with resets and writes between them. Gives the events and the medium at the end.
    fn workload(seed: u64, volatile: bool) -> (Drive, Vec<Event>, Media) {
        let drive = Drive::tiny(volatile);
        let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
        let latency = Latency { reset: Duration::from_micros(5), ..Latency::all(Duration::from_micros(20)) };
        let emu = Emu::memory(drive.options("emu:test", latency), driver);
        let recorder = Recorder::new(Arc::clone(&emu) as Arc<dyn ZonedDevice>, Duration::from_micros(60));
        let device: Arc<dyn ZonedDevice> = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
        let mut tag = 0_u8;
        let mut data = |blocks: usize| {
            tag += 1;
            Buf::copy_from(&vec![tag; blocks * 4096])
        };
        block_on(&**device.driver(), async {
            for round in 0..4_u32 {
                let mut ios = Vec::new();
                for n in 0..10_u32 {
                    let blocks = 1 + (n as usize + round as usize) % 2;
                    ios.push(device.append(ZoneId(n % 2), data(blocks), Durability::Cached));
                }
                if round == 1 {
                    device.flush().await.expect("flushed");
                }
                // A reset comes while appends to the other zone are in flight.
                if round == 2 {
                    let _refused = device.append(ZoneId(9), data(9), Durability::Cached).await;
                    device.zone(ZoneId(0), Action::Reset).await.expect("reset");
                }
                let _some_found_their_zone_full = join_all(ios).await;
                if round % 2 == 1 {
                    device.zone(ZoneId(1), Action::Reset).await.expect("reset");
                    device.zone(ZoneId(0), Action::Reset).await.expect("reset");
                }
            }
            let _in_flight = (
                device.append(ZoneId(0), data(1), Durability::Cached),
                device.append(ZoneId(0), data(1), Durability::Cached),
            );
        });
        (drive, recorder.take(), emu.media())
    }

    #[test]
    fn acknowledged_appends_are_at_their_addresses_after_every_cut() {
        let mut moved = 0;
        for seed in 0..30 {
            let (drive, events, end) = workload(seed, false);
            let completions = Completions::of(&events);
            let mut replay = Replay::new(drive.medium().expect("valid"), &completions);
            let mut known: BTreeMap<Lba, Buf> = BTreeMap::new();
            let mut submitted: BTreeMap<OpNumber, (ZoneId, Buf)> = BTreeMap::new();
            let (mut newest, mut resets) = (BTreeMap::new(), BTreeMap::new());
            for (at, event) in events.iter().enumerate() {
                replay.step(event);
                match event {
                    Event::Submit { op, what: Op::Append { zone, data, .. } } => {
                        submitted.insert(*op, (*zone, data.clone()));
                    }
                    // Until a reset is acknowledged its zone may hold anything.
                    Event::Submit { op, what: Op::Zone { zone, .. } } => {
                        resets.insert(*zone, *op);
                        known.retain(|at, _| at.0 / 16 != u64::from(zone.0));
                    }
                    Event::Acked { op, at: Some(at) } => {
                        let (zone, data) = submitted[op].clone();
                        if newest.insert(zone, *op).is_some_and(|before| before > *op) {
                            moved += 1;
                        }
                        if resets.get(&zone).is_none_or(|reset| reset < op) {
                            known.insert(*at, data);
                        }
                    }
                    _ => {}
                }
                for sample in 0..3 {
                    let image = replay.image().cut(&mut Seeded::new(seed * 7 + at as u64 * 3 + sample));
                    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
                    let device: Arc<dyn ZonedDevice> = Emu::from_media(image, "cut", Latency::NONE, driver);
                    for (lba, data) in &known {
                        let found = device.read(*lba, BufMut::zeroed(data.len())).wait().expect("read");
                        assert!(found[..] == data[..], "seed {seed}, event {at}, {lba:?}");
                    }
                }
            }
            assert_eq!(replay.image().fingerprint(), end.fingerprint(), "seed {seed}");
        }
        assert!(moved > 100, "only {moved} appends were acknowledged out of turn");
    }

    #[test]
    fn any_appends_in_flight_may_be_on_the_medium() {
        let (drive, events, _) = workload(3, false);
        let completions = Completions::of(&events);
        let mut replay = Replay::new(drive.medium().expect("valid"), &completions);
        // The trace is cut to the first round: ten appends in flight.
        let last = events.iter().position(|e| matches!(e, Event::Acked { .. })).expect("some");
        events[..last].iter().for_each(|event| replay.step(event));
        let mut first = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let image = replay.image().cut(&mut Seeded::new(seed));
            let device: Arc<dyn ZonedDevice> =
                Emu::from_media(image, "cut", Latency::NONE, VirtualDriver::new(1));
            first.insert(device.read(Lba(0), BufMut::zeroed(4096)).wait().expect("read")[0]);
        }
        for tag in [1, 3, 5] {
            assert!(first.contains(&tag), "{tag} of {first:?}");
        }
    }
}
