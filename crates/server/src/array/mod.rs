//! The array with the server's data: its state for programs, and the orders that they give it.

mod open_array;
mod orders;
mod view;

pub use open_array::{Job, OpenArray};
pub use orders::{AddSpareOrder, FailOrder, ReclaimOrder, RemoveSpareOrder, ReplaceOrder, ScrubOrder};
pub use view::{
    ArrayView, EndView, EventView, MemberView, MemoryView, ProgressView, ScrubView, SpaceView, SpareView,
    WornView,
};
