//! An assembled array: its parts, and the way of an operation to its zone.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};

use units::sync::Turnstile;
use zoned::checks::{self, Transfer};
use zoned::share::Kind;
use zoned::{Blocks, Completer, Done, ErrorKind, Io, IoClass, Lba, Op, Resources, Result, ZoneId};

use crate::background::client_operations::{ClientEvent, ClientOperations};
use crate::background::idle_spares::IdleSpares;
use crate::background::jobs::Jobs;
use crate::checkpoint::Checkpoints;
use crate::context::Context;
use crate::deferred::Deferred;
use crate::degraded::failures::Failures;
use crate::degraded::read_repair::ReadRepair;
use crate::degraded::reconstruct::Reconstruct;
use crate::io::action::Actions;
use crate::io::read::Reads;
use crate::io::write::Writes;
use crate::member::Member;
use crate::member::member_drive::MemberDrive;
use crate::membership::{LogClient, Membership};
use crate::zone::Zone;
use crate::zone::append_choice::AppendChoice;
use crate::zone::work::{Work, WriteRequest};
use crate::zone::zone_table::{Dispatch, ZoneTable};

/// An assembled array.
pub(crate) struct Core {
    pub ctx: Arc<Context>,
    pub members: Arc<Membership>,
    pub zones: Arc<ZoneTable>,
    pub failures: Arc<Failures>,
    pub reconstruct: Arc<Reconstruct>,
    pub repair: Arc<ReadRepair>,
    pub checkpoints: Arc<Checkpoints>,
    reads: Arc<Reads>,
    pub actions: Arc<Actions>,
    writes: Arc<Writes>,
    /// The array's background jobs: the rebuild and the scrub.
    pub jobs: Jobs,
    /// The idle spares whose drives are present.
    pub spares: IdleSpares,
    pub client_operations: ClientOperations,
}

impl Core {
    /// Puts the parts of an array together.
    pub(crate) fn new(
        ctx: Arc<Context>,
        members: Arc<Membership>,
        zones: Arc<ZoneTable>,
        spares: IdleSpares,
    ) -> Arc<Core> {
        let failures = Arc::new(Failures {
            ctx: Arc::clone(&ctx),
            members: Arc::clone(&members),
            zones: Arc::clone(&zones),
        });
        let reconstruct = Arc::new(Reconstruct {
            ctx: Arc::clone(&ctx),
            members: Arc::clone(&members),
            zones: Arc::clone(&zones),
            failures: Arc::clone(&failures),
        });
        let repair = Arc::new(ReadRepair {
            ctx: Arc::clone(&ctx),
            members: Arc::clone(&members),
            zones: Arc::clone(&zones),
            turn: Turnstile::new(),
        });
        let reads = Arc::new(Reads {
            ctx: Arc::clone(&ctx),
            members: Arc::clone(&members),
            zones: Arc::clone(&zones),
            failures: Arc::clone(&failures),
            reconstruct: Arc::clone(&reconstruct),
            repair: Arc::clone(&repair),
        });
        let writes = Arc::new(Writes {
            ctx: Arc::clone(&ctx),
            members: Arc::clone(&members),
            zones: Arc::clone(&zones),
            failures: Arc::clone(&failures),
            ways: AppendChoice::new(ctx.appends, ctx.append_round, &ctx.layout),
        });
        let actions = Arc::new(Actions {
            ctx: Arc::clone(&ctx),
            members: Arc::clone(&members),
            zones: Arc::clone(&zones),
            failures: Arc::clone(&failures),
            writes: Arc::clone(&writes),
        });
        let checkpoints = Arc::new(Checkpoints {
            ctx: Arc::clone(&ctx),
            members: Arc::clone(&members),
            zones: Arc::clone(&zones),
            writes: Arc::clone(&writes),
        });
        let client: Arc<dyn LogClient> = Arc::<Checkpoints>::clone(&checkpoints);
        members.set_log_client(Arc::downgrade(&client));
        let core = Arc::new(Core {
            ctx,
            members,
            zones,
            failures,
            reconstruct,
            repair,
            checkpoints,
            reads,
            actions,
            writes,
            jobs: Jobs::default(),
            spares,
            client_operations: ClientOperations::default(),
        });
        let owner: Weak<Core> = Arc::downgrade(&core);
        let any: Weak<dyn Any + Send + Sync> = owner.clone();
        assert!(core.ctx.owner.set(any).is_ok(), "an array is assembled once");
        core.zones.dispatch_to(owner);
        core
    }

    /// Refuses a drive that is a member or an idle spare already.
    pub(crate) fn refuse_drive_of_array(&self, drive: &MemberDrive, operation: &'static str) -> Result<()> {
        let is_member = self.members.iter().filter_map(Member::device).any(|device| device.is(drive));
        if is_member || self.spares.has(drive) {
            let error = drive.error(ErrorKind::Invalid, operation);
            return Err(error.because("the drive is a member or an idle spare of the array"));
        }
        Ok(())
    }

