mod batches;
mod crash;
mod model;
mod protocol;
