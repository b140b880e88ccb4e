//! The kernel's ublk driver, or the reason why it cannot be used.

use std::io;
use std::sync::Arc;

use sys::ublk::{Control, DeviceInfo, UblkId};
use zoned::{Error, ErrorKind, Result};

/// The mark of this program's devices in the driver: "furrow", and the version of what it implies.
pub(crate) const MARK: u64 = u64::from_be_bytes(*b"furrow\0\x01");

/// Opens the driver's control device.
///
/// # Errors
/// [`ErrorKind::Unsupported`] without the driver, with one that has no zoned devices, and without io_uring;
/// [`ErrorKind::Denied`] without the right to use it.
pub(crate) fn control(doing: &'static str) -> Result<Control> {
    let control = Control::open().map_err(|error| refusal(doing, &error))?;
    match control.features() {
        Ok(features) if features.has_zoned_devices() => Ok(control),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
            Err(refusal(doing, &error))
        }
        Ok(_) | Err(_) => Err(Error::new(ErrorKind::Unsupported, &driver_name(), doing).because(
            "the kernel's ublk driver has no zoned devices: Linux 6.6 or newer is needed, with \
             CONFIG_BLK_DEV_ZONED",
        )),
    }
}

/// The error of a command on the driver.
pub(crate) fn failed(doing: &'static str, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => refusal(doing, &error),
        _ => Error::new(ErrorKind::Host, &driver_name(), doing).because(error.to_string()).from_source(error),
    }
}

fn refusal(doing: &'static str, error: &io::Error) -> Error {
    let (kind, why) = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => (
            ErrorKind::Unsupported,
            "there is no /dev/ublk-control: load the driver with `modprobe ublk_drv`; Linux 6.6 or newer is needed, \
             with CONFIG_BLK_DEV_UBLK"
                .to_owned(),
        ),
        Some(libc::EPERM | libc::EACCES) => {
            (ErrorKind::Denied, "exports are made and managed by root (CAP_SYS_ADMIN)".to_owned())
        }
        _ => (ErrorKind::Unsupported, error.to_string()),
    };
    Error::new(kind, &driver_name(), doing).because(why)
}

fn driver_name() -> Arc<str> {
    Arc::from("ublk")
}

/// The export of this number.
pub(crate) fn find(control: &Control, id: UblkId, doing: &'static str) -> Result<DeviceInfo> {
    let info = match control.info(id) {
        Ok(info) => info,
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
            let error = Error::new(ErrorKind::NotFound, &name(id), doing);
            return Err(error.because("`furrow export --list` shows the exports"));
        }
        Err(error) => return Err(failed(doing, error)),
    };
    if info.mark != MARK {
        let error = Error::new(ErrorKind::Invalid, &name(id), doing);
        return Err(error.because("another program's ublk device, not an export of furrow"));
    }
    Ok(info)
}

/// The name of an export in messages.
pub(crate) fn name(id: UblkId) -> Arc<str> {
    Arc::from(format!("ublkb{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_driver_and_a_missing_right_are_told_apart() {
        let of = |errno| refusal("export", &io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::ENOENT).kind(), ErrorKind::Unsupported);
        let text = of(libc::ENOENT).to_string();
        assert!(text.contains("modprobe ublk_drv") && text.contains("6.6"), "{text}");
        assert_eq!(of(libc::EACCES).kind(), ErrorKind::Denied);
        assert!(of(libc::EPERM).to_string().contains("root"));
        let switched_off = refusal("export", &io::Error::other("io_uring is switched off"));
        assert!(switched_off.to_string().contains("switched off"), "{switched_off}");
    }
}
