//! The time model of a drive: the time at which each part of the drive is free again.
//!
//! ```text
//!   command -> host latency -> controller (serial) -+-> write buffer -> bandwidth cap -> channel -> plane
//!                                                   +-> plane -> channel -> bandwidth cap (reads)
//! ```
//!
//! A read waits for the running program operation of its plane and precedes queued program operations.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::emu::ZoneFacts;
use crate::emu::profile::{Acknowledge, Arm, Flash, Profile, ZoneMap};
use crate::{Action, Durability, Geometry, Lba, Op, ZoneId, ZoneState};

/// A drive profile applied to a drive's geometry. Times are nanoseconds.
#[derive(Debug)]
pub(super) struct Model {
    profile: Profile,
    geometry: Geometry,
    /// The number of plane groups, and of planes in a group. A zone lies on one group.
    groups: u64,
    spread: u64,
}

/// Times at which the drive's parts are free again.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelState {
    controller: u64,
    /// Times at which the bandwidth limits for reads and for writes are free again.
    reading: u64,
    draining: u64,
    channels: Vec<u64>,
    planes: Vec<Plane>,
    groups: Vec<Group>,
    /// Completion times of the drive's writes in flight.
    in_flight: BinaryHeap<Reverse<u64>>,
    /// Time at which a disk's last write reaches the platters.
    drained: u64,
    /// Number of random times drawn so far.
    draws: u64,
    /// Position of a disk's arm in bytes, and the time at which the arm is free.
    arm_at: u64,
    arm: u64,
}

/// Operations of a flash plane that the time model tracks.
#[derive(Clone, Debug, Default)]
struct Plane {
    read: u64,
    /// Start and end of the plane's unfinished program operations.
    programs: VecDeque<(u64, u64)>,
}

/// Planes that share zones and a write buffer.
#[derive(Clone, Debug, Default)]
struct Group {
    /// Number of the group's program operations so far, which selects the next plane.
    cursor: u64,
    /// Bytes of the group's incomplete page.
    pending: u64,
    /// Bytes in the group's write buffer, `pending` included, and the times at which they leave the buffer.
    held: u64,
    leaving: BinaryHeap<Reverse<(u64, u64)>>,
    /// Time at which the last bytes entered the write buffer.
    entered: u64,
}

/// A write or an append, as the time model sees it.
struct Put {
    zone: ZoneId,
    at: u64,
    bytes: u64,
    append: bool,
    durable: bool,
    opens: bool,
}

const KIB: u64 = 1024;

impl Plane {
    /// End of a plane's read that arrives at `at` and takes `time`.
    fn read(&mut self, at: u64, time: u64) -> u64 {
        let turn = at.max(self.read);
        while self.programs.front().is_some_and(|(_, end)| *end <= turn) {
            self.programs.pop_front();
        }
        let start = match self.programs.front().copied() {
            Some((from, end)) if from < turn => {
                self.programs.pop_front();
                end
            }
            _ => turn,
        };
        self.read = start + time;
        let mut free = self.read;
        for (from, end) in &mut self.programs {
            if *from >= free {
                break;
            }
            (*from, *end) = (free, free + (*end - *from));
            free = *end;
        }
        self.read
    }

    /// End of a plane's program operation that may start at `at` and takes `time`.
    fn program(&mut self, now: u64, at: u64, time: u64) -> u64 {
        while self.programs.front().is_some_and(|(_, end)| *end <= now) {
            self.programs.pop_front();
        }
        let start = at.max(self.read).max(self.programs.back().map_or(0, |(_, end)| *end));
        self.programs.push_back((start, start + time));
        start + time
    }
}

impl Group {
    /// Removes the bytes that have left the write buffer by `at`.
    fn drain_buffer_until(&mut self, at: u64) {
        while let Some(Reverse((end, bytes))) = self.leaving.peek().copied()
            && end <= at
        {
            self.leaving.pop();
            self.held = self.held.saturating_sub(bytes);
        }
    }

