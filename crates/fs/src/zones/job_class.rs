//! The class of a job's operations, which a caller who comes to wait for the job raises (priority inheritance): operations in flight, which the drive's
//! scheduler may hold, and those to come.

use std::ops::Range;

use parking_lot::Mutex;
use units::Lba;
use zoned::{IoClass, ZonedDevice};

/// The class of a job that writes data, or copies it for a reclaim.
#[derive(Debug)]
pub(crate) struct JobClass(Mutex<Job>);

#[derive(Debug)]
struct Job {
    class: IoClass,
    /// The blocks of operations that may be in flight.
    in_flight: Vec<Range<Lba>>,
}

impl JobClass {
    pub(crate) fn new(class: IoClass) -> JobClass {
        JobClass(Mutex::new(Job { class, in_flight: Vec::new() }))
    }

    pub(crate) fn get(&self) -> IoClass {
        self.0.lock().class
    }

    /// Submits an operation on `blocks` in the job's class by `submit`.
    pub(crate) fn submit<T>(
        &self,
        device: &dyn ZonedDevice,
        blocks: Range<Lba>,
        submit: impl FnOnce(IoClass) -> T,
    ) -> T {
        let class = {
            let mut job = self.0.lock();
            job.in_flight.push(blocks.clone());
            job.class
        };
        let submitted = submit(class);
        // The class may have been raised before the operation reached the device.
        let raised = self.get();
        if raised < class {
            device.raise(raised, blocks);
        }
        submitted
    }

    /// None of the job's operations is in flight.
    pub(crate) fn all_ended(&self) {
        self.0.lock().in_flight.clear();
    }

    /// Gives the job's operations the class of a caller who waits for them, if that is higher.
    pub(crate) fn raise(&self, device: &dyn ZonedDevice, class: IoClass) {
        let in_flight = {
            let mut job = self.0.lock();
            if job.class <= class {
                return;
            }
            job.class = class;
            job.in_flight.clone()
        };
        in_flight.into_iter().for_each(|blocks| device.raise(class, blocks));
    }
}
