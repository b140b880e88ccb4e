//! The array that holds the server's data, as programs see it and give it orders.

mod open_array;
mod orders;
mod view;

pub use open_array::{Job, OpenArray};
pub use orders::{FailOrder, ReplaceOrder, ScrubOrder};
pub use view::{ArrayView, EndView, EventView, MemberView, ProgressView, ScrubView, WornView};
