//! Measurements of Furrow's layers. Each compares with something in the same run: a number alone says more about
//! the machine than about the code.
#![forbid(unsafe_code)]

pub mod contract;
pub mod device;
mod host;

pub use host::Host;
