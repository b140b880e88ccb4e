//! The log as a whole, on a device.
