//! An array that a process has open.

use std::collections::VecDeque;
use std::sync::Arc;

use array::{Array, Event, EventKind, Events, Health, Pace, RebuildOptions, ScrubOptions, Slot, SpareStatus};
use parking_lot::Mutex;
use units::{Bytes, Driver};
use zoned::{DeviceUrl, Error, ErrorKind, Geometry, ZonedDevice, contents};

use super::orders::{AddSpareOrder, RemoveSpareOrder, ReplaceOrder};
use super::view::{ArrayView, EndView, EventView, ScrubView, health_after};

/// Largest number of array events that are kept for later views.
const EVENTS_KEPT: usize = 200;

/// Lowest limit on a rebuild's rate in bytes per second: a rebuild reads this many bytes of a drive at a time.
const REBUILD_RATE_MIN: u64 = 64 << 10;

/// An array that this process has open: its state, its events, and orders to it.
pub struct OpenArray {
    array: Arc<Array>,
    /// The part of the array's URL after `array:`, which names the members.
    rest: String,
    driver: Arc<dyn Driver>,
    opened_ms: u64,
    events: Events,
    kept: Mutex<KeptEvents>,
    /// URLs of new drives that the array's URL does not name.
    unlisted: Mutex<Vec<String>>,
}

struct KeptEvents {
    count: u64,
    /// The array's health after the last event.
    health: Health,
    events: VecDeque<EventView>,
}

impl KeptEvents {
    fn add(&mut self, event: &Event) {
        self.count += 1;
        self.events.push_back(EventView::new(self.count, event, self.health));
        self.health = health_after(&event.kind, self.health);
        if self.events.len() > EVENTS_KEPT {
            self.events.pop_front();
        }
    }
}

impl OpenArray {
    /// Keeps the array's events from now on. `rest` is the part of the array's URL after `array:`.
    pub fn new(array: Arc<Array>, rest: &str) -> OpenArray {
        let driver = Arc::clone(ZonedDevice::driver(&*array));
        // Subscribe to events first: an event between the two calls then sets the health that the status has too.
        let (opened_ms, events) = (driver.unix_millis(), array.events());
        let status = array.status();
        let mut kept = KeptEvents { count: 0, health: status.health(), events: VecDeque::new() };
        for spare in status.spares.iter().filter(|spare| spare.device.is_none()) {
            let why = "its drive is missing, or another process holds it".to_owned();
            kept.add(&Event { unix_ms: opened_ms, kind: EventKind::SpareMissing { spare: spare.uuid, why } });
        }
        let (kept, unlisted) = (Mutex::new(kept), Mutex::default());
        OpenArray { array, rest: rest.to_owned(), driver, opened_ms, events, kept, unlisted }
    }

    /// The array's present state and events.
    pub fn view(&self) -> ArrayView {
        let counters = self.array.counters().each().map(|(name, value)| (name.to_owned(), value)).collect();
        // Take the status before the events, so that each change in the status has its event in the view.
        let status = self.array.status();
        let mut view = ArrayView {
            counters,
            opened_ms: self.opened_ms,
            events: self.events(),
            ..ArrayView::from(&status)
        };
        view.advice.extend(self.unlisted.lock().iter().map(|url| {
            format!(
                "Name {url} among the members when the array is opened the next time: an array that is opened without \
                 the new drive does without it."
            )
        }));
        if let Some(rebuild) = self.array.rebuild().filter(array::Handle::is_over) {
            let error = units::block_on(&*self.driver, rebuild.wait()).err().map(|error| error.to_string());
            view.last_rebuild = Some(EndView { progress: (&rebuild.progress()).into(), error, found: None });
        }
        if let Some(scrub) = self.array.scrubbing().filter(array::Handle::is_over) {
            let progress = (&scrub.progress()).into();
            view.last_scrub = Some(match units::block_on(&*self.driver, scrub.wait()) {
                Ok(report) => EndView { progress, error: None, found: Some(ScrubView::from(&report)) },
                Err(error) => EndView { progress, error: Some(error.to_string()), found: None },
            });
        }
        view
    }

    fn events(&self) -> Vec<EventView> {
        let mut kept = self.kept.lock();
        while let Some(event) = self.events.try_next() {
            kept.add(&event);
        }
        kept.events.iter().cloned().collect()
    }