    /// The earliest time from `at` on at which `bytes` more fit into a write buffer of `size`. Writes enter
    /// the buffer in order of arrival.
    fn time_of_buffer_room(&mut self, at: u64, bytes: u64, size: u64) -> u64 {
        let mut at = at.max(self.entered);
        self.drain_buffer_until(at);
        while self.held + bytes > size
            && let Some(Reverse((end, _))) = self.leaving.peek().copied()
        {
            at = at.max(end);
            self.drain_buffer_until(at);
        }
        self.entered = at;
        at
    }
}

impl ModelState {
    /// A pseudo-random number determined by the number of draws, so that equal runs of the time model draw
    /// equal numbers.
    fn next_random(&mut self) -> u64 {
        self.draws = self.draws.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.draws;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Start of the controller's next free interval of length `time` after `at`.
    fn reserve_controller(&mut self, at: u64, time: u64) -> u64 {
        let start = at.max(self.controller);
        self.controller = start + time;
        start
    }

    /// End of a transfer of length `time` on the channel of `plane`, from `at` on.
    fn reserve_channel(&mut self, plane: u64, at: u64, time: u64) -> u64 {
        if time == 0 || self.channels.is_empty() {
            return at;
        }
        let index = (plane % self.channels.len() as u64) as usize;
        let Some(free) = self.channels.get_mut(index) else { return at };
        *free = at.max(*free) + time;
        *free
    }

    fn plane(&mut self, plane: u64) -> &mut Plane {
        let planes = self.planes.len().max(1) as u64;
        self.planes.get_mut((plane % planes) as usize).expect("flash has at least one plane")
    }

    fn group(&mut self, group: u64) -> &mut Group {
        let groups = self.groups.len().max(1) as u64;
        self.groups.get_mut((group % groups) as usize).expect("there is at least one group")
    }
}

/// Nanoseconds that `bytes` take at `bandwidth` bytes per second; 0 if `bandwidth` is 0 (no limit).
fn transfer_time(bytes: u64, bandwidth: u64) -> u64 {
    if bandwidth == 0 {
        return 0;
    }
    u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth)).unwrap_or(u64::MAX)
}

impl Model {
    pub(super) fn new(profile: &Profile, geometry: &Geometry) -> Model {
        let (groups, spread) = match &profile.flash {
            None => (1, 1),
            Some(flash) => {
                let dies = u64::from(flash.channels.get()) * u64::from(flash.dies.get());
                let planes = dies * u64::from(flash.planes.get());
                let groups = match flash.zones {
                    ZoneMap::Device => 1,
                    ZoneMap::Die => dies,
                    ZoneMap::Groups(groups) => u64::from(groups.get()).min(planes),
                };
                (groups, planes / groups)
            }
        };
        Model { profile: profile.clone(), geometry: geometry.clone(), groups, spread }
    }

    pub(super) fn rested(&self) -> ModelState {
        let (channels, planes) = match &self.profile.flash {
            None => (0, 0),
            Some(flash) => (flash.channels.get() as usize, (self.groups * self.spread) as usize),
        };
        ModelState {
            channels: vec![0; channels],
            planes: vec![Plane::default(); planes],
            groups: vec![Group::default(); self.groups as usize],
            ..ModelState::default()
        }
    }

    pub(super) fn completion(
        &self,
        state: &mut ModelState,
        now: u64,
        op: &Op,
        facts: Option<ZoneFacts>,
    ) -> u64 {
        let now = now.saturating_add(self.profile.host.latency.0);
        let opens = facts.is_some_and(|f| matches!(f.state, ZoneState::Empty | ZoneState::Closed));
        match op {
            Op::Read { at, into } => self.read(state, now, *at, into.len() as u64),
            Op::Write { at, data, how } => {
                let zone = self.geometry.zone_of(*at).unwrap_or(ZoneId(0));
                let (bytes, durable) = (data.len() as u64, *how == Durability::Durable);
                self.write(state, now, &Put { zone, at: at.0, bytes, append: false, durable, opens })
            }
            Op::Append { zone, data, how } => {
                let written = facts.map_or(0, |f| f.written.0);
                let at = self.geometry.start(*zone).0.saturating_add(written);
                let (bytes, durable) = (data.len() as u64, *how == Durability::Durable);
                self.write(state, now, &Put { zone: *zone, at, bytes, append: true, durable, opens })
            }
            Op::Flush => self.flush(state, now),
            Op::Zone { action, .. } => now + self.act(*action, facts),
            Op::Report { zones } => {
                let zones = zones.end.min(self.geometry.zones).saturating_sub(zones.start);
                let times = &self.profile.zone;
                now + times.report.0 + u64::from(zones).saturating_mul(times.report_per_zone.0)
            }
        }
    }

