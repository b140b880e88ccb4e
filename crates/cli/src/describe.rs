//! Texts that describe a drive and its zones.

use serde_json::Value;
use units::Bytes;
use zoned::{ZoneState, ZonedDevice};

use crate::size;

/// The drive's name, its model and serial number where it has them, and its capacity.
pub fn drive(device: &dyn ZonedDevice) -> String {
    let geometry = device.geometry();
    let details = device.details();
    let detail = |name: &str| details.iter().find(|(known, _)| *known == name).map(|(_, value)| value.trim());
    let mut parts = Vec::new();
    parts.extend(detail("model").map(str::to_owned));
    parts.extend(detail("serial").map(|serial| format!("serial {serial}")));
    parts.push(size::show(Bytes(geometry.capacity_bytes())));
    format!("{} ({})", geometry.name, parts.join(", "))
}

/// The properties of a device that only its kind has, as a JSON object.
pub fn details_json(device: &dyn ZonedDevice) -> Value {
    Value::Object(device.details().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect())
}

/// A zone's state as a word.
pub fn zone_state(state: ZoneState) -> &'static str {
    match state {
        ZoneState::Conventional => "conventional",
        ZoneState::Empty => "empty",
        ZoneState::ImplicitOpen => "open",
        ZoneState::ExplicitOpen => "opened",
        ZoneState::Closed => "closed",
        ZoneState::Full => "full",
        ZoneState::ReadOnly => "read-only",
        ZoneState::Offline => "offline",
    }
}