    /// Makes the array treat a member as failed. An idle spare takes its place.
    ///
    /// # Errors
    /// The errors of [`Array::fail`].
    pub fn fail(&self, slot: Slot) -> Result<(), Error> {
        units::block_on(&*self.driver, async {
            self.array.fail(slot).await?;
            self.array.take_spare().await;
            Ok(())
        })
    }

    /// Begins to rebuild a failed member onto a new drive. A dry run checks only whether the drive can be used. Returns
    /// a description of the data that the drive had.
    ///
    /// # Errors
    /// The errors of [`zoned::open`] and [`Array::start_replace`]; [`ErrorKind::HoldsData`] without `force`.
    pub fn replace(&self, order: &ReplaceOrder) -> Result<String, Error> {
        let url: DeviceUrl = order.device.parse()?;
        if order.max_rate.is_some_and(|rate| rate < REBUILD_RATE_MIN) {
            let error = Error::new(ErrorKind::Invalid, &Arc::from(order.device.as_str()), "replace");
            return Err(error.because("a rebuild below 64 KiB/s never ends: set a higher rate, or none"));
        }
        // Check the order before the drive file is created: a refused order creates none.
        self.array.may_replace(Slot(order.slot))?;
        let (device, found) = self.new_drive(&url, &order.device, order.force, order.dry_run)?;
        let Some(device) = device else { return Ok(found) };
        let pace = Pace { max_rate: order.max_rate.map(Bytes), ..Pace::default() };
        let begun = self.array.start_replace(Slot(order.slot), device, RebuildOptions { pace });
        units::block_on(&*self.driver, begun)?;
        self.add_to_member_list(&order.device);
        Ok(found)
    }

    /// Makes a drive an idle spare. A dry run checks only whether the drive can be used. Returns a description of the data
    /// that the drive had.
    ///
    /// # Errors
    /// The errors of [`zoned::open`] and [`Array::add_spare`]; [`ErrorKind::HoldsData`] without `force`.
    pub fn add_spare(&self, order: &AddSpareOrder) -> Result<String, Error> {
        let url: DeviceUrl = order.device.parse()?;
        // Check the order before the drive file is created: a refused order creates none.
        self.array.may_add_spare()?;
        let (device, found) = self.new_drive(&url, &order.device, order.force, order.dry_run)?;
        let Some(device) = device else { return Ok(found) };
        units::block_on(&*self.driver, self.array.add_spare(device))?;
        self.add_to_member_list(&order.device);
        Ok(found)
    }

    /// Gives up an idle spare, which the order names by its drive's name or by its UUID.
    ///
    /// # Errors
    /// The errors of [`Array::remove_spare`]; [`ErrorKind::NotFound`] if no idle spare has this name or UUID.
    pub fn remove_spare(&self, order: &RemoveSpareOrder) -> Result<(), Error> {
        let spares = self.array.status().spares;
        let named = |spare: &&SpareStatus| {
            spare.device.as_deref() == Some(order.spare.as_str()) || spare.uuid.to_string() == order.spare
        };
        let Some(spare) = spares.iter().find(named) else {
            let known: Vec<String> = spares.iter().map(|spare| spare.uuid.to_string()).collect();
            let error =
                Error::new(ErrorKind::NotFound, &ZonedDevice::geometry(&*self.array).name, "remove a spare");
            return Err(error.because(format!(
                "no idle spare has the drive or the UUID {}; the array's idle spares: {}",
                order.spare,
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            )));
        };
        units::block_on(&*self.driver, self.array.remove_spare(spare.uuid))?;
        if let Some(drive) = &spare.device
            && let Err(error) = array::url::forget(&self.rest, drive)
        {
            tracing::warn!(%error, "the list of members still names the spare that was given up");
        }
        Ok(())
    }

    /// Opens the drive of an order, and makes its file if there is none; no drive in a dry run. Also returns a description
    /// of the data that the drive has. A drive that does not fit the array is refused.
    fn new_drive(
        &self,
        url: &DeviceUrl,
        named: &str,
        force: bool,
        dry_run: bool,
    ) -> Result<(Option<Arc<dyn ZonedDevice>>, String), Error> {
        if array::url::is_member_list_file(&self.rest) {
            array::url::listable(named)?;
        }
        if !url.exists() {
            self.check_geometry(&url.options()?.geometry()?)?;
            if dry_run {
                return Ok((None, format!("{named}: the drive file would be made")));
            }
        }
        let device = match dry_run {
            true => url.open(Arc::clone(&self.driver)),
            false => url.open_or_create(Arc::clone(&self.driver)),
        }?;
        self.check_geometry(device.geometry())?;
        let held = units::block_on(&*self.driver, contents::guard(&*device, force || dry_run))?;
        let found = format!("{}: {held}", device.geometry().name);
        Ok((Some(device).filter(|_| !dry_run), found))
    }

