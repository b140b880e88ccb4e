//! The rules of `furrow prio`: which files are logs and which are bulk, when a bulk write may go, and what is counted.
//!
//! The crate has no system calls: time, paths and results are inputs. `furrow-hook` calls it from within programs, `furrow` itself before it starts
//! them. It is a crate of its own because a program that links `furrow-hook` would have its own `open` and `write` interposed.
//!
//! ```text
//!   settings                   the environment by which the command hands its arguments to the library
//!   rules   profile            the class of a path; globs of well-known programs
//!   glob                       one pattern
//!   admission                  when a bulk write may go: the controller of `zoned`, fed from the page
//!   page                       what the processes of a drive share: synced writes of logs, bulk in flight
//!   behind                     write-behind of a descriptor, in pieces
//!   matched                    the globs that matched no file
//!   counters                   counters by class, as JSON
//! ```
#![forbid(unsafe_code)]

pub mod admission;
pub mod behind;
pub mod counters;
pub mod glob;
pub mod matched;
pub mod page;
pub mod profile;
pub mod rules;
pub mod settings;

pub use rules::FileClass;
