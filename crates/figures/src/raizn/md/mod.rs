//! md's RAID-5 over conventional drives, **as a model**: nothing here is a measurement of md.
//!
//! Five drives with the time model of `zn540`, 2 % faster in writes and 4 % in reads (section 4.4.1), that may be written
//! anywhere ([`drive`]); where they are full they collect garbage ([`ftl`]). Over the drives the model has md's layout, its
//! reads that are cut at chunks, and its cache of stripes ([`stripes`], [`array`]). The same loads run on the model as on
//! Furrow's array, on the same virtual clock.
//!
//! Simplifications: md's threads cost nothing, as Furrow's do not, and never wait for one another; its cache is never short of
//! rows; no journal and no bitmap are written. Within a drive nothing is read to move pages, and wear is not levelled.
//!
//! Fig. 4.13 has one drive instead that is as fast as md's array ([`profile`]).

mod array;
mod drive;
mod ftl;
mod profile;
mod published;
mod stripes;

pub(crate) use array::Setup;
#[cfg(test)]
pub(super) use ftl::bandwidth_shares_of_overwriting;
pub(super) use profile::{profile, write_share_while_collecting};