    fn read(&self, state: &mut ModelState, now: u64, at: Lba, bytes: u64) -> u64 {
        let times = &self.profile.read;
        let start = state.reserve_controller(now, times.controller.0);
        let counted = if times.per_kib_limit.0 == 0 { bytes } else { bytes.min(times.per_kib_limit.0) };
        let own = times.latency.0 + counted * times.per_kib.0 / KIB;
        let moved = match (&self.profile.flash, &self.profile.arm) {
            (Some(flash), _) => self.read_flash(state, flash, start, at, bytes),
            (None, Some(arm)) => self.arm_end_time(state, arm, start, at.0, bytes),
            (None, None) => start,
        };
        state.reading = state.reading.max(start) + transfer_time(bytes, times.bandwidth.0);
        (moved + own).max(state.reading)
    }

    fn read_flash(&self, state: &mut ModelState, flash: &Flash, start: u64, at: Lba, bytes: u64) -> u64 {
        let Some(zone) = self.geometry.zone_of(at) else { return start };
        let page = flash.page.0;
        let offset = at.since(self.geometry.start(zone)).bytes(self.geometry.block_size).0;
        let mut end = start;
        for index in offset / page..(offset + bytes).div_ceil(page) {
            let plane = self.plane_of(zone, index);
            let draw = state.next_random();
            let cells = state.plane(plane).read(start, flash.read.pick_time(draw));
            end = end.max(state.reserve_channel(plane, cells, flash.transfer.0));
        }
        end
    }

    /// The plane that holds a page of a zone. Zones start on different planes.
    fn plane_of(&self, zone: ZoneId, page: u64) -> u64 {
        let group = u64::from(zone.0) % self.groups;
        let first = u64::from(zone.0) / self.groups;
        group + (first.wrapping_add(page) % self.spread) * self.groups
    }

    fn write(&self, state: &mut ModelState, now: u64, put: &Put) -> u64 {
        let (write, append) = (&self.profile.write, &self.profile.append);
        let (latency, controller, opening) = if put.append {
            (append.latency, append.controller, append.implicit_open)
        } else {
            (write.latency, write.controller, write.implicit_open)
        };
        let start = state.reserve_controller(now, controller.0);
        while state.in_flight.peek().is_some_and(|Reverse(end)| *end <= now) {
            state.in_flight.pop();
        }
        let mut own = latency.0 + put.bytes.max(write.least.0) * write.per_kib.0 / KIB;
        if put.bytes < write.least.0 {
            own += write.partial.0;
        }
        if put.opens {
            own += opening.0;
        }
        if write.contention_from > 0 && state.in_flight.len() >= write.contention_from as usize {
            own += write.contention_delay.0;
        }
        let ready = start + own;
        let end = match (&self.profile.flash, &self.profile.arm) {
            (Some(flash), _) => match write.acknowledge {
                Acknowledge::Program => self.program(state, flash, ready, put),
                Acknowledge::Buffer => self.write_to_buffer(state, flash, start, ready, put),
            },
            (None, Some(arm)) => self.write_to_disk_cache(state, arm, start, ready, put),
            (None, None) => ready,
        };
        if write.contention_from > 0 {
            state.in_flight.push(Reverse(end));
        }
        end
    }

