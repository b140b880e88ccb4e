//! Administration of arrays: create, status, check, dump, destroy, URLs.

pub(crate) mod check_array;
pub(crate) mod create_array;
pub(crate) mod dump;
pub(crate) mod status;
pub mod url;
mod url_settings;