    /// Adds a new drive's URL to the file that lists the array's members, or warns if there is no such file. The
    /// rebuild runs in both cases.
    fn add_to_member_list(&self, url: &str) {
        match array::url::remember(&self.rest, url) {
            Err(error) => {
                tracing::warn!(%error, "after a restart the array would go on without the new drive")
            }
            Ok(false) if matches!(array::url::listed(&self.rest), Ok(Some(_))) => {
                tracing::warn!(url, "name the new drive among the members at the next start");
            }
            Ok(_) => return,
        }
        self.unlisted.lock().push(url.to_owned());
    }

    /// Refuses a drive whose geometry does not fit the array.
    fn check_geometry(&self, drive: &Geometry) -> Result<(), Error> {
        let (array, superblock) = (ZonedDevice::geometry(&*self.array), self.array.superblock());
        let unit = u64::from(superblock.unit);
        let refuse = |why: String| Err(Error::new(ErrorKind::Invalid, &drive.name, "replace").because(why));
        let (zones, capacity) = (superblock.part_zones + superblock.metadata_zones, superblock.zone_capacity);
        if drive.block_size != superblock.block_size {
            return refuse(format!(
                "the drive's blocks have {} bytes, the array's {}",
                drive.block_size, superblock.block_size
            ));
        }
        let sequential = drive.zones.saturating_sub(drive.conventional);
        if sequential < zones || drive.zone_capacity < capacity {
            return refuse(format!(
                "the drive has {sequential} sequential zones of {} blocks; the array needs {zones} of {} at least",
                drive.zone_capacity.0, capacity.0
            ));
        }
        if drive.max_transfer.0 <= unit {
            return refuse(format!(
                "the drive takes {} blocks at a time; the array's stripe units have {unit}, and a header",
                drive.max_transfer.0
            ));
        }
        let kept = superblock.placement.kept_active_zones();
        let needed = |limit: Option<u32>| limit.map(|limit| limit.saturating_add(kept));
        for (what, has, needed) in [
            ("open", drive.max_open, needed(array.max_open)),
            ("active", drive.max_active, needed(array.max_active)),
        ] {
            if let Some(has) = has
                && needed.is_none_or(|needed| has < needed)
            {
                let needed = needed.map_or("no limit".to_owned(), |needed| needed.to_string());
                return refuse(format!(
                    "{has} zones of the drive can be {what} at once; the array needs {needed}"
                ));
            }
        }
        Ok(())
    }

    /// Cancels the rebuild or the scrub; returns whether one was running.
    pub fn cancel(&self, what: Job) -> bool {
        match what {
            Job::Rebuild => {
                self.array.rebuild().filter(|job| !job.is_over()).inspect(array::Handle::cancel).is_some()
            }
            Job::Scrub => {
                self.array.scrubbing().filter(|job| !job.is_over()).inspect(array::Handle::cancel).is_some()
            }
        }
    }

    /// Orders a reclaim until each drive has `empty` empty physical zones, or as many as there can be. The view's `space` says when the
    /// reclaim has ended.
    pub fn reclaim(&self, empty: Option<u32>) -> Result<(), Error> {
        if self.array.order_reclaim(empty.unwrap_or(u32::MAX)) {
            return Ok(());
        }
        let name = &ZonedDevice::geometry(&*self.array).name;
        let why = match self.array.superblock().shares {
            1 => {
                "no logical zones of the array share a physical zone: a reset frees the physical zones of a zone at once"
            }
            _ => "a rebuild runs, and parts stay in their places: wait for it",
        };
        Err(Error::new(ErrorKind::Invalid, name, "reclaim").because(why))
    }

    /// Begins a scrub, which compares all parity with its data.
    pub fn scrub(&self, repair_parity: bool) -> Result<(), Error> {
        self.array.start_scrub(ScrubOptions { repair_parity, ..ScrubOptions::default() }).map(drop)
    }
}

/// A background job of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Job {
    /// A rebuild.
    Rebuild,
    /// A scrub.
    Scrub,
}
