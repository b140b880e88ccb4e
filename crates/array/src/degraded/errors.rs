//! Classes of drive errors: each class decides how the array reacts.

use std::time::Duration;

use units::sleep_until;
use zoned::{Driver, Error, ErrorKind, ZoneState};

use crate::layout::placement::is_metadata_zone;

/// True if the whole drive has failed, not one block or zone of the drive.
pub(crate) fn fails_the_drive(kind: ErrorKind) -> bool {
    kind == ErrorKind::Gone
}

/// True if the error says nothing of the drive (the machine had no memory, for example): a retry may succeed.
pub(crate) fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Host | ErrorKind::Unknown)
}

/// True if the drive refused an operation that the array must not submit: no fault of the drive.
pub(crate) fn is_array_fault(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::BadLength
            | ErrorKind::Conventional
            | ErrorKind::CrossesZone
            | ErrorKind::Gap
            | ErrorKind::IllegalMove
            | ErrorKind::Invalid
            | ErrorKind::NotAtWritePointer
            | ErrorKind::OutOfRange
            | ErrorKind::TooLarge
            | ErrorKind::TooManyActive
            | ErrorKind::TooManyOpen
            | ErrorKind::Unsupported
    )
}

/// The new state of a data zone whose write error says that the zone takes no more writes. A drive may finish a zone by
/// itself (NVMe ZNS: "zone finished by controller"). `None` for a metadata zone: without its log the drive fails.
pub(crate) fn worn_state(error: &Error) -> Option<ZoneState> {
    let state = match error.kind() {
        ErrorKind::ZoneReadOnly => ZoneState::ReadOnly,
        ErrorKind::ZoneOffline => ZoneState::Offline,
        ErrorKind::ZoneFull => ZoneState::Full,
        _ => return None,
    };
    let metadata = error.zone().is_some_and(is_metadata_zone);
    (!metadata).then_some(state)
}

/// Retries of an operation with a transient error: after one millisecond, then after twice as long each time, half a
/// second in all.
#[derive(Default)]
pub(crate) struct Retries {
    tries: u32,
}

impl Retries {
    const TRIES: u32 = 9;

    /// Waits before an operation with a transient error is tried again. Returns false at once if the error is
    /// not transient, or all tries are used up.
    pub(crate) async fn wait(&mut self, driver: &dyn Driver, error: &Error) -> bool {
        if !is_transient(error.kind()) || self.tries == Retries::TRIES {
            return false;
        }
        let wait = Duration::from_millis(1 << self.tries);
        self.tries += 1;
        tracing::warn!(%error, ?wait, "tried again");
        sleep_until(driver, driver.now().after(wait)).await;
        true
    }
}