    /// Times a write without a buffer: each command fills its own pages and waits for them.
    fn program(&self, state: &mut ModelState, flash: &Flash, ready: u64, put: &Put) -> u64 {
        let mut end = ready;
        for _ in 0..put.bytes.div_ceil(flash.page.0) {
            end = end.max(self.program_page(state, flash, put.zone, (ready, ready)));
        }
        end
    }

    /// Programs the next page of the zone's group, not before `at`. The shared bandwidth is taken from `now` on, so a
    /// page that waits for one die does not delay other dies.
    fn program_page(
        &self,
        state: &mut ModelState,
        flash: &Flash,
        zone: ZoneId,
        (now, at): (u64, u64),
    ) -> u64 {
        let group = u64::from(zone.0) % self.groups;
        let cursor = &mut state.group(group).cursor;
        let plane = group + (*cursor % self.spread) * self.groups;
        *cursor += 1;
        state.draining =
            now.max(state.draining) + transfer_time(flash.page.0, self.profile.write.bandwidth.0);
        let begin = if self.profile.write.bandwidth.0 == 0 { at } else { at.max(state.draining) };
        let moved = state.reserve_channel(plane, begin, flash.transfer.0);
        let draw = state.next_random();
        state.plane(plane).program(at, moved, flash.program.pick_time(draw))
    }

    /// End of a group's last queued program operation.
    fn last_program_end(&self, state: &ModelState, group: u64) -> u64 {
        let planes = state.planes.iter().skip(group as usize).step_by(self.groups as usize);
        planes.filter_map(|plane| plane.programs.back().map(|(_, end)| *end)).max().unwrap_or(0)
    }

    /// Times a buffered write: the write is acknowledged when its bytes fit into the buffer; a programmed
    /// page leaves the buffer.
    fn write_to_buffer(
        &self,
        state: &mut ModelState,
        flash: &Flash,
        start: u64,
        ready: u64,
        put: &Put,
    ) -> u64 {
        let page = flash.page.0;
        let size = self.profile.write.buffer.0.max(page * 2);
        let group = u64::from(put.zone.0) % self.groups;
        let (mut entered, mut left) = (start, put.bytes);
        while left > 0 {
            let part = left.min(page);
            left -= part;
            let here = state.group(group);
            entered = here.time_of_buffer_room(entered, part, size);
            here.held += part;
            here.pending += part;
            if here.pending >= page {
                here.pending -= page;
                let end = self.program_page(state, flash, put.zone, (start, entered));
                state.group(group).leaving.push(Reverse((end, page)));
            }
        }
        let acknowledged = ready.max(entered);
        if !(put.durable && self.geometry.volatile_cache) {
            return acknowledged;
        }
        self.pad(state, flash, group, entered);
        // Lower blocks of the zone may lie on any plane of the zone's group.
        acknowledged.max(self.last_program_end(state, group))
    }

    /// Programs the incomplete page of a group.
    fn pad(&self, state: &mut ModelState, flash: &Flash, group: u64, at: u64) {
        let pending = std::mem::take(&mut state.group(group).pending);
        if pending > 0 {
            // Any zone of the group may be used to program the page.
            let end = self.program_page(state, flash, ZoneId(group as u32), (at, at));
            state.group(group).leaving.push(Reverse((end, pending)));
        }
    }

    fn flush(&self, state: &mut ModelState, now: u64) -> u64 {
        let end = now + self.profile.flush.latency.0;
        if !self.geometry.volatile_cache {
            return end;
        }
        if let Some(flash) = &self.profile.flash {
            for group in 0..self.groups {
                self.pad(state, flash, group, now);
            }
        }
        let programs = (0..self.groups).map(|group| self.last_program_end(state, group)).max().unwrap_or(0);
        now.max(state.drained).max(programs) + self.profile.flush.latency.0
    }

