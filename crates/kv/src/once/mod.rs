//! Commands that run once: the ids that clients number their commands by, and what a store keeps of each id.

mod answer;
mod id;
mod record;
mod table;
mod writes;

pub use answer::{ANSWER_MAX, RecordedAnswer};
pub use id::OnceId;
pub use record::OnceRecord;
pub use table::{IDS_MAX, OnceIds, OnceTable, RecordId};
pub use writes::OnceWrites;
