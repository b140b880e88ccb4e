//! The parts of an open parallel log, and how they are put together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use units::sync::{Event, Turnstile};

use crate::device::Purpose;
use crate::shared::Handle;
use crate::wal::parallel::append::Appender;
use crate::wal::parallel::counters::Counters;
use crate::wal::parallel::durability::Durability;
use crate::wal::parallel::headers::Headers;
use crate::wal::parallel::health::Health;
use crate::wal::parallel::joiner::Joiner;
use crate::wal::parallel::maintenance::Maintenance;
use crate::wal::parallel::options::{Batching, ParallelOptions};
use crate::wal::parallel::order::Order;
use crate::wal::parallel::payload::PartSizes;
use crate::wal::parallel::replacement::{Replacement, Shortage, Spare};
use crate::wal::parallel::segments::Segments;
use crate::wal::parallel::stripe::Stripe;
use crate::wal::parallel::striping::Striping;
use crate::wal::parallel::void::VoidQueue;

/// The result of a parallel log's recovery and opening.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) epoch: u32,
    /// The first ticket.
    pub(super) first: u64,
    /// Every ticket of the log below this one is retired.
    pub(super) retired: u64,
    /// For each segment of the log, a ticket above all tickets in the segment.
    pub(super) ends: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Parts {
    pub(super) handle: Arc<Handle>,
    pub(super) health: Arc<Health>,
    pub(super) order: Arc<Order>,
    pub(super) voids: Arc<VoidQueue>,
    pub(super) durability: Arc<Durability>,
    pub(super) replacement: Arc<Replacement>,
    pub(super) segments: Arc<Segments>,
    pub(super) counters: Arc<Counters>,
    pub(super) appender: Arc<Appender>,
    /// The joiner of records, only under [`Batching::Auto`].
    pub(super) joiner: Option<Arc<Joiner>>,
    pub(super) maintenance: Arc<Maintenance>,
    /// Wakes maintenance.
    pub(super) work: Event,
    /// Held by a close of the log; `settled` is true once a close has finished.
    pub(super) closing: Turnstile,
    pub(super) settled: AtomicBool,
}

impl Parts {
    pub(super) fn new(handle: Arc<Handle>, opening: &Opening, options: &ParallelOptions) -> Arc<Parts> {
        let shared = &handle.shared;
        let (dev, rules) = (Arc::clone(shared.device.purpose(Purpose::Log)), shared.options.rules());
        let geometry = dev.geometry();
        let volatile = geometry.volatile_cache;
        let sizes = PartSizes::new(geometry.block_size, geometry.max_append.min(geometry.max_transfer).0);
        let stripe = {
            let mut state = shared.state.lock();
            let slots = state.allocator.slots.map_or(0, |slots| slots.total);
            let stripe = Stripe::new(options.zones, slots, geometry.zones, volatile);
            state.allocator.wide += stripe.extra();
            stripe
        };
        let (work, changed, low_moved) = (Event::new(), Event::new(), Event::new());
        let voids = Arc::new(VoidQueue::new(work.clone()));
        let waiters = vec![changed.clone(), low_moved.clone(), work.clone()];
        let health = Arc::new(Health::new(Arc::clone(&handle), Arc::clone(&voids), waiters));
        let counters: Arc<Counters> = Arc::default();
        let scattered = volatile && !geometry.ordered_cache && !rules.omits_known_tickets();
        let open = options.open.clamp(1, ParallelOptions::MAX_OPEN);
        let order = Arc::new(Order::new(opening.first, open, scattered, low_moved, Arc::clone(&health)));
        let durability = Arc::new(Durability::new(
            Arc::clone(&dev),
            Arc::clone(&order),
            Arc::clone(&health),
            Arc::clone(&counters),
            rules,
        ));
        let replacement = Arc::new(Replacement {
            active: ArcSwapOption::empty(),
            spare: Mutex::new(Spare::default()),
            stripe,
            changed,
            blocked: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            shortage: Mutex::new(Shortage::default()),
            order: Arc::clone(&order),
            health: Arc::clone(&health),
            counters: Arc::clone(&counters),
            work: work.clone(),
            volatile,
            longest: sizes.longest,
            rules,
        });
        let striping = Arc::new(Striping::new(
            Arc::clone(&handle),
            Arc::clone(&replacement),
            Arc::clone(&health),
            work.clone(),
        ));
        let headers = Headers {
            uuid: shared.superblock.uuid,
            log: handle.file.ino,
            epoch: opening.epoch,
            order: Arc::clone(&order),
            durability: Arc::clone(&durability),
        };
        let segments =
            Arc::new(Segments::new(Arc::clone(&handle), &opening.ends, opening.retired, Arc::clone(&order)));
        let driver = Arc::clone(dev.driver());
        let appender = Arc::new(Appender {
            dev,
            sizes,
            headers,
            order: Arc::clone(&order),
            replacement: Arc::clone(&replacement),
            striping,
            voids: Arc::clone(&voids),
            health: Arc::clone(&health),
            counters: Arc::clone(&counters),
            work: work.clone(),
            rules,
        });
        let joiner =
            (options.batching == Batching::Auto).then(|| Arc::new(Joiner::new(options.open, sizes, driver)));
        let maintenance = Arc::new(Maintenance::new(
            Arc::clone(&handle),
            Arc::clone(&appender),
            Arc::clone(&segments),
            options.spare,
        ));
        Arc::new(Parts {
            handle,
            health,
            order,
            voids,
            durability,
            replacement,
            segments,
            counters,
            appender,
            joiner,
            maintenance,
            work,
            closing: Turnstile::new(),
            settled: AtomicBool::new(false),
        })
    }
}