    fn act(&self, action: Action, facts: Option<ZoneFacts>) -> u64 {
        let times = &self.profile.zone;
        let full = self.geometry.zone_capacity.0;
        let written = facts.map_or(0, |f| f.written.0.min(full));
        let is_full = facts.is_some_and(|f| f.state == ZoneState::Full);
        match action {
            Action::Open => times.open.0,
            Action::Close => times.close.0,
            Action::Finish if written == 0 || is_full => times.finish_empty.0,
            Action::Finish => {
                let rest = (full - written) * u64::from(self.geometry.block_size);
                times.finish.0 + transfer_time(rest, times.finish_bandwidth.0)
            }
            Action::Reset => times.reset.at(if is_full { full } else { written }, full),
        }
    }

    /// Time at which a disk's arm has moved to block `at` and passed over `bytes`.
    fn arm_end_time(&self, state: &mut ModelState, arm: &Arm, start: u64, at: u64, bytes: u64) -> u64 {
        let seek = if at == state.arm_at {
            0
        } else {
            let blocks = self.geometry.zone_size.0.saturating_mul(u64::from(self.geometry.zones)).max(1);
            let share = (at.abs_diff(state.arm_at) as f64 / blocks as f64).min(1.0).sqrt();
            let range = arm.full_stroke.0.saturating_sub(arm.settle.0);
            // The seek ends with half a rotation, on average.
            arm.settle.0 + (range as f64 * share) as u64 + arm.turn.0 / 2
        };
        state.arm_at = at.saturating_add(bytes / u64::from(self.geometry.block_size).max(1));
        state.arm = state.arm.max(start) + seek + transfer_time(bytes, arm.bandwidth.0);
        state.arm
    }

