//! The array that the server's data lies on: what it is like, and what is done to it while clients go on.
//!
//! ```text
//!   ArrayView   what /array answers, and the command line prints          view
//!   Held        the array in use, its events, its jobs                    held
//!   /array...   the routes, behind a guard                                routes, guard, peer
//!   metrics, page   furrow_array_*, a table of the drives
//! ```

mod guard;
mod held;
mod metrics;
mod page;
mod peer;
mod routes;
mod view;

pub use held::{Held, Job};
pub(crate) use metrics::ArrayMetrics;
pub(crate) use page::table;
pub(crate) use routes::routes;
pub use routes::{FailOrder, ReplaceOrder, ScrubOrder};
pub use view::{ArrayView, EndView, EventView, MemberView, ProgressView, ScrubView, WornView};
