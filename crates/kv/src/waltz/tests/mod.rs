mod batches;
mod crash;
mod linear;
mod model;
mod protocol;