    /// Begins an operation of a client.
    pub(crate) fn submit(self: &Arc<Core>, class: IoClass, op: Op) -> Io {
        // The drives' schedulers may hold bulk: its latency says nothing of the drives. Commits of metadata may be the bulk's own.
        let timed = match &op {
            Op::Read { into, .. } => Some((Kind::Read, into.len())),
            Op::Write { data, .. } | Op::Append { data, .. } => Some((Kind::Write, data.len())),
            Op::Flush | Op::Zone { .. } | Op::Report { .. } => None,
        };
        let counts = !class.is_bulk() && class != IoClass::Metadata && self.client_operations.has_jobs();
        let timed = timed.filter(|_| counts);
        let Some((kind, bytes)) = timed else { return self.route(class, op) };
        let began = self.ctx.driver.now();
        self.client_operations.began(began);
        let io = self.route(class, op);
        let core = Arc::clone(self);
        Io::spawn(&self.ctx.driver, &self.ctx.geometry.name, async move {
            let result = io.await;
            let latency = core.ctx.driver.now().since(began);
            let event = ClientEvent::Ended { kind, bytes: bytes as u64, began, latency };
            core.client_operations.ended((result.is_ok() && !latency.is_zero()).then_some(event));
            result
        })
    }

    /// Gives operations on `blocks`, which lie in one zone, the class of a caller who waits for them.
    pub(crate) fn raise(&self, class: IoClass, blocks: &Range<Lba>) {
        let geometry = &self.ctx.geometry;
        let Some(zone) = geometry.zone_of(blocks.start) else { return };
        let from = blocks.start.since(geometry.start(zone));
        let to = blocks.end.since(geometry.start(zone)).min(geometry.zone_capacity);
        self.reads.raise(class, zone, from, to.minus(from).0);
    }

    /// Checks an operation as far as no zone needs to be locked, and hands the operation to its zone.
    pub(crate) fn route(&self, class: IoClass, op: Op) -> Io {
        let (name, geometry) = (op.name(), &self.ctx.geometry);
        match op {
            Op::Flush => self.actions.flush(),
            Op::Report { zones } => {
                let end = zones.end.min(geometry.zones);
                let infos = (zones.start..end).map(|z| self.zones.info(ZoneId(z)));
                Io::ready(Ok(Done::Zones(infos.collect())))
            }
            Op::Read { at, into } => match checks::locate_transfer(geometry, name, at, into.len()) {
                Ok(Transfer { zone, offset, .. }) => {
                    self.zones.begin_or_queue(zone, Work::Read { class, offset: Blocks(offset), into })
                }
                Err(e) => Io::ready(Err(e.with_buffer(into))),
            },
            Op::Write { at, data, how } => match checks::locate_transfer(geometry, name, at, data.len()) {
                Ok(Transfer { zone, offset, .. }) => {
                    let request = WriteRequest {
                        class,
                        offset: Some(Blocks(offset)),
                        data,
                        how,
                        submitted: None,
                        moves_awaited: None,
                    };
                    self.zones.begin_or_queue(zone, Work::Write(request))
                }
                Err(e) => Io::ready(Err(e)),
            },
            Op::Append { zone, data, how } => match checks::check_append(geometry, name, zone, data.len()) {
                Ok(_) => {
                    let submitted = self.writes.ways.is_measured().then(|| self.ctx.driver.now());
                    let request =
                        WriteRequest { class, offset: None, data, how, submitted, moves_awaited: None };
                    self.zones.begin_or_queue(zone, Work::Write(request))
                }
                Err(e) => Io::ready(Err(e)),
            },
            Op::Zone { zone, action } => match checks::check_zone_exists(geometry, name, zone) {
                Ok(()) => self.zones.begin_or_queue(zone, Work::Act(action)),
                Err(e) => Io::ready(Err(e)),
            },
        }
    }
}

impl Dispatch for Core {
    fn begin(
        &self,
        zone: &mut Zone,
        id: ZoneId,
        limits: Option<&mut Resources>,
        work: Work,
        completer: Completer,
        deferred: &mut Deferred,
    ) {
        match work {
            Work::Read { class, offset, into } => {
                self.reads.begin_read(zone, id, (class, offset, into), completer, deferred);
            }
            Work::Write(request) => {
                self.writes.begin_write(zone, id, limits, request, completer, deferred);
            }
            Work::Act(action) => {
                let limits = limits.expect("a command changes the state");
                self.actions.begin_action(zone, id, limits, action, completer, deferred);
            }
            Work::Pause { .. } => unreachable!("the zone table pauses zones itself"),
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ctx.geometry.name)
    }
}
