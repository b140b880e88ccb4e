//! Views of a device whose operations have a class.

use std::ops::Range;
use std::sync::Arc;

use crate::{Driver, Geometry, Io, IoClass, Lba, Op, ShareStatus, ZonedDevice};

impl dyn ZonedDevice {
    /// A view of the device whose operations have `class`, or the class of a view of this view if that is higher.
    pub fn class(self: &Arc<Self>, class: IoClass) -> Arc<dyn ZonedDevice> {
        Arc::new(ClassView { device: Arc::clone(self), class })
    }
}

#[derive(Debug)]
struct ClassView {
    device: Arc<dyn ZonedDevice>,
    class: IoClass,
}

impl ZonedDevice for ClassView {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.device.submit_as(self.class, op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        self.device.submit_as(self.class.min(class), op)
    }

    fn raise(&self, class: IoClass, blocks: Range<Lba>) {
        self.device.raise(class, blocks);
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.device.driver()
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        self.device.details()
    }

    fn share_status(&self) -> Option<ShareStatus> {
        self.device.share_status()
    }
}
