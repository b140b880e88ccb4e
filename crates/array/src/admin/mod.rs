//! Administration of arrays: create, status, check, dump, destroy, URLs.

pub(crate) mod check;
pub(crate) mod create;
pub(crate) mod dump;
pub(crate) mod status;
pub mod url;
