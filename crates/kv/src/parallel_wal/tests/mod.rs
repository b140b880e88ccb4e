mod batches;
mod crash;
#[allow(dead_code, reason = "the simulator uses more of it")]
#[path = "../../../../sim/src/linear.rs"]
mod linear;
mod model;
mod protocol;
