//! RAIZN: an array of three or more zoned drives that loses one of them and nothing else, and is itself a zoned
//! device. Whoever runs on it does not know.
//!
//! `docs/adr/0011-raizn.md` has the formats, the rules, and what happens in each crash.
#![forbid(unsafe_code)]

mod format;
mod layout;
mod xor;

pub use format::superblock::{MemberInfo, Superblock};
pub use layout::{Layout, Piece, Slot, Stripe};
