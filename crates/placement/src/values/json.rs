//! Bytes of a value to JSON and back.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::value_error::{ValueError, quoted};

/// The most bytes of a value: about what 1024 ranges of slots, the longest value, have.
const MAX_BYTES: usize = 128 << 10;

/// The fields in `bytes`.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ValueError> {
    if bytes.len() > MAX_BYTES {
        return Err(ValueError::TooLong(bytes.len()));
    }
    serde_json::from_slice(bytes).map_err(|error| ValueError::Json(quoted(&error.to_string())))
}

/// The bytes of these fields.
pub(super) fn encode<T: Serialize>(fields: &T) -> Vec<u8> {
    serde_json::to_vec(fields).expect("a struct of numbers, strings and lists is JSON")
}