    /// Times a disk's write, which is acknowledged as soon as the cache has space.
    fn write_to_disk_cache(
        &self,
        state: &mut ModelState,
        arm: &Arm,
        start: u64,
        ready: u64,
        put: &Put,
    ) -> u64 {
        let room = state.group(0).time_of_buffer_room(start, put.bytes, self.profile.write.buffer.0);
        let end = self.arm_end_time(state, arm, room, put.at, put.bytes);
        state.drained = state.drained.max(end);
        let through = self.profile.write.acknowledge == Acknowledge::Program
            || (put.durable && self.geometry.volatile_cache);
        if through {
            return ready.max(end);
        }
        let cache = state.group(0);
        cache.held += put.bytes;
        cache.leaving.push(Reverse((end, put.bytes)));
        ready.max(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buf;
    use crate::emu::EmuOptions;

    #[test]
    fn a_read_waits_for_the_program_under_way_and_goes_before_the_next() {
        let mut plane = Plane::default();
        assert_eq!(plane.program(0, 0, 100), 100);
        assert_eq!(plane.program(0, 100, 100), 200);
        assert_eq!(plane.read(50, 10), 110);
        assert_eq!(plane.programs, [(110, 210)]);
        assert_eq!(plane.program(50, 0, 100), 310);
    }

    #[test]
    fn a_full_buffer_makes_room_as_pages_leave() {
        let mut group = Group { held: 8, ..Group::default() };
        group.leaving.push(Reverse((30, 4)));
        group.leaving.push(Reverse((20, 4)));
        assert_eq!(group.time_of_buffer_room(10, 4, 12), 10);
        assert_eq!(group.time_of_buffer_room(10, 6, 12), 20);
        assert_eq!(group.held, 4);
    }

    #[test]
    fn operations_that_wait_for_room_are_admitted_in_their_order() {
        let mut group = Group { held: 8, ..Group::default() };
        group.leaving.push(Reverse((20, 4)));
        group.leaving.push(Reverse((30, 4)));
        let mut enter = |at, bytes| {
            let entered = group.time_of_buffer_room(at, bytes, 8);
            group.held += bytes;
            entered
        };
        // Four bytes leave the buffer at time 20: then it has room for two writes of two bytes, and not
        // earlier.
        assert_eq!((enter(10, 2), enter(11, 2), enter(12, 2), enter(40, 2)), (20, 20, 30, 40));
    }

    fn drive(text: &str) -> (Model, ModelState) {
        let profile = Profile::parse("test", text).unwrap();
        let geometry = EmuOptions::of_profile(profile.clone()).geometry().unwrap();
        let model = Model::new(&profile, &geometry);
        let state = model.rested();
        (model, state)
    }

    fn append(zone: u32, bytes: usize, how: Durability) -> Op {
        Op::Append { zone: ZoneId(zone), data: Buf::copy_from(&vec![0; bytes]), how }
    }

    const BUFFERED: &str = r#"
        [geometry]
        cache = "volatile"
        [append]
        latency = "10us"
        [write]
        buffer = "16KiB"
        [flash]
        channels = 2
        dies = 1
        planes = 1
        page = "8KiB"
        read = ["50us"]
        program = ["400us"]
        zones = "die"
        [flush]
        latency = "1us"
    "#;

    #[test]
    fn a_full_buffer_slows_its_own_die_and_no_other() {
        let (model, mut state) = drive(BUFFERED);
        let mut at = |zone, bytes| {
            model.completion(&mut state, 0, &append(zone, bytes, Durability::Cached), None) / 1000
        };
        assert_eq!((at(0, 8192), at(0, 8192)), (10, 10));
        assert_eq!((at(0, 8192), at(2, 8192)), (400, 800), "zones 0 and 2 share a die");
        assert_eq!(at(1, 8192), 10);
        // Pages do not wait for one die where all dies share a bandwidth: 8 us for each page.
        let shared = BUFFERED.replace("buffer = ", "bandwidth = \"1GiB\"\n        buffer = ");
        let (model, mut state) = drive(&shared);
        let mut at = |zone, bytes| {
            model.completion(&mut state, 0, &append(zone, bytes, Durability::Cached), None) / 1000
        };
        assert!(at(0, 80 << 10) > 3000);
        let third = (at(1, 8192), at(1, 8192), at(1, 8192)).2;
        assert!((400..500).contains(&third), "{third}");
    }

    #[test]
    fn a_flush_drains_the_cache_and_a_durable_append_waits_for_its_program() {
        let (model, mut state) = drive(BUFFERED);
        let mut at = |op: Op| model.completion(&mut state, 0, &op, None) / 1000;
        assert_eq!(at(Op::Flush), 1);
        assert_eq!(at(append(0, 4096, Durability::Cached)), 10);
        assert_eq!(at(Op::Flush), 401);
        assert_eq!(at(append(1, 4096, Durability::Durable)), 400);
        let (model, mut state) = drive(&BUFFERED.replace("volatile", "none"));
        let mut at = |op: Op| model.completion(&mut state, 0, &op, None) / 1000;
        assert_eq!(at(append(0, 8192, Durability::Durable)), 10);
        assert_eq!(at(Op::Flush), 1);
    }

    #[test]
    fn groups_of_planes_share_no_work() {
        let text = BUFFERED.replace("\"die\"", "{ groups = 2 }").replace("channels = 2", "channels = 4");
        let text =
            format!("{text}[write]\nacknowledge = \"program\"").replacen("[write]\n        buffer", "#", 1);
        let (model, mut state) = drive(&text);
        let mut at =
            |zone| model.completion(&mut state, 0, &append(zone, 16_384, Durability::Cached), None) / 1000;
        assert_eq!((at(0), at(1), at(2), at(3)), (410, 410, 810, 810));
    }

    #[test]
    fn an_arm_seeks_unless_it_is_at_the_address() {
        let text = "[arm]\nsettle = \"1ms\"\nfull-stroke = \"9ms\"\nturn = \"8ms\"\nbandwidth = \"4096KB\"";
        let (model, mut state) = drive(text);
        let read = |at| Op::Read { at: Lba(at), into: crate::BufMut::zeroed(4096) };
        assert_eq!(model.completion(&mut state, 0, &read(0), None), 1_000_000);
        assert_eq!(model.completion(&mut state, 0, &read(1), None), 2_000_000);
        // A seek over a quarter of the disk takes half of the time of a full stroke.
        let far = model.completion(&mut state, 0, &read(2 + (256 << 14) / 4), None);
        assert_eq!(far, 2_000_000 + 1_000_000 + 4_000_000 + 4_000_000 + 1_000_000);
    }
}
