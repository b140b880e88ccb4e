mod batches;
mod crash;
#[allow(dead_code, reason = "the simulator uses more of it")]
#[path = "../../../../sim/src/linear.rs"]
mod linear;
mod memory_log;
mod model;
mod protocol;

use super::{LogError, LogErrorKind, Ticket, TicketLog, VisitRecord};
